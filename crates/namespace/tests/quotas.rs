//! The rules of usage and quotas, each told as a story. The random model has the arithmetic.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use kv::{Durability, Kv, MemoryKv};
use namespace::{self as ns, Actor, Namespace, NamespaceConfig, NsError, Operation, QuotaOf, WriteMode};
use types::{BootId, ClientIdentity, ErrorCode, NsPath, PrincipalId, Timestamp, TreeId};

const SECOND: i64 = 1_000_000_000;
const MIB: u64 = 1 << 20;

struct World {
    kv: Arc<dyn Kv>,
    ns: Arc<Namespace>,
    now: Cell<i64>,
}

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn limit(at: &str, of: QuotaOf) -> ns::SetQuota {
    let [hard_bytes, soft_bytes, hard_files, soft_files] = [None; 4];
    ns::SetQuota { path: path(at), of, hard_bytes, soft_bytes, hard_files, soft_files, grace: None }
}

fn findings(kv: &Arc<dyn Kv>) -> Vec<ns::Finding> {
    let mut findings = Vec::new();
    ns::check(&*kv.snapshot(), &mut |finding| findings.push(finding)).unwrap();
    findings
}

fn put(kv: &Arc<dyn Kv>, key: Vec<u8>, value: Option<Vec<u8>>) {
    kv::transact(&**kv, Durability::Synced, move |txn| {
        match &value {
            Some(value) => txn.put(&key, value),
            None => txn.delete(&key),
        }
        (kv::OpOutcome::Commit, ())
    })
    .unwrap();
}

impl World {
    /// With a tree at `/t`.
    fn new() -> Self {
        let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
        let ns = Namespace::open(Arc::clone(&kv), Timestamp(1), NamespaceConfig::default()).unwrap();
        let w = Self { kv, ns, now: Cell::new(1_000) };
        w.change(ns::Mkdir { path: path("/t"), mode: 0o777, parents: false }).unwrap();
        w.change(ns::MakeTree { path: path("/t") }).unwrap();
        w
    }

    fn as_who<O: Operation + Send + 'static>(&self, who: &Actor, op: O) -> Result<O::Reply, NsError> {
        let ctx = self.ns.context(Timestamp(self.now.get()), who, None);
        let result = self.ns.change_wait(Durability::Synced, ctx, op);
        assert_eq!(findings(&self.kv), [], "the usage is what a recount finds after each change");
        result
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        self.as_who(&Actor::admin(), op)
    }

    fn open(&self, at: &str) -> Result<ns::OpenedWrite, NsError> {
        self.change(ns::OpenWrite::new(path(at), WriteMode::NewOnly, ClientIdentity::default(), BootId(1)))
    }

    fn commit(&self, writer: ns::WriterToken, len: u64) {
        let content = ns::Committed { len, sums: None, mtime: None };
        self.change(ns::Commit { writer, content, completion: ns::Completion::ByClient }).unwrap();
    }

    fn file(&self, at: &str, len: u64) -> Result<(), NsError> {
        let opened = self.open(at)?;
        self.commit(opened.writer, len);
        Ok(())
    }

    fn tree(&self) -> TreeId {
        self.ns.read(|read| ns::tree_of_root(read, &Actor::admin(), &path("/t"))).unwrap()
    }

    fn quota(&self, of: QuotaOf) -> ns::QuotaRecord {
        let tree = self.tree();
        self.ns.read(|read| ns::quota(read, tree, of)).unwrap()
    }
}

