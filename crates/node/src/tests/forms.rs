//! Pins every encoding that nodes exchange, directly or by way of a client. Nodes of one protocol version understand each other, whatever their
//! builds.

use cluster::message::{BetweenStores, ClosedBy, CopyFailure, FromStore, Original, ToManager, ToServer, ToStore};
use cluster::replication::{Epoch, FromReplica, ObjectDigest, Seq, Stream, ToReplica};
use cluster::server::{Grant, GrantRights};
use cluster::{CopyId, Fence, FenceId, LeaseTerms, ProcessEpoch, Register, Registered};
use types::striping::{StripedOpenWrite, WriteSecret};
use types::{
    Adler32, BootGeneration, BootId, Crc32c, DigestKind, ErrorCode, GroupId, InSyncReplica, Incarnation, Ino, NodeId,
    ObjectId, PrincipalId, ReplicaId, ReplicaIndex, RequestNumber, SessionId, StoreId, Timestamp, WriterKey,
    WriterToken,
};

use crate::ClientPresence;
use crate::audit::{DamageReport, Inventory, InventoryRequest, StoredReplica, StoredState};
use crate::grant::{Layout, Striped, StripedRights, To};
use crate::message::{
    Activity, AttributeAction, AttributeAnswer, AttributeRequest, AttributeResult, ChangeHead, ChecksumFailure, Claim,
    ClaimResult, EndWriter, FromDisk, FromManager, Hello, Keys, ManagerAddress, Message, OpenWriteAction,
    OpenWriteAnswer, OpenWriteLength, OpenWriteRequest, OpenedFile, PeerMessage, ReplicaOrigin, RequestError,
    StoreAddress, StoreAddressPage, StoreReport, SumRequest, Summed,
};
use crate::proxy::{CopySource, FoundProxy, ProxyAnswer, ProxyRequest, SentProxy};

/// The encodings of the version that the first line names.
const PINNED: &str = include_str!("forms.txt");

const NODE: NodeId = NodeId(300);
const STORE: StoreId = StoreId(5);
const SESSION: SessionId = SessionId(1 << 40);
const REPLICA: ReplicaId = ReplicaId { object: ObjectId(0x1234), index: ReplicaIndex(0) };
const WRITER: WriterToken = WriterToken { key: WriterKey(77), object: REPLICA.object, epoch: 3 };
const EPOCH: Epoch = Epoch(3);
const WHOLE: ObjectDigest = ObjectDigest { len: 4096, crc32c: Crc32c(0xc0ff_ee00), adler32: Adler32(0x0102_0304) };
const STREAM: Stream = Stream { epoch: EPOCH, process_epoch: ProcessEpoch(2), number: 9 };
const WALL: Timestamp = Timestamp(1_800_000_000_000_000_000);
const FENCE: Fence =
    Fence { fence: FenceId(8), node: NODE, store: STORE, session: Some(SESSION), replica: REPLICA, epoch: EPOCH };
const COPY: CopyId = CopyId(6);
const REQUEST: u64 = 17;

fn in_sync() -> Vec<InSyncReplica> {
    vec![
        InSyncReplica { store: STORE, boot_generation: BootGeneration(1) },
        InSyncReplica { store: StoreId(6), boot_generation: BootGeneration(2) },
    ]
}

// The three functions that follow have no catch-all arm. A new variant does not compile until it is added here, and then below.

