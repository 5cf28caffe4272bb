//! Names of users and groups, and their numbers: who gets which, what a rename changes, and what the check finds.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use kv::{Durability, Kv, MemoryKv, OpOutcome, Txn, transact};
use namespace::{self as ns, Actor, FIRST_NAMED_PRINCIPAL, Namespace, NamespaceConfig, NsError, Operation};
use types::PrincipalKind::{Group, User};
use types::{ErrorCode, Incarnation, Ino, NsPath, ObjectId, PrincipalId, PrincipalKind, PrincipalName, Timestamp};

const FIRST: u32 = FIRST_NAMED_PRINCIPAL.0;

struct World {
    kv: Arc<MemoryKv>,
    ns: Arc<Namespace>,
}

type Named<'a> = (PrincipalKind, &'a str);

fn name(text: &str) -> PrincipalName {
    // Names of users can be those of groups too.
    PrincipalName::parse(Group, text).unwrap()
}

fn named(names: &[Named<'_>]) -> Vec<(PrincipalKind, PrincipalName)> {
    names.iter().map(|(kind, text)| (*kind, name(text))).collect()
}

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn numbers(ids: Vec<PrincipalId>) -> Vec<u32> {
    ids.into_iter().map(|id| id.0).collect()
}

impl World {
    fn new() -> Self {
        Self::on(Arc::new(MemoryKv::new()))
    }

    fn on(kv: Arc<MemoryKv>) -> Self {
        let ns = Namespace::open(Arc::<MemoryKv>::clone(&kv), Timestamp(1), NamespaceConfig::default()).unwrap();
        Self { kv, ns }
    }

    fn change_as<O: Operation + Send + 'static>(&self, actor: &Actor, op: O) -> Result<O::Reply, NsError> {
        self.ns.change_wait(Durability::Synced, self.ns.context(Timestamp(5), actor, None), op)
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        self.change_as(&Actor::admin(), op)
    }

    fn name(&self, names: &[Named<'_>]) -> Result<Vec<u32>, NsError> {
        self.change(ns::NamePrincipals { names: named(names) }).map(numbers)
    }

    fn rename(&self, kind: PrincipalKind, from: &str, to: &str) -> Result<(), NsError> {
        self.change(ns::RenamePrincipal { kind, from: name(from), to: name(to) })
    }

    fn number(&self, kind: PrincipalKind, text: &str) -> Option<u32> {
        self.ns.read(|read| ns::number_of(read, kind, &name(text))).unwrap().map(|id| id.0)
    }

    fn numbers(&self, names: &[Named<'_>]) -> Option<Vec<u32>> {
        self.ns.read(|read| ns::numbers_of(read, &named(names))).unwrap().map(numbers)
    }

    fn name_of(&self, number: u32) -> Option<(PrincipalKind, String)> {
        let found = self.ns.read(|read| ns::name_of(read, PrincipalId(number))).unwrap();
        found.map(|(kind, name)| (kind, name.to_string()))
    }

    /// Changes keys behind the namespace's back.
    fn tamper(&self, change: impl Fn(&mut dyn Txn) + Send + 'static) {
        transact(&*self.kv, Durability::Synced, move |txn| {
            change(txn);
            (OpOutcome::Commit, ())
        })
        .unwrap();
    }

    fn put(&self, key: &[u8], value: &[u8]) {
        let (key, value) = (key.to_vec(), value.to_vec());
        self.tamper(move |txn| txn.put(&key, &value));
    }

    /// Findings of the check, without the keys.
    fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        ns::check(&*self.kv.snapshot(), &mut |finding| findings.push(finding.what)).unwrap();
        findings
    }
}

/// `Cprincipals` as it is on disk.
fn counts(next: u32, named: u32) -> Vec<u8> {
    [&[2][..], &next.to_be_bytes(), &named.to_be_bytes()].concat()
}

#[test]
fn each_user_and_each_group_gets_a_number_once() {
    let w = World::new();
    let names = [(User, "ann"), (Group, "atlas"), (User, "atlas"), (User, "ann")];
    assert_eq!(w.numbers(&names), None);
    assert_eq!(w.name(&names).unwrap(), [FIRST, FIRST + 1, FIRST + 2, FIRST], "a user and a group may share a name");
    assert_eq!(w.numbers(&names), Some(vec![FIRST, FIRST + 1, FIRST + 2, FIRST]));
    assert_eq!(w.name(&[(Group, "cms/uscms"), (User, "atlas")]).unwrap(), [FIRST + 3, FIRST + 2]);
    assert_eq!(w.numbers(&[(User, "atlas"), (User, "bob")]), None, "one of them has none");
    assert_eq!(w.numbers(&[]), Some(vec![]));
    assert_eq!(w.name_of(FIRST + 1), Some((Group, "atlas".into())));
    assert_eq!(w.name_of(FIRST + 2), Some((User, "atlas".into())));
    assert_eq!((w.name_of(FIRST + 4), w.name_of(1000), w.number(Group, "ann")), (None, None, None));
    let before = w.kv.dump();
    w.name(&names).unwrap();
    assert_eq!(w.kv.dump(), before, "nothing is written for those that have a number");
    let w = World::on(w.kv);
    assert_eq!(w.name(&[(User, "bob"), (User, "ann")]).unwrap(), [FIRST + 4, FIRST], "a later run goes on");
    assert_eq!(w.findings(), [""; 0]);
}

#[test]
fn administrator_is_built_in() {
    let w = World::new();
    assert_eq!((w.number(User, "admin"), w.number(Group, "admin")), (Some(0), Some(0)));
    assert_eq!(w.name_of(0), Some((User, "admin".into())));
    assert_eq!(w.name(&[(Group, "admin"), (User, "ann"), (User, "admin")]).unwrap(), [0, FIRST, 0]);
    for kind in PrincipalKind::ALL {
        let error = w.rename(kind, "admin", "root").unwrap_err();
        assert_eq!(error.to_string(), format!("{kind} admin: it is built in and cannot be renamed"));
    }
    let error = w.rename(User, "ann", "admin").unwrap_err();
    assert_eq!((error.code(), error.to_string().as_str()), (ErrorCode::Exists, "user admin: exists already"));
    assert_eq!(w.ns.read(|read| ns::principals(read, Group, None, 9)).unwrap(), [], "it is not in the table");
    assert_eq!(w.findings(), [""; 0]);
}

#[test]
fn rename_changes_the_name_and_no_file() {
    let w = World::new();
    w.name(&[(User, "ann"), (User, "bob"), (Group, "ann")]).unwrap();
    w.change(ns::Mkdir { path: path("/d"), mode: 0o755, parents: false }).unwrap();
    w.change(ns::Chown { path: path("/d"), owner: Some(PrincipalId(FIRST)), group: Some(PrincipalId(FIRST + 2)) })
        .unwrap();
    let inode = || w.ns.read(|read| ns::stat(read, &Actor::admin(), &path("/d"))).unwrap();
    let before = inode();
    w.rename(User, "ann", "ann@example.org").unwrap();
    assert_eq!(inode(), before);
    assert_eq!(w.name_of(before.access.owner.0), Some((User, "ann@example.org".into())));
    assert_eq!(w.name_of(before.access.group.0), Some((Group, "ann".into())), "the group is another one");
    assert_eq!((w.number(User, "ann@example.org"), w.number(User, "ann")), (Some(FIRST), None));
    assert_eq!(w.name(&[(User, "ann")]).unwrap(), [FIRST + 3], "the old name is free, its number is not");
    assert_eq!(w.findings(), [""; 0]);
}

#[test]
fn rename_refuses_an_unknown_principal_and_a_name_that_is_taken() {
    let w = World::new();
    w.name(&[(User, "ann"), (User, "bob"), (Group, "cms")]).unwrap();
    let before = w.kv.dump();
    let refused = |kind, from, to| {
        let error = w.rename(kind, from, to).unwrap_err();
        (error.code(), error.to_string())
    };
    assert_eq!(refused(User, "cms", "eve"), (ErrorCode::NotFound, "cms: no such user".into()), "that is a group");
    assert_eq!(refused(Group, "ann", "eve"), (ErrorCode::NotFound, "ann: no such group".into()));
    assert_eq!(refused(User, "ann", "bob"), (ErrorCode::Exists, "user bob: exists already".into()));
    assert_eq!(refused(User, "ann", "ann"), (ErrorCode::Exists, "user ann: exists already".into()));
    let slash = "user cms/prod: only the name of a group may have a `/`";
    assert_eq!(refused(User, "ann", "cms/prod"), (ErrorCode::Invalid, slash.into()));
    assert_eq!(w.kv.dump(), before);
    w.rename(Group, "cms", "cms/prod").unwrap();
    w.rename(User, "ann", "cms").unwrap();
    assert_eq!((w.number(Group, "cms/prod"), w.number(User, "cms")), (Some(FIRST + 2), Some(FIRST)));
    assert_eq!(w.findings(), [""; 0]);
}

#[test]
fn only_the_administrator_names_and_renames() {
    let w = World::new();
    w.name(&[(User, "ann")]).unwrap();
    let before = w.kv.dump();
    // Membership in the administrator's group is not enough.
    let ann = Actor::new(PrincipalId(FIRST), Arc::from([PrincipalId(0)]));
    for names in [&[(User, "bob")][..], &[(User, "ann")], &[]] {
        let error = w.change_as(&ann, ns::NamePrincipals { names: named(names) }).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Denied);
        let rule = "the table of users and groups: denied: only its owner (admin) may, you are ann";
        assert_eq!(error.to_string(), rule);
    }
    let rename = ns::RenamePrincipal { kind: User, from: name("ann"), to: name("eve") };
    assert_eq!(w.change_as(&ann, rename).unwrap_err().code(), ErrorCode::Denied);
    assert_eq!(w.kv.dump(), before);
}

