//! A client is recognised by its principal first. A client that claims another one's identity is still a different client. It cannot take over, end
//! or resume the writes of another principal.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::sync::Arc;

use kv::{Durability, MemoryKv};
use namespace::{
    self as ns, Actor, Namespace, NamespaceConfig, NsError, OpenKind, Operation, RequestNumber, WriteMode,
};
use types::{BootId, ClientIdentity, ErrorCode, NsPath, PrincipalId, SessionId, Timestamp};

const ANN: PrincipalId = PrincipalId(7);
const EVE: PrincipalId = PrincipalId(8);

struct World {
    kv: Arc<MemoryKv>,
    ns: Arc<Namespace>,
    now: std::cell::Cell<i64>,
}

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

/// Both are in one group, so that the permission bits do not distinguish them.
fn actor(principal: PrincipalId) -> Actor {
    Actor::new(principal, Arc::from([PrincipalId(100)]))
}

/// The identity that both claim.
fn client(principal: PrincipalId) -> ClientIdentity {
    ClientIdentity { principal, user: "ann".into(), pid: 77, host: "[::1]".into() }
}

fn open(who: PrincipalId, at: &str, how: WriteMode) -> ns::OpenWrite {
    ns::OpenWrite { mode: 0o666, ..ns::OpenWrite::new(path(at), how, client(who), BootId(1)) }
}

fn restart(who: PrincipalId, at: &str, how: WriteMode) -> ns::OpenWrite {
    ns::OpenWrite { restarted: true, ..open(who, at, how) }
}

impl World {
    /// A world with a directory that both may change.
    fn new() -> Self {
        let kv = Arc::new(MemoryKv::new());
        let ns = Namespace::open(Arc::<MemoryKv>::clone(&kv), Timestamp(1), NamespaceConfig::default()).unwrap();
        let world = Self { kv, ns, now: std::cell::Cell::new(1_000) };
        let admin = PrincipalId(0);
        world.change(admin, ns::Mkdir { path: path("/d"), mode: 0o777, parents: false }).unwrap();
        world.change(admin, ns::Chmod { path: path("/d"), mode: 0o777 }).unwrap();
        world
    }

    fn change<O: Operation + Send + 'static>(&self, who: PrincipalId, op: O) -> Result<O::Reply, NsError> {
        self.numbered(who, None, op)
    }

    fn numbered<O: Operation + Send + 'static>(
        &self,
        who: PrincipalId,
        request: Option<RequestNumber>,
        op: O,
    ) -> Result<O::Reply, NsError> {
        self.now.set(self.now.get() + 1);
        let ctx = self.ns.context(Timestamp(self.now.get()), &actor(who), request);
        self.ns.change_wait(Durability::Synced, ctx, op)
    }

    fn refusal<O: Operation + Send + 'static>(&self, who: PrincipalId, op: O) -> ErrorCode
    where
        O::Reply: std::fmt::Debug,
    {
        self.change(who, op).unwrap_err().code()
    }

    /// Whether this writer is unchanged since its open, and ends by its own close.
    fn closes(&self, opened: &ns::OpenedWrite) {
        let kept = self.ns.read(|read| ns::writer_of(read, opened.writer.key, opened.object)).unwrap().unwrap();
        assert_eq!((kept.epoch, kept.client), (opened.writer.epoch, client(ANN)));
        let content = ns::Committed { len: 4, sums: None, mtime: None };
        let commit = ns::Commit { writer: opened.writer, content, completion: ns::Completion::ByClient };
        assert!(matches!(self.change(ANN, commit), Ok(ns::CommitReply::Complete { .. })));
        let mut findings = Vec::new();
        ns::check(&*kv::Kv::snapshot(&*self.kv), &mut |finding| findings.push(finding)).unwrap();
        assert_eq!(findings, []);
    }
}

