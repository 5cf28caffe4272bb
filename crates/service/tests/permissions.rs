//! Who may do what, through a front end, on a single node and in a cluster.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

// Each test file uses a part of them.
#[allow(dead_code)]
mod line;
#[allow(dead_code)]
mod nodes;

use std::time::{Duration, Instant};

use line::client::Client;
use namespace::{QuotaOf, SetQuota};
use nodes::Nodes;
use service::{Principal, QuotaOwner, TreeActor};
use types::{Crc32c, ErrorCode, NsPath, PrincipalId, PrincipalKind, PrincipalName};

/// Runs a test on a single node and in a cluster of three disk servers.
fn everywhere(test: impl Fn(&Nodes)) {
    test(&Nodes::alone());
    test(&Nodes::cluster(3));
}

fn eve() -> Principal {
    Principal { id: PrincipalId(77), groups: [PrincipalId(77)].into(), ..Principal::admin() }
}

/// Makes a complete file with this mode.
fn make(owner: &mut Client, path: &str, mode: &str, text: &str) {
    assert_eq!(owner.ask(&format!("create f {path}")), "ok 0");
    assert_eq!(owner.ask(&format!("write f 0 {text}")), "ok");
    assert_eq!(owner.ask("close f"), "ok");
    assert_eq!(owner.ask(&format!("chmod {path} {mode}")), "ok");
}