#[test]
fn refused_request_names_nobody() {
    let w = World::new();
    let before = w.kv.dump();
    let error = w.name(&[(User, "ann"), (User, "cms/prod")]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::Invalid, "{error}");
    assert_eq!(w.kv.dump(), before);
    assert_eq!((w.number(User, "ann"), w.number(User, "cms/prod")), (None, None));
}

#[test]
fn requests_are_bounded() {
    let w = World::new();
    let names = |count: usize| -> Vec<_> { (0..count).map(|n| (Group, name(&format!("g{n}")))).collect() };
    let error = w.change(ns::NamePrincipals { names: names(ns::NAMES_OF_REQUEST_MAX + 1) }).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TooMany);
    assert_eq!(error.to_string(), "users and groups to name in one request: 257 is the limit here");
    let given = w.change(ns::NamePrincipals { names: names(ns::NAMES_OF_REQUEST_MAX) }).unwrap();
    assert_eq!(numbers(given), (FIRST..FIRST + 257).collect::<Vec<_>>());
    assert_eq!(w.findings(), [""; 0]);
}

#[test]
fn full_table_names_nobody_else_and_still_answers() {
    let w = World::new();
    w.name(&[(User, "ann")]).unwrap();
    w.put(b"Cprincipals", &counts(FIRST + 1_000, ns::PRINCIPALS_MAX - 1));
    let before = w.kv.dump();
    let error = w.name(&[(User, "bob"), (User, "eve")]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::TooMany);
    assert_eq!(error.to_string(), "named users and groups: 1000000 is the limit here");
    assert_eq!(w.kv.dump(), before, "all or none");
    assert_eq!(w.name(&[(User, "bob")]).unwrap(), [FIRST + 1_000], "the last one");
    assert_eq!(w.name(&[(User, "eve")]).unwrap_err().code(), ErrorCode::TooMany);
    assert_eq!(w.name(&[(User, "ann"), (User, "bob")]).unwrap(), [FIRST, FIRST + 1_000]);
    w.rename(User, "ann", "eve").unwrap();
}

