//! The bytes on disk. `golden.txt` holds every kind of key and value as this version writes them. A change of these bytes is a change of the format:
//! see docs/reference/formats.md. `WEIR_BLESS=1` rewrites the file.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::fmt::Write;
use std::sync::Arc;

use kv::{Durability, Kv, MemoryKv, OpOutcome, transact};
use namespace::{self as ns, Actor, Namespace, NamespaceConfig, NsError, Operation, RequestNumber};
use types::{Adler32, BootId, ClientIdentity, Crc32c, ErrorCode, NsPath, PrincipalId, SessionId, Timestamp};

const GOLDEN: &str = include_str!("golden.txt");

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

struct Script {
    ns: Arc<Namespace>,
    now: i64,
}

impl Script {
    fn change<O: Operation + Send + 'static>(&mut self, op: O) -> Result<O::Reply, NsError> {
        self.numbered(None, op)
    }

    fn numbered<O: Operation + Send + 'static>(
        &mut self,
        request: Option<RequestNumber>,
        op: O,
    ) -> Result<O::Reply, NsError> {
        self.now += 1;
        let ctx = self.ns.context(Timestamp(self.now), &Actor::admin(), request);
        self.ns.change_wait(Durability::Synced, ctx, op)
    }

    fn open(&mut self, at: &str, how: ns::WriteMode, posc: bool) -> ns::OpenedWrite {
        let open = ns::OpenWrite {
            posc,
            expected_len: Some(10),
            ..ns::OpenWrite::new(
                path(at),
                how,
                ClientIdentity { principal: PrincipalId(6), user: "ann".into(), pid: 77, host: "[::1]".into() },
                BootId(0x0102_0304),
            )
        };
        self.change(open).unwrap()
    }

    fn commit(&mut self, writer: ns::WriterToken, completion: ns::Completion) -> Result<ns::CommitReply, NsError> {
        let sums = Some(ns::Sums { adler32: Adler32(0xa1a2_a3a4), crc32c: Crc32c(0xc1c2_c3c4) });
        self.change(ns::Commit { writer, content: ns::Committed { len: 10, sums, mtime: None }, completion })
    }
}

/// Uses every kind of record.
fn everything(kv: &Arc<dyn Kv>) {
    let config = NamespaceConfig { id_range: 1 << 20, ..NamespaceConfig::default() };
    let ns = Namespace::open(Arc::clone(kv), Timestamp(1_000), config).unwrap();
    let mut s = Script { ns, now: 2_000 };
    s.change(ns::Mkdir { path: path("/d/e"), mode: 0o2775, parents: true }).unwrap();
    s.change(ns::Mkdir { path: path("/tree"), mode: 0o755, parents: false }).unwrap();
    s.change(ns::MakeTree { path: path("/tree") }).unwrap();
    let file = s.open("/d/file", ns::WriteMode::NewOnly, false);
    s.commit(file.writer, ns::Completion::ByClient).unwrap();
    s.change(ns::SetXattr {
        of: path("/d/file").into(),
        name: b"user.k".to_vec(),
        value: b"v".to_vec(),
        mode: ns::XattrMode::Set,
    })
    .unwrap();
    let owner = Some(PrincipalId(5));
    s.change(ns::Chown { path: path("/d/file"), owner, group: Some(PrincipalId(9)) }).unwrap();
    let linked = s.open("/d/linked", ns::WriteMode::NewOnly, false);
    s.commit(linked.writer, ns::Completion::AtGraceEnd).unwrap();
    s.change(ns::Link { existing: path("/d/linked"), new: path("/d/e/other") }).unwrap();
    s.change(ns::Utimes { path: path("/d/linked"), mtime: Some(Timestamp(-1)), atime: Some(Timestamp(5)) }).unwrap();
    s.change(ns::Symlink { path: path("/d/link"), target: b"../d/file".to_vec() }).unwrap();
    s.open("/d/open", ns::WriteMode::NewOnly, false);
    s.open("/d/file", ns::WriteMode::Update, false);
    let gone = s.open("/d/interrupted", ns::WriteMode::NewOnly, false);
    s.change(ns::Interrupt { writer: gone.writer, kept_len: 4 }).unwrap();
    s.open("/d/linked", ns::WriteMode::Replace, false);
    let refused = s.open("/d/e/new", ns::WriteMode::Replace, true);
    s.change(ns::Mkdir { path: path("/d/e/new"), mode: 0o755, parents: false }).unwrap();
    assert_eq!(s.commit(refused.writer, ns::Completion::ByClient).unwrap_err().code(), ErrorCode::IsDirectory);
    let kept = s.open("/d/kept", ns::WriteMode::Replace, true);
    s.change(ns::Interrupt { writer: kept.writer, kept_len: 3 }).unwrap();
    let held = s.open("/d/held", ns::WriteMode::NewOnly, false);
    s.commit(held.writer, ns::Completion::ByClient).unwrap();
    s.change(ns::Hold { session: SessionId(40), ino: held.ino }).unwrap();
    s.change(ns::Remove { path: path("/d/held") }).unwrap();
    let removed = s.open("/d/removed", ns::WriteMode::NewOnly, false);
    s.commit(removed.writer, ns::Completion::ByClient).unwrap();
    s.change(ns::Remove { path: path("/d/removed") }).unwrap();
    let session = s.change(ns::OpenSession { client: ClientIdentity::default() }).unwrap();
    let number = |number| Some(RequestNumber { session, number });
    s.numbered(number(1), ns::Mkdir { path: path("/n"), mode: 0o755, parents: false }).unwrap();
    s.numbered(number(2), ns::Rmdir { path: path("/d") }).unwrap_err();
    let hidden = s.open("/d/hidden", ns::WriteMode::NewOnly, true);
    let of = ns::XattrOf::Upload(hidden.writer);
    s.change(ns::SetXattr { of, name: b"user.h".to_vec(), value: b"w".to_vec(), mode: ns::XattrMode::Create }).unwrap();
    let policy = "stripe(4, 1MiB) replica(2) sync=1 spread=site near=client prefer=cern/r1 class=t1:1".parse().unwrap();
    s.change(ns::SetPolicy { path: path("/tree"), policy }).unwrap();
    s.change(ns::SetPolicy { path: path("/d/e"), policy: types::Policy::default() }).unwrap();
    members(&mut s);
    principals(&mut s);
    quotas(&mut s);
}

