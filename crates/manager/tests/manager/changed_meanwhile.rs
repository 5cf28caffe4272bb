//! Requests about a striped file that is replaced or removed while the manager looks at it. Whoever asks gets an answer about the file before or after
//! that. Nobody is told that the file is damaged.

use std::sync::mpsc::channel;

use kv::{Op, OpDone, Read};
use manager::{ApplyError, ApplyOptions, ApplyView, Redirect};
use namespace::{
    Abandon, Commit, CommitPlaced, CommitStriped, Committed, Completion, Content, FileState, Inode, NewStripe, NsError,
    Remove, Resume, SetPolicy, Sums,
};
use types::striping::{StripedOpenWrite, WriteSecret};
use types::{Adler32, Crc32c, Stripe};

use super::*;

/// More than any request here reads the namespace.
const READS_MAX: usize = 40;

/// An in-memory engine that runs a change between two reads.
#[derive(Default)]
struct ChangingKv {
    kv: MemoryKv,
    change: Mutex<Option<Pending>>,
}

/// A change that runs after this many reads.
struct Pending {
    reads: usize,
    change: Box<dyn FnOnce() + Send>,
}

impl Kv for ChangingKv {
    fn snapshot(&self) -> Box<dyn Read + Send + '_> {
        let snapshot = self.kv.snapshot();
        let due = {
            let mut pending = self.change.lock();
            if let Some(pending) = pending.as_mut() {
                pending.reads -= 1;
            }
            pending.take_if(|pending| pending.reads == 0)
        };
        if let Some(due) = due {
            (due.change)();
        }
        snapshot
    }

    fn submit(&self, durability: Durability, op: Op, done: OpDone) {
        self.kv.submit(durability, op, done);
    }
}

/// What the file is when the request comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Before {
    Complete,
    BeingWritten,
}

/// What happens to it meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Meanwhile {
    Replaced,
    Removed,
    Closed,
}

const CASES: [(Before, Meanwhile); 5] = [
    (Before::Complete, Meanwhile::Replaced),
    (Before::Complete, Meanwhile::Removed),
    (Before::BeingWritten, Meanwhile::Replaced),
    (Before::BeingWritten, Meanwhile::Removed),
    (Before::BeingWritten, Meanwhile::Closed),
];

/// Three disk servers, and the striped file `/f`.
struct World {
    kv: Arc<ChangingKv>,
    cluster: Cluster,
    old: OpenedWrite,
    content: Content,
}

impl World {
    fn new(before: Before) -> Self {
        let kv = Arc::new(ChangingKv::default());
        let cluster = Cluster::on(Arc::clone(&kv));
        let disks: Vec<NodeId> = (1..=3).map(|number| cluster.disk(number).0).collect();
        disks.iter().zip(1..).for_each(|(disk, store)| cluster.reports(*disk, &[store]));
        cluster.groups(&[1, 2, 3]);
        let policy = "stripe(2, 1MiB) replica(1)".parse().unwrap();
        change(&cluster.namespace, SetPolicy { path: NsPath::root(), policy });
        let old = open_striped(&cluster.namespace, WriteMode::NewOnly, 1);
        if before == Before::Complete {
            close_striped(&cluster.namespace, &old);
        }
        let inode = cluster.namespace.read(|read| namespace::stat(read, &Actor::admin(), &path())).unwrap();
        let content = *inode.content().unwrap();
        Self { kv, cluster, old, content }
    }

    fn writing(&self) -> StripedOpenWrite {
        StripedOpenWrite { writer: self.old.writer, secret: WriteSecret(1) }
    }

    /// Runs the change after `reads` reads, if there are as many.
    fn changes_after(&self, reads: usize, change: impl FnOnce(&Namespace) + Send + 'static) {
        if reads == 0 {
            return change(&self.cluster.namespace);
        }
        let namespace = Arc::clone(&self.cluster.namespace);
        let change = Box::new(move || change(&namespace));
        *self.kv.change.lock() = Some(Pending { reads, change });
    }

    fn changes(&self, reads: usize, meanwhile: Meanwhile) {
        let (old, before) = (self.old.clone(), self.content.state);
        self.changes_after(reads, move |namespace| {
            // The request may have raised its epoch.
            let WriterToken { key, object, .. } = old.writer;
            let record = namespace.read(|read| namespace::writer_of(read, key, object)).unwrap();
            let writer = record.map_or(old.writer, |record| record.token());
            match (meanwhile, before) {
                (Meanwhile::Closed, _) => return close_striped(namespace, &OpenedWrite { writer, ..old }),
                (_, FileState::Open(_)) => drop(change(namespace, Abandon { writer, request: None })),
                (Meanwhile::Removed, _) => drop(change(namespace, Remove { path: path() })),
                (Meanwhile::Replaced, _) => {}
            }
            if meanwhile == Meanwhile::Replaced {
                let opened = open_striped(namespace, WriteMode::Replace, 9);
                close_striped(namespace, &opened);
            }
            assert!(namespace.read(|read| namespace::stripe_of(read, old.object)).unwrap().is_none());
        });
    }

