//! Scopes: which operations they allow on which paths.

use identity::{Denial, Issuer, IssuerSettings, ScopeError, TokenError, TokenRights};
use proptest::prelude::*;
use serde_json::json;
use types::{NsPath, PathOperation};

use crate::common::{Signer, issuer, settings, with};

use PathOperation::{
    CreateDirectory, CreateFile, Link, List, ModifyDirectory, ModifyFile, Poll, Read, RenameFile, Stage, Stat,
};

thread_local!(static SIGNER: Signer = Signer::new());

fn verified(issuer: &Issuer, claims: serde_json::Value) -> Result<TokenRights, TokenError> {
    SIGNER.with(|signer| signer.verify(issuer, &with(claims)).map(|credential| credential.rights))
}

fn rights_at(issuer: &Issuer, scope: &str) -> Result<TokenRights, TokenError> {
    verified(issuer, json!({ "scope": scope }))
}

/// The rights by a scope of a WLCG token, where the issuer decides about `/wlcg`.
fn rights(scope: &str) -> TokenRights {
    rights_at(&issuer(), scope).unwrap()
}

fn scitoken(scope: &str) -> Result<TokenRights, TokenError> {
    verified(&issuer(), json!({"wlcg.ver": null, "ver": "scitoken:2.0", "scope": scope}))
}

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn allowed(rights: &TokenRights, at: &str) -> Vec<PathOperation> {
    PathOperation::ALL.into_iter().filter(|operation| rights.allows(*operation, &path(at)).is_ok()).collect()
}

#[test]
fn each_scope_allows_what_the_profile_says_and_nothing_else() {
    let below = |scope: &str| allowed(&rights(scope), "/wlcg/d/f");
    let create = [Stat, Poll, CreateFile, CreateDirectory, RenameFile];
    let modify = [Stat, Poll, CreateFile, CreateDirectory, RenameFile, ModifyFile, ModifyDirectory];
    assert_eq!(below("storage.read:/d"), [Read, List, Stat, Poll]);
    assert_eq!(below("storage.create:/d"), create);
    assert_eq!(below("storage.modify:/d"), modify, "it does not include reading");
    assert_eq!(below("storage.stage:/d"), [Stat, Poll, Stage], "it does not include reading any more");
    assert_eq!(below("storage.poll:/d"), [Poll], "not even the rest of the metadata");
    assert_eq!(below("storage.read:/d storage.create:/d"), [[Read, List].as_slice(), &create].concat());
    for nothing in ["compute.create", "compute.modify:/d", "storage.write:/d", "read:/d", "write:/d compute.read"] {
        let rights = rights(&format!("{nothing} compute.read"));
        assert_eq!(allowed(&rights, "/wlcg/d/f"), [], "{nothing}");
    }
    for upper in ["Storage.read:/d", "STORAGE.READ:/d"] {
        assert!(matches!(rights(upper), TokenRights::Nothing { .. }), "scopes depend on case");
    }

    assert_eq!(allowed(&scitoken("read:/d").unwrap(), "/wlcg/d/f"), [Read, List, Stat, Poll]);
    assert_eq!(allowed(&scitoken("write:/d").unwrap(), "/wlcg/d/f"), modify);
    assert_eq!(allowed(&scitoken("queue execute storage.read:/d").unwrap(), "/wlcg/d/f"), []);
}

#[test]
fn the_examples_of_the_profile_come_out_as_written_there() {
    // Section 2.2.3, with the prefix /wlcg for /vo.
    let token = rights("storage.read:/ storage.create:/stageout");
    for (operation, at, right) in [
        (Read, "/wlcg/sample_file1", true),
        (Read, "/wlcg/stageout/sample_file2", true),
        (CreateFile, "/wlcg/stageout/sample_file3", true),
        (Read, "/sample_file", false),
        (CreateFile, "/wlcg/sample_file1", false),
    ] {
        assert_eq!(token.allows(operation, &path(at)).is_ok(), right, "{operation} {at}");
    }
    // Section 2.2.1.
    let token = rights("storage.create:/foo/bar");
    for (operation, at, right) in [
        (CreateDirectory, "/wlcg/foo", true),
        (CreateFile, "/wlcg/foo", false),
        (CreateDirectory, "/wlcg/foo/bar", true),
        (CreateFile, "/wlcg/foo/bar", true),
        (CreateDirectory, "/wlcg/foo/bar/qux", true),
        (CreateFile, "/wlcg/foo/bar/qux", true),
        (CreateDirectory, "/wlcg/foo/bargain", false),
        (CreateFile, "/wlcg/foo/bargain", false),
        (CreateDirectory, "/wlcg/fo", false),
        (CreateDirectory, "/wlcg", false),
        (CreateDirectory, "/foo", false),
    ] {
        assert_eq!(token.allows(operation, &path(at)).is_ok(), right, "{operation} {at}");
    }
    let token = rights("storage.create:/foo/bar/");
    assert!(token.allows(CreateFile, &path("/wlcg/foo/bar")).is_err(), "a slash at the end names a directory");
    assert!(token.allows(CreateDirectory, &path("/wlcg/foo/bar")).is_ok());
    assert!(token.allows(CreateFile, &path("/wlcg/foo/bar/qux")).is_ok());
}