#[test]
fn a_refusal_says_which_limit_decides() {
    let w = World::new();
    let ana = ns::NamePrincipals {
        names: vec![(
            types::PrincipalKind::User,
            types::PrincipalName::parse(types::PrincipalKind::User, "ana").unwrap(),
        )],
    };
    let id = w.change(ana).unwrap()[0];
    let user = QuotaOf::User(id);
    w.change(ns::SetQuota { hard_files: Some(Some(1)), ..limit("/t", user) }).unwrap();
    w.file("/t/f", 10).unwrap();
    w.change(ns::Chown { path: path("/t/f"), owner: Some(id), group: None }).unwrap();
    assert_eq!((w.quota(user).used.files, w.quota(user).used.bytes), (1, 10));
    w.file("/t/g", 10).unwrap();
    let full = w.change(ns::Chown { path: path("/t/g"), owner: Some(id), group: None }).unwrap_err();
    assert_eq!(full.code(), ErrorCode::Quota);
    let words = "/t/g: over quota: the hard limit of user ana in tree /t is 1 files; 1 are used and 0 reserved; remove files, or ask for more";
    assert_eq!(full.to_string(), words);
    w.change(ns::SetQuota { hard_bytes: Some(Some(20)), ..limit("/t", QuotaOf::Tree) }).unwrap();
    let words = "/t/h: over quota: the hard limit of tree /t is 20 bytes; 20 are used and 0 reserved; remove files, or ask for more";
    assert_eq!(w.open("/t/h").unwrap_err().to_string(), words);
    // What is there may be changed as long as it does not grow.
    let update = ns::OpenWrite::new(path("/t/g"), WriteMode::Update, ClientIdentity::default(), BootId(1));
    let update = w.change(update).unwrap();
    assert_eq!(update.may_reach, Some(10));
    assert_eq!(w.change(ns::Reserve { writer: update.writer, len: 11 }).unwrap_err().code(), ErrorCode::Quota);
    w.commit(update.writer, 4);
    assert_eq!(w.quota(QuotaOf::Tree).used.bytes, 14);
}

#[test]
fn a_soft_limit_refuses_what_is_new_after_its_grace() {
    let w = World::new();
    let (soft_bytes, grace) = (Some(Some(100)), Some(Duration::from_secs(60)));
    w.change(ns::SetQuota { soft_bytes, grace, ..limit("/t", QuotaOf::Tree) }).unwrap();
    w.file("/t/a", 150).unwrap();
    w.now.set(w.now.get() + 59 * SECOND);
    let late = w.open("/t/b").unwrap();
    assert_eq!(late.may_reach, None, "within the grace nothing is limited");
    w.now.set(w.now.get() + SECOND);
    let full = w.open("/t/c").unwrap_err();
    assert!(full.to_string().contains("soft limit, whose grace has ended, of tree /t is 100 bytes"), "{full}");
    // An open write from before goes on.
    w.commit(late.writer, 10);
    // A clock that goes back, and comes again, neither ends nor renews the grace.
    w.now.set(w.now.get() - 30 * SECOND);
    w.file("/t/d", 1).unwrap();
    w.now.set(w.now.get() + 30 * SECOND);
    assert_eq!(w.open("/t/e").unwrap_err().code(), ErrorCode::Quota);
    w.change(ns::Remove { path: path("/t/a") }).unwrap();
    w.file("/t/e", 200).unwrap();
    w.now.set(w.now.get() + 59 * SECOND);
    w.file("/t/f", 1).unwrap();
}

#[test]
fn clients_without_an_announced_length_share_what_is_left() {
    let w = World::new();
    w.change(ns::SetQuota { hard_bytes: Some(Some(3 * MIB)), ..limit("/t", QuotaOf::Tree) }).unwrap();
    let opened: Vec<_> = (0..3).map(|n| w.open(&format!("/t/{n}")).unwrap()).collect();
    assert!(opened.iter().all(|opened| opened.may_reach == Some(MIB)));
    assert_eq!(w.open("/t/3").unwrap_err().code(), ErrorCode::Quota);
    w.commit(opened[0].writer, 10);
    let next = w.open("/t/3").unwrap();
    // The room is gone with it, but for the rest of the step.
    assert_eq!(w.change(ns::Reserve { writer: next.writer, len: MIB - 10 }).unwrap(), Some(MIB - 10));
    assert_eq!(w.change(ns::Reserve { writer: next.writer, len: MIB - 9 }).unwrap_err().code(), ErrorCode::Quota);
    // A client that is gone leaves nothing behind.
    for opened in opened.into_iter().skip(1).chain([next]) {
        w.change(ns::Interrupt { writer: opened.writer, kept_len: 0 }).unwrap();
    }
    assert_eq!((w.quota(QuotaOf::Tree).reserved.bytes, w.quota(QuotaOf::Tree).used.bytes), (0, 10));
}