    /// Whether the change has run. If not, the request reads the namespace less often.
    fn has_changed(&self) -> bool {
        self.kv.change.lock().take().is_none()
    }

    fn reads(&self, unit: Option<(u8, ObjectId)>) -> Result<Redirect, OpeningError> {
        let open_request = OpenRequest { is_direct: true, ..open_request() };
        self.cluster.manager.open_read(&open_request, &path(), false, unit)
    }

    /// The answer to an open, when the clock has run long enough for all that it may wait for.
    fn answered(&self, open: impl FnOnce(&Manager, Answer)) -> Result<Redirect, OpeningError> {
        let (sender, receiver) = channel();
        open(&self.cluster.manager, Box::new(move |result| drop(sender.send(result))));
        for _ in 0..20 {
            if let Ok(result) = receiver.recv_timeout(Duration::from_millis(1)) {
                return result;
            }
            self.cluster.passes(1);
            self.cluster.manager.tick();
        }
        panic!("an open is not answered");
    }

    fn writes(&self, op: OpenWrite) -> Result<Redirect, OpeningError> {
        self.answered(|manager, answer| manager.open_write(open_request(), op, answer))
    }
}

type Answer = Box<dyn FnOnce(Result<Redirect, OpeningError>) + Send>;

fn path() -> NsPath {
    NsPath::parse(b"/f").unwrap()
}

fn client(pid: u32) -> ClientIdentity {
    ClientIdentity { principal: Actor::admin().principal, user: "u".into(), pid, host: "h".into() }
}

fn open_request() -> OpenRequest {
    OpenRequest::new(Timestamp(1), path(), std::net::Ipv4Addr::LOCALHOST.into(), Actor::admin())
}

/// A client opens the file with two stripe units, on the first store and on the second.
fn open_striped(namespace: &Namespace, how: WriteMode, pid: u32) -> OpenedWrite {
    let on = |store| Placement { group: GROUP, in_sync: in_sync(&[store]) };
    let stripe = Stripe::new(2, 1 << 20).unwrap();
    let stripe = NewStripe { stripe, units: vec![on(1), on(2)], secret: WriteSecret(1) };
    let placement = Placement { group: GroupId::STRIPED, in_sync: Vec::new() };
    let open = OpenWrite::new(path(), how, client(pid), BootId(1));
    change(namespace, OpenWrite { placement, stripe: Some(stripe), mode: 0o666, ..open })
}

/// It closes the units and the file, with 10 bytes in the first unit.
fn close_striped(namespace: &Namespace, opened: &OpenedWrite) {
    let (_, units) = namespace.read(|read| namespace::units_of(read, opened.object)).unwrap();
    for (store, unit) in (1..).map(StoreId).zip(units.iter().filter_map(Inode::content)) {
        let FileState::Open(by) = unit.state else { panic!("{:?}", unit.state) };
        let writer = namespace.read(|read| namespace::writer_of(read, by, unit.object)).unwrap().unwrap().token();
        let len = if store == StoreId(1) { 10 } else { 0 };
        let content = Committed { len, sums: Some(Sums { adler32: Adler32(1), crc32c: Crc32c(7) }), mtime: None };
        let commit = Commit { writer, content, completion: Completion::ByClient };
        change(namespace, CommitPlaced { commit, group: GROUP, by: store, holders: vec![store] });
    }
    let writing = StripedOpenWrite { writer: opened.writer, secret: WriteSecret(1) };
    change(namespace, CommitStriped { writing, mtime: None, sums: None, unit_sums: None });
}

/// Repeats a request, with the change before its first read, after that, after its second, and so on.
fn at_each_read(request: impl Fn(&World, (Before, Meanwhile)) -> Result<(), (ErrorCode, String)>) {
    // A damaged record, or acknowledged bytes that are lost.
    let is_alarming = |code| [ErrorCode::Damaged, ErrorCode::Interrupted].contains(&code);
    let mut alarming = Vec::new();
    for (before, meanwhile) in CASES {
        for reads in 0.. {
            assert!(reads < READS_MAX);
            let world = World::new(before);
            world.changes(reads, meanwhile);
            let answer = request(&world, (before, meanwhile));
            if !world.has_changed() {
                assert!(reads > 0, "{before:?}: {answer:?}");
                break;
            }
            if let Err((code, text)) = answer
                && is_alarming(code)
            {
                alarming.push(format!("{before:?}, {meanwhile:?} after {reads} reads: {text}"));
            }
        }
    }
    assert!(alarming.is_empty(), "{alarming:#?}");
}

fn told<T>(result: Result<T, OpeningError>) -> Result<(), (ErrorCode, String)> {
    result.map(drop).map_err(|error| (error.code(), error.to_string()))
}

fn named<T>(result: Result<T, NsError>) -> Result<(), (ErrorCode, String)> {
    told(result.map_err(OpeningError::from))
}

#[test]
fn a_reader_gets_the_old_file_or_the_new_one() {
    at_each_read(|world, (_, meanwhile)| {
        let answer = world.reads(None);
        match &answer {
            Ok(to) if to.object != world.old.object => assert_eq!(meanwhile, Meanwhile::Replaced),
            // Its units may be gone already. Then none of them is named, and the client asks for each.
            Ok(to) => assert!(to.units.len() <= 1, "only the first has data"),
            Err(error) => assert!(meanwhile == Meanwhile::Removed && error.code() == ErrorCode::NotFound, "{error}"),
        }
        told(answer)
    });
}