#[test]
fn whole_names_are_compared() {
    let token = rights("storage.read:/foo");
    assert!(token.allows(Read, &path("/wlcg/foo")).is_ok());
    assert!(token.allows(Read, &path("/wlcg/foo/bar")).is_ok());
    for other in ["/wlcg/foobar", "/wlcg/fo", "/wlcg/foo.bar/x", "/wlcg/Foo", "/wlcgx/foo", "/foo", "/wlcg"] {
        assert!(token.allows(Read, &path(other)).is_err(), "{other}");
    }
}

#[test]
fn directories_above_a_path_can_be_looked_at_and_not_listed() {
    let token = rights("storage.read:/a/b");
    for above in ["/", "/wlcg", "/wlcg/a"] {
        assert_eq!(allowed(&token, above), [Stat], "{above}");
    }
    assert_eq!(allowed(&rights("storage.poll:/a/b"), "/wlcg/a"), []);
    assert_eq!(allowed(&rights("storage.create:/a/b"), "/wlcg/a"), [Stat, CreateDirectory]);
    assert_eq!(allowed(&rights("storage.create:/a/b"), "/wlcg"), [Stat]);
    assert_eq!(allowed(&rights("compute.create"), "/"), []);
}

#[test]
fn the_root_of_a_scope_is_the_base_path_of_its_issuer() {
    let token = rights("storage.modify:/");
    assert_eq!(
        allowed(&token, "/wlcg/x"),
        [Stat, Poll, CreateFile, CreateDirectory, RenameFile, ModifyFile, ModifyDirectory]
    );
    assert!(token.allows(CreateFile, &path("/wlcg")).is_err(), "the root is a directory");
    for outside in ["/other", "/wlcg2", "/", "/wlc"] {
        assert!(token.allows(CreateDirectory, &path(outside)).is_err(), "{outside}");
    }
    let several = IssuerSettings { base_paths: vec!["/a".into(), "/b/c/".into()], ..settings() };
    let token = rights_at(&Issuer::new(several).unwrap(), "storage.read:/x").unwrap();
    for (at, right) in [("/a/x", true), ("/b/c/x/y", true), ("/b/x", false), ("/a/y", false), ("/x", false)] {
        assert_eq!(token.allows(Read, &path(at)).is_ok(), right, "{at}");
    }
    let whole = IssuerSettings { base_paths: vec!["/".into()], ..settings() };
    let token = rights_at(&Issuer::new(whole).unwrap(), "storage.read:/x storage.create:/y/z").unwrap();
    assert!(token.allows(Read, &path("/x/y")).is_ok());
    assert!(token.allows(Read, &path("/xy")).is_err());
    assert!(token.allows(CreateDirectory, &path("/y")).is_ok());
    assert!(token.allows(Stat, &path("/")).is_ok());
}

#[test]
fn a_hard_link_needs_all_that_it_could_give_at_the_new_name() {
    let links = |scope: &str| rights(scope).allows(Link, &path("/wlcg/d/f")).is_ok();
    assert!(links("storage.read:/d storage.modify:/d"));
    assert!(links("storage.read:/ storage.modify:/d/f"));
    for short in [
        "storage.read:/d",
        "storage.modify:/d",
        "storage.read:/d storage.create:/d",
        "storage.read:/d storage.modify:/e",
        "storage.read:/e storage.modify:/d",
        "storage.read:/d/f/ storage.modify:/d",
    ] {
        assert!(!links(short), "{short}");
    }
    assert!(scitoken("read:/d write:/").unwrap().allows(Link, &path("/wlcg/d/f")).is_ok());
    assert!(scitoken("write:/").unwrap().allows(Link, &path("/wlcg/d/f")).is_err());
    let said = rights("storage.modify:/d").allows(Link, &path("/wlcg/d/f")).unwrap_err().to_string();
    assert!(said.contains("give another name to the file /wlcg/d/f"), "{said}");
    assert!(said.contains("needs the scope storage.read and the scope storage.modify on it"), "{said}");
}