#[test]
fn a_limit_below_the_usage_breaks_nothing_that_is_reserved() {
    let w = World::new();
    w.change(ns::SetQuota { hard_bytes: Some(Some(100 * MIB)), ..limit("/t", QuotaOf::Tree) }).unwrap();
    let opened = w.open("/t/f").unwrap();
    let reached = opened.may_reach.unwrap();
    w.change(ns::SetQuota { hard_bytes: Some(Some(0)), ..limit("/t", QuotaOf::Tree) }).unwrap();
    assert_eq!(w.change(ns::Reserve { writer: opened.writer, len: reached }).unwrap(), Some(reached));
    assert_eq!(w.open("/t/g").unwrap_err().code(), ErrorCode::Quota);
    w.commit(opened.writer, reached);
    assert_eq!(w.quota(QuotaOf::Tree).used.bytes, reached);
}

#[test]
fn a_tree_goes_with_its_records_and_what_was_reserved_in_it() {
    let w = World::new();
    let tree = w.tree();
    w.change(ns::SetQuota { hard_bytes: Some(Some(MIB)), ..limit("/t", QuotaOf::Tree) }).unwrap();
    let open = ns::OpenWrite::new(path("/t/f"), WriteMode::NewOnly, ClientIdentity::default(), BootId(1));
    let hidden = w.change(ns::OpenWrite { posc: true, ..open }).unwrap();
    w.change(ns::Rmdir { path: path("/t") }).unwrap();
    assert!(w.ns.read(|read| ns::quotas(read, Some(tree), None, 10)).unwrap().is_empty());
    let content = ns::Committed { len: 5, sums: None, mtime: None };
    let op = ns::Commit { writer: hidden.writer, content, completion: ns::Completion::ByClient };
    assert!(matches!(w.change(op).unwrap_err(), NsError::UploadKept { .. }));
    assert!(w.ns.read(|read| ns::quotas(read, Some(tree), None, 10)).unwrap().is_empty());
}

#[test]
fn only_the_administrator_sets_quotas_and_only_on_trees() {
    let w = World::new();
    let somebody = Actor::new(PrincipalId(5), Arc::from([PrincipalId(5)]));
    let set = |at: &str| ns::SetQuota { hard_bytes: Some(Some(1)), ..limit(at, QuotaOf::Tree) };
    assert_eq!(w.as_who(&somebody, set("/t")).unwrap_err().code(), ErrorCode::Denied);
    assert_eq!(w.as_who(&somebody, ns::RecountUsage).unwrap_err().code(), ErrorCode::Denied);
    w.change(ns::Mkdir { path: path("/t/d"), mode: 0o755, parents: false }).unwrap();
    assert_eq!(w.change(set("/t/d")).unwrap_err().code(), ErrorCode::Invalid);
    assert_eq!(w.change(set("/gone")).unwrap_err().code(), ErrorCode::NotFound);
    let crossed = ns::SetQuota { soft_bytes: Some(Some(2)), ..set("/t") };
    assert_eq!(w.change(crossed).unwrap_err().code(), ErrorCode::Invalid);
    let space = |at: &str| w.ns.read(|read| ns::space_at(read, &somebody, &path(at), Timestamp(5))).unwrap();
    assert_eq!(space("/t/d"), None);
    w.change(set("/t")).unwrap();
    assert_eq!(space("/t/d/not/yet").map(|space| (space.limit, space.used, space.free)), Some((1, 0, 1)));
    assert_eq!(space("/"), None);
}

