//! Rules: which one decides about a credential, and what it gives.

use identity::{
    Credential, DistinguishedName, Fqan, GridMap, HostName, Issuer, IssuerSettings, KerberosPrincipal, LoginName,
    MappingError, MappingRules, MappingSettings, MatchedBy, Refusal, RuleError, SecretCredential, TemplateError,
    VOMS_ATTRIBUTES_MAX,
};
use proptest::prelude::*;
use serde_json::json;

use crate::common::{ISSUER, Signer, issuer, settings, too_long_name, with};

fn rules(text: &str) -> MappingRules {
    MappingRules::new(&toml::from_str(text).unwrap()).unwrap()
}

fn token_of(issuer: &Issuer, changes: serde_json::Value) -> Credential {
    thread_local!(static SIGNER: Signer = Signer::new());
    SIGNER.with(|signer| Credential::Token(Box::new(signer.verify(issuer, &with(changes)).unwrap())))
}

fn token(subject: &str, groups: &[&str]) -> Credential {
    token_of(&issuer(), json!({"sub": subject, "scope": null, "wlcg.groups": groups}))
}

fn certificate(subject: &str, attributes: &[&str]) -> Credential {
    let attributes = attributes.iter().map(|text| Fqan::parse(text).unwrap()).collect();
    Credential::Certificate { subject: DistinguishedName::parse(subject).unwrap(), attributes }
}

fn kerberos(text: &str) -> Credential {
    Credential::Kerberos(KerberosPrincipal::parse(text).unwrap())
}

fn local(name: &str) -> Credential {
    Credential::LocalUser { name: LoginName::parse(name).unwrap(), groups: Vec::new() }
}

fn secret_of(name: &str, user: &str) -> Credential {
    let login = |text: &str| LoginName::parse(text).unwrap();
    Credential::Secret(SecretCredential {
        name: login(name),
        user: Some(login(user)),
        groups: vec![login("online")],
        expires: None,
    })
}

fn secret(name: &str) -> Credential {
    secret_of(name, name)
}

fn host(name: &str) -> Credential {
    Credential::Host(HostName::parse(name).unwrap())
}

/// The principal, the groups, and the number of the rule; or the number of the rule that refused (0: none).
fn mapped(rules: &MappingRules, credential: &Credential) -> Result<(String, String, usize), usize> {
    let number = |by: &MatchedBy| match by {
        MatchedBy::Rule { number, .. } | MatchedBy::GridMap { number, .. } => *number,
        MatchedBy::Default | MatchedBy::MappingService => 0,
    };
    match rules.map(credential, None) {
        Ok(mapped) => {
            let groups: Vec<String> = mapped.groups.iter().map(ToString::to_string).collect();
            Ok((mapped.principal.to_string(), groups.join(" "), number(&mapped.by)))
        }
        Err(Refusal::ByRule { by, .. } | Refusal::Name { by, .. } | Refusal::TooManyGroups { by, .. }) => {
            Err(number(&by))
        }
        Err(Refusal::NoRule { .. } | Refusal::Anonymous | Refusal::TooManyAttributes { .. }) => Err(0),
    }
}