fn name_of_disks(message: &FromDisk) -> String {
    let of_store = |message: &FromStore| match message {
        FromStore::Place { .. } => "place",
        FromStore::Commit { by: ClosedBy::GraceEnd, .. } => "commit",
        FromStore::Commit { by: ClosedBy::Client { request: None }, .. } => "commit-by-client",
        FromStore::Commit { by: ClosedBy::Client { request: Some(_) }, .. } => "commit-numbered",
        FromStore::Interrupt { .. } => "interrupt",
        FromStore::Fenced(_) => "fenced",
        FromStore::Copied { result: Ok(()), .. } => "copied",
        FromStore::Copied { result: Err(_), .. } => "copy-failed",
        FromStore::Deleted { .. } => "deleted",
    };
    match message {
        FromDisk::Hello(_) => "hello",
        FromDisk::Report(_) => "report",
        FromDisk::Leads { .. } => "leads",
        FromDisk::Has { .. } => "has",
        FromDisk::Cluster(ToManager::Register(_)) => "register",
        FromDisk::Cluster(ToManager::Renew { .. }) => "renew",
        FromDisk::Cluster(ToManager::OfStore { message, .. }) => of_store(message),
        FromDisk::Activity(_) => "activity",
        FromDisk::Summed { found: Ok(Summed { digest: None, .. }), .. } => "summed",
        FromDisk::Summed { found: Ok(_), .. } => "summed-digest",
        FromDisk::Summed { found: Err(_), .. } => "not-summed",
        FromDisk::Attribute(request) => match request.action {
            AttributeAction::List => "attribute-list",
            AttributeAction::Get(_) => "attribute-get",
            AttributeAction::Set { .. } => "attribute-set",
            AttributeAction::Remove(_) => "attribute-remove",
        },
        FromDisk::OpenWrite(request) => match request.action {
            OpenWriteAction::Close(_) => "open-write-close",
            OpenWriteAction::Discard => "open-write-discard",
            OpenWriteAction::Leave(_) => "open-write-leave",
            OpenWriteAction::Reserve(_) => "open-write-reserve",
        },
        FromDisk::Claimed { found: ClaimResult::Ending, .. } => "claimed-ending",
        FromDisk::Claimed { found: ClaimResult::Stays(_), .. } => "claimed-stays",
        FromDisk::Claimed { found: ClaimResult::Unknown, .. } => "claimed-unknown",
        FromDisk::Lengths(_) => "lengths",
        FromDisk::Damage(_) => "damage",
        FromDisk::Inventory { found: Ok(Inventory::Replicas { .. }), .. } => "inventory",
        FromDisk::Inventory { found: Ok(Inventory::Origins(_)), .. } => "inventory-origins",
        FromDisk::Inventory { found: Err(_), .. } => "no-inventory",
        FromDisk::Client { found: ClientPresence::There, .. } => "client-there",
        FromDisk::Client { found: ClientPresence::Gone { .. }, .. } => "client-gone",
        FromDisk::Client { found: ClientPresence::Ending, .. } => "client-ending",
        FromDisk::Client { found: ClientPresence::Unknown, .. } => "client-unknown",
        FromDisk::TakeProxy(_) => "take-proxy",
    }
    .to_owned()
}

fn name_of_managers(message: &FromManager) -> String {
    let to_store = |message: &ToStore| match message {
        ToStore::Placed { .. } => "placed",
        ToStore::Ended { .. } => "ended",
        ToStore::Fence(_) => "fence",
        ToStore::Copy { .. } => "copy",
        ToStore::Delete { .. } => "delete",
    };
    match message {
        FromManager::Keys(_) => "keys",
        FromManager::StoreAddresses(_) => "ways",
        FromManager::WhoLeads { .. } => "who-leads",
        FromManager::End(_) => "end",
        FromManager::WhatHas { .. } => "what-has",
        FromManager::Cluster(ToServer::Registered { .. }) => "registered",
        FromManager::Cluster(ToServer::Renewed { .. }) => "renewed",
        FromManager::Cluster(ToServer::NoSession { .. }) => "no-session",
        FromManager::Cluster(ToServer::ToStore { message, .. }) => to_store(message),
        FromManager::Sum(SumRequest { digest: None, .. }) => "sum",
        FromManager::Sum(_) => "sum-digest",
        FromManager::Attribute(answer) => match answer.result {
            Ok(AttributeResult::Names(_)) => "attribute-names",
            Ok(AttributeResult::Value(_)) => "attribute-value",
            Ok(AttributeResult::Done) => "attribute-done",
            Err(_) => "attribute-refused",
        },
        FromManager::OpenWrite(OpenWriteAnswer { result: Ok(None), .. }) => "open-write-done",
        FromManager::OpenWrite(OpenWriteAnswer { result: Ok(Some(_)), .. }) => "open-write-reach",
        FromManager::OpenWrite(_) => "open-write-refused",
        FromManager::Claim(_) => "claim",
        FromManager::Inventory { request: InventoryRequest::After(_), .. } => "inventory",
        FromManager::Inventory { request: InventoryRequest::Origins(_), .. } => "inventory-origins",
        FromManager::AskClient { .. } => "ask-client",
        FromManager::Proxy(ProxyAnswer { found: FoundProxy::Proxy(_), .. }) => "proxy",
        FromManager::Proxy(ProxyAnswer { found: FoundProxy::Given, .. }) => "given-proxy",
        FromManager::Proxy(ProxyAnswer { found: FoundProxy::None, .. }) => "no-proxy",
        FromManager::Managers(_) => "managers",
    }
    .to_owned()
}