#[test]
fn fsck_finds_wrong_usage_and_counts_it_again() {
    let w = World::new();
    w.change(ns::SetQuota { hard_bytes: Some(Some(100 * MIB)), ..limit("/t", QuotaOf::Tree) }).unwrap();
    w.file("/t/f", 7).unwrap();
    w.open("/t/g").unwrap();
    let right = || w.ns.read(|read| ns::quotas(read, None, None, 100)).unwrap();
    let before = right();
    let key = |kind: u8, id: u32| [b"Q".as_slice(), &w.tree().0.to_be_bytes(), &[kind], &id.to_be_bytes()].concat();
    let wrong = |bytes: u64| Some([vec![2], bytes.to_be_bytes().to_vec(), vec![0; 24]].concat());
    for (key, value) in [(key(1, 0), wrong(8)), (key(1, 0), None), (key(2, 77), wrong(1)), (key(1, 5), wrong(0))] {
        put(&w.kv, key.clone(), value);
        let found = findings(&w.kv);
        if key.last() != Some(&5) {
            assert!(found.len() == 1 && found[0].is_usage, "{}: {found:?}", key.escape_ascii());
        }
        w.change(ns::RecountUsage).unwrap();
        assert_eq!(right(), before, "{}", key.escape_ascii());
    }
}

#[test]
fn a_namespace_that_was_not_counted_is_counted_at_its_first_start() {
    let w = World::new();
    w.file("/t/f", 7).unwrap();
    w.change(ns::Link { existing: path("/t/f"), new: path("/t/also") }).unwrap();
    let right = w.ns.read(|read| ns::quotas(read, None, None, 100)).unwrap();
    let World { kv, ns, .. } = w;
    let mut mark = kv.snapshot().get(b"Cnamespace").unwrap().unwrap();
    mark[8] = 0;
    put(&kv, b"Cnamespace".to_vec(), Some(mark));
    for record in &right {
        let (kind, id) = match record.of {
            QuotaOf::Tree => (0, 0),
            QuotaOf::User(id) => (1, id.0),
            QuotaOf::Group(id) => (2, id.0),
        };
        put(&kv, [b"Q".as_slice(), &record.tree.0.to_be_bytes(), &[kind], &id.to_be_bytes()].concat(), None);
    }
    assert_eq!(findings(&kv), [], "what was never counted is not wrong");
    drop(ns);
    let ns = Namespace::open(Arc::clone(&kv), Timestamp(9), NamespaceConfig::default()).unwrap();
    assert_eq!(ns.read(|read| ns::quotas(read, None, None, 100)).unwrap(), right);
    assert_eq!(findings(&kv), []);
}

#[test]
fn an_open_file_does_not_take_its_reservation_past_another_quota() {
    let w = World::new();
    let open = w.open("/f").unwrap();
    // Nothing is limited at either end.
    w.change(ns::Rename { from: path("/f"), to: path("/g"), replace: false }).unwrap();
    let (user, other) = (QuotaOf::User(PrincipalId(5)), Some(PrincipalId(5)));
    w.change(ns::SetQuota { hard_bytes: Some(Some(10)), ..limit("/", user) }).unwrap();
    w.change(ns::SetQuota { hard_bytes: Some(Some(10)), ..limit("/t", QuotaOf::Tree) }).unwrap();
    let moved = w.change(ns::Rename { from: path("/g"), to: path("/t/g"), replace: false }).unwrap_err();
    assert!(moved.code() == ErrorCode::Busy && moved.to_string().starts_with("/g: is being written"), "{moved}");
    let given = |at: &str| w.change(ns::Chown { path: path(at), owner: other, group: None });
    assert_eq!(given("/g").unwrap_err().code(), ErrorCode::Busy);
    // The owner has no limit, and so keeps it.
    w.change(ns::Chown { path: path("/g"), owner: Some(PrincipalId(0)), group: None }).unwrap();
    w.commit(open.writer, 100);
    assert_eq!(given("/g").unwrap_err().code(), ErrorCode::Quota);
    // What has reserved something stays until its end, also where nothing is limited.
    let open = w.open("/t/h").unwrap();
    let out = || w.change(ns::Rename { from: path("/t/h"), to: path("/h"), replace: false });
    assert_eq!(out().unwrap_err().code(), ErrorCode::Busy);
    w.commit(open.writer, 5);
    out().unwrap();
    given("/h").unwrap();
}