fn principal(rules: &MappingRules, credential: &Credential) -> Result<String, usize> {
    mapped(rules, credential).map(|(principal, _, _)| principal)
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = rules(&format!(
        r#"
        [[identity]]
        issuer = "{ISSUER}"
        subject = "banned"
        refuse = true
        [[identity]]
        issuer = "{ISSUER}"
        group = "/wlcg/production"
        principal = "prod"
        groups = ["wlcg", "production"]
        [[identity]]
        issuer = "{ISSUER}"
        group = "/wlcg"
        principal = "grid-{{subject}}"
        groups = ["wlcg", "{{groups}}", "from-{{groups}}"]
        [[identity]]
        issuer = "https://other.example"
        principal = "other"
        [[identity]]
        issuer = "{ISSUER}"
        principal = "guest"
        "#
    ));
    let by = |subject: &str, groups: &[&str]| mapped(&rules, &token(subject, groups));
    assert_eq!(by("banned", &["/wlcg", "/wlcg/production"]), Err(1));
    assert_eq!(by("ana", &["/wlcg", "/wlcg/production"]), Ok(("prod".into(), "wlcg production".into(), 2)));
    let groups = "wlcg wlcg/x from-wlcg/x from-wlcg";
    assert_eq!(by("ana", &["/wlcg/x", "/wlcg"]), Ok(("grid-ana".into(), groups.into(), 3)));
    // A member of a group below is not therefore a member of the group.
    assert_eq!(by("ana", &["/wlcg/x"]), Ok(("guest".into(), String::new(), 5)));
    assert_eq!(by("ana", &["/wlcg/productions"]), Ok(("guest".into(), String::new(), 5)));
    // With capabilities, groups do not count.
    let scoped = token_of(&issuer(), json!({"scope": "storage.read:/", "wlcg.groups": ["/wlcg/production"]}));
    assert_eq!(mapped(&rules, &scoped), Ok(("guest".into(), String::new(), 5)));
    let other = Issuer::new(IssuerSettings { url: "https://other.example".into(), ..settings() }).unwrap();
    let token = token_of(&other, json!({"iss": "https://other.example", "scope": "storage.read:/", "sub": "banned"}));
    assert_eq!(principal(&rules, &token), Ok("other".into()), "a subject means something only with its issuer");
    for credential in
        [local("ana"), kerberos("ana@A"), host("a.org"), certificate("/CN=ana", &[]), Credential::Anonymous]
    {
        assert_eq!(mapped(&rules, &credential), Err(0), "{credential}");
    }
}

#[test]
fn a_ban_looks_at_all_groups_that_are_signed() {
    let rules = rules(&format!(
        r#"
        [[identity]]
        issuer = "{ISSUER}"
        group = "/wlcg/banned"
        refuse = true
        [[identity]]
        issuer = "{ISSUER}"
        group = "/wlcg/production"
        principal = "prod"
        [[identity]]
        issuer = "{ISSUER}"
        principal = "guest"
        "#
    ));
    let groups = json!(["/wlcg/banned", "/wlcg/production"]);
    let by = |changes: serde_json::Value| mapped(&rules, &token_of(&issuer(), changes)).map(|(name, _, _)| name);
    assert_eq!(by(json!({"scope": null, "wlcg.groups": groups})), Err(1));
    assert_eq!(by(json!({"scope": "storage.read:/", "wlcg.groups": groups})), Err(1), "a scope does not undo a ban");
    let behind: Vec<String> = (0..300).map(|number| format!("/g{number}")).chain(["/wlcg/banned".into()]).collect();
    assert_eq!(by(json!({"scope": "storage.read:/", "wlcg.groups": behind})), Err(1), "nor do many other groups");
    let malformed = json!(["//", 1, "/wlcg/banned"]);
    assert_eq!(by(json!({"scope": "storage.read:/", "wlcg.groups": malformed})), Err(1), "nor do malformed ones");
    let never = Issuer::new(IssuerSettings { groups: identity::GroupUse::Never, ..settings() }).unwrap();
    let unused = token_of(&never, json!({"scope": "storage.read:/", "wlcg.groups": groups}));
    assert_eq!(mapped(&rules, &unused).map(|(name, _, _)| name), Err(1));
    // Groups that do not count still give nothing.
    assert_eq!(by(json!({"scope": "storage.read:/", "wlcg.groups": ["/wlcg/production"]})), Ok("guest".into()));
}

#[test]
fn certificates_are_matched_by_subject_and_by_voms_attributes() {
    let rules = rules(
        r#"
        [[identity]]
        certificate = "/DC=ch/CN=Bad"
        refuse = true
        [[identity]]
        certificate = "/DC=ch/CN=Ana"
        voms = "/atlas/Role=production"
        principal = "ana-prod"
        [[identity]]
        voms = "/atlas/Role=production"
        principal = "atlasprd"
        groups = ["{groups}"]
        [[identity]]
        voms = "/atlas/*"
        principal = "atlas"
        [[identity]]
        certificate = "/DC=ch/CN=Ana"
        principal = "ana"
        [[identity]]
        certificate = "*"
        principal = "anybody"
        "#,
    );
    let by = |subject: &str, attributes: &[&str]| mapped(&rules, &certificate(subject, attributes));
    let prod = "/atlas/Role=production/Capability=NULL";
    assert_eq!(by("/DC=ch/CN=Bad", &[prod]), Err(1));
    assert_eq!(by("/DC=ch/CN=Ana", &["/atlas", prod]).unwrap().0, "ana-prod");
    assert_eq!(
        by("/DC=ch/CN=Bo", &["/atlas/us", prod, "/atlas"]),
        Ok(("atlasprd".into(), "atlas/us atlas".into(), 3)),
        "each group once"
    );
    assert_eq!(by("/DC=ch/CN=Ana", &["/atlas/Role=NULL"]).unwrap().0, "atlas");
    assert_eq!(by("/dc=ch/cn=Ana", &[]).unwrap().0, "ana");
    assert_eq!(by("/DC=ch/CN=Ana", &["/cms/Role=production"]).unwrap().0, "ana");
    assert_eq!(by("/DC=ch/CN=ana", &[]).unwrap().0, "anybody");
}