fn name_of_between(between: &PeerMessage) -> String {
    let told = |told: &ToReplica| match told {
        ToReplica::Begin { .. } => "begin",
        ToReplica::Change { .. } => "change",
        ToReplica::Sync { .. } => "sync",
        ToReplica::Complete { .. } => "complete",
        ToReplica::Interrupt { .. } => "interrupt",
    };
    let said = |said: &FromReplica| match said {
        FromReplica::Began { .. } => "began",
        FromReplica::Applied { .. } => "applied",
        FromReplica::Missing { .. } => "missing",
        FromReplica::Synced { .. } => "synced",
        FromReplica::Completed { .. } => "completed",
        FromReplica::Failed { .. } => "failed",
        FromReplica::Fenced { .. } => "fenced",
    };
    let change = match between.change {
        None => "",
        Some(ChangeHead::Write { .. }) => "+write",
        Some(ChangeHead::Truncate { .. }) => "+truncate",
    };
    let message = match &between.message {
        BetweenStores::ToReplica { told: message, .. } => told(message),
        BetweenStores::FromReplica { said: message, .. } => said(message),
        BetweenStores::Fetch { original: Original::Whole(_), .. } => "fetch-whole",
        BetweenStores::Fetch { original: Original::Kept { .. }, .. } => "fetch-kept",
        BetweenStores::Fetched { result: Ok(()), .. } => "fetched",
        BetweenStores::Fetched { result: Err(_), .. } => "not-fetched",
    };
    format!("{message}{change}")
}

fn name_of_layout(layout: &Layout) -> String {
    match &layout.to {
        To::Replica(Grant { rights: GrantRights::Write { .. }, .. }) => "write",
        To::Replica(Grant { rights: GrantRights::Read { .. }, .. }) => "read",
        To::Replica(Grant { rights: GrantRights::Follow, .. }) => "follow",
        To::Replica(Grant { rights: GrantRights::Kept { .. }, .. }) => "kept",
        To::Striped(Striped { rights: StripedRights::Write { .. }, .. }) => "striped-write",
        To::Striped(Striped { rights: StripedRights::Read { .. }, .. }) => "striped-read",
        To::Striped(Striped { rights: StripedRights::Follow, .. }) => "striped-follow",
    }
    .to_owned()
}

