//! Scopes: any scope on any path. The input is the path, a zero byte, and the scopes.
#![no_main]

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use identity::{Issuer, IssuerSettings, IssuerUrl, KeySet, StorageAction, TokenRights, UnverifiedToken};
use libfuzzer_sys::fuzz_target;
use ring::signature::{Ed25519KeyPair, KeyPair};
use types::{NsPath, PathOperation, Timestamp};

static SIGNER: LazyLock<Ed25519KeyPair> = LazyLock::new(|| Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap());
static URL: LazyLock<IssuerUrl> = LazyLock::new(|| IssuerUrl::parse("https://a.example").unwrap());
static KEYS: LazyLock<KeySet> = LazyLock::new(|| {
    let public = URL_SAFE_NO_PAD.encode(SIGNER.public_key());
    let key = serde_json::json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": public});
    KeySet::parse(serde_json::json!({ "keys": [key] }).to_string().as_bytes(), &URL).unwrap()
});

fn issuer() -> Issuer {
    let settings = IssuerSettings {
        url: "https://a.example".into(),
        base_paths: vec!["/base".into()],
        audiences: vec!["https://se.example".into()],
        any_audience: true,
        restricted_paths: Vec::new(),
        scopes: true,
        unversioned: false,
        groups: Default::default(),
        without_scopes: Default::default(),
    };
    Issuer::new(settings).unwrap()
}

fn rights(scope: &str) -> Option<TokenRights> {
    let claims = serde_json::json!({
        "iss": "https://a.example", "sub": "ana", "aud": "https://se.example", "exp": 2_000_000_000, "iat": 1_700_000_000,
        "wlcg.ver": "1.3", "scope": scope,
    });
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"EdDSA","kid":"a"}"#);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
    let token = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(SIGNER.sign(signed.as_bytes())));
    let now = Timestamp::from_secs(1_800_000_000);
    Some(UnverifiedToken::parse(token.as_bytes()).ok()?.verify(&issuer(), &KEYS, now).ok()?.rights)
}

/// Whether the WLCG profile lets a scope with `action` allow `operation` at all.
fn reaches(action: StorageAction, operation: PathOperation) -> bool {
    use PathOperation::{
        CreateDirectory, CreateFile, List, ModifyDirectory, ModifyFile, Poll, Read, RenameFile, Stage,
    };
    match action {
        StorageAction::Read => matches!(operation, Read | List | Poll),
        StorageAction::Create => matches!(operation, CreateFile | CreateDirectory | RenameFile | Poll),
        StorageAction::Modify | StorageAction::Write => {
            matches!(operation, CreateFile | CreateDirectory | RenameFile | ModifyFile | ModifyDirectory | Poll)
        }
        StorageAction::Stage => matches!(operation, Stage | Poll),
        StorageAction::Poll => operation == Poll,
    }
}

fuzz_target!(|bytes: &[u8]| {
    let Some(zero) = bytes.iter().position(|&byte| byte == 0) else { return };
    let Ok(path) = NsPath::parse(&bytes[..zero]) else { return };
    let Ok(scope) = std::str::from_utf8(&bytes[zero + 1..]) else { return };
    let Some(rights) = rights(scope) else { return };
    let base = NsPath::parse(b"/base").unwrap();
    for operation in PathOperation::ALL {
        let allowed = rights.allows(operation, &path).is_ok();
        if !allowed {
            continue;
        }
        let TokenRights::Scoped(scoped) = &rights else { panic!("a token without groups is limited by its scopes") };
        if operation == PathOperation::Stat {
            continue;
        }
        if operation == PathOperation::Link {
            let both = [PathOperation::Read, PathOperation::ModifyFile];
            assert!(both.iter().all(|part| rights.allows(*part, &path).is_ok()), "a link without {both:?}");
            continue;
        }
        assert!(path.is_at_or_below(&base), "{operation} {path} is outside");
        // By names, and not by bytes.
        let inner: Vec<&[u8]> = path.components().skip(1).collect();
        let changes = !matches!(
            operation,
            PathOperation::Read | PathOperation::List | PathOperation::Poll | PathOperation::Stage
        );
        assert!(!(changes && inner.is_empty()), "{operation} changes the base path");
        let reached = scoped.scopes().iter().filter(|scope| reaches(scope.action, operation)).any(|scope| {
            let wanted: Vec<&[u8]> = scope.path.components().collect();
            inner.starts_with(&wanted) || (operation == PathOperation::CreateDirectory && wanted.starts_with(&inner))
        });
        assert!(reached, "no scope reaches {path}");
    }
});