#[test]
fn a_restart_has_the_room_of_its_old_bytes() {
    let w = World::new();
    w.change(ns::SetQuota { hard_bytes: Some(Some(100)), ..limit("/t", QuotaOf::Tree) }).unwrap();
    let open = || ns::OpenWrite::new(path("/t/f"), WriteMode::NewOnly, ClientIdentity::default(), BootId(1));
    let opened = w.change(ns::OpenWrite { expected_len: Some(90), ..open() }).unwrap();
    w.change(ns::Interrupt { writer: opened.writer, kept_len: 80 }).unwrap();
    let again = |len| w.change(ns::OpenWrite { expected_len: Some(len), restarted: true, ..open() });
    assert_eq!(again(101).unwrap_err().code(), ErrorCode::Quota);
    assert_eq!(again(100).unwrap().may_reach, Some(100));
    assert_eq!((w.quota(QuotaOf::Tree).used.bytes, w.quota(QuotaOf::Tree).reserved.bytes), (0, 100));
}

#[test]
fn a_kept_upload_counts_also_if_nothing_limited_it() {
    let w = World::new();
    let open = || ns::OpenWrite::new(path("/t/f"), WriteMode::NewOnly, ClientIdentity::default(), BootId(1));
    let opened = w.change(ns::OpenWrite { posc: true, ..open() }).unwrap();
    assert_eq!(w.quota(QuotaOf::Tree).reserved, ns::Amount::default());
    w.change(ns::Interrupt { writer: opened.writer, kept_len: 80 }).unwrap();
    assert_eq!(w.quota(QuotaOf::Tree).reserved, ns::Amount { bytes: 80, files: 1 });
    w.change(ns::SetQuota { hard_bytes: Some(Some(100)), ..limit("/t", QuotaOf::Tree) }).unwrap();
    let resume = Some(ns::Resume::Upload(types::UploadId(opened.object.0)));
    let resumed = |len| w.change(ns::OpenWrite { expected_len: Some(len), resume, how: WriteMode::Update, ..open() });
    assert_eq!(resumed(101).unwrap_err().code(), ErrorCode::Quota);
    let writer = resumed(100).unwrap().writer;
    assert_eq!(w.quota(QuotaOf::Tree).reserved, ns::Amount { bytes: 100, files: 1 });
    w.commit(writer, 100);
    assert_eq!((w.quota(QuotaOf::Tree).used.bytes, w.quota(QuotaOf::Tree).reserved.bytes), (100, 0));
}

#[test]
fn lengths_that_no_file_can_have_are_refused() {
    let w = World::new();
    w.change(ns::SetQuota { hard_bytes: Some(Some(u64::MAX)), ..limit("/t", QuotaOf::Tree) }).unwrap();
    let open = ns::OpenWrite::new(path("/t/f"), WriteMode::NewOnly, ClientIdentity::default(), BootId(1));
    let long = ns::OpenWrite { expected_len: Some(1 << 63), ..open };
    assert_eq!(w.change(long).unwrap_err().code(), ErrorCode::TooLarge);
    let opened = w.open("/t/f").unwrap();
    let too_long = ns::Reserve { writer: opened.writer, len: 1 << 63 };
    assert_eq!(w.change(too_long).unwrap_err().code(), ErrorCode::TooLarge);
    let reach = w.change(ns::Reserve { writer: opened.writer, len: (1 << 63) - (1 << 30) }).unwrap().unwrap();
    assert_eq!(w.quota(QuotaOf::Tree).reserved.bytes, reach);
}