#[test]
fn repeating_a_writers_identity_does_not_take_it_over() {
    let world = World::new();
    let opened = world.change(ANN, open(ANN, "/d/f", WriteMode::NewOnly)).unwrap();
    let found = |who| world.ns.read(|read| ns::find_writer(read, &client(who), &path("/d/f"))).unwrap();
    assert_eq!((found(ANN).len(), found(EVE).len()), (1, 0));
    assert_eq!(world.refusal(EVE, open(EVE, "/d/f", WriteMode::Update)), ErrorCode::Busy);
    // Its own client can come back as always.
    let back = world.change(ANN, open(ANN, "/d/f", WriteMode::Update)).unwrap();
    assert_eq!((back.kind, back.object), (OpenKind::Resumed(None), opened.object));
    world.closes(&back);
}

#[test]
fn naming_another_principals_client_is_denied() {
    let world = World::new();
    let opened = world.change(ANN, open(ANN, "/d/f", WriteMode::NewOnly)).unwrap();
    let hidden = world.change(ANN, ns::OpenWrite { posc: true, ..open(ANN, "/d/h", WriteMode::NewOnly) }).unwrap();
    for at in ["/d/f", "/d/h", "/d/new"] {
        for how in [WriteMode::NewOnly, WriteMode::Replace, WriteMode::Update] {
            assert_eq!(world.refusal(EVE, restart(ANN, at, how)), ErrorCode::Denied, "{at} {how:?}");
        }
    }
    let cut = ns::Truncate { path: path("/d/f"), len: 0, client: client(ANN), boot: BootId(1), request: None };
    assert_eq!(world.refusal(EVE, cut), ErrorCode::Denied);
    // The administrator may, to end abandoned writes.
    let ends = world.change(PrincipalId(0), open(ANN, "/d/f", WriteMode::Update)).unwrap();
    assert_eq!((ends.object, ends.writer.epoch), (opened.object, opened.writer.epoch + 1));
    world.closes(&ends);
    world.closes(&hidden);
}

#[test]
fn restarting_with_a_writers_identity_does_not_end_it() {
    let world = World::new();
    let visible = world.change(ANN, open(ANN, "/d/f", WriteMode::NewOnly)).unwrap();
    assert_eq!(world.refusal(EVE, restart(EVE, "/d/f", WriteMode::NewOnly)), ErrorCode::Exists);
    assert_eq!(world.refusal(EVE, restart(EVE, "/d/f", WriteMode::Replace)), ErrorCode::Busy);
    // It does not end a hidden upload either. Both may write one, and the first close takes the name.
    let hidden = world.change(ANN, ns::OpenWrite { posc: true, ..open(ANN, "/d/h", WriteMode::NewOnly) }).unwrap();
    let other = ns::OpenWrite { posc: true, ..restart(EVE, "/d/h", WriteMode::NewOnly) };
    let other = world.change(EVE, other).unwrap();
    assert_eq!(other.dropped, []);
    assert_eq!(
        world.refusal(EVE, ns::ForgetUpload { upload: types::UploadId(hidden.object.0), expired_by: None }),
        ErrorCode::Denied
    );
    world.closes(&visible);
    world.closes(&hidden);
}

#[test]
fn client_with_a_colliding_writer_key_is_still_a_different_client() {
    let world = World::new();
    let opened = world.change(ANN, open(ANN, "/d/f", WriteMode::NewOnly)).unwrap();
    // Forges a collision: a record of another client under this client's key.
    let forge = |mut value: Vec<u8>| {
        let at = value.windows(7).position(|window| window == b"\0\0\0\x07\0\x03a").unwrap();
        value[at + 3] = 9;
        value
    };
    let key = [&b"W"[..], &opened.writer.key.0.to_be_bytes(), &opened.object.0.to_be_bytes()].concat();
    let value = kv::Kv::snapshot(&*world.kv).get(&key).unwrap().unwrap();
    kv::transact(&*world.kv, Durability::Synced, move |txn| {
        txn.put(&key, &forge(value.clone()));
        (kv::OpOutcome::Commit, ())
    })
    .unwrap();
    assert_eq!(world.refusal(ANN, restart(ANN, "/d/f", WriteMode::NewOnly)), ErrorCode::Exists);
    assert_eq!(world.refusal(ANN, restart(ANN, "/d/f", WriteMode::Replace)), ErrorCode::Busy);
    assert_eq!(world.refusal(ANN, open(ANN, "/d/f", WriteMode::Update)), ErrorCode::Busy);
}

