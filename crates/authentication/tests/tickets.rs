//! Clients with Kerberos tickets: credentials that a stock client has made.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use authentication::{
    Authenticated, AuthenticationError, Authenticator, Clock, ErrorKind, KerberosSettings, Mechanisms, Settings,
};
use krb5::Refusal;
use types::Timestamp;

use crate::world::{HERE, mapping};

const KEYTAB: &[u8] = include_bytes!("../../krb5/tests/data/stock.keytab");
const SHOWN: &[u8] = include_bytes!("../../krb5/tests/data/aes256-cts-hmac-sha384-192.credential");
const SERVICE: &str = "xrootd/aes256-cts-hmac-sha384-192@EXAMPLE.ORG";
/// When it was made.
const THEN: i64 = 1_795_997_829;

const NOBODY: &str = "
    [[identity]]
    kerberos = '*@OTHER.ORG'
    principal = '{user}'
";
const ALL: &str = "
    [[identity]]
    kerberos = '*@EXAMPLE.ORG'
    principal = '{user}'
";

struct Then;

impl Clock for Then {
    fn wall(&self) -> Timestamp {
        Timestamp::from_secs(THEN)
    }

    fn steady(&self) -> Duration {
        Duration::from_secs(5)
    }
}

/// `seen`: the file that says what was seen.
fn settings(folder: &Path, rules: &str, seen: PathBuf) -> Settings {
    let keytab = folder.join("keytab");
    fs::write(&keytab, KEYTAB).unwrap();
    fs::set_permissions(&keytab, fs::Permissions::from_mode(0o600)).unwrap();
    Settings {
        mechanisms: Mechanisms::parse(["krb5"]).unwrap(),
        mapping: mapping(rules),
        kerberos: Some(KerberosSettings { keytab, principal: Some(SERVICE.to_owned()) }),
        seen_tickets: Some(seen),
        ..Settings::default()
    }
}

fn login(authenticator: &Authenticator) -> Result<String, AuthenticationError> {
    authenticator.ticket(SHOWN, HERE).map(|Authenticated { name, .. }| name.to_string())
}

#[test]
fn a_credential_of_nobody_is_not_noted() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    let authenticator = Authenticator::new(settings(folder.path(), NOBODY, seen.clone()), Arc::new(Then)).unwrap();
    // It would take room, and its time would lock out others after a restart.
    for _ in 0..2 {
        let why = login(&authenticator).unwrap_err();
        assert_eq!(why.kind(), ErrorKind::NotAllowed, "{why}");
        assert!(!seen.exists());
    }
    authenticator.reload(settings(folder.path(), ALL, seen.clone())).unwrap();
    assert_eq!(login(&authenticator).unwrap(), "ana");
    assert!(fs::read_to_string(&seen).unwrap().contains(&THEN.to_string()));
    assert_eq!(login(&authenticator), Err(AuthenticationError::Ticket(Refusal::Replayed)));
    // Another node has the same keytab and the file.
    let again = Authenticator::new(settings(folder.path(), ALL, seen), Arc::new(Then)).unwrap();
    assert_eq!(login(&again), Err(AuthenticationError::Ticket(Refusal::Forgotten(1))));
}

#[test]
fn who_cannot_be_noted_is_not_let_in() {
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("gone").join("seen");
    let authenticator = Authenticator::new(settings(folder.path(), ALL, seen.clone()), Arc::new(Then)).unwrap();
    let why = login(&authenticator).unwrap_err();
    assert_eq!((why.kind(), why), (ErrorKind::Unavailable, AuthenticationError::Ticket(Refusal::NotNoted)));
    // What was noted in vain does not count later either.
    fs::create_dir(folder.path().join("gone")).unwrap();
    assert_eq!(login(&authenticator), Err(AuthenticationError::Ticket(Refusal::Replayed)));
}