fn from_disks() -> Vec<FromDisk> {
    let report = StoreReport { store: STORE, capacity: 1 << 40, reserve: 1 << 30, free: 1 << 39, load_permille: 250 };
    let of_store = |message| FromDisk::Cluster(ToManager::OfStore { store: STORE, message });
    let holders = vec![STORE];
    let attribute = |writer, action| {
        FromDisk::Attribute(AttributeRequest { number: 9, file: OpenedFile { ino: Ino(99), writer }, action })
    };
    let of_write = |action| FromDisk::OpenWrite(OpenWriteRequest { number: 9, writer: WRITER, action });
    let failure = CopyFailure::Source(ErrorCode::NotFound);
    let client = |found| FromDisk::Client { number: 9, writer: WRITER, found };
    let inventory = |found| FromDisk::Inventory { number: 9, found };
    let commit = |by| {
        of_store(FromStore::Commit {
            replica: REPLICA,
            group: GroupId(2),
            writer: WRITER,
            whole: WHOLE,
            holders: vec![STORE],
            mtime: Some(WALL),
            by,
            request: REQUEST,
        })
    };
    vec![
        FromDisk::Hello(Hello { key: 4, stores: vec![report.clone()], newest: REPLICA.object }),
        FromDisk::Report(vec![report]),
        FromDisk::Leads { asked: vec![WRITER], led: Vec::new() },
        FromDisk::Has { store: STORE, after: Some(REPLICA), replicas: vec![REPLICA] },
        FromDisk::Cluster(ToManager::Register(Register {
            node: NODE,
            process_epoch: ProcessEpoch(2),
            boot: BootId(7),
            number: 1,
        })),
        FromDisk::Cluster(ToManager::Renew { node: NODE, session: SESSION, number: 2 }),
        of_store(FromStore::Place {
            session: SESSION,
            replica: REPLICA,
            writer: WRITER,
            in_sync: in_sync(),
            is_ending: true,
            request: REQUEST,
        }),
        commit(ClosedBy::GraceEnd),
        commit(ClosedBy::Client { request: None }),
        commit(ClosedBy::Client { request: Some(RequestNumber { session: SESSION, number: 7 }) }),
        of_store(FromStore::Interrupt { replica: REPLICA, writer: WRITER, kept_len: 100, holders, request: REQUEST }),
        of_store(FromStore::Fenced(FENCE)),
        of_store(FromStore::Copied { session: SESSION, copy: COPY, result: Ok(()) }),
        of_store(FromStore::Copied { session: SESSION, copy: COPY, result: Err(failure) }),
        of_store(FromStore::Deleted { replicas: vec![REPLICA] }),
        FromDisk::Activity(Activity {
            up_millis: 1000,
            sessions: 2,
            open_files: 3,
            writing: 4,
            read_bytes: 5,
            written_bytes: 6,
            writers_memory: 7,
            writers_memory_max: 8,
        }),
        FromDisk::Summed { number: 9, found: Ok(Summed { whole: WHOLE, digest: None }) },
        FromDisk::Summed { number: 9, found: Ok(Summed { whole: WHOLE, digest: Some(vec![1, 2]) }) },
        FromDisk::Summed {
            number: 9,
            found: Err(ChecksumFailure { code: ErrorCode::Overloaded, text: "busy".into() }),
        },
        attribute(None, AttributeAction::List),
        attribute(None, AttributeAction::Get(b"user.a".to_vec())),
        attribute(
            Some(WRITER),
            AttributeAction::Set { name: b"user.a".to_vec(), value: b"b".to_vec(), only_new: true },
        ),
        attribute(Some(WRITER), AttributeAction::Remove(b"user.a".to_vec())),
        of_write(OpenWriteAction::Close(RequestNumber { session: SESSION, number: 7 })),
        of_write(OpenWriteAction::Discard),
        of_write(OpenWriteAction::Leave(RequestNumber { session: SESSION, number: 7 })),
        of_write(OpenWriteAction::Reserve(8)),
        FromDisk::Claimed { number: 9, found: ClaimResult::Ending },
        FromDisk::Claimed { number: 9, found: ClaimResult::Stays("it is being written".to_owned()) },
        FromDisk::Claimed { number: 9, found: ClaimResult::Unknown },
        FromDisk::Lengths(vec![OpenWriteLength { writer: WRITER, len: 4096 }]),
        FromDisk::Damage(DamageReport { store: STORE, damaged: vec![REPLICA], whole: Vec::new() }),
        inventory(Ok(Inventory::Replicas {
            replicas: [StoredState::Whole(WHOLE), StoredState::Kept(100), StoredState::Written(9)]
                .map(|state| StoredReplica {
                    replica: REPLICA,
                    state,
                    is_damaged: state == StoredState::Kept(100),
                    incarnation: Incarnation(3),
                })
                .to_vec(),
            is_last: true,
        })),
        inventory(Ok(Inventory::Origins(vec![b"/a/file".to_vec(), Vec::new()]))),
        inventory(Err(ErrorCode::Io)),
        client(ClientPresence::There),
        client(ClientPresence::Gone { ago_ms: 1000, left_ms: 59_000 }),
        client(ClientPresence::Ending),
        client(ClientPresence::Unknown),
        FromDisk::TakeProxy(ProxyRequest { number: 9, object: REPLICA.object }),
    ]
}