/// A tree with all limits, of which two are exceeded, an open write and a kept upload in it.
fn quotas(s: &mut Script) {
    s.change(ns::Mkdir { path: path("/q"), mode: 0o755, parents: false }).unwrap();
    s.change(ns::MakeTree { path: path("/q") }).unwrap();
    let (hard, soft) = (Some(Some(1 << 20)), Some(Some(0)));
    let grace = Some(std::time::Duration::from_secs(3_600));
    let of = ns::QuotaOf::User(PrincipalId(0));
    let limits = ns::SetQuota {
        path: path("/q"),
        of,
        hard_bytes: hard,
        soft_bytes: soft,
        hard_files: hard,
        soft_files: soft,
        grace,
    };
    s.change(limits.clone()).unwrap();
    let done = s.open("/q/done", ns::WriteMode::NewOnly, false);
    s.commit(done.writer, ns::Completion::ByClient).unwrap();
    let kept = s.open("/q/kept", ns::WriteMode::NewOnly, true);
    s.change(ns::Interrupt { writer: kept.writer, kept_len: 3 }).unwrap();
    s.open("/q/open", ns::WriteMode::NewOnly, false);
    let of = ns::QuotaOf::Group(PrincipalId(9));
    s.change(ns::SetQuota { of, soft_bytes: None, soft_files: None, grace: None, ..limits }).unwrap();
    let user = Some(ns::TreeOwner::User(PrincipalId(6)));
    s.change(ns::SetTreeOwner { path: path("/q"), owner: user }).unwrap();
    let group = Some(ns::TreeOwner::Group(PrincipalId(9)));
    s.change(ns::SetTreeOwner { path: path("/tree"), owner: group }).unwrap();
}

/// A cluster with a disk server and its store.
fn members(s: &mut Script) {
    s.change(ns::FoundCluster { roles: 1, name: "mgr".into(), key: [1; 32] }).unwrap();
    let token = |number: u8| ns::TokenEntry {
        id: [number; 16],
        hash: [7; 32],
        roles: 2,
        made: Timestamp(1),
        expires: Timestamp(9_000_000),
        uses_max: 1,
        used: Vec::new(),
    };
    for number in [2, 3] {
        s.change(ns::MakeToken { token: token(number) }).unwrap();
    }
    let join = ns::JoinNode { token: token(2), roles: 2, name: "disk1".into(), key: [2; 32] };
    let node = s.change(join).unwrap();
    let (for_nodes, for_clients) = (vec!["10.0.0.2:1095".into(), "d1:1095".into()], vec!["d1:1094".into()]);
    s.change(ns::SetAddresses { node, for_nodes, for_clients }).unwrap();
    let store = types::StoreId(77);
    let class = Some("t1".parse().unwrap());
    s.change(ns::PutStore { store, node, location: "cern/r1/d1".parse().unwrap(), class }).unwrap();
    s.change(ns::SetStoreState { store, state: ns::WantedState::Draining }).unwrap();
}