#[test]
fn no_limit_can_be_set_while_the_usage_is_not_counted_and_no_grace_without_a_limit() {
    let w = World::new();
    let alone = ns::SetQuota { grace: Some(Duration::from_secs(60)), ..limit("/t", QuotaOf::Tree) };
    assert!(w.change(alone).unwrap_err().to_string().contains("set a soft limit too"));
    let mut mark = w.kv.snapshot().get(b"Cnamespace").unwrap().unwrap();
    mark[8] = 0;
    put(&w.kv, b"Cnamespace".to_vec(), Some(mark));
    // An inode that cannot be read.
    put(&w.kv, [b"I".as_slice(), &77_u64.to_be_bytes()].concat(), Some(vec![1, 2]));
    let World { kv, ns, .. } = w;
    drop(ns);
    let ns = Namespace::open(Arc::clone(&kv), Timestamp(9), NamespaceConfig::default()).unwrap();
    assert!(!ns.is_usage_counted());
    let set = ns::SetQuota { hard_bytes: Some(Some(1)), ..limit("/t", QuotaOf::Tree) };
    let refused = ns.change_wait(Durability::Synced, ns.context(Timestamp(10), &Actor::admin(), None), set);
    assert!(refused.unwrap_err().to_string().contains("not known yet"));
    put(&kv, [b"I".as_slice(), &77_u64.to_be_bytes()].concat(), None);
    drop(ns);
    let ns = Namespace::open(Arc::clone(&kv), Timestamp(11), NamespaceConfig::default()).unwrap();
    assert!(ns.is_usage_counted());
}

#[test]
fn users_and_groups_with_limits_are_found_within_a_bound() {
    let w = World::new();
    w.file("/t/f", 7).unwrap();
    let found = |looked_at, limit| {
        let (records, _) = w.ns.read(|read| ns::limited_owners(read, looked_at, limit)).unwrap();
        records.into_iter().map(|record| (record.of, record.used.bytes, record.bytes.hard)).collect::<Vec<_>>()
    };
    w.change(ns::SetQuota { hard_bytes: Some(Some(9)), ..limit("/t", QuotaOf::Tree) }).unwrap();
    assert_eq!(found(100, 100), [], "a user without a limit, and a tree");
    let (admin, group) = (QuotaOf::User(PrincipalId(0)), QuotaOf::Group(PrincipalId(8)));
    w.change(ns::SetQuota { hard_bytes: Some(Some(10)), ..limit("/t", admin) }).unwrap();
    w.change(ns::SetQuota { soft_files: Some(Some(10)), ..limit("/t", group) }).unwrap();
    assert_eq!(found(100, 100), [(admin, 7, Some(10)), (group, 0, None)]);
    assert_eq!(found(100, 1), [(admin, 7, Some(10))]);
    assert_eq!(found(1, 100), []);
    assert_eq!(found(0, 100), []);
    let and_more = |looked_at, limit| w.ns.read(|read| ns::limited_owners(read, looked_at, limit)).unwrap().1;
    let records = w.ns.read(|read| ns::quotas(read, None, None, 100)).unwrap().len();
    assert_eq!(
        [(records, 100), (records - 1, 100)].map(|(looked_at, limit)| and_more(looked_at, limit)),
        [false, true]
    );
    assert!(and_more(100, 0));
    w.change(ns::SetQuota { hard_bytes: Some(None), ..limit("/t", admin) }).unwrap();
    assert_eq!(found(100, 100), [(group, 0, None)]);
}