#[test]
fn memory_of_an_ended_writer_belongs_to_its_principal() {
    let world = World::new();
    let opened = world.change(ANN, open(ANN, "/d/f", WriteMode::NewOnly)).unwrap();
    world.change(ANN, ns::Interrupt { writer: opened.writer, kept_len: 4 }).unwrap();
    // Eve writes the file again with Ann's identity. The memory of Ann's client stays.
    let other = world.change(EVE, restart(EVE, "/d/f", WriteMode::Replace)).unwrap();
    let content = ns::Committed { len: 9, sums: None, mtime: None };
    let commit = ns::Commit { writer: other.writer, content, completion: ns::Completion::ByClient };
    world.change(EVE, commit).unwrap();
    // So Ann's late client does not write into Eve's file.
    assert_eq!(world.refusal(ANN, open(ANN, "/d/f", WriteMode::Update)), ErrorCode::Stale);
    // Eve's client has not ended, so nothing is refused.
    assert!(world.change(EVE, open(EVE, "/d/f", WriteMode::Update)).is_ok());
}

#[test]
fn a_unit_of_a_striped_file_belongs_to_the_principal_that_writes_the_file() {
    let world = World::new();
    let stripe = types::Stripe::new(2, 64 << 10).unwrap();
    let units = vec![types::Placement::single_node(); 2];
    let placement = types::Placement { group: types::GroupId::STRIPED, in_sync: Vec::new() };
    let stripe = Some(ns::NewStripe { stripe, units, secret: types::striping::WriteSecret(5) });
    let opened =
        world.change(ANN, ns::OpenWrite { placement, stripe, ..open(ANN, "/d/s", WriteMode::NewOnly) }).unwrap();
    let unit = |client: PrincipalId| ns::OpenWrite {
        unit_of: Some(opened.writer),
        ..ns::OpenWrite::new(path("/d/s"), WriteMode::Update, ns::unit_writer(client, opened.object, 0), BootId(1))
    };
    for said in [ANN, EVE] {
        assert_eq!(world.refusal(EVE, unit(said)), ErrorCode::Denied, "{said}");
    }
    assert!(matches!(world.change(ANN, unit(ANN)).unwrap().kind, OpenKind::Resumed(None)));
}

#[test]
fn session_can_be_used_and_ended_only_by_its_own_principal() {
    let world = World::new();
    assert_eq!(world.refusal(EVE, ns::OpenSession { client: client(ANN) }), ErrorCode::Denied);
    let session = world.change(ANN, ns::OpenSession { client: client(ANN) }).unwrap();
    let file = world.change(ANN, open(ANN, "/d/f", WriteMode::NewOnly)).unwrap();
    world.change(ANN, ns::Hold { session, ino: file.ino }).unwrap();
    let number = Some(RequestNumber { session, number: 1 });
    let made = ns::Mkdir { path: path("/d/n"), mode: 0o755, parents: false };
    world.numbered(ANN, number, made.clone()).unwrap();
    // The request of the other principal gets no answer and uses no number.
    assert_eq!(world.numbered(EVE, number, made.clone()).unwrap_err().code(), ErrorCode::Denied);
    assert_eq!(world.refusal(EVE, ns::Hold { session, ino: file.ino }), ErrorCode::Denied);
    assert_eq!(world.refusal(EVE, ns::ReleaseHold { session, ino: file.ino }), ErrorCode::Denied);
    assert_eq!(world.refusal(EVE, ns::CloseSession { session }), ErrorCode::Denied);
    assert_eq!(world.refusal(EVE, ns::CloseSession { session: SessionId(999) }), ErrorCode::Stale);
    world.numbered(ANN, number, made).unwrap();
    world.change(ANN, ns::ReleaseHold { session, ino: file.ino }).unwrap();
    world.change(ANN, ns::CloseSession { session }).unwrap();
}
