//! Clients with shared secrets.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use authentication::{Authenticated, AuthenticationError, Authenticator, Clock as _, ErrorKind, Mechanisms, Settings};
use sss::{Client, KeyId, RANDOM_LEN, Refusal, credential, read_keytab};
use tempfile::TempDir;
use types::Timestamp;

use crate::world::{HERE, NOW, World, mapping};

const RULES: &str = "
    [[identity]]
    secret = 'fts'
    principal = 'transfers-{user}'
    groups = ['{groups}']
";

struct Site {
    folder: TempDir,
    world: World,
}

impl Site {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), world: World::new() }
    }

    fn keytab(&self) -> PathBuf {
        self.folder.path().join("keytab")
    }

    /// Writes a keytab with this line.
    fn write(&self, line: &str) {
        fs::write(self.keytab(), format!("0 {line} k:{}\n", "5a".repeat(32))).unwrap();
        fs::set_permissions(self.keytab(), fs::Permissions::from_mode(0o600)).unwrap();
    }

    fn settings(&self) -> Settings {
        Settings {
            mechanisms: Mechanisms::parse(["sss"]).unwrap(),
            mapping: mapping(RULES),
            keytab: Some(self.keytab()),
            seen_secrets: Some(self.folder.path().join("seen")),
            ..Settings::default()
        }
    }

    /// What a client shows now; `nonce` tells credentials apart.
    fn shown(&self, nonce: u8) -> Vec<u8> {
        let keytab = read_keytab(&self.keytab()).unwrap();
        let client = Client { user: "ana", groups: "atlas", address: (HERE, 4000).into() };
        let now = self.world.clock.wall();
        credential(keytab.get(KeyId(1)).unwrap(), &client, true, now, &[nonce; RANDOM_LEN])
    }
}

fn principal(authenticator: &Authenticator, shown: &[u8]) -> Result<String, AuthenticationError> {
    authenticator.secret(shown, HERE).map(|Authenticated { name, .. }| name.to_string())
}

#[test]
fn a_holder_is_who_its_key_says_and_until_it_ends() {
    let site = Site::new();
    site.write(&format!("N:1 n:fts u:anybody g:anygroup e:{}", NOW + 60));
    let authenticator = site.world.with(site.settings());
    let client = authenticator.secret(&site.shown(1), HERE).unwrap();
    assert_eq!((client.name.as_str(), client.groups[0].as_str()), ("transfers-ana", "atlas"));
    assert_eq!(client.credential, "the shared secret `fts` for `ana` atlas");
    assert_eq!((client.rights, client.expires), (None, Some(Timestamp::from_secs(NOW + 60))));
    site.world.clock.pass(Duration::from_secs(60));
    assert!(matches!(principal(&authenticator, &site.shown(2)), Err(AuthenticationError::Secret(Refusal::Key(_)))));
}