#[test]
fn listing_goes_on_after_a_name() {
    let w = World::new();
    w.name(&[(User, "b"), (User, "a.b"), (User, "a"), (User, "ab"), (User, "B"), (Group, "a/b"), (Group, "a")])
        .unwrap();
    let page = |kind, after: Option<&str>, limit| -> Vec<(String, u32)> {
        let after = after.map(name);
        let found = w.ns.read(|read| ns::principals(read, kind, after.as_ref(), limit)).unwrap();
        found.into_iter().map(|(name, id)| (name.to_string(), id.0 - FIRST)).collect()
    };
    let of = |names: &[(&str, u32)]| -> Vec<_> { names.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect() };
    assert_eq!(page(User, None, 9), of(&[("B", 4), ("a", 2), ("a.b", 1), ("ab", 3), ("b", 0)]));
    assert_eq!(page(User, Some("a"), 2), of(&[("a.b", 1), ("ab", 3)]));
    assert_eq!(page(User, Some("aa"), 1), of(&[("ab", 3)]), "the name need not be there");
    assert_eq!(page(User, Some("b"), 9), [], "groups do not follow the users");
    assert_eq!(page(Group, None, 9), of(&[("a", 6), ("a/b", 5)]));
    assert_eq!(page(Group, None, 0), []);
}

