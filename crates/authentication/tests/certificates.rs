//! Clients with certificates.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use authentication::{
    Authenticated, AuthenticationError, Authenticator, ErrorKind, GsiSettings, HANDSHAKE_TIME_MAX, LoginStep,
    Mechanism, Mechanisms, Requests, Settings,
};
use gsi::test_random::Numbers;
use gsi::{ClientHandshake, ClientSecret, Delegation, HandshakeError};

use crate::world::{HERE, NOW, World, logins, mapping};

const RULES: &str = "
    [[identity]]
    certificate = '/DC=org/DC=example/CN=ana'
    principal = 'ana'
    groups = ['physics']
    [[identity]]
    grid_map = true
";

fn data(name: &str) -> Vec<u8> {
    fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../gsi/tests/data").join(name)).unwrap()
}

fn file(path: &Path, content: &[u8], mode: u32) -> PathBuf {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    path.to_owned()
}

fn settings(world: &World) -> Settings {
    let gsi = GsiSettings {
        certificate: file(&world.path("cert.pem"), &data("server.pem"), 0o644),
        key: file(&world.path("key.pem"), &data("server.key"), 0o600),
        authorities: world.path("authorities"),
        voms_servers: world.path("vomsdir"),
        own_hosts: vec!["localhost".into()],
        delegation: false,
    };
    file(&world.path("authorities/e93ab527.0"), &data("ca.pem"), 0o644);
    Settings {
        mechanisms: Mechanisms::parse(["gsi"]).unwrap(),
        mapping: mapping(RULES),
        grid_map: Some(file(&world.path("grid-mapfile"), b"\"/DC=org/DC=example/CN=bob\" robert\n", 0o644)),
        gsi: Some(gsi),
        ..world.settings()
    }
}

fn secret(name: &str) -> ClientSecret {
    ClientSecret::new(&data(&format!("{name}.pem")), &data(&format!("{name}.key"))).unwrap()
}

/// A login by both rounds; `between` happens before the second.
fn login(
    authenticator: &Authenticator,
    client: &ClientSecret,
    between: impl FnOnce(),
) -> Result<Authenticated, AuthenticationError> {
    let parameters = authenticator.gsi_parameters().unwrap();
    let (mut handshake, first) =
        ClientHandshake::begin(client, parameters.as_bytes(), Delegation::Never, &mut Numbers(1)).unwrap();
    let mut login = authenticator.gsi(HERE, Requests::Protected).unwrap();
    let LoginStep::More(reply) = login.step(&first)? else { panic!("one round is not enough") };
    let second = handshake.show(client, &reply, &|_| Ok(()), &mut Numbers(2)).unwrap();
    between();
    match login.step(&second)? {
        LoginStep::More(_) => panic!("two rounds are enough"),
        LoginStep::Done(authenticated) => Ok(authenticated),
    }
}

#[test]
fn a_certificate_becomes_a_principal() {
    let world = World::new();
    let authenticator = world.with(settings(&world));
    let ana = login(&authenticator, &secret("user"), || ()).unwrap();
    assert_eq!((ana.name.as_str(), ana.groups[0].as_str(), ana.mechanism), ("ana", "physics", Mechanism::Gsi));
    assert_eq!(ana.credential, "the certificate /DC=org/DC=example/CN=ana");
    assert!(ana.expires.is_some() && ana.rights.is_none());
    let bob = login(&authenticator, &secret("other"), || ()).unwrap();
    assert_eq!(bob.name.as_str(), "robert");
    assert_eq!(logins(&authenticator, Mechanism::Gsi), (2, 0));
    let report = authenticator.explain_certificates(&data("user.pem"), Some(HERE));
    assert_eq!(report.result.unwrap().name.as_str(), "ana");
    assert_eq!(logins(&authenticator, Mechanism::Gsi), (2, 0));
}

const SIGN: (Delegation, Requests) = (Delegation::Sign, Requests::Protected);
const NEVER: (Delegation, Requests) = (Delegation::Never, Requests::Protected);

/// A login of a client that may delegate a proxy.
fn delegate(
    authenticator: &Authenticator,
    client: &ClientSecret,
    (delegation, requests): (Delegation, Requests),
) -> Result<Authenticated, AuthenticationError> {
    let parameters = authenticator.gsi_parameters().unwrap();
    let (mut handshake, first) =
        ClientHandshake::begin(client, parameters.as_bytes(), delegation, &mut Numbers(3)).unwrap();
    let mut login = authenticator.gsi(HERE, requests).unwrap();
    let LoginStep::More(reply) = login.step(&first)? else { panic!("one round is not enough") };
    let second = handshake.show(client, &reply, &|_| Ok(()), &mut Numbers(4)).unwrap();
    let request = match login.step(&second)? {
        LoginStep::More(request) => request,
        LoginStep::Done(authenticated) => return Ok(authenticated),
    };
    let third = handshake.sign(client, &request, NOW, &mut Numbers(5)).unwrap();
    match login.step(&third)? {
        LoginStep::More(_) => panic!("three rounds are enough"),
        LoginStep::Done(authenticated) => Ok(authenticated),
    }
}