/// A checksum tells about the bytes: who guesses them can compare.
#[test]
fn checksums_need_the_right_to_read() {
    everywhere(|nodes| {
        let (mut owner, mut eve) = (nodes.connect(1), nodes.connect_as(&eve(), 2));
        assert_eq!(owner.ask("mkdir /d"), "ok");
        make(&mut owner, "/d/open", "644", "for-all");
        make(&mut owner, "/d/secret", "600", "pin-1234");
        let (open, secret) = (Crc32c::of(b"for-all").0, Crc32c::of(b"pin-1234").0);
        assert_eq!(eve.ask("checksum /d/open"), format!("ok {open:08x}"));
        let denied = |answer: String| assert!(answer.starts_with("error Denied "), "{answer}");
        denied(eve.ask("checksum /d/secret"));
        // Not even the server reads it for her.
        denied(eve.ask("digest /d/secret"));
        let digest = |client: &mut Client, path: &str| {
            let answer = client.ask(&format!("digest {path}"));
            answer.strip_prefix("ok ").unwrap_or_else(|| panic!("{answer}")).to_owned()
        };
        let of_open = digest(&mut eve, "/d/open");
        let of_secret = digest(&mut owner, "/d/secret");
        // Now it is known.
        denied(eve.ask("digest /d/secret"));
        let listed = |client: &mut Client| client.at_home("list-sums /d");
        // The answer does not wait until they are kept.
        let all = format!("ok open={open:08x}/{of_open},secret={secret:08x}/{of_secret}");
        let end = Instant::now() + Duration::from_secs(20);
        while listed(&mut owner) != all {
            assert!(Instant::now() < end, "{}", listed(&mut owner));
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(listed(&mut eve), format!("ok open={open:08x}/{of_open},secret=-/-"));
        assert_eq!(eve.at_home("list-sums-alone /d"), "ok open=-/-,secret=-/-");
    });
}

/// Otherwise an owner could fill the namespace with records.
#[test]
fn an_owner_limits_only_users_and_groups_that_are_known() {
    everywhere(|nodes| {
        let (service, path) = (nodes.service(), NsPath::parse(b"/t").unwrap());
        service.make_tree(&path, true).unwrap();
        service.add_principal(PrincipalKind::User, "ana").unwrap();
        let ops = service.add_principal(PrincipalKind::Group, "ops").unwrap();
        service.give_tree(&path, Some((PrincipalKind::User, "ana"))).unwrap();
        let ana = PrincipalName::parse(PrincipalKind::User, "ana").unwrap();
        let owner = service.tree_owner(&ana, &[], None).unwrap();
        let set = |who: &TreeActor, whose: QuotaOwner| {
            let (path, of, limit) = (path.clone(), QuotaOf::Tree, Some(Some(1 << 20)));
            let (soft_bytes, hard_files, soft_files, grace) = (None, None, None, None);
            let request = SetQuota { path, of, hard_bytes: limit, soft_bytes, hard_files, soft_files, grace };
            service.set_quota(who, request, &whose).map_err(|error| error.code())
        };
        let unknown = "4000000000".to_owned();
        for whose in [QuotaOwner::User(unknown.clone()), QuotaOwner::Group(unknown.clone())] {
            assert_eq!(set(&owner, whose), Err(ErrorCode::NotFound));
        }
        assert_eq!(set(&owner, QuotaOwner::User(ops.0.to_string())), Err(ErrorCode::NotFound), "it is a group");
        for whose in [QuotaOwner::Group(ops.0.to_string()), QuotaOwner::User("ana".into()), QuotaOwner::Tree] {
            assert_eq!(set(&owner, whose), Ok(()));
        }
        // An administrator may: files can have numbers that have no names.
        assert_eq!(set(&TreeActor::administrator(), QuotaOwner::User(unknown)), Ok(()));
    });
}

/// In a cluster the manager records the close. It must know by itself that the client could not create the file.
#[test]
fn a_close_does_not_bring_a_removed_file_back_without_the_right_to_create_it() {
    everywhere(|nodes| {
        let (mut owner, mut eve) = (nodes.connect(1), nodes.connect_as(&eve(), 2));
        assert_eq!(owner.ask("mkdir /d"), "ok");
        make(&mut owner, "/d/f", "666", "hers-and-mine");
        assert_eq!(eve.ask("replace f /d/f"), "ok 0");
        assert_eq!(eve.ask("write f 0 mine"), "ok");
        assert_eq!(owner.ask("remove /d/f"), "ok");
        let closed = eve.ask("close f");
        assert!(closed.starts_with("error Denied "), "{closed}");
        assert_eq!(owner.ask("list /d"), "ok");
    });
}

/// The clients of the line protocol ask for no mode.
#[test]
fn a_default_acl_is_limited_by_no_mode_that_nobody_asked_for() {
    everywhere(|nodes| {
        let mut owner = nodes.connect(1);
        assert_eq!(owner.ask("mkdir /d"), "ok");
        assert_eq!(owner.ask("stat /d"), "ok 0 755");
        let entries =
            namespace::parse_acl("default:user:6:rwx,default:group::rwx,default:other::---", &|_, _| None).unwrap();
        let default = Some(namespace::AclEdit::Modify(entries.default));
        nodes.change(namespace::SetAcl { path: NsPath::parse(b"/d").unwrap(), access: None, default });
        assert_eq!(owner.ask("mkdir /d/e"), "ok");
        assert_eq!(owner.ask("stat /d/e"), "ok 0 770");
        assert_eq!(owner.ask("create f /d/f"), "ok 0");
        assert_eq!(owner.ask("close f"), "ok");
        assert_eq!(owner.ask("stat /d/f"), "ok 0 660");
    });
}

/// The protocols have the nine lowest bits only.
#[test]
fn chmod_of_a_directory_keeps_the_bits_that_its_clients_cannot_name() {
    everywhere(|nodes| {
        let mut owner = nodes.connect(1);
        assert_eq!(owner.ask("mkdir /d"), "ok");
        make(&mut owner, "/d/f", "644", "text");
        for at in ["/d", "/d/f"] {
            nodes.change(namespace::Chmod { path: NsPath::parse(at.as_bytes()).unwrap(), mode: 0o7777 });
            assert_eq!(owner.ask(&format!("chmod {at} 750")), "ok");
        }
        assert_eq!(owner.ask("stat /d"), "ok 0 3750");
        assert_eq!(owner.ask("stat /d/f"), "ok 4 750");
    });
}

/// Whoever may not change a file learns nothing by trying which users and groups there are.
#[test]
fn a_denial_does_not_tell_whether_a_user_exists() {
    everywhere(|nodes| {
        let (mut owner, mut eve) = (nodes.connect(1), nodes.connect_as(&eve(), 2));
        assert_eq!(owner.ask("mkdir /d"), "ok");
        make(&mut owner, "/d/open", "644", "text");
        make(&mut owner, "/d/hers", "644", "text");
        assert_eq!(owner.ask("mkdir /hidden"), "ok");
        make(&mut owner, "/hidden/f", "644", "text");
        assert_eq!(owner.ask("chmod /hidden 700"), "ok");
        for (verb, name) in [("add-user", "bob"), ("add-group", "crew")] {
            let answer = owner.ask(&format!("{verb} {name}"));
            assert!(answer.starts_with("ok "), "{answer}");
        }
        assert_eq!(owner.ask("chown /d/hers 77 77"), "ok");
        let cases = [
            ("chown {} bob -", "chown {} nemo -"),
            ("chown {} - crew", "chown {} - nocrew"),
            ("chown {} 77 crew", "chown {} 77 nocrew"),
            ("set-acl {} u:bob:r--", "set-acl {} u:nemo:r--"),
            ("set-acl {} u:bob:r--,u:bob:r--", "set-acl {} u:nemo:r--,u:nemo:r--"),
            ("set-acl {} g:crew:r--", "set-acl {} g:nocrew:r--"),
            ("set-acl {} u:bob:rq-", "set-acl {} u:nemo:rq-"),
        ];
        for path in ["/d/open", "/d/hers", "/d/absent", "/hidden/f", "/hidden/absent"] {
            for (there, absent) in cases {
                // Her own ACLs are hers to change: she has to know whom she names.
                if path == "/d/hers" && there.starts_with("set-acl") {
                    continue;
                }
                let [there, absent] = [there, absent].map(|line| eve.ask(&line.replace("{}", path)));
                assert!(there.starts_with("error "), "{path}: {there}");
                assert_eq!(there, absent, "{path}");
            }
        }
        // Whoever may is told what is wrong.
        for (who, line) in [(&mut owner, "chown /d/open nemo -"), (&mut eve, "set-acl /d/hers u:nemo:r--")] {
            let answer = who.ask(line);
            assert!(answer.contains("nemo"), "{answer}");
        }
        assert_eq!(eve.ask("set-acl /d/hers u:bob:r--"), "ok");
    });
}
