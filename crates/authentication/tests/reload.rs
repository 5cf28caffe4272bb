//! Settings, and changes of them.

use std::sync::Arc;
use std::time::Duration;

use authentication::{Authenticator, ErrorKind, Mechanisms, Settings};
use identity::{CacheTimes, MappingSettings};

use crate::issuer_server::KEYS;
use crate::world::{World, mapping, principal, refusal};

#[test]
fn new_issuers_and_rules_count_and_keys_stay() {
    let world = World::new();
    let authenticator = world.authenticator();
    principal(&authenticator, &world.token()).unwrap();
    let mut settings = world.settings();
    settings.issuers.push(world.issuer("https://another.example"));
    settings.mapping.identity[0].principal = Some("everybody".into());
    authenticator.reload(settings.clone()).unwrap();
    assert_eq!(principal(&authenticator, &world.token()).unwrap(), "everybody");
    assert_eq!(world.server.asked(KEYS), 1, "the keys were kept");
    // What is wrong changes nothing.
    settings.mapping = MappingSettings::default();
    authenticator.reload(settings.clone()).unwrap_err();
    settings.trust = tls::TrustSource::File(world.path("none"));
    settings.mapping = world.settings().mapping;
    authenticator.reload(settings).unwrap_err();
    assert_eq!(principal(&authenticator, &world.token()).unwrap(), "everybody");
    // An issuer that goes, and comes back.
    let mut settings = world.settings();
    settings.issuers = vec![world.issuer("https://another.example")];
    settings.mapping = mapping("identity_default = 'x'");
    authenticator.reload(settings).unwrap();
    let error = refusal(&authenticator, &world.token());
    assert!(error.to_string().contains("is not trusted here"), "{error}");
    assert_eq!(error.kind(), ErrorKind::NotAuthenticated);
    authenticator.reload(world.settings()).unwrap();
    assert_eq!(principal(&authenticator, &world.token()).unwrap(), "wlcg-ana");
    assert_eq!(world.server.asked(KEYS), 2);
}

#[test]
fn settings_that_do_not_fit_together_are_refused() {
    let world = World::new();
    let url = world.server.url();
    let why = |change: &dyn Fn(&mut Settings)| {
        let mut settings = world.settings();
        change(&mut settings);
        Authenticator::new(settings, Arc::clone(&world.clock) as _).unwrap_err().to_string()
    };
    assert_eq!(
        why(&|settings| settings.mapping.identity[0].issuer = Some(format!("{url}/"))),
        format!(
            "[[identity]] number 1 is about the issuer `{url}/`, and no [[issuer]] has exactly this `url`; one has `{url}`"
        )
    );
    let error = why(&|settings| settings.mapping.identity[0].issuer = Some("https://b.example".into()));
    assert!(error.ends_with("no [[issuer]] has exactly this `url`"), "{error}");
    let error = why(&|settings| {
        settings.mapping.identity.insert(0, mapping("[[identity]]\ngrid_map = true").identity.remove(0))
    });
    assert!(error.contains("number 1 has `grid_map = true`"), "{error}");
    let error = why(&|settings| settings.grid_map = Some(world.path("none")));
    assert!(error.contains("cannot read the grid-mapfile"), "{error}");
    let error = why(&|settings| {
        settings.issuers.clear();
        settings.mapping = mapping("identity_default = 'x'");
    });
    assert!(error.contains("add an [[issuer]]"), "{error}");
    let error = why(&|settings| settings.mapping = MappingSettings::default());
    assert!(error.contains("nobody would be let in"), "{error}");
    let error = why(&|settings| settings.issuers[0].audiences.clear());
    assert!(error.contains("`audiences`"), "{error}");
    let error = why(&|settings| settings.mapping.identity[0].principal = Some("a b".into()));
    assert!(error.contains("[[identity]] number 1"), "{error}");
    let error = why(&|settings| settings.trust = tls::TrustSource::File(world.path("none")));
    assert!(error.contains("cannot ask issuers for their keys"), "{error}");
    let error = why(&|settings| settings.trusted_networks = vec!["10.0.0.1".parse().unwrap(); 257]);
    assert!(error.contains("257 trusted networks"), "{error}");
    let error = why(&|settings| settings.key_cache = Some(world.path("a/b")));
    assert!(error.contains("a/b"), "{error}");
    for times in [
        CacheTimes { fetch_interval: Duration::ZERO, ..CacheTimes::default() },
        CacheTimes { keep: Duration::from_secs(3600), ..CacheTimes::default() },
    ] {
        assert!(why(&|settings| settings.times = times).contains("the times for keys"));
    }
}

#[test]
fn authorities_are_needed_only_for_issuers() {
    let world = World::new();
    let settings = Settings {
        mechanisms: Mechanisms::parse(["unix"]).unwrap(),
        mapping: mapping("identity_default = 'x'"),
        trust: tls::TrustSource::File(world.path("none")),
        ..Settings::default()
    };
    let authenticator = world.with(settings);
    assert!(authenticator.unix("ana", &[], "127.0.0.1".parse().unwrap()).is_ok());
}
