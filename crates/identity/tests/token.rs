//! Tokens: which are accepted, and by which rule the others are refused.

use identity::{
    Algorithm, GroupUse, Issuer, Issuers, Profile, TOKEN_BYTES_MAX, TokenError, TokenRights, UnverifiedToken,
    WithoutScopes,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use types::{NsPath, PathOperation, Timestamp};

use crate::common::{
    AUDIENCE, ISSUER, NOW, Signer, base64, issuer, key_set, key_set_of, now, settings, verify, with, wlcg_claims,
};

#[test]
fn each_algorithm_is_verified_with_a_key_of_its_kind() {
    let signer = Signer::new();
    for algorithm in Algorithm::ALL {
        let token = signer.token(algorithm, &wlcg_claims());
        let credential = verify(&token, &issuer(), &signer.key_set()).unwrap();
        assert_eq!(credential.subject.as_deref(), Some("e1eb758b"), "{algorithm}");
        assert_eq!(credential.issuer.as_str(), ISSUER);
        assert_eq!(credential.profile, Profile::Wlcg);
        assert_eq!(credential.expires, Timestamp::from_secs(NOW + 3600));
        assert_eq!(credential.id.as_deref(), Some("1"));
        assert_eq!(credential.check_not_expired(now()), Ok(()));
        assert!(credential.check_not_expired(Timestamp::from_secs(NOW + 3600)).is_err());
    }
}

#[test]
fn a_token_of_another_signer_is_refused_whatever_the_algorithm() {
    let (signer, other) = (Signer::new(), Signer::new());
    // The RSA key is the same in all tests.
    for algorithm in [Algorithm::Es256, Algorithm::Es384, Algorithm::EdDsa] {
        let token = other.token(algorithm, &wlcg_claims());
        let refused = verify(&token, &issuer(), &signer.key_set());
        assert_eq!(refused, Err(TokenError::Signature { key_id: Signer::key_id(algorithm).into() }));
    }
}

#[test]
fn the_algorithm_must_fit_the_key_and_what_the_issuer_says_of_it() {
    let signer = Signer::new();
    for signed_with in Algorithm::ALL {
        for claimed in Algorithm::ALL {
            for key in Algorithm::ALL {
                let header = json!({"alg": claimed.name(), "kid": Signer::key_id(key)});
                let token = signer.token_with(signed_with, &header, &wlcg_claims());
                let accepted = verify(&token, &issuer(), &signer.key_set()).is_ok();
                let right = signed_with == claimed && Signer::key_id(key) == Signer::key_id(claimed);
                assert_eq!(accepted, right, "{signed_with} as {claimed} with the key of {key}");
            }
        }
    }
    let header = json!({"alg": "ES256", "kid": "rsa"});
    let wrong_kind = signer.token_with(Algorithm::Es256, &header, &wlcg_claims());
    let refused = verify(&wrong_kind, &issuer(), &signer.key_set());
    assert!(matches!(refused, Err(TokenError::WrongKey { kind: "an RSA key", .. })), "{refused:?}");

    let mut rsa = signer.keys()[0].clone();
    rsa["alg"] = json!("RS256");
    let keys = key_set(vec![rsa]);
    assert!(verify(&signer.token(Algorithm::Rs256, &wlcg_claims()), &issuer(), &keys).is_ok());
    let refused = verify(&signer.token(Algorithm::Ps256, &wlcg_claims()), &issuer(), &keys);
    assert!(matches!(refused, Err(TokenError::WrongAlgorithm { only: Algorithm::Rs256, .. })), "{refused:?}");
}

#[test]
fn unsigned_and_symmetric_tokens_are_refused_before_any_key_is_looked_at() {
    let parse = |header: Value, signature: &str| {
        let token = format!("{}.{}.{signature}", base64(header.to_string()), base64(wlcg_claims().to_string()));
        UnverifiedToken::parse(token.as_bytes()).err().unwrap()
    };
    for none in ["none", "None", "NONE", "nOnE"] {
        assert_eq!(parse(json!({"alg": none, "kid": "rsa"}), ""), TokenError::Unsigned);
        assert_eq!(parse(json!({"alg": none, "kid": "rsa"}), "AAAA"), TokenError::Unsigned);
    }
    assert_eq!(parse(json!({"alg": "HS256", "kid": "rsa"}), "AAAA"), TokenError::Symmetric("HS256".into()));
    for unknown in ["rs256", "ES512", "ES256K", "RS1", "", "dir"] {
        assert_eq!(parse(json!({"alg": unknown, "kid": "a"}), "AA"), TokenError::UnknownAlgorithm(unknown.into()));
    }
    assert_eq!(parse(json!({"kid": "rsa"}), "AAAA"), TokenError::NoAlgorithm);
    assert_eq!(parse(json!({"alg": ["RS256"], "kid": "rsa"}), "AAAA"), TokenError::NoAlgorithm);
}

#[test]
fn a_token_cannot_bring_its_own_key() {
    let (signer, forger) = (Signer::new(), Signer::new());
    let own = forger.keys()[1].clone();
    for (name, value) in [
        ("jwk", own.clone()),
        ("jku", json!("https://forger.example/jwks")),
        ("x5u", json!("https://forger.example/cert")),
        ("x5c", json!(["AAAA"])),
    ] {
        let mut header = json!({"alg": "ES256", "kid": "p256"});
        header[name] = value;
        let forged = forger.token_with(Algorithm::Es256, &header, &wlcg_claims());
        assert_eq!(
            verify(&forged, &issuer(), &signer.key_set()),
            Err(TokenError::Signature { key_id: "p256".into() }),
            "{name}"
        );
        // An honest token that has the parameter as well is judged without it.
        let honest = signer.token_with(Algorithm::Es256, &header, &wlcg_claims());
        assert!(verify(&honest, &issuer(), &signer.key_set()).is_ok(), "{name}");
    }
}

#[test]
fn headers_that_change_the_meaning_are_refused() {
    let signer = Signer::new();
    let with_header = |header: Value| {
        let token = signer.token_with(Algorithm::Es256, &header, &wlcg_claims());
        verify(&token, &issuer(), &signer.key_set()).err()
    };
    for critical in [json!(["exp"]), json!(["b64"]), json!([]), json!("x"), json!(null)] {
        let refused = with_header(json!({"alg": "ES256", "kid": "p256", "crit": critical, "b64": false}));
        assert_eq!(refused, Some(TokenError::CriticalHeader));
    }
    for access in ["JWT", "jwt", "at+jwt", "application/at+jwt"] {
        assert_eq!(with_header(json!({"alg": "ES256", "kid": "p256", "typ": access})), None);
    }
    assert_eq!(with_header(json!({"alg": "ES256", "kid": "p256"})), None);
    for other in [json!("logout+jwt"), json!("dpop+jwt"), json!(""), json!(1), json!(null)] {
        let refused = with_header(json!({"alg": "ES256", "kid": "p256", "typ": other}));
        assert!(matches!(refused, Some(TokenError::WrongType(_))), "{refused:?}");
    }
    assert_eq!(with_header(json!({"alg": "ES256"})), Some(TokenError::NoKeyId));
    for bad in [json!(""), json!(1), json!(null), json!("k".repeat(256)), json!("a\nb"), json!("a b"), json!("é")] {
        assert_eq!(with_header(json!({"alg": "ES256", "kid": bad})), Some(TokenError::BadKeyId));
    }
    let unknown = with_header(json!({"alg": "ES256", "kid": "p257"}));
    assert_eq!(unknown, Some(TokenError::UnknownKey { key_id: "p257".into(), issuer: ISSUER.into() }));
    let keys = key_set(vec![json!({"kty": "oct", "kid": "p256", "k": "AAAA"})]);
    let unusable = verify(&signer.token(Algorithm::Es256, &wlcg_claims()), &issuer(), &keys);
    let why = "it is symmetric";
    assert_eq!(unusable, Err(TokenError::UnusableKey { key_id: "p256".into(), issuer: ISSUER.into(), why }));
}

#[test]
fn what_is_no_token_is_refused_with_a_reason() {
    let parse = |text: &str| UnverifiedToken::parse(text.as_bytes()).err().unwrap();
    assert_eq!(parse(""), TokenError::Parts(1));
    assert_eq!(parse("a.b"), TokenError::Parts(2));
    assert_eq!(parse("a.b.c.d.e"), TokenError::Parts(5), "an encrypted token");
    let (header, claims) = (base64(r#"{"alg":"ES256","kid":"a"}"#), base64(r#"{"iss":"x"}"#));
    let good = format!("{header}.{claims}.AAAA");
    assert!(UnverifiedToken::parse(good.as_bytes()).is_ok());
    assert_eq!(parse(&format!("{header}=.{claims}.AAAA")), TokenError::Base64("header"));
    assert_eq!(parse(&format!("{header}.{claims}.AAAA=")), TokenError::Base64("signature"));
    assert_eq!(parse(&format!("{header}.{claims}.AA+/")), TokenError::Base64("signature"));
    assert_eq!(parse(&format!("{header}.{claims}.AB")), TokenError::Base64("signature"), "bits that mean nothing");
    assert_eq!(parse(&format!(" {header}.{claims}.AAAA")), TokenError::Base64("header"));
    assert_eq!(parse(&format!("{header}.{claims}.AAAA\n")), TokenError::Base64("signature"));
    for no_object in
        ["[]", r#"["ES256", "a"]"#, "1", "null", "{", "{} x", "\u{feff}{}", r#"{"alg":"ES256","alg":"none"}"#]
    {
        let refused = parse(&format!("{}.{claims}.AAAA", base64(no_object)));
        assert!(matches!(refused, TokenError::Json { part: "header", .. }), "{no_object}: {refused:?}");
    }
    assert!(matches!(parse(&format!("{header}.{}.AAAA", base64([0xff]))), TokenError::Json { part: "payload", .. }));
    let deep = "[".repeat(9000);
    assert!(
        matches!(parse(&format!("{header}.{}.AAAA", base64(deep))), TokenError::Json { .. }),
        "no stack is used up"
    );
    let (lacks, wrong) = (base64("{}"), base64(r#"{"iss":["x"]}"#));
    assert!(matches!(parse(&format!("{header}.{lacks}.AAAA")), TokenError::MissingClaim { claim: "iss", .. }));
    assert!(matches!(parse(&format!("{header}.{wrong}.AAAA")), TokenError::BadClaim { claim: "iss", .. }));

    let twice = base64(r#"{"iss":"https://a.example","i\u0073s":"https://b.example"}"#);
    assert!(matches!(parse(&format!("{header}.{twice}.AAAA")), TokenError::Json { part: "payload", .. }));
    let secret = parse(&format!("{}.{claims}.AAAA", base64(r#"{"alg":"secret" secret}"#))).to_string();
    assert!(secret.contains("line 1, column") && !secret.contains("secret"), "{secret}");

    let huge = "a".repeat(TOKEN_BYTES_MAX + 1);
    assert_eq!(parse(&huge), TokenError::TooLong(TOKEN_BYTES_MAX + 1));
    assert_eq!(parse(&huge[..TOKEN_BYTES_MAX]), TokenError::Parts(1));
}

#[test]
fn claims_are_read_only_after_the_signature() {
    let signer = Signer::new();
    // Deeper than the parser goes.
    let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
    let claims = format!(r#"{{"iss":"{ISSUER}","x":{deep}}}"#);
    let header = base64(json!({"alg": "ES256", "kid": "p256"}).to_string());
    let signed = format!("{header}.{}", base64(claims));
    let forged = format!("{signed}.{}", base64([0; 64]));
    let refused = verify(&forged, &issuer(), &signer.key_set());
    assert_eq!(refused, Err(TokenError::Signature { key_id: "p256".into() }));
    let honest = format!("{signed}.{}", base64(signer.sign(Algorithm::Es256, signed.as_bytes())));
    let refused = verify(&honest, &issuer(), &signer.key_set());
    assert!(matches!(refused, Err(TokenError::Json { part: "payload", .. })), "{refused:?}");
}

#[test]
fn only_configured_issuers_are_known_and_each_only_by_its_exact_url() {
    let signer = Signer::new();
    let issuers = Issuers::new(vec![settings()]).unwrap();
    let token = |url: &str| signer.token(Algorithm::Es256, &with(json!({ "iss": url })));
    let found = |url: &str| UnverifiedToken::parse(token(url).as_bytes()).unwrap().issuer(&issuers).is_ok();
    assert!(found(ISSUER));
    for other in ["https://wlcg.example", "https://WLCG.example/", "http://wlcg.example/", "https://wlcg.example//", ""]
    {
        assert!(!found(other), "{other}");
    }
    let refused = verify(&token("https://b.example"), &issuer(), &signer.key_set());
    assert!(matches!(refused, Err(TokenError::OtherIssuer { .. })), "{refused:?}");
}

#[test]
fn keys_verify_only_tokens_of_their_own_issuer() {
    let signer = Signer::new();
    let other = identity::IssuerUrl::parse("https://b.example").unwrap();
    let keys = key_set_of(&other, signer.keys());
    let refused = verify(&signer.token(Algorithm::Es256, &wlcg_claims()), &issuer(), &keys);
    assert_eq!(refused, Err(TokenError::OtherKeys { issuer: ISSUER.into(), keys: "https://b.example".into() }));
}

#[test]
fn times_are_checked_to_the_second() {
    let signer = Signer::new();
    let at = |changes: Value| signer.verify(&issuer(), &with(changes)).err();
    let expired = |expired: i64| Some(TokenError::Expired { expired, now: NOW });
    let early = |claim, from: i64| Some(TokenError::NotYetValid { claim, from, now: NOW });
    assert_eq!(at(json!({"exp": NOW + 1})), None);
    assert_eq!(at(json!({"exp": NOW})), expired(NOW), "on or after it, a token must not be accepted");
    assert_eq!(at(json!({"exp": NOW - 59})), expired(NOW - 59), "the tolerance is not for the end");
    assert_eq!(at(json!({"exp": 0})), expired(0));
    assert_eq!(at(json!({"nbf": NOW + 60})), None);
    assert_eq!(at(json!({"nbf": NOW + 61})), early("nbf", NOW + 61));
    assert_eq!(at(json!({"iat": NOW + 60})), None);
    assert_eq!(at(json!({"iat": NOW + 61})), early("iat", NOW + 61));
    assert_eq!(at(json!({"nbf": null})), None, "the WLCG profile does not demand it");
    assert_eq!(at(json!({"exp": 1.8e9 + 0.5})), expired(NOW), "fractions are dropped");
    assert_eq!(at(json!({"exp": 1.8e9 + 1.5})), None);
    for missing in ["exp", "iat", "sub", "aud", "iss"] {
        let refused = at(json!({ missing: null }));
        assert!(matches!(refused, Some(TokenError::MissingClaim { claim, .. }) if claim == missing), "{refused:?}");
    }
    for wrong in [json!("1900000000"), json!(-1), json!(1e300), json!(u64::MAX), json!([NOW + 10]), json!(true)] {
        for claim in ["exp", "nbf", "iat"] {
            let refused = at(json!({ claim: wrong }));
            assert!(
                matches!(refused, Some(TokenError::BadClaim { claim: c, .. }) if c == claim),
                "{wrong} {refused:?}"
            );
        }
    }
}

#[test]
fn the_audience_must_be_this_service_or_all_of_them() {
    let signer = Signer::new();
    let with_audience = |audience: Value| signer.verify(&issuer(), &with(json!({ "aud": audience }))).err();
    let any = "https://wlcg.cern.ch/jwt/v1/any";
    for right in [json!(AUDIENCE), json!([AUDIENCE]), json!(["https://x.example", AUDIENCE]), json!(any), json!([any])]
    {
        assert_eq!(with_audience(right.clone()), None, "{right}");
    }
    for other in [
        json!("https://se.example.org/"),
        json!("https://SE.example.org"),
        json!("https://se.example.org:443"),
        json!("ANY"),
        json!([]),
        json!(""),
        json!("https://wlcg.cern.ch/jwt/v1/any/"),
    ] {
        let refused = with_audience(other.clone());
        assert!(matches!(refused, Some(TokenError::Audience { .. })), "{other}: {refused:?}");
    }
    for wrong in [json!(1), json!([1]), json!([AUDIENCE, 1]), json!({"a": AUDIENCE})] {
        assert!(matches!(with_audience(wrong), Some(TokenError::BadClaim { claim: "aud", .. })));
    }
    let own_only = Issuer::new(identity::IssuerSettings { any_audience: false, ..settings() }).unwrap();
    let refused = signer.verify(&own_only, &with(json!({ "aud": any }))).unwrap_err();
    let said =
        "the token is for the audience https://wlcg.cern.ch/jwt/v1/any; this service accepts https://se.example.org";
    assert_eq!(refused.to_string(), said);
}

#[test]
fn a_token_without_scopes_tells_whom_it_is_for_and_what_its_issuer_decides_about() {
    let signer = Signer::new();
    let any = "https://wlcg.cern.ch/jwt/v1/any";
    let of = |audience: Value, bases: &[&str], restricted: &[&str]| {
        let texts = |paths: &[&str]| paths.iter().map(ToString::to_string).collect();
        let settings = identity::IssuerSettings {
            base_paths: texts(bases),
            restricted_paths: texts(restricted),
            without_scopes: identity::WithoutScopes::Identity,
            ..settings()
        };
        let claims = with(json!({ "aud": audience, "scope": "openid" }));
        let verified = signer.verify(&Issuer::new(settings).unwrap(), &claims).unwrap();
        let TokenRights::Identity(rights) = verified.rights else { panic!("{:?}", verified.rights) };
        (rights.is_for_every_service(), rights.is_of_everything())
    };
    for (audience, for_all) in [
        (json!(AUDIENCE), false),
        (json!([any, AUDIENCE]), false),
        (json!([AUDIENCE, any]), false),
        (json!(any), true),
        (json!(["https://x.example", any]), true),
    ] {
        assert_eq!(of(audience.clone(), &["/"], &[]).0, for_all, "{audience}");
    }
    for (bases, restricted, is_whole) in [
        (&["/"][..], &[][..], true),
        (&["/wlcg", "/"], &[], true),
        (&["/"], &["/a", "/"], true),
        (&["/wlcg"], &[], false),
        (&["/a", "/b"], &[], false),
        (&["/"], &["/a"], false),
        (&["/wlcg"], &["/"], false),
    ] {
        assert_eq!(of(json!(AUDIENCE), bases, restricted).1, is_whole, "{bases:?} {restricted:?}");
    }
}

#[test]
fn versions_and_profiles_that_are_not_supported_are_refused() {
    let signer = Signer::new();
    let profile = |changes: Value| signer.verify(&issuer(), &with(changes)).map(|credential| credential.profile);
    for version in ["1.0", "1.2", "1.3", "1.99"] {
        assert_eq!(profile(json!({ "wlcg.ver": version })), Ok(Profile::Wlcg), "{version}");
    }
    for version in ["2.0", "0.1", "1", "1.", ".1", "1.0.0", "01.0", "1.x", "", " 1.0", "1.1234567890"] {
        let refused = profile(json!({ "wlcg.ver": version }));
        assert!(matches!(refused, Err(TokenError::Version { claim: "wlcg.ver", .. })), "{version}: {refused:?}");
    }
    assert!(matches!(profile(json!({"wlcg.ver": 1.0})), Err(TokenError::BadClaim { .. })));
    assert_eq!(profile(json!({"wlcg.ver": null})), Err(TokenError::NoProfile));
    for both in ["scitoken:2.0", "scitokens:2.0", "scitoken:1.0"] {
        assert_eq!(profile(json!({ "ver": both })), Err(TokenError::TwoProfiles), "{both}");
    }
    for unknown in [json!("2.0"), json!(2), json!(null), json!("")] {
        assert_eq!(
            profile(json!({ "ver": unknown })),
            Ok(Profile::Wlcg),
            "unknown claims are ignored there: {unknown}"
        );
    }
    for version in ["scitoken:2.0", "scitokens:2.0"] {
        let changes =
            json!({"wlcg.ver": null, "ver": version, "scope": "read:/", "sub": null, "iat": null, "jti": null});
        assert_eq!(profile(changes), Ok(Profile::SciTokens));
    }
    for version in ["scitoken:1.0", "scitoken:3.0", "2.0", ""] {
        let refused = profile(json!({"wlcg.ver": null, "ver": version}));
        assert!(matches!(refused, Err(TokenError::Version { claim: "ver", .. })), "{version}: {refused:?}");
    }
    let sci = |changes: Value| {
        let mut all = json!({"wlcg.ver": null, "ver": "scitoken:2.0", "scope": "read:/"});
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        profile(all)
    };
    assert!(matches!(sci(json!({"nbf": null})), Err(TokenError::MissingClaim { claim: "nbf", .. })), "it is critical");
    assert_eq!(sci(json!({"iat": null})), Ok(Profile::SciTokens));
    assert!(matches!(sci(json!({"scope": null})), Err(TokenError::MissingClaim { claim: "scope", .. })));
    assert!(matches!(sci(json!({"aud": null})), Err(TokenError::MissingClaim { claim: "aud", .. })));
    assert_eq!(sci(json!({"aud": "ANY"})), Ok(Profile::SciTokens));
    assert!(matches!(sci(json!({"aud": "https://wlcg.cern.ch/jwt/v1/any"})), Err(TokenError::Audience { .. })));
}

#[test]
fn tokens_without_a_version_are_accepted_only_from_issuers_that_are_set_so() {
    let signer = Signer::new();
    let unversioned = identity::IssuerSettings { unversioned: true, ..settings() };
    let unversioned = Issuer::new(unversioned).unwrap();
    let claims = |changes: Value| {
        let mut all = json!({"wlcg.ver": null, "nbf": null, "scope": "read:/a", "wlcg.groups": ["/wlcg"]});
        all.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        with(all)
    };
    assert_eq!(signer.verify(&issuer(), &claims(json!({}))), Err(TokenError::NoProfile));
    let credential = signer.verify(&unversioned, &claims(json!({}))).unwrap();
    assert_eq!((credential.profile, credential.groups.len()), (Profile::SciTokens, 0));
    let allows = |operation: PathOperation, path: &str| {
        credential.rights.allows(operation, &NsPath::parse(path.as_bytes()).unwrap()).is_ok()
    };
    assert!(allows(PathOperation::Read, "/wlcg/a/f"));
    assert!(!allows(PathOperation::Read, "/wlcg/b") && !allows(PathOperation::ModifyFile, "/wlcg/a/f"));
    let refused = |changes: Value| signer.verify(&unversioned, &claims(changes)).unwrap_err();
    for missing in ["aud", "iat", "exp", "scope"] {
        let refused = refused(json!({ missing: null }));
        assert!(matches!(refused, TokenError::MissingClaim { claim, .. } if claim == missing), "{refused:?}");
    }
    assert!(matches!(refused(json!({"aud": "https://x.example"})), TokenError::Audience { .. }));
    assert!(matches!(refused(json!({"ver": "scitoken:1.0"})), TokenError::Version { .. }));
    assert!(matches!(refused(json!({"ver": null, "wlcg.ver": "2.0"})), TokenError::Version { .. }));
    assert!(matches!(refused(json!({"ver": "scitoken:2.0"})), TokenError::MissingClaim { claim: "nbf", .. }));
}

#[test]
fn malformed_subjects_groups_and_scopes_are_refused() {
    let signer = Signer::new();
    let at = |changes: Value| signer.verify(&issuer(), &with(changes)).err();
    for subject in [json!(""), json!("é"), json!("a\nb"), json!("a".repeat(256)), json!(7)] {
        assert!(matches!(at(json!({ "sub": subject })), Some(TokenError::BadClaim { claim: "sub", .. })), "{subject}");
    }
    assert_eq!(at(json!({"sub": "a".repeat(255)})), None);
    assert_eq!(at(json!({"sub": "host:a.example.org"})), None);
    let many: Vec<String> = (0..257).map(|number| format!("/g{number}")).collect();
    for groups in [json!("/wlcg"), json!([1]), json!(["wlcg"]), json!(["/wlcg", "/a//b"]), json!(["/a b"]), json!(many)]
    {
        let refused = at(json!({ "scope": null, "wlcg.groups": groups }));
        assert!(matches!(refused, Some(TokenError::BadClaim { claim: "wlcg.groups", .. })), "{groups}");
        assert_eq!(at(json!({ "wlcg.groups": groups })), None, "beside a scope, groups do not count: {groups}");
    }
    assert_eq!(at(json!({ "scope": null, "wlcg.groups": many[..256] })), None);
    assert!(matches!(at(json!({"scope": ["storage.read:/"]})), Some(TokenError::BadClaim { claim: "scope", .. })));
    for id in [json!("x".repeat(256)), json!("a\nb"), json!("é"), json!("\u{1b}[1m"), json!(1)] {
        assert!(matches!(at(json!({ "jti": id })), Some(TokenError::BadClaim { claim: "jti", .. })), "{id}");
    }
    assert_eq!(at(json!({"jti": "a b"})), None);
}

#[test]
fn capabilities_limit_a_token_and_groups_count_only_without_them() {
    let signer = Signer::new();
    let path = NsPath::parse(b"/wlcg/a").unwrap();
    let token = |issuer: &Issuer, scope: Value, groups: Value| {
        let credential = signer.verify(issuer, &with(json!({"scope": scope, "wlcg.groups": groups}))).unwrap();
        let groups: Vec<String> = credential.groups.iter().map(ToString::to_string).collect();
        let kind = match credential.rights {
            TokenRights::Identity(_) => "identity",
            TokenRights::Scoped(_) => "scoped",
            TokenRights::Nothing { .. } => "nothing",
        };
        let reads = credential.rights.allows(PathOperation::Read, &path).is_ok();
        (kind, reads, groups.join(" "))
    };
    let default = issuer();
    let groups = json!(["/wlcg/xfers", "/wlcg"]);
    assert_eq!(token(&default, json!("openid"), groups.clone()), ("identity", true, "/wlcg/xfers /wlcg".into()));
    assert_eq!(token(&default, json!(null), groups.clone()), ("identity", true, "/wlcg/xfers /wlcg".into()));
    assert_eq!(token(&default, json!("storage.read:/"), groups.clone()), ("scoped", true, String::new()));
    assert_eq!(token(&default, json!("storage.create:/"), groups.clone()), ("scoped", false, String::new()));
    // Any capability counts, irrespective of its relevance here (section 2.2.3).
    assert_eq!(token(&default, json!("compute.create"), groups.clone()), ("scoped", false, String::new()));
    assert_eq!(token(&default, json!("storage.future:/"), groups.clone()), ("scoped", false, String::new()));
    assert_eq!(token(&default, json!("openid"), json!(null)), ("nothing", false, String::new()));
    assert_eq!(token(&default, json!(""), json!([])), ("nothing", false, String::new()));

    let set = |change: fn(&mut identity::IssuerSettings)| {
        let mut settings = settings();
        change(&mut settings);
        Issuer::new(settings).unwrap()
    };
    let always = set(|settings| settings.groups = GroupUse::Always);
    assert_eq!(
        token(&always, json!("storage.create:/"), groups.clone()),
        ("scoped", false, "/wlcg/xfers /wlcg".into())
    );
    let never = set(|settings| settings.groups = GroupUse::Never);
    assert_eq!(token(&never, json!("openid"), groups.clone()), ("nothing", false, String::new()));
    let identity = set(|settings| settings.without_scopes = WithoutScopes::Identity);
    assert_eq!(token(&identity, json!("openid"), json!(null)), ("identity", true, String::new()));
    assert_eq!(token(&identity, json!("storage.create:/"), json!(null)), ("scoped", false, String::new()));
    let groups_only = set(|settings| settings.scopes = false);
    assert_eq!(token(&groups_only, json!("storage.read:/"), json!(null)), ("nothing", false, String::new()));
    assert_eq!(token(&groups_only, json!("storage.read:/"), json!(["/wlcg"])), ("identity", true, "/wlcg".into()));
}

#[test]
fn a_token_whose_groups_count_allows_nothing_outside_of_its_issuers_part() {
    let signer = Signer::new();
    let path = |text: &str| NsPath::parse(text.as_bytes()).unwrap();
    let groups = json!({"scope": null, "wlcg.groups": ["/wlcg"]});
    let allows = |issuer: &Issuer, changes: &Value, operation: PathOperation, at: &str| {
        let rights = signer.verify(issuer, &with(changes.clone())).unwrap().rights;
        rights.allows(operation, &path(at)).is_ok()
    };
    let restricted = identity::IssuerSettings { restricted_paths: vec!["/data".into()], ..settings() };
    let restricted = Issuer::new(restricted).unwrap();
    let whole = Issuer::new(identity::IssuerSettings { base_paths: vec!["/".into()], ..settings() }).unwrap();
    let subject = identity::IssuerSettings { without_scopes: WithoutScopes::Identity, ..settings() };
    let subject = Issuer::new(subject).unwrap();
    for operation in PathOperation::ALL {
        assert!(allows(&issuer(), &groups, operation, "/wlcg/data/f"), "{operation}");
        assert!(!allows(&issuer(), &groups, operation, "/cms/f"), "{operation}");
        assert!(!allows(&issuer(), &groups, operation, "/wlcgx"), "{operation}");
        assert!(!allows(&subject, &json!({"scope": "openid"}), operation, "/cms/f"), "{operation}");
        assert!(allows(&restricted, &groups, operation, "/wlcg/data/f"), "{operation}");
        assert!(!allows(&restricted, &groups, operation, "/wlcg/other"), "{operation}");
        assert!(allows(&whole, &groups, operation, "/cms/f"), "{operation}");
        assert_eq!(allows(&issuer(), &groups, operation, "/"), operation == PathOperation::Stat, "{operation}");
    }
    let rights = signer.verify(&issuer(), &with(groups.clone())).unwrap().rights;
    assert_eq!(
        rights.allows(PathOperation::Read, &path("/cms/f")).unwrap_err().to_string(),
        "the token cannot be used to read /cms/f: its issuer https://wlcg.example/ decides only about /wlcg"
    );
}

#[test]
fn groups_of_scitokens_authorize_nothing() {
    let signer = Signer::new();
    let claims =
        with(json!({"wlcg.ver": null, "ver": "scitoken:2.0", "scope": "queue execute", "wlcg.groups": ["/wlcg"]}));
    for scopes in [true, false] {
        let settings = identity::IssuerSettings { scopes, groups: GroupUse::Always, ..settings() };
        let credential = signer.verify(&Issuer::new(settings).unwrap(), &claims).unwrap();
        assert!(credential.groups.is_empty());
        assert!(credential.rights.allows(PathOperation::Stat, &NsPath::parse(b"/wlcg").unwrap()).is_err());
    }
}

#[test]
fn scitokens_are_limited_by_their_scopes_even_if_none_is_about_storage() {
    let signer = Signer::new();
    let settings = identity::IssuerSettings { without_scopes: WithoutScopes::Identity, ..settings() };
    let issuer = Issuer::new(settings).unwrap();
    for scope in ["", "openid", "queue"] {
        let claims = with(json!({"wlcg.ver": null, "ver": "scitoken:2.0", "scope": scope}));
        let rights = signer.verify(&issuer, &claims).unwrap().rights;
        assert!(rights.allows(PathOperation::Read, &NsPath::parse(b"/wlcg/a").unwrap()).is_err(), "{scope}");
    }
}

#[test]
fn a_changed_token_is_never_accepted() {
    let signer = Signer::new();
    let keys = signer.key_set();
    for algorithm in [Algorithm::Rs256, Algorithm::Ps256, Algorithm::Es256, Algorithm::Es384, Algorithm::EdDsa] {
        let token = signer.token(algorithm, &wlcg_claims());
        for end in 0..token.len() {
            assert!(verify(&token[..end], &issuer(), &keys).is_err(), "cut at {end}");
        }
        for at in 0..token.len() {
            let mut changed = token.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert!(verify(std::str::from_utf8(&changed).unwrap(), &issuer(), &keys).is_err(), "changed at {at}");
        }
        // The claims of one token under the signature of another.
        let other = signer.token(algorithm, &with(json!({"sub": "somebody else"})));
        let (signed, _) = other.rsplit_once('.').unwrap();
        let (_, signature) = token.rsplit_once('.').unwrap();
        assert!(verify(&format!("{signed}.{signature}"), &issuer(), &keys).is_err());
    }
}

#[test]
fn messages_never_contain_the_token_and_stay_short() {
    let signer = Signer::new();
    let long = "x".repeat(5000);
    for claims in [
        with(json!({ "aud": long })),
        with(json!({ "aud": vec!["x".repeat(200); 40] })),
        with(json!({ "wlcg.ver": long })),
        with(json!({"scope": format!("storage.read:{long}")})),
    ] {
        let token = signer.token(Algorithm::Es256, &claims);
        let message = verify(&token, &issuer(), &signer.key_set()).unwrap_err().to_string();
        assert!(message.len() < 2000, "{message}");
        assert!(!message.contains(&token[..40]), "{message}");
    }
}

#[test]
fn a_token_shows_its_claims_and_nothing_that_lets_anybody_use_it() {
    let claims =
        with(json!({"aud": ["a", "b"], "sub": "x".repeat(1000), "secret": "not shown", "nbf": "\n", "jti": null}));
    let text = Signer::new().token(Algorithm::Es256, &claims);
    let token = UnverifiedToken::parse(text.as_bytes()).unwrap();
    assert_eq!(token.algorithm(), Algorithm::Es256);
    let shown = token.shown_claims();
    let names: Vec<&str> = shown.iter().map(|(claim, _)| *claim).collect();
    assert_eq!(names, ["iss", "sub", "aud", "exp", "nbf", "iat", "scope", "wlcg.ver"]);
    assert_eq!(shown[2].1, "a, b");
    assert_eq!(shown[4].1, "\\n");
    assert!(shown[1].1.chars().count() < 200);
    let all = format!("{shown:?}");
    assert!(text.split('.').all(|part| !all.contains(part)), "{all}");
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = UnverifiedToken::parse(&bytes);
    }

    #[test]
    fn any_claims_are_judged_without_panic(
        claim in prop::sample::select(vec!["iss", "sub", "aud", "exp", "nbf", "iat", "jti", "wlcg.ver", "ver", "scope", "wlcg.groups"]),
        value in prop_oneof![
            any::<i64>().prop_map(|n| json!(n)),
            any::<f64>().prop_map(|n| json!(n)),
            any::<String>().prop_map(|text| json!(text)),
            prop::collection::vec(any::<String>(), 0..5).prop_map(|texts| json!(texts)),
            "(storage\\.(read|modify|create):[/a%.2fF]{0,12} ?){1,3}".prop_map(|scope| json!(scope)),
        ],
    ) {
        thread_local!(static SIGNER: Signer = Signer::new());
        SIGNER.with(|signer| {
            let result = signer.verify(&issuer(), &with(json!({ claim: value })));
            if let Err(why) = result {
                assert!(why.to_string().len() < 2000);
            }
        });
    }
}