#[test]
fn no_token_changes_a_base_path() {
    let groups = verified(&issuer(), json!({"scope": null, "wlcg.groups": ["/wlcg"]})).unwrap();
    for token in [rights("storage.read:/ storage.modify:/ storage.stage:/"), groups] {
        for operation in [CreateDirectory, ModifyDirectory, CreateFile, ModifyFile, RenameFile] {
            let denied = token.allows(operation, &path("/wlcg"));
            assert!(matches!(denied, Err(Denial::BasePath { .. })), "{operation}: {denied:?}");
            assert!(token.allows(operation, &path("/wlcg/x")).is_ok(), "{operation}");
        }
        assert!(token.allows(Link, &path("/wlcg")).is_err());
        assert!(token.allows(Stat, &path("/wlcg")).is_ok() && token.allows(List, &path("/wlcg")).is_ok());
    }
    let inner = IssuerSettings { base_paths: vec!["/a".into(), "/a/b".into()], ..settings() };
    let token = rights_at(&Issuer::new(inner).unwrap(), "storage.modify:/").unwrap();
    assert!(token.allows(ModifyDirectory, &path("/a/b")).is_ok(), "it is below another base path");
}

#[test]
fn restricted_paths_keep_tokens_out_of_the_rest() {
    let restricted = IssuerSettings { restricted_paths: vec!["/data".into(), "/scratch/vo".into()], ..settings() };
    let issuer = Issuer::new(restricted).unwrap();
    let token = rights_at(&issuer, "storage.read:/ storage.create:/").unwrap();
    for (operation, at, right) in [
        (Read, "/wlcg/data/f", true),
        (Read, "/wlcg/scratch/vo/f", true),
        (Read, "/wlcg/datax/f", false),
        (Read, "/wlcg/scratch/f", false),
        (List, "/wlcg", false),
        (List, "/wlcg/scratch", false),
        (Stat, "/wlcg/scratch", true),
        (Stat, "/wlcg/secret", false),
        (CreateDirectory, "/wlcg/scratch", true),
        (CreateDirectory, "/wlcg/other", false),
        (CreateFile, "/wlcg/scratch", false),
    ] {
        assert_eq!(token.allows(operation, &path(at)).is_ok(), right, "{operation} {at}");
    }
    let narrow = rights_at(&issuer, "storage.read:/data/run1").unwrap();
    assert!(narrow.allows(Read, &path("/wlcg/data/run1/f")).is_ok());
    assert!(narrow.allows(Read, &path("/wlcg/data/run2/f")).is_err());
    assert!(matches!(token.allows(Read, &path("/wlcg/x")), Err(Denial::Restricted { .. })));
    assert!(matches!(narrow.allows(Read, &path("/wlcg/data/run2")), Err(Denial::NoScope { .. })));
}

#[test]
fn paths_in_scopes_are_decoded_once_and_normalised() {
    for (scope, at, right) in [
        ("storage.read:/foo//bar", "/wlcg/foo/bar/x", true),
        ("storage.read://foo/./bar/.", "/wlcg/foo/bar/x", true),
        ("storage.read:/foo/bar/", "/wlcg/foo/bar/x", true),
        ("storage.read:/foo/bar/", "/wlcg/foo/bar", false),
        ("storage.read:/foo/bar/.", "/wlcg/foo/bar", false),
        ("storage.read:/a%20b", "/wlcg/a b/x", true),
        ("storage.read:/%66oo", "/wlcg/foo", true),
        ("storage.read:/a%C3%A9", "/wlcg/aé", true),
        ("storage.read:/a%3Ab", "/wlcg/a:b", true),
        ("storage.read:/a:b", "/wlcg/a:b", true),
        ("storage.read:/%2566oo", "/wlcg/%66oo", true),
        ("storage.read:/%2566oo", "/wlcg/foo", false),
        ("storage.read:/%2e/foo", "/wlcg/foo", true),
        ("storage.read:/foo/...", "/wlcg/foo/...", true),
    ] {
        assert_eq!(rights(scope).allows(Read, &path(at)).is_ok(), right, "{scope} on {at}");
    }
}