#[test]
fn a_proxy_is_delegated_if_both_sides_want_it() {
    let world = World::new();
    let mut settings = settings(&world);
    let authenticator = world.with(settings.clone());
    assert_eq!(delegate(&authenticator, &secret("user"), SIGN).unwrap().delegated, None, "not asked for");
    settings.gsi.as_mut().unwrap().delegation = true;
    authenticator.reload(settings).unwrap();
    assert_eq!(delegate(&authenticator, &secret("user"), NEVER).unwrap().delegated, None);
    let plain = delegate(&authenticator, &secret("user"), (Delegation::Sign, Requests::Plain)).unwrap();
    assert_eq!((plain.name.as_str(), plain.delegated), ("ana", None), "somebody on the way could change her requests");
    let ana = delegate(&authenticator, &secret("user"), SIGN).unwrap();
    let proxy = ana.delegated.unwrap();
    assert_eq!(ana.name.as_str(), "ana");
    assert!(proxy.expires() < ana.expires.unwrap(), "a day at most");
    // It lets this node in as her, and shows nothing of itself.
    let text = proxy.secret_text().as_bytes();
    let as_ana = ClientSecret::new(text, text).unwrap();
    let again = delegate(&authenticator, &as_ana, NEVER).unwrap();
    assert_eq!((again.name.as_str(), again.expires), ("ana", Some(proxy.expires())));
    assert!(!format!("{again:?} {proxy:?}").contains("PRIVATE"));
    // Who may not come in is not asked, and the second of two has a key of its own.
    let second = delegate(&authenticator, &secret("user"), SIGN).unwrap().delegated.unwrap();
    assert_ne!(second.secret_text(), proxy.secret_text());
    assert_eq!(logins(&authenticator, Mechanism::Gsi), (6, 0));
}

#[test]
fn who_is_not_trusted_or_has_no_name_is_refused() {
    let world = World::new();
    let mut settings = settings(&world);
    settings.grid_map = Some(file(&world.path("grid-mapfile"), b"", 0o644));
    let authenticator = world.with(settings.clone());
    let why = login(&authenticator, &secret("other"), || ()).unwrap_err();
    assert_eq!(why.kind(), ErrorKind::NotAllowed, "{why}");
    // Another authority: the certificate is its own.
    file(&world.path("authorities/e93ab527.0"), &data("multi.pem"), 0o644);
    authenticator.reload(settings).unwrap();
    let why = login(&authenticator, &secret("user"), || ()).unwrap_err();
    assert!(matches!(why, AuthenticationError::Certificate(_)), "{why}");
    assert_eq!(why.kind(), ErrorKind::NotAuthenticated);
    assert_eq!(logins(&authenticator, Mechanism::Gsi), (0, 2));
    let report = authenticator.explain_certificates(&data("user.pem"), Some(HERE));
    assert!(report.to_string().contains("FAIL  chain"), "{report}");
    assert!(authenticator.explain_certificates(b"", None).result.is_err());
}

#[test]
fn a_handshake_has_a_minute() {
    let world = World::new();
    let authenticator = world.with(settings(&world));
    login(&authenticator, &secret("user"), || world.clock.pass(HANDSHAKE_TIME_MAX)).unwrap();
    let late = || world.clock.pass(HANDSHAKE_TIME_MAX + Duration::from_secs(1));
    assert_eq!(login(&authenticator, &secret("user"), late), Err(AuthenticationError::Late(61)));
}

#[test]
fn after_an_error_a_login_is_over() {
    let world = World::new();
    let authenticator = world.with(settings(&world));
    let mut login = authenticator.gsi(HERE, Requests::Protected).unwrap();
    let why = login.step(b"gsi\0").unwrap_err();
    assert!(matches!(why, AuthenticationError::Handshake(HandshakeError::Frame(_))), "{why}");
    let client = secret("user");
    let (_, first) = ClientHandshake::begin(&client, b"v:10700,c:ssl", Delegation::Never, &mut Numbers(6)).unwrap();
    assert_eq!(login.step(&first), Err(HandshakeError::Over.into()));
}

/// What happens if somebody shows these certificates, and a signature of `signed` by `client`, on the connection with the value `here`.
fn held(
    authenticator: &Authenticator,
    client: &ClientSecret,
    chain: &[Vec<u8>],
    (signed, here): ([u8; 32], [u8; 32]),
) -> Result<Authenticated, AuthenticationError> {
    let signature = client.show_possession(&signed, &mut Numbers(1)).unwrap();
    authenticator.holder(chain, &signature, &here, HERE)
}