#[test]
fn namespace_without_a_table_works() {
    let w = World::new();
    let is_of_table = |key: &[u8]| key.starts_with(b"E") || key == b"Cprincipals";
    assert!(!w.kv.dump().iter().any(|(key, _)| is_of_table(key)), "an empty table has no keys");
    assert_eq!((w.number(User, "ann"), w.name_of(FIRST), w.numbers(&[(User, "ann")])), (None, None, None));
    assert_eq!(w.ns.read(|read| ns::principals(read, User, None, 9)).unwrap(), []);
    assert_eq!(w.findings(), [""; 0]);
    assert_eq!(w.rename(User, "ann", "bob").unwrap_err().code(), ErrorCode::NotFound);
    assert_eq!(w.name(&[(User, "ann")]).unwrap(), [FIRST]);
}

#[test]
fn restored_namespace_gives_no_number_twice() {
    let w = World::new();
    w.name(&[(User, "ann")]).unwrap();
    let backup = w.kv.dump();
    let lost = w.name(&[(User, "bob")]).unwrap()[0];
    let kv = Arc::new(MemoryKv::new());
    let w = World::on(kv);
    w.tamper(move |txn| backup.iter().for_each(|(key, value)| txn.put(key, value)));
    let (at_least, above_ino, above_object) = (Incarnation(1), Ino(1 << 40), ObjectId(1 << 44));
    w.change(ns::RaiseIncarnation { at_least, above_ino, above_object }).unwrap();
    let w = World::on(w.kv);
    let next = w.name(&[(User, "eve")]).unwrap()[0];
    // As many as the lost namespace can have named.
    assert_eq!((next, lost), (FIRST + 1 + ns::PRINCIPALS_MAX, FIRST + 1));
    assert_eq!((w.number(User, "ann"), w.number(User, "bob")), (Some(FIRST), None));
    assert_eq!(w.findings(), [""; 0]);
}

/// The findings after one change of the keys of a table with the user `ann` and the group `cms`.
fn found_after(change: impl Fn(&mut dyn Txn) + Send + 'static) -> Vec<String> {
    let w = World::new();
    w.name(&[(User, "ann"), (Group, "cms")]).unwrap();
    assert_eq!(w.findings(), [""; 0]);
    w.tamper(change);
    w.findings()
}