#[test]
fn the_grid_mapfile_is_asked_where_its_rule_stands() {
    let rules = rules(
        r#"
        [[identity]]
        certificate = "/CN=Bad"
        refuse = true
        [[identity]]
        grid_map = true
        groups = ["grid", "{groups}"]
        [[identity]]
        certificate = "*"
        principal = "guest"
        "#,
    );
    let map = GridMap::parse(b"/CN=Bad bad\n\n/CN=Ana ana\n").unwrap();
    let by = |subject: &str| rules.map(&certificate(subject, &["/vo/x"]), Some(&map));
    let ana = by("/CN=Ana").unwrap();
    assert_eq!((ana.principal.as_str(), ana.by), ("ana", MatchedBy::GridMap { number: 2, line: 3 }));
    assert_eq!(ana.groups.iter().map(ToString::to_string).collect::<Vec<_>>(), ["grid", "vo/x"]);
    assert_eq!(by("/CN=Bo").unwrap().principal.as_str(), "guest");
    assert!(matches!(by("/CN=Bad"), Err(Refusal::ByRule { .. })));
    assert_eq!(rules.map(&certificate("/CN=Ana", &[]), None).unwrap().principal.as_str(), "guest");
}

#[test]
fn other_credentials_are_matched_by_their_names() {
    let rules = rules(
        r#"
        [[identity]]
        kerberos = "host/se.example.org@EXAMPLE.ORG"
        principal = "se"
        [[identity]]
        kerberos = "*@EXAMPLE.ORG"
        principal = "{user}"
        [[identity]]
        secret = "fts"
        principal = "transfers"
        [[identity]]
        local_user = "root"
        principal = "admin"
        [[identity]]
        local_user = "*"
        principal = "{user}"
        [[identity]]
        host = "wn1.example.org"
        principal = "worker1"
        [[identity]]
        host = "*.example.org"
        principal = "{host}"
        groups = ["workers"]
        [[identity]]
        anonymous = true
        principal = "nobody"
        "#,
    );
    let by = |credential: Credential| principal(&rules, &credential);
    assert_eq!(by(kerberos("host/se.example.org@EXAMPLE.ORG")), Ok("se".into()));
    assert_eq!(by(kerberos("ana@EXAMPLE.ORG")), Ok("ana".into()));
    for other in ["ana@example.org", "ana@OTHER.ORG", "ana/admin@EXAMPLE.ORG", "host/x.example.org@EXAMPLE.ORG"] {
        assert_eq!(by(kerberos(other)), Err(0), "{other}");
    }
    assert_eq!(by(secret("fts")), Ok("transfers".into()));
    assert_eq!(by(secret("ana")), Err(0), "a secret is not a local user");
    assert_eq!(by(local("root")), Ok("admin".into()), "by name");
    assert_eq!(by(local("ana")), Ok("ana".into()));
    assert_eq!(by(host("WN1.Example.org.")), Ok("worker1".into()));
    assert_eq!(by(host("wn2.example.org")), Ok("wn2.example.org".into()));
    assert_eq!(by(host("a.b.example.org")), Ok("a.b.example.org".into()));
    for other in ["example.org", "badexample.org", "wn1.example.org.evil.net"] {
        assert_eq!(by(host(other)), Err(0), "{other}");
    }
    assert_eq!(by(Credential::Anonymous), Ok("nobody".into()));
}