#[test]
fn who_holds_a_certificate_is_let_in_with_one_signature_of_this_connection() {
    let world = World::new();
    let authenticator = world.with(settings(&world));
    let (ana, bob) = (secret("user"), secret("other"));
    let (here, there) = ([1; 32], [2; 32]);
    let known = held(&authenticator, &ana, ana.certificates(), (here, here)).unwrap();
    assert_eq!((known.name.as_str(), known.groups[0].as_str(), known.mechanism), ("ana", "physics", Mechanism::Gsi));
    assert!(!known.is_limited_proxy && known.proxies == 0 && known.expires.is_some());
    // Another connection, another key, and no certificate.
    let possession = AuthenticationError::from(HandshakeError::Possession);
    assert_eq!(held(&authenticator, &ana, ana.certificates(), (there, here)).unwrap_err(), possession);
    assert_eq!(held(&authenticator, &bob, ana.certificates(), (here, here)).unwrap_err(), possession);
    let both = [ana.certificates(), bob.certificates()].concat();
    assert_eq!(held(&authenticator, &bob, &both, (here, here)).unwrap_err(), possession);
    let many = |count| {
        let chain: Vec<Vec<u8>> = std::iter::repeat_n(ana.certificates(), count).flatten().cloned().collect();
        held(&authenticator, &ana, &chain, (here, here)).unwrap_err()
    };
    assert_eq!(many(0), HandshakeError::Certificates(0).into());
    assert_eq!(many(17), HandshakeError::Certificates(17).into());
    assert_eq!(logins(&authenticator, Mechanism::Gsi), (1, 5));
    authenticator.holder_again(ana.certificates(), HERE).unwrap();
    assert_eq!(logins(&authenticator, Mechanism::Gsi), (1, 5), "it was counted before");
    // A certificate of an authority that nobody trusts.
    let stranger = file(&world.path("elsewhere/13211896.0"), &data("stranger-ca.pem"), 0o644);
    let mut strange = settings(&world);
    strange.gsi.as_mut().unwrap().authorities = stranger.parent().unwrap().to_owned();
    let strange = world.with(strange);
    let why = held(&strange, &ana, ana.certificates(), (here, here)).unwrap_err();
    assert!(matches!(why, AuthenticationError::Certificate(_)), "{why}");
    let without = Settings { mechanisms: Mechanisms::parse(["unix"]).unwrap(), ..settings(&world) };
    let why = held(&world.with(without), &ana, ana.certificates(), (here, here)).unwrap_err();
    assert_eq!(why, AuthenticationError::NotOffered(Mechanism::Gsi));
}

#[test]
fn a_limited_proxy_is_told_from_others() {
    let world = World::new();
    let authenticator = world.with(settings(&world));
    let proxy = |name: &str| {
        let text = [data(name), data("user.pem")].concat();
        ClientSecret::new(&text, &data("proxy.key")).unwrap()
    };
    for (name, is_limited) in [("oneproxy.pem", false), ("limited.pem", true)] {
        let proxy = proxy(name);
        let known = held(&authenticator, &proxy, proxy.certificates(), ([1; 32], [1; 32])).unwrap();
        assert_eq!((known.name.as_str(), known.is_limited_proxy, known.proxies), ("ana", is_limited, 1), "{name}");
        assert_eq!(login(&authenticator, &proxy, || ()).unwrap().is_limited_proxy, is_limited);
    }
}

#[test]
fn a_login_survives_a_reload_and_new_ones_use_the_new_certificate() {
    let world = World::new();
    let old = settings(&world);
    let authenticator = world.with(old.clone());
    let other = file(&world.path("other.pem"), &[data("other.pem"), data("other.key")].concat(), 0o600);
    let gsi = GsiSettings { certificate: other.clone(), key: other, ..old.gsi.clone().unwrap() };
    let new = Settings { gsi: Some(gsi), ..old };
    login(&authenticator, &secret("user"), || authenticator.reload(new.clone()).unwrap()).unwrap();
    login(&authenticator, &secret("user"), || ()).unwrap();
    let without = Settings { mechanisms: Mechanisms::parse(["unix"]).unwrap(), ..new };
    authenticator.reload(without).unwrap();
    assert!(authenticator.gsi_parameters().is_none());
    assert_eq!(
        authenticator.gsi(HERE, Requests::Protected).unwrap_err(),
        AuthenticationError::NotOffered(Mechanism::Gsi)
    );
}

#[test]
fn what_is_missing_is_named() {
    let world = World::new();
    let good = settings(&world);
    let gsi = good.gsi.clone().unwrap();
    let why = |gsi: Option<GsiSettings>| {
        let settings = Settings { gsi, ..good.clone() };
        Authenticator::new(settings, world.clock.clone()).map(|_| ()).unwrap_err().to_string()
    };
    assert!(why(None).contains("tls.certificate"));
    assert!(why(Some(GsiSettings { key: world.path("none"), ..gsi.clone() })).contains("none for gsi: No such file"));
    let open = file(&world.path("open.pem"), &data("server.key"), 0o640);
    assert!(why(Some(GsiSettings { key: open, ..gsi.clone() })).contains("chmod 600"));
    let wrong = file(&world.path("wrong.pem"), &data("other.key"), 0o600);
    assert!(why(Some(GsiSettings { key: wrong, ..gsi.clone() })).contains("does not belong"));
    let empty = world.path("empty");
    fs::create_dir(&empty).unwrap();
    assert!(why(Some(GsiSettings { authorities: empty, ..gsi })).contains("no certificate of an authority"));
    // A mechanism that is not offered needs no files.
    let without = Settings { mechanisms: Mechanisms::parse(["unix"]).unwrap(), gsi: None, ..good };
    world.with(without);
}