#[test]
fn a_reload_takes_over_the_keytab_and_forgets_no_credential() {
    let site = Site::new();
    site.write("N:1 n:fts u:fts");
    let authenticator = site.world.with(site.settings());
    let shown = site.shown(1);
    assert_eq!(principal(&authenticator, &shown).unwrap(), "transfers-fts");
    site.write("N:1 n:fts u:other");
    authenticator.reload(site.settings()).unwrap();
    assert_eq!(principal(&authenticator, &shown), Err(AuthenticationError::Secret(Refusal::Replayed)));
    assert_eq!(principal(&authenticator, &site.shown(2)).unwrap(), "transfers-other");
    // One that others may read changes nothing.
    site.write("N:1 n:fts u:third");
    fs::set_permissions(site.keytab(), fs::Permissions::from_mode(0o644)).unwrap();
    assert!(authenticator.reload(site.settings()).unwrap_err().to_string().contains("chmod 600"));
    fs::set_permissions(site.keytab(), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(principal(&authenticator, &site.shown(3)).unwrap(), "transfers-other");
    // After its time, an old credential is late.
    site.world.clock.pass(Duration::from_secs(23));
    let error = authenticator.secret(&shown, HERE).unwrap_err();
    assert_eq!(error, AuthenticationError::Secret(Refusal::Late(23)));
    assert_eq!(error.kind(), ErrorKind::NotAuthenticated);
}

#[test]
fn a_credential_does_not_count_again_after_a_restart() {
    let site = Site::new();
    site.write("N:1 n:fts u:fts");
    let pass = |secs| site.world.clock.pass(Duration::from_secs(secs));
    let refused = |authenticator: &Authenticator, shown: &[u8], secs| {
        let error = authenticator.secret(shown, HERE).unwrap_err();
        assert_eq!(error, AuthenticationError::Secret(Refusal::Forgotten(secs)));
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    };
    // By a client whose clock is 9 s ahead of that of the node.
    pass(9);
    let early = site.shown(1);
    site.world.clock.back(Duration::from_secs(9));
    let authenticator = site.world.with(site.settings());
    let now = site.shown(2);
    for shown in [&early, &now] {
        assert_eq!(principal(&authenticator, shown).unwrap(), "transfers-fts");
    }
    pass(1);
    let again = site.world.with(site.settings());
    refused(&again, &early, 9);
    refused(&again, &now, 9);
    pass(9);
    assert_eq!(principal(&again, &site.shown(3)).unwrap(), "transfers-fts");
    // Without a file, nobody knows when the newest one was made.
    let settings = Settings { seen_secrets: None, ..site.settings() };
    let other = site.world.with(settings);
    refused(&other, &site.shown(3), 11);
    pass(11);
    assert_eq!(principal(&other, &site.shown(4)).unwrap(), "transfers-fts");
    // If the file cannot be used, nobody is let in.
    let settings = Settings { seen_secrets: Some(site.folder.path().join("no/folder")), ..site.settings() };
    let error = principal(&site.world.with(settings), &site.shown(5)).unwrap_err();
    assert_eq!((&error, error.kind()), (&AuthenticationError::Secret(Refusal::NotNoted), ErrorKind::Unavailable));
}

#[test]
fn a_credential_of_nobody_is_not_noted() {
    let site = Site::new();
    site.write("N:1 n:fts u:fts");
    let nobody = || Settings { mapping: mapping(&RULES.replace("'fts'", "'others'")), ..site.settings() };
    let authenticator = site.world.with(nobody());
    let shown = site.shown(1);
    for _ in 0..2 {
        let refused = principal(&authenticator, &shown).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::NotAllowed, "{refused}");
    }
    // It took no room, and its time says nothing about those of others, also after a restart.
    assert!(!site.folder.path().join("seen").exists());
    let again = site.world.with(nobody());
    again.reload(site.settings()).unwrap();
    assert_eq!(principal(&again, &shown).unwrap(), "transfers-fts");
    assert_eq!(principal(&again, &shown), Err(AuthenticationError::Secret(Refusal::Replayed)));
}

#[test]
fn an_address_cannot_try_as_often_as_it_wants() {
    let site = Site::new();
    site.write("N:1 n:fts u:fts");
    let authenticator = site.world.with(site.settings());
    let mut forged = site.shown(1);
    forged[50] ^= 1;
    for _ in 0..20 {
        assert!(matches!(principal(&authenticator, &forged), Err(AuthenticationError::Secret(Refusal::Key(_)))));
    }
    for shown in [&forged, &site.shown(2)] {
        let error = authenticator.secret(shown, HERE).unwrap_err();
        assert_eq!(error, AuthenticationError::Secret(Refusal::TooManyFailures));
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    assert_eq!(authenticator.snapshot().too_many_failures, Some(2));
    let elsewhere = authenticator.secret(&forged, [192, 0, 2, 1].into()).unwrap_err();
    assert!(matches!(elsewhere, AuthenticationError::Secret(Refusal::Key(_))));
    site.world.clock.pass(Duration::from_secs(60));
    assert_eq!(principal(&authenticator, &site.shown(3)).unwrap(), "transfers-fts");
}

#[test]
fn only_the_log_says_what_is_wrong_with_a_key() {
    let site = Site::new();
    site.write("N:1 n:fts u:fts");
    let authenticator = site.world.with(site.settings());
    let mut other = site.shown(1);
    other[15] = 77;
    let error = authenticator.secret(&other, HERE).unwrap_err();
    assert_eq!(error.to_string(), "the shared secret is not accepted");
    assert_eq!(error.for_log(), "no key in the keytab has the number 77");
    // And without the mechanism, a keytab is not even read.
    let settings = Settings { mechanisms: Mechanisms::parse(["unix"]).unwrap(), ..site.settings() };
    fs::remove_file(site.keytab()).unwrap();
    assert!(matches!(principal(&site.world.with(settings), &other), Err(AuthenticationError::NotOffered(_))));
}