fn from_managers() -> Vec<FromManager> {
    let copied = CopySource { server: "there".into(), tls: true, path: "/a".into() };
    let proxy = SentProxy::new("proxy".into(), Timestamp(8), copied).unwrap();
    let to_store = |message| FromManager::Cluster(ToServer::ToStore { store: STORE, message });
    let (original, capability, path) = (Original::Whole(WHOLE), "capability".to_owned(), b"/a/file".to_vec());
    let registered = Registered { session: SESSION, boot_generation: BootGeneration(2), number: 1 };
    let terms = LeaseTerms::default();
    let attribute = |result| FromManager::Attribute(AttributeAnswer { number: 9, result });
    let inventory = |request| FromManager::Inventory { number: 9, store: STORE, request };
    vec![
        FromManager::Keys(Keys {
            id: 4,
            secret: [7; 32],
            incarnation: Incarnation(3),
            manager: Some(("manager".to_owned(), 1094)),
        }),
        FromManager::StoreAddresses(StoreAddressPage {
            number: 6,
            page: 0,
            is_last: true,
            addresses: vec![StoreAddress { store: STORE, node: NODE, nodes_at: "disk:1095".to_owned() }],
        }),
        FromManager::WhoLeads { store: STORE, writers: vec![WRITER] },
        FromManager::End(EndWriter { capability: capability.clone(), path: path.clone(), expected_len: Some(100) }),
        FromManager::WhatHas { store: STORE, after: None },
        FromManager::Cluster(ToServer::Registered { registered, terms, wall: WALL }),
        FromManager::Cluster(ToServer::Renewed { session: SESSION, number: 2, wall: WALL }),
        FromManager::Cluster(ToServer::NoSession { session: SESSION }),
        to_store(ToStore::Placed { replica: REPLICA, epoch: EPOCH, request: REQUEST, result: Ok(()) }),
        to_store(ToStore::Ended { replica: REPLICA, epoch: EPOCH, request: REQUEST, result: Err(ErrorCode::Stale) }),
        to_store(ToStore::Fence(FENCE)),
        to_store(ToStore::Copy {
            copy: COPY,
            session: SESSION,
            replica: REPLICA,
            epoch: EPOCH,
            original,
            from: StoreId(6),
        }),
        to_store(ToStore::Delete { replicas: vec![REPLICA], exist_elsewhere: true }),
        FromManager::Sum(SumRequest { number: 9, capability: capability.clone(), path: path.clone(), digest: None }),
        FromManager::Sum(SumRequest { number: 9, capability, path, digest: Some(DigestKind::Sha256) }),
        attribute(Ok(AttributeResult::Names(vec![b"user.a".to_vec()]))),
        attribute(Ok(AttributeResult::Value(b"b".to_vec()))),
        attribute(Ok(AttributeResult::Done)),
        attribute(Err(ErrorCode::NoAttribute)),
        FromManager::OpenWrite(OpenWriteAnswer { number: 9, result: Ok(None) }),
        FromManager::OpenWrite(OpenWriteAnswer { number: 9, result: Ok(Some(10)) }),
        FromManager::OpenWrite(OpenWriteAnswer {
            number: 9,
            result: Err(RequestError { code: ErrorCode::Stale, text: "old".into() }),
        }),
        FromManager::Claim(Claim { number: 9, writer: WRITER, principal: PrincipalId(1000), takes_over: true }),
        inventory(InventoryRequest::After(Some(REPLICA))),
        inventory(InventoryRequest::Origins(vec![REPLICA])),
        FromManager::AskClient { number: 9, writer: WRITER },
        FromManager::Proxy(ProxyAnswer { number: 9, found: FoundProxy::Proxy(proxy) }),
        FromManager::Proxy(ProxyAnswer { number: 9, found: FoundProxy::Given }),
        FromManager::Proxy(ProxyAnswer { number: 9, found: FoundProxy::None }),
        FromManager::Managers(vec![ManagerAddress {
            node: NODE,
            nodes_at: "mgr1:1095".to_owned(),
            clients_at: Some(("mgr1".to_owned(), 1094)),
        }]),
    ]
}