#[test]
fn a_rule_for_an_address_matches_each_way_to_write_it() {
    let both = rules(
        "[[identity]]\nhost = '2001:DB8::0:1'\nrefuse = true\n[[identity]]\nhost = '192.0.2.1'\nrefuse = true\n\
         [[identity]]\nhost = '*'\nprincipal = 'x'",
    );
    for (text, verdict) in [
        ("2001:db8::1", Err(1)),
        ("2001:0db8:0:0:0:0:0:1", Err(1)),
        ("192.0.2.1", Err(2)),
        ("::ffff:192.0.2.1", Err(2)),
        ("192.0.2.11", Ok("x".into())),
    ] {
        assert_eq!(principal(&both, &host(text)), verdict, "{text}");
    }
}

#[test]
fn a_subject_in_a_rule_can_be_written_as_openssl_shows_it() {
    let rules = rules(
        r"
        [[identity]]
        certificate = '/O=caf\xC3\xA9/CN=Bo'
        refuse = true
        [[identity]]
        certificate = '*'
        principal = 'x'
    ",
    );
    assert_eq!(principal(&rules, &certificate("/O=café/CN=Bo", &[])), Err(1));
    assert_eq!(
        principal(&rules, &certificate(r"/O=caf\xC3\xA9/CN=Bo", &[])),
        Ok("x".into()),
        "that is another subject"
    );
}

#[test]
fn attributes_and_groups_of_a_certificate_are_bounded() {
    let rules = rules(
        "[[identity]]\nvoms = '/vo/banned'\nrefuse = true\n\
         [[identity]]\ncertificate = '*'\nprincipal = 'x'\ngroups = ['one', '{groups}']",
    );
    let by = |count: usize| {
        let attributes: Vec<String> = (0..count).map(|number| format!("/vo/g{number}")).collect();
        let attributes: Vec<&str> = attributes.iter().map(String::as_str).collect();
        rules.map(&certificate("/CN=Ana", &attributes), None)
    };
    assert_eq!(by(255).unwrap().groups.len(), 256);
    assert!(matches!(by(256), Err(Refusal::TooManyGroups { .. })));
    assert_eq!(VOMS_ATTRIBUTES_MAX, 256);
    assert!(matches!(by(257), Err(Refusal::TooManyAttributes { len: 257, .. })));
    assert!(by(100_000).unwrap_err().to_string().len() < 1000);
}

#[test]
fn groups_of_a_local_user_count_only_where_a_rule_takes_them() {
    let rules = rules(
        r#"
        [[identity]]
        local_user = "daq"
        principal = "daq"
        groups = ["recorders"]
        [[identity]]
        local_user = "*"
        principal = "{user}"
        groups = ["local", "at-{groups}"]
        "#,
    );
    let user = |name: &str, groups: &[&str]| {
        let groups = groups.iter().map(|group| LoginName::parse(group).unwrap()).collect();
        Credential::LocalUser { name: LoginName::parse(name).unwrap(), groups }
    };
    assert_eq!(mapped(&rules, &user("daq", &["staff"])).unwrap().1, "recorders");
    assert_eq!(mapped(&rules, &user("ana", &["staff", "a/b", "staff"])).unwrap().1, "local at-staff at-a/b");
    assert_eq!(mapped(&rules, &user("ana", &[])).unwrap().1, "local");
    assert_eq!(mapped(&rules, &user("ana", &["a:b"])), Err(2), "no name of a group");
    assert_eq!(user("ana", &["staff", "b"]).to_string(), "the local user `ana` staff b");
}