/// Two users and two groups, of which one was renamed.
fn principals(s: &mut Script) {
    use types::PrincipalKind::{Group, User};
    let name = |kind, text| types::PrincipalName::parse(kind, text).unwrap();
    let names = [(User, "ann"), (Group, "atlas/prod"), (User, "atlas"), (Group, "atlas")];
    let names = names.map(|(kind, text)| (kind, name(kind, text))).to_vec();
    s.change(ns::NamePrincipals { names }).unwrap();
    let (from, to) = (name(User, "ann"), name(User, "ann@example.org"));
    s.change(ns::RenamePrincipal { kind: User, from, to }).unwrap();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

fn golden() -> Vec<(Vec<u8>, Vec<u8>)> {
    let lines = GOLDEN.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines
        .map(|line| {
            let (key, value) = line.split_once(' ').unwrap();
            (unhex(key), unhex(value))
        })
        .collect()
}

fn load(entries: Vec<(Vec<u8>, Vec<u8>)>) -> Arc<dyn Kv> {
    let kv = MemoryKv::new();
    transact(&kv, Durability::Synced, move |txn| {
        for (key, value) in &entries {
            txn.put(key, value);
        }
        (OpOutcome::Commit, ())
    })
    .unwrap();
    Arc::new(kv)
}

#[test]
fn written_bytes_match_the_golden_file() {
    let memory = Arc::new(MemoryKv::new());
    let kv: Arc<dyn Kv> = Arc::<MemoryKv>::clone(&memory);
    everything(&kv);
    let dump = memory.dump();
    if std::env::var_os("WEIR_BLESS").is_some() {
        let mut text =
            String::from("# key and value in hex, in key order; see golden.rs and docs/reference/formats.md\n");
        for (key, value) in &dump {
            let _ = writeln!(text, "{} {}", hex(key), hex(value));
        }
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden.txt"), text).unwrap();
        return;
    }
    for ((key, value), (golden_key, golden_value)) in dump.iter().zip(golden()) {
        assert_eq!((hex(key), hex(value)), (hex(&golden_key), hex(&golden_value)), "key {}", key.escape_ascii());
    }
    assert_eq!(dump.len(), golden().len());
    let kinds: std::collections::BTreeSet<char> = dump.iter().map(|(key, _)| key[0] as char).collect();
    assert_eq!(kinds.iter().collect::<String>(), "ABCDEHIJLMPQRSTUWXYZ", "every kind of key is pinned");
}

#[test]
fn golden_file_opens_and_can_be_changed() {
    let kv = load(golden());
    let mut findings = Vec::new();
    let counts = ns::check(&*kv.snapshot(), &mut |finding| findings.push(finding)).unwrap();
    assert_eq!(findings, []);
    assert_eq!((counts.writers, counts.uploads, counts.deletions, counts.principals), (5, 5, 1, 4));
    let ns = Namespace::open(Arc::clone(&kv), Timestamp(9_000), NamespaceConfig::default()).unwrap();
    let admin = Actor::admin();
    let inode = ns.read(|read| ns::stat(read, &admin, &path("/d/link"))).unwrap();
    assert_eq!((inode.len(), inode.access.owner.0, inode.access.group.0), (10, 5, 9));
    let value = ns.read(|read| ns::get_xattr(read, &admin, &path("/d/file").into(), b"user.k")).unwrap();
    assert_eq!(value, b"v");
    let policy = |at: &str| {
        ns.read(|read| ns::policy_of(read, ns::stat(read, &admin, &path(at))?.ino)).unwrap().map(|it| it.policy)
    };
    let text = "stripe(4, 1MiB) replica(2) sync=1 spread=site near=client prefer=cern/r1 class=t1:1";
    assert_eq!(policy("/tree").map(|policy| policy.to_string()).as_deref(), Some(text));
    assert_eq!((policy("/d/e"), policy("/d")), (Some(types::Policy::default()), None));
    let stores = ns.read(ns::stores).unwrap();
    assert_eq!((stores[0].location.as_str(), stores[0].state), ("cern/r1/d1", ns::WantedState::Draining));
    assert_eq!(ns.read(ns::members).unwrap()[1].for_clients, ["d1:1094"]);
    assert_eq!(ns.read(ns::tokens).unwrap()[0].used, [(types::NodeId(2), [2; 32])]);
    let named = ns.read(|read| ns::name_of(read, PrincipalId((1 << 20) + 1))).unwrap().unwrap();
    assert_eq!((named.0, named.1.as_str()), (types::PrincipalKind::Group, "atlas/prod"));
    let mut s = Script { ns, now: 10_000 };
    s.change(ns::Remove { path: path("/d/linked") }).unwrap();
    s.open("/d/open", ns::WriteMode::Update, false);
}

/// The golden entries with one value changed.
fn with(prefix: &[u8], change: impl Fn(&mut Vec<u8>)) -> Arc<dyn Kv> {
    let mut entries = golden();
    let found = entries.iter_mut().find(|(key, _)| key.starts_with(prefix)).unwrap();
    change(&mut found.1);
    load(entries)
}

fn file_key() -> Vec<u8> {
    golden().into_iter().map(|(key, _)| key).find(|key| key[0] == b'D' && key.ends_with(b"interrupted")).unwrap()
}

#[test]
fn an_unknown_field_below_0x80_is_kept_and_one_above_is_refused() {
    let key = file_key();
    let kv = with(&key, |value| value.extend_from_slice(&[0x70, 0, 2, 0xab, 0xcd]));
    let ns = Namespace::open(Arc::clone(&kv), Timestamp(9_000), NamespaceConfig::default()).unwrap();
    let mut s = Script { ns, now: 10_000 };
    s.change(ns::Chmod { path: path("/d/interrupted"), mode: 0o600 }).unwrap();
    let value = kv.snapshot().get(&key).unwrap().unwrap();
    assert!(value.ends_with(&[0x70, 0, 2, 0xab, 0xcd]), "the field is still there: {value:?}");

    let kv = with(&key, |value| value.extend_from_slice(&[0xf0, 0, 0]));
    let ns = Namespace::open(kv, Timestamp(9_000), NamespaceConfig::default()).unwrap();
    let error = ns.read(|read| ns::stat(read, &Actor::admin(), &path("/d/interrupted"))).unwrap_err();
    assert!(matches!(error, NsError::Newer { feature: 0xf0, .. }), "{error}");
}

#[test]
fn other_versions_are_refused_and_a_truncated_value_is_damage() {
    let key = file_key();
    let admin = Actor::admin();
    let stat = |kv: Arc<dyn Kv>| {
        let ns = Namespace::open(kv, Timestamp(9_000), NamespaceConfig::default()).unwrap();
        ns.read(|read| ns::stat(read, &admin, &path("/d/interrupted"))).unwrap_err()
    };
    let error = stat(with(&key, |value| value[0] = 3));
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
    let error = stat(with(&key, |value| value[0] = 1));
    assert_eq!(error.code(), ErrorCode::Unsupported, "{error}");
    assert!(error.to_string().contains("by an earlier version of weir (format 1)"), "{error}");
    let full = golden().into_iter().find(|(k, _)| *k == key).unwrap().1.len();
    for len in 0..full {
        let error = stat(with(&key, |value| value.truncate(len)));
        assert_eq!(error.code(), ErrorCode::Damaged, "cut at {len}: {error}");
    }
    let kv = with(b"Cnamespace", |value| value[8] = 4);
    let error = Namespace::open(kv, Timestamp(1), NamespaceConfig::default()).err().unwrap();
    assert!(matches!(error, NsError::Newer { feature: 2, .. }), "{error}");
}

#[test]
fn no_changed_byte_makes_a_decoder_panic() {
    for (at, (key, value)) in golden().into_iter().enumerate() {
        for byte in 0..value.len() {
            for bits in [0x01, 0x80, 0xff] {
                let mut entries = golden();
                entries[at].1[byte] ^= bits;
                let kv = load(entries);
                // Any result is fine, as long as the check returns.
                let _ = ns::check(&*kv.snapshot(), &mut |_| {}).is_ok();
                let _ = key.len();
            }
        }
    }
}