#[test]
fn a_reader_of_a_unit_gets_it_or_learns_that_the_file_is_another() {
    at_each_read(|world, _| {
        let answer = world.reads(Some((0, world.old.object)));
        if let Err(error) = &answer {
            assert!([ErrorCode::NotFound, ErrorCode::Stale].contains(&error.code()), "{error}");
        }
        told(answer)
    });
}

#[test]
fn a_locate_and_the_views_show_the_old_file_or_the_new_one() {
    at_each_read(|world, _| told(world.cluster.manager.locate(&open_request(), &path())));
    at_each_read(|world, _| named(world.cluster.manager.file_view(&path())));
    at_each_read(|world, _| named(world.cluster.manager.missing(None, false)));
}

#[test]
fn the_length_of_a_file_that_was_looked_up_before_is_its_own() {
    at_each_read(|world, _| {
        let len = world.cluster.manager.open_write_len(&world.content);
        if let Ok(len) = len {
            assert!([0, 10].contains(&len), "{len}");
        }
        named(len)
    });
}

#[test]
fn a_walk_that_applies_policies_passes_over_a_file_that_is_gone() {
    at_each_read(|world, _| {
        let how = ApplyOptions { dry_run: true, files_per_second: 1 };
        match world.cluster.manager.apply_policy(&NsPath::root(), how, || true) {
            Ok(view) => {
                let ApplyView { files, surplus, later, .. } = view.unwrap();
                assert_eq!(surplus + later, files, "a unit has one replica, of a group of three");
                Ok(())
            }
            Err(ApplyError::Names(error)) => named(Err::<(), _>(error)),
            Err(error) => panic!("{error}"),
        }
    });
}

#[test]
fn writers_are_sent_on_or_told_to_ask_again() {
    let open = |how| OpenWrite { mode: 0o666, ..OpenWrite::new(path(), how, client(2), BootId(1)) };
    at_each_read(|world, _| told(world.writes(open(WriteMode::Replace))));
    at_each_read(|world, _| told(world.writes(open(WriteMode::Update))));
    let goes_on = || OpenWrite { resume: Some(Resume::Visible), ..open(WriteMode::Update) };
    at_each_read(|world, _| told(world.writes(goes_on())));
    // The writer itself returns.
    at_each_read(|world, _| told(world.writes(OpenWrite { client: client(1), ..open(WriteMode::Update) })));
    for goes_on in [false, true] {
        at_each_read(|world, _| {
            let unit = (world.writing(), 0, goes_on);
            told(world.answered(|manager, answer| manager.open_unit_write(open_request(), unit, answer)))
        });
    }
}

#[test]
fn nobody_hears_of_a_writer_whose_file_is_gone() {
    for combined in [false, true] {
        at_each_read(|world, (before, _)| {
            let (sender, receiver) = channel();
            let which = (world.old.writer, combined);
            world.cluster.manager.who_writes_striped(which, move |found| drop(sender.send(found)));
            // Of a writer that was there, the disk servers are asked.
            let answer = receiver.try_recv();
            assert!(before == Before::BeingWritten || answer == Ok(None), "{answer:?}");
            Ok(())
        });
    }
}

#[test]
fn a_client_whose_new_file_is_discarded_while_it_is_opened_learns_that() {
    for reads in 1..READS_MAX {
        let world = World::new(Before::Complete);
        world.changes_after(reads, |namespace| {
            let writers = namespace.read(|read| namespace::writers(read, None, 10)).unwrap();
            for writer in writers.iter().filter(|writer| writer.placement.group == GroupId::STRIPED) {
                change(namespace, Abandon { writer: writer.token(), request: None });
            }
        });
        let op = OpenWrite { mode: 0o666, ..OpenWrite::new(path(), WriteMode::Replace, client(2), BootId(1)) };
        let answer = world.writes(op);
        if !world.has_changed() {
            assert!(reads > 1 && answer.is_ok(), "{reads}: {answer:?}");
            return;
        }
        if let Err(error) = answer {
            assert_eq!(error.code(), ErrorCode::Stale, "{reads}: {error}");
        }
    }
    panic!("an open reads the namespace without end");
}

#[test]
fn a_reader_that_comes_back_to_an_object_gets_no_other() {
    let world = World::new(Before::Complete);
    let reads = |same_object| {
        let open_request = OpenRequest { same_object, ..open_request() };
        world.cluster.manager.open_read(&open_request, &path(), false, None)
    };
    assert!(reads(Some(world.old.object)).is_ok() && reads(None).is_ok());
    let new = open_striped(&world.cluster.namespace, WriteMode::Replace, 9);
    close_striped(&world.cluster.namespace, &new);
    assert!(matches!(reads(Some(world.old.object)), Err(OpeningError::Names(NsError::Stale { .. }))));
    assert!(reads(Some(new.object)).is_ok() && reads(None).is_ok());
}