#[test]
fn check_finds_each_kind_of_damage() {
    const NO_NAME: &str = "the number does not lead back to the name";
    const NO_NUMBER: &str = "the name does not lead back to the number";
    const COUNT: &str = "the count of named users and groups is wrong";
    let ann = [&b"E\0"[..], &FIRST.to_be_bytes()].concat();
    let cms = [&b"E\0"[..], &(FIRST + 1).to_be_bytes()].concat();
    let number = |number: u32| [&[2][..], &number.to_be_bytes()].concat();

    let key = ann.clone();
    assert_eq!(found_after(move |txn| txn.delete(&key)), [NO_NAME, COUNT]);
    assert_eq!(found_after(|txn| txn.delete(b"E\x01ann")), [NO_NUMBER]);
    let to_cms = number(FIRST + 1);
    assert_eq!(found_after(move |txn| txn.put(b"E\x01ann", &to_cms)), [NO_NUMBER, NO_NAME], "both lead elsewhere");
    let to_ann = number(FIRST);
    assert_eq!(found_after(move |txn| txn.put(b"E\x01bob", &to_ann)), [NO_NAME], "a second name");
    let key = ann.clone();
    assert_eq!(found_after(move |txn| txn.put(&key, b"\x02\x02\0\x03ann")), [NO_NUMBER, NO_NAME], "another kind");

    // The number is above the counter, and below all that the table gives.
    let high = "a number of a user or a group above those that were given";
    assert_eq!(found_after(|txn| txn.put(b"Cprincipals", &counts(FIRST + 1, 2))), [high]);
    assert_eq!(found_after(|txn| txn.delete(b"Cprincipals")), [high, high, COUNT]);
    assert_eq!(found_after(|txn| txn.put(b"Cprincipals", &counts(FIRST + 2, 3))), [COUNT]);
    let low = number(1000);
    let findings = found_after(move |txn| {
        txn.put(&[&b"E\0"[..], &1000_u32.to_be_bytes()].concat(), b"\x02\x01\0\x03bob");
        txn.put(b"E\x01bob", &low);
        txn.put(b"Cprincipals", &counts(FIRST + 2, 3));
    });
    assert_eq!(findings, ["a number that is left to the configuration has a name"]);
    let (key, value) = (ann.clone(), number(FIRST));
    let findings = found_after(move |txn| {
        txn.delete(b"E\x01ann");
        txn.put(&key, b"\x02\x01\0\x05admin");
        txn.put(b"E\x01admin", &value);
    });
    assert_eq!(findings, ["a name that is built in belongs to somebody else"]);

    // Values and keys that cannot be decoded.
    let contains = |findings: &[String], text: &str| findings.iter().any(|finding| finding.contains(text));
    let key = cms.clone();
    let findings = found_after(move |txn| txn.put(&key, b"\x02\x02\0\x03c s"));
    assert!(contains(&findings, "a name that a user or a group cannot have"), "{findings:?}");
    let findings = found_after(|txn| txn.put(b"E\x02cms", b"\x02\0"));
    assert!(contains(&findings, "too short"), "{findings:?}");
    let findings = found_after(|txn| txn.put(b"E\x01cms/prod", b"\x02\0\x10\0\0"));
    assert!(contains(&findings, "a name that a user or a group cannot have"), "{findings:?}");
    let findings = found_after(|txn| txn.put(b"E\x03cms", b"\x02\0\x10\0\0"));
    assert!(contains(&findings, "unknown kind"), "{findings:?}");
    let findings = found_after(move |txn| txn.put(&[&cms[..], b"x"].concat(), b"\x02\x02\0\x03cms"));
    assert!(contains(&findings, "wrong length"), "{findings:?}");
    let findings = found_after(|txn| txn.put(b"Cprincipals", &counts(5, 2)));
    assert!(contains(&findings, "below all that the table gives"), "{findings:?}");
}

#[test]
fn damage_is_reported_and_nothing_is_guessed() {
    let w = World::new();
    w.name(&[(User, "ann"), (User, "bob")]).unwrap();
    w.put(b"E\x01ann", &[2, 0, 16]);
    let read = |text: &str| w.ns.read(|read| ns::number_of(read, User, &name(text)));
    assert_eq!(read("ann").unwrap_err().code(), ErrorCode::Damaged);
    assert_eq!(read("bob").unwrap(), Some(PrincipalId(FIRST + 1)));
    assert_eq!(w.name(&[(User, "ann")]).unwrap_err().code(), ErrorCode::Damaged, "it gets no second number");
    assert_eq!(w.ns.read(|read| ns::principals(read, User, None, 9)).unwrap_err().code(), ErrorCode::Damaged);
    w.put(b"Cprincipals", &[2]);
    assert_eq!(w.name(&[(User, "eve")]).unwrap_err().code(), ErrorCode::Damaged);
}