fn between() -> Vec<PeerMessage> {
    let (write, truncate) = (ChangeHead::Write { offset: 4096, len: 100 }, ChangeHead::Truncate { len: 50 });
    let bare = |message| PeerMessage { to: StoreId(6), message, change: None, about: None };
    let told = |told| bare(BetweenStores::ToReplica { from: STORE, replica: REPLICA, told });
    let said = |said| bare(BetweenStores::FromReplica { from: STORE, replica: REPLICA, said });
    let fetch = |original| {
        bare(BetweenStores::Fetch { to: STORE, copy: COPY, replica: REPLICA, original, offset: 0, len: 4 << 20 })
    };
    let fetched = |result| bare(BetweenStores::Fetched { copy: COPY, replica: REPLICA, offset: 0, result });
    let change = || told(ToReplica::Change { stream: STREAM, seq: Seq(12) });
    let begin =
        told(ToReplica::Begin { stream: STREAM, boot_generation: BootGeneration(1), from: Seq(11), may_make: true });
    vec![
        PeerMessage {
            about: Some(ReplicaOrigin {
                principal: PrincipalId(1000),
                path: b"/a/file".to_vec(),
                expected_len: Some(100),
            }),
            ..begin
        },
        PeerMessage { change: Some(write), ..change() },
        PeerMessage { change: Some(truncate), ..change() },
        told(ToReplica::Sync { stream: STREAM, upto: Seq(12) }),
        told(ToReplica::Complete { stream: STREAM, upto: Seq(12) }),
        told(ToReplica::Interrupt { stream: STREAM, upto: Seq(12) }),
        said(FromReplica::Began { stream: STREAM }),
        said(FromReplica::Applied { stream: STREAM, upto: Seq(12) }),
        said(FromReplica::Missing { stream: STREAM }),
        said(FromReplica::Synced { stream: STREAM, upto: Seq(12) }),
        said(FromReplica::Completed { stream: STREAM, whole: WHOLE }),
        said(FromReplica::Failed { stream: STREAM, why: ErrorCode::NoSpace }),
        said(FromReplica::Fenced { stream: STREAM, epoch: Epoch(4) }),
        fetch(Original::Whole(WHOLE)),
        fetch(Original::Kept { len: 100, was_whole: true }),
        fetched(Err(ErrorCode::NotFound)),
        PeerMessage { change: Some(write), ..fetched(Ok(())) },
    ]
}

fn layouts() -> Vec<Layout> {
    let replica = |rights| To::Replica(Grant { store: STORE, session: SESSION, group: GroupId(2), rights });
    let striped = |rights| To::Striped(Striped { width: 4, chunk: 1 << 20, rights });
    let writing = StripedOpenWrite { writer: WRITER, secret: WriteSecret(5) };
    let all = [
        replica(GrantRights::Write { writer: WRITER, in_sync: in_sync(), may_make: true }),
        replica(GrantRights::Read { epoch: EPOCH, whole: WHOLE }),
        replica(GrantRights::Follow),
        replica(GrantRights::Kept { epoch: EPOCH }),
        striped(StripedRights::Write { writing, goes_on: true }),
        striped(StripedRights::Read { len: 4096, is_partial: false }),
        striped(StripedRights::Follow),
    ];
    all.map(|to| Layout { to, shard: ReplicaIndex(0), ino: Ino(99), mode: 0o644, mtime: WALL, may_reach: Some(10) })
        .into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Names and bytes, one line each.
fn forms() -> Vec<String> {
    let line = |of: &str, name: String, bytes: Vec<u8>| format!("{of} {name} {}", hex(&bytes));
    let mut lines = vec![format!("version {}", link::Versions::SPOKEN.newest)];
    for message in from_disks() {
        let name = name_of_disks(&message);
        lines.push(line("from-disk", name, link::encode(&Message::FromDisk(message)).unwrap()));
    }
    for message in from_managers() {
        let name = name_of_managers(&message);
        lines.push(line("from-manager", name, link::encode(&Message::FromManager(message)).unwrap()));
    }
    for message in between() {
        let name = name_of_between(&message);
        lines.push(line("between", name, link::encode(&Message::PeerMessage(message)).unwrap()));
    }
    lines.extend(layouts().iter().map(|layout| line("grant", name_of_layout(layout), layout.encode())));
    lines
}

#[test]
fn encodings_do_not_change_within_a_protocol_version() {
    let (forms, pinned): (_, Vec<&str>) = (forms(), PINNED.lines().collect());
    let changed: Vec<&String> = forms.iter().filter(|form| !pinned.contains(&form.as_str())).collect();
    assert!(
        changed.is_empty() && forms.len() == pinned.len(),
        "what goes between nodes has other forms than are pinned: raise the version (`link::Version`, and with it `Versions::SPOKEN`), unless it was \
         raised since the last release, say there and in docs/reference/node-protocol.md what has changed, and pin these lines in forms.txt:\n{}",
        forms.join("\n")
    );
}

#[test]
fn pinned_encodings_decode() {
    for line in PINNED.lines().skip(1) {
        let (of, hex) = (line.split(' ').next().unwrap(), line.rsplit(' ').next().unwrap());
        let bytes: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        let again = match of {
            "grant" => Layout::decode(&bytes).unwrap().encode(),
            _ => link::encode(&link::decode::<Message>(&bytes).unwrap()).unwrap(),
        };
        assert_eq!(again, bytes, "{line}");
    }
}