#[test]
fn rules_tell_the_users_of_a_secret_apart() {
    let rules = rules(
        r#"
        [[identity]]
        secret = "fts"
        user = "eve"
        refuse = true
        [[identity]]
        secret = "fts"
        user = "*"
        principal = "grid-{user}"
        groups = ["transfers", "{groups}"]
        [[identity]]
        secret = "*"
        principal = "other"
        "#,
    );
    let of = |name: &str, user: &str| mapped(&rules, &secret_of(name, user));
    assert_eq!(of("fts", "ana"), Ok(("grid-ana".into(), "transfers online".into(), 2)));
    assert_eq!(of("fts", "eve"), Err(1));
    assert_eq!(of("ftsx", "eve").unwrap().2, 3);
    let nobody = Credential::Secret(SecretCredential {
        name: LoginName::parse("fts").unwrap(),
        user: None,
        groups: Vec::new(),
        expires: None,
    });
    assert_eq!(mapped(&rules, &nobody).unwrap().2, 3, "`*` is any user, and this is none");
    assert_eq!(secret_of("fts", "ana").to_string(), "the shared secret `fts` for `ana` online");
    let why = |text: &str| {
        let text = format!("[[identity]]\n{text}\nprincipal = 'x'");
        match MappingRules::new(&toml::from_str(&text).unwrap()) {
            Err(MappingError::Rule { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(why("user = 'ana'"), RuleError::NoSecret);
    assert_eq!(why("user = 'ana'\nlocal_user = 'a'"), RuleError::NoSecret);
    assert!(matches!(why("secret = 'a'\nuser = 'a b'"), RuleError::Name { setting: "user", .. }));
}

#[test]
fn a_client_cannot_choose_a_reserved_name_or_one_that_is_none() {
    let rules = rules(&format!(
        r#"
        identity_default = "guest"
        [[identity]]
        issuer = "{ISSUER}"
        principal = "{{subject}}"
        [[identity]]
        local_user = "*"
        principal = "{{user}}"
        [[identity]]
        secret = "*"
        principal = "ro{{user}}"
        "#
    ));
    assert_eq!(principal(&rules, &token("ana", &["/wlcg"])), Ok("ana".into()));
    for bad in ["root", "Root", "ADMIN", "administrator", "0", "1000", "../x", "a/b", "a b", "a:b", "-a", "host:x.org"]
    {
        assert_eq!(principal(&rules, &token(bad, &["/wlcg"])), Err(1), "{bad}");
    }
    assert_eq!(principal(&rules, &local("root")), Err(2), "and the default does not take over");
    assert_eq!(principal(&rules, &secret("ot")), Err(3), "put together, it is the same name");
    let refused = rules.map(&token("a b", &["/wlcg"]), None).unwrap_err().to_string();
    assert!(
        refused.contains("[[identity]] number 1") && refused.contains("`a b` is not the name of a user"),
        "{refused}"
    );

    let none = token_of(&issuer(), json!({"wlcg.ver": null, "ver": "scitoken:2.0", "scope": "read:/", "sub": null}));
    assert_eq!(principal(&rules, &none), Err(1), "no subject, no name");
}

#[test]
fn the_default_is_for_credentials_only() {
    let none = MappingRules::default();
    assert!(matches!(none.map(&local("ana"), None), Err(Refusal::NoRule { .. })));
    assert_eq!(none.map(&Credential::Anonymous, None), Err(Refusal::Anonymous));
    let guest = rules("identity_default = 'guest'");
    let mapped = guest.map(&local("ana"), None).unwrap();
    assert_eq!((mapped.principal.as_str(), mapped.groups.len(), mapped.by), ("guest", 0, MatchedBy::Default));
    assert_eq!(guest.map(&Credential::Anonymous, None), Err(Refusal::Anonymous));
    assert!(matches!(
        MappingRules::new(&toml::from_str("identity_default = '0'").unwrap()),
        Err(MappingError::Default(_))
    ));
}

#[test]
fn the_answer_names_the_rule_as_it_is_written() {
    let rules = rules(&format!(
        "[[identity]]\nlocal_user = '*'\nrefuse = true\n[[identity]]\nissuer = '{ISSUER}'\ngroup = '/wlcg'\nprincipal = 'x'"
    ));
    let mapped = rules.map(&token("ana", &["/wlcg"]), None).unwrap();
    assert_eq!(mapped.by.to_string(), "[[identity]] number 2 (issuer = \"https://wlcg.example/\", group = \"/wlcg\")");
    assert_eq!(
        rules.map(&local("ana"), None).unwrap_err().to_string(),
        "the local user `ana` is refused by [[identity]] number 1 (local_user = \"*\"), which has `refuse = true`"
    );
    assert_eq!(
        rules.map(&host("a.org"), None).unwrap_err().to_string(),
        "no [[identity]] matches the host a.org: add a rule for it, or set `identity_default`"
    );
}

#[test]
fn rules_that_cannot_work_are_refused_when_they_are_read() {
    let why = |text: &str| {
        let text = format!("[[identity]]\nlocal_user = '*'\nprincipal = 'x'\n[[identity]]\n{text}");
        match MappingRules::new(&toml::from_str(&text).unwrap()) {
            Err(MappingError::Rule { number: 2, why }) => why,
            other => panic!("{text}: {other:?}"),
        }
    };
    assert_eq!(why("principal = 'x'"), RuleError::NoKind);
    assert_eq!(why("subject = 'a'\nprincipal = 'x'"), RuleError::NoIssuer("subject"));
    assert_eq!(why("kerberos = 'a@B'\ngroup = '/a'\nprincipal = 'x'"), RuleError::NoIssuer("group"));
    let two = why("issuer = 'https://a.example'\nkerberos = 'a@B'\nprincipal = 'x'");
    assert_eq!(two, RuleError::TwoKinds("issuer, kerberos".into()));
    assert_eq!(why("anonymous = true\nhost = '*'\nprincipal = 'x'"), RuleError::TwoKinds("host, anonymous".into()));
    assert_eq!(why("local_user = 'a'"), RuleError::NoResult);
    assert_eq!(why("local_user = 'a'\ngroups = ['x']"), RuleError::NoResult);
    assert_eq!(why("local_user = 'a'\nprincipal = 'x'\nrefuse = true"), RuleError::RefusesAndMaps);
    assert_eq!(why("local_user = 'a'\ngroups = ['x']\nrefuse = true"), RuleError::RefusesAndMaps);
    assert_eq!(why("grid_map = true\nprincipal = 'x'"), RuleError::GridMapAndResult);
    assert_eq!(why("grid_map = true\nrefuse = true"), RuleError::GridMapAndResult);
    assert!(matches!(why("issuer = 'a.example'\nprincipal = 'x'"), RuleError::Issuer(..)));
    assert!(matches!(why("issuer = '*'\nprincipal = 'x'"), RuleError::Issuer(..)));
    assert_eq!(why("issuer = 'https://a.example'\nsubject = ''\nprincipal = 'x'"), RuleError::Subject);
    let group = why("issuer = 'https://a.example'\ngroup = 'wlcg'\nprincipal = 'x'");
    assert_eq!(group, RuleError::Group("wlcg".into()));
    assert!(matches!(why("certificate = 'CN=a'\nprincipal = 'x'"), RuleError::Certificate(_)));
    assert!(matches!(
        why(r"certificate = '/CN=a\n'
principal = 'x'"),
        RuleError::Certificate(_)
    ));
    assert!(matches!(why("voms = '/atlas/Role=p*'\nprincipal = 'x'"), RuleError::Voms(_)));
    for name in [
        "kerberos = '*'",
        "kerberos = '*@'",
        "kerberos = 'a'",
        "secret = 'a b'",
        "local_user = ''",
        "host = '*.*'",
        "host = 'a*'",
        "host = '*.192.0.2.1'",
        "host = '*.2.1'",
        "host = '127.1'",
    ] {
        assert!(matches!(why(&format!("{name}\nprincipal = 'x'")), RuleError::Name { .. }), "{name}");
    }
    let result = |kind: &str, principal: &str| match why(&format!("{kind}\nprincipal = '{principal}'")) {
        RuleError::Result { setting: "principal", why } => why,
        other => panic!("{other:?}"),
    };
    for name in ["a b", "0", "/x", ".."] {
        assert!(matches!(result("local_user = 'a'", name), TemplateError::Name(_)), "{name}");
    }
    for braces in ["{", "{}", "{user", "user}", "{{user}}", "{uid}", "{user}{user}", "{User}"] {
        assert!(matches!(result("local_user = 'a'", braces), TemplateError::Placeholder(_)), "{braces}");
    }
    for (kind, place) in [
        ("local_user = 'a'", "subject"),
        ("local_user = 'a'", "host"),
        ("issuer = 'https://a.example'", "user"),
        ("issuer = 'https://a.example'", "groups"),
        ("certificate = '*'", "subject"),
        ("certificate = '*'", "user"),
        ("host = '*'", "user"),
        ("anonymous = true", "user"),
    ] {
        assert_eq!(result(kind, &format!("x-{{{place}}}")), TemplateError::Unavailable(place), "{kind}");
    }
    assert!(matches!(result("local_user = 'a'", &too_long_name()), TemplateError::Length(256)));
    let groups = vec!["'a'"; 65].join(",");
    assert_eq!(why(&format!("host = '*'\nprincipal = 'x'\ngroups = [{groups}]")), RuleError::TooManyGroups(65));
    assert!(matches!(
        why("host = '*'\nprincipal = 'x'\ngroups = ['{groups}']"),
        RuleError::Result { setting: "groups", .. }
    ));
}

#[test]
fn each_issuer_that_a_rule_names_must_be_configured() {
    let issuers = identity::Issuers::new(vec![settings()]).unwrap();
    let text = |url: &str| {
        format!("[[identity]]\nlocal_user = '*'\nprincipal = 'x'\n[[identity]]\nissuer = '{url}'\nrefuse = true")
    };
    assert_eq!(rules(&text(ISSUER)).check_issuers(&issuers), Ok(()));
    for other in ["https://wlcg.example", "https://wlcg.example//", "https://other.example"] {
        let refused = rules(&text(other)).check_issuers(&issuers);
        assert_eq!(refused, Err(MappingError::UnknownIssuer { number: 2, issuer: other.into() }));
    }
}

#[test]
fn unknown_keys_are_refused() {
    assert!(toml::from_str::<MappingSettings>("[[identity]]\nlocal_usr = 'a'\nprincipal = 'x'").is_err());
    assert!(toml::from_str::<MappingSettings>("identity_defaults = 'x'").is_err());
    assert!(toml::from_str::<IssuerSettings>("url = 'https://a'\naudiences = ['x']\nbase_path = '/'").is_err());
}

#[test]
fn issuers_are_checked_when_they_are_read() {
    use identity::{IssuerError, Issuers};
    let with = |change: fn(&mut IssuerSettings)| {
        let mut settings = settings();
        change(&mut settings);
        Issuer::new(settings).map(|_| ()).unwrap_err()
    };
    for url in
        ["http://a.example", "https://", "https://a?x", "https://a#x", "https://a b", "https://me@a.example", "a"]
    {
        let refused = Issuer::new(IssuerSettings { url: url.into(), ..settings() });
        assert!(matches!(refused, Err(IssuerError::Url { .. })), "{url}");
    }
    assert!(matches!(with(|settings| settings.audiences.clear()), IssuerError::NoAudience(_)));
    assert!(matches!(with(|settings| settings.audiences.push("ANY".into())), IssuerError::Audience { .. }));
    assert!(matches!(with(|settings| settings.audiences.push(String::new())), IssuerError::Audience { .. }));
    assert!(matches!(with(|settings| settings.base_paths.clear()), IssuerError::NoBasePath(_)));
    let groups_only = |settings: &mut IssuerSettings| {
        settings.base_paths.clear();
        settings.restricted_paths.push("/data".into());
        settings.scopes = false;
    };
    assert!(matches!(with(groups_only), IssuerError::NoBasePath(_)), "groups are for a part of the namespace, too");
    assert!(matches!(with(|settings| settings.base_paths.push("wlcg".into())), IssuerError::Path { .. }));
    assert!(matches!(with(|settings| settings.restricted_paths.push("/a/../b".into())), IssuerError::Path { .. }));
    assert!(matches!(
        with(|settings| settings.base_paths = vec!["/a".into(); 65]),
        IssuerError::TooManyEntries { setting: "base_paths", .. }
    ));
    assert_eq!(Issuers::new(vec![settings(), settings()]), Err(IssuerError::Twice(ISSUER.into())));
    assert!(matches!(Issuers::new(vec![settings(); 257]), Err(IssuerError::TooMany(257))));
}

proptest! {
    /// Whatever a client is called: it gets its own name or none, and two clients never get the same.
    #[test]
    fn names_from_templates_are_proper_and_distinct(one in "[ -~]{1,12}", two in "[ -~]{1,12}") {
        let rules = rules("[[identity]]\nsecret = '*'\nprincipal = 'x-{user}'");
        let name = |login: &str| LoginName::parse(login).ok().and_then(|login| {
            rules.map(&secret(login.as_str()), None).ok().map(|mapped| mapped.principal.to_string())
        });
        for login in [&one, &two] {
            if let Some(name) = name(login) {
                prop_assert_eq!(name, format!("x-{login}"));
            }
        }
        if one != two && name(&one).is_some() {
            prop_assert_ne!(name(&one), name(&two));
        }
    }
}