#[test]
fn scopes_with_tricks_in_their_paths_refuse_the_token() {
    let refused = |scope: &str| match rights_at(&issuer(), scope) {
        Err(TokenError::Scope(why)) => why,
        other => panic!("{scope}: {other:?}"),
    };
    for no_path in ["storage.read", "storage.read:", "storage.modify", "storage.stage", "storage.poll:"] {
        assert!(matches!(refused(no_path), ScopeError::NoPath(_)), "{no_path}");
        assert!(matches!(refused(&format!("storage.create:/x {no_path}")), ScopeError::NoPath(_)));
    }
    for path in
        ["/foo/../bar", "/..", "/foo/..", "/%2e%2e/x", "/foo/.%2E", "/%2E./x", "foo", "%2Ffoo", "//../x", "/a%00b"]
    {
        let why = refused(&format!("storage.read:{path}"));
        assert!(matches!(why, ScopeError::Path { .. } | ScopeError::EscapedSlash(_)), "{path}: {why:?}");
    }
    for path in ["/foo%2Fbar", "/foo%2fbar", "/foo%2F..%2Fbar"] {
        assert!(matches!(refused(&format!("storage.read:{path}")), ScopeError::EscapedSlash(_)), "{path}");
    }
    for path in ["/a%", "/a%2", "/a%zz", "/%+1", "/a%2/b", "/%%41"] {
        assert!(matches!(refused(&format!("storage.read:{path}")), ScopeError::Escape(_)), "{path}");
    }
    let long = format!("storage.read:/{}", "a".repeat(256));
    assert!(matches!(refused(&long), ScopeError::Path { .. }));
    let many = "storage.read:/a ".repeat(257);
    assert_eq!(refused(&many), ScopeError::TooMany);
    assert!(rights_at(&issuer(), &many[16..]).is_ok());
    for scope in ["read", "write:", "read:/../x"] {
        assert!(matches!(scitoken(scope), Err(TokenError::Scope(_))), "{scope}");
    }
}

#[test]
fn a_denial_says_what_is_missing() {
    let said = |token: &TokenRights, operation, at: &str| token.allows(operation, &path(at)).unwrap_err().to_string();
    assert_eq!(
        said(&rights("storage.read:/foo"), CreateFile, "/wlcg/foo/x"),
        "the token cannot be used to create the file /wlcg/foo/x: that needs the scope storage.create or storage.modify on it \
         or on a directory above it (paths in scopes begin at /wlcg), and the token has storage.read:/foo"
    );
    assert_eq!(
        said(&rights("storage.read:/foo"), Read, "/cms/x"),
        "the token cannot be used to read /cms/x: its issuer https://wlcg.example/ decides only about /wlcg"
    );
    assert!(said(&rights("compute.create"), Read, "/wlcg/x").ends_with("and the token has no storage scope"));
    assert!(said(&scitoken("read:/a").unwrap(), CreateFile, "/wlcg/x").ends_with("and the token has read:/a"));
    assert!(said(&rights("openid"), Read, "/wlcg/x").contains("without_scopes"));
}

/// Names of which many are prefixes of each other.
fn names() -> impl Strategy<Value = Vec<&'static str>> {
    prop::collection::vec(prop::sample::select(vec!["a", "ab", "abc", "b", "a.", "A"]), 0..4)
}

proptest! {
    /// The rule once more, on lists of names instead of on bytes.
    #[test]
    fn a_scope_reaches_exactly_what_is_at_or_below_its_path(
        scope in names(), base in names(), inner in names(), outside in any::<bool>(), create in any::<bool>(),
    ) {
        let text = |names: &[&str]| format!("/{}", names.join("/"));
        let issuer = Issuer::new(IssuerSettings { base_paths: vec![text(&base)], ..settings() }).unwrap();
        let name = if create { "storage.create" } else { "storage.read" };
        let token = rights_at(&issuer, &format!("{name}:{}", text(&scope))).unwrap();
        let requested: Vec<&str> = if outside { inner } else { [base.clone(), inner].concat() };
        let at = path(&text(&requested));
        let full = [base.clone(), scope.clone()].concat();
        let below = requested.starts_with(&full);
        let above = full.starts_with(&requested);
        let file = below && !(scope.is_empty() && requested == full);
        let operations = if create { [CreateFile, CreateDirectory] } else { [Read, List] };
        prop_assert_eq!(token.allows(operations[0], &at).is_ok(), file);
        let directory = if create { (below || above) && requested.len() > base.len() } else { below };
        prop_assert_eq!(token.allows(operations[1], &at).is_ok(), directory);
        prop_assert_eq!(token.allows(Stat, &at).is_ok(), below || above);
        for never in [ModifyFile, ModifyDirectory, Stage, Link] {
            prop_assert!(token.allows(never, &at).is_err());
        }
    }

    #[test]
    fn any_scope_is_read_or_refused(scope in "[a-z.:/%0-9A-F ]{0,60}", any in any::<String>()) {
        for scope in [format!("storage.read:{scope}"), any] {
            if let Ok(TokenRights::Scoped(rights)) = rights_at(&issuer(), &scope) {
                for scope in rights.scopes() {
                    prop_assert!(scope.path.components().all(|name| !name.contains(&b'/') && name != b".."));
                }
            }
        }
    }
}