#[test]
fn a_quota_that_is_set_meanwhile_holds_for_what_is_written_then() {
    let w = World::new();
    let user = QuotaOf::User(PrincipalId(0));
    w.file("/t/old", 40).unwrap();
    let opens = || {
        let new = w.open("/t/new").unwrap();
        let open = |at: &str, how| ns::OpenWrite::new(path(at), how, ClientIdentity::default(), BootId(1));
        let hidden = w.change(ns::OpenWrite { posc: true, ..open("/t/hidden", WriteMode::NewOnly) }).unwrap();
        let update = w.change(open("/t/old", WriteMode::Update)).unwrap();
        [(new, 0), (hidden, 0), (update, 40)]
    };
    for (opened, base) in opens() {
        let reaches = |len| w.change(ns::Reserve { writer: opened.writer, len });
        let is_unlimited = || w.ns.read(|read| ns::is_unlimited(read, Timestamp(1), &opened.writer)).unwrap();
        assert!(is_unlimited());
        assert_eq!(reaches(base + 70).unwrap(), None, "nothing limits it");
        assert_eq!(w.quota(user).reserved.bytes, 0);
        w.change(ns::SetQuota { hard_bytes: Some(Some(140)), ..limit("/t", user) }).unwrap();
        assert!(!is_unlimited());
        assert_eq!(reaches(base + 101).unwrap_err().code(), ErrorCode::Quota, "with the 40 bytes of the old file");
        assert_eq!(reaches(base).unwrap(), Some(base));
        // 70 bytes are written, and 20 more are wanted.
        let reached = reaches(base + 90).unwrap().unwrap();
        assert!((base + 90..=base + 100).contains(&reached), "{reached}");
        assert_eq!(w.quota(user).reserved.bytes, reached - base);
        if base == 0 {
            w.change(ns::Abandon { writer: opened.writer, request: None }).unwrap();
        } else {
            w.commit(opened.writer, base);
        }
        assert_eq!(w.quota(user).reserved.bytes, 0);
        w.change(ns::SetQuota { hard_bytes: Some(None), ..limit("/t", user) }).unwrap();
    }
}

/// The upload has reserved its bytes for the owner of then.
#[test]
fn a_replacement_does_not_pass_the_quota_of_a_new_owner() {
    for is_limited_before in [false, true] {
        let w = World::new();
        let (old, new) = (QuotaOf::User(PrincipalId(0)), QuotaOf::User(PrincipalId(5)));
        w.file("/t/f", 10).unwrap();
        if is_limited_before {
            w.change(ns::SetQuota { hard_bytes: Some(Some(1000)), ..limit("/t", old) }).unwrap();
        }
        w.change(ns::SetQuota { hard_bytes: Some(Some(50)), ..limit("/t", new) }).unwrap();
        let open = || {
            let open = ns::OpenWrite::new(path("/t/f"), WriteMode::Replace, ClientIdentity::default(), BootId(1));
            w.change(ns::OpenWrite { posc: true, expected_len: Some(51), ..open }).unwrap()
        };
        let close = |opened: &ns::OpenedWrite, len| {
            let content = ns::Committed { len, sums: None, mtime: None };
            w.change(ns::Commit { writer: opened.writer, content, completion: ns::Completion::ByClient })
        };
        let give = |to| w.change(ns::Chown { path: path("/t/f"), owner: Some(PrincipalId(to)), group: None }).unwrap();
        let opened = open();
        give(5);
        let refused = close(&opened, 51).unwrap_err();
        assert!(matches!(refused, NsError::UploadKept { code: ErrorCode::Quota, .. }), "{refused}");
        assert_eq!(w.quota(new).used.bytes, 10, "the old content is there");
        let upload = w.ns.read(|read| ns::uploads(read, None, 10)).unwrap();
        assert_eq!(upload[0].state, ns::UploadState::Refused(ErrorCode::Quota));
        // What has room replaces it, and so does everything while the file is its old owner's.
        give(0);
        let opened = open();
        give(5);
        close(&opened, 50).unwrap();
        assert_eq!(w.quota(new).used.bytes, 50);
        give(0);
        close(&open(), 51).unwrap();
    }
}
