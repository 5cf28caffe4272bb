//! The life of a striped file: it is complete when all its units are, and they are deleted with it.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::sync::Arc;

use kv::{Durability, MemoryKv};
use namespace::{self as ns, Actor, FileState, Namespace, NamespaceConfig, NsError, Operation, WriteMode};
use types::striping::{StripedOpenWrite, WriteSecret};
use types::{
    Adler32, BootGeneration, BootId, ClientIdentity, Crc32c, ErrorCode, Group, GroupId, InSyncReplica, Member, NsPath,
    ObjectId, Placement, PrincipalId, StoreId, Stripe, Timestamp,
};

const CHUNK: u64 = 64 << 10;
const SECRET: WriteSecret = WriteSecret(0x1234 << 64 | 7);

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn on(store: u64) -> Placement {
    let in_sync = vec![InSyncReplica { store: StoreId(store), boot_generation: BootGeneration(1) }];
    Placement { group: GroupId(100 + store), in_sync }
}

fn open(at: &str, how: WriteMode) -> ns::OpenWrite {
    let client = ClientIdentity { principal: PrincipalId(0), user: "u".into(), pid: 1, host: "h".into() };
    let units = (1..=3).map(on).collect();
    ns::OpenWrite {
        placement: Placement { group: GroupId::STRIPED, in_sync: Vec::new() },
        stripe: Some(ns::NewStripe { stripe: Stripe::new(3, CHUNK).unwrap(), units, secret: SECRET }),
        ..ns::OpenWrite::new(path(at), how, client, BootId(1))
    }
}

struct World(Arc<Namespace>);

impl World {
    fn new() -> Self {
        let ns = Namespace::open(Arc::new(MemoryKv::new()), Timestamp(0), NamespaceConfig::default()).unwrap();
        let world = Self(ns);
        world.change(ns::FoundCluster { roles: 3, name: "m".into(), key: [0; 32] }).unwrap();
        for store in 1..=3 {
            let location = format!("s/r/h{store}").parse().unwrap();
            world.change(ns::PutStore { store: StoreId(store), node: ns::FIRST_NODE, location, class: None }).unwrap();
            let members = vec![Member { store: StoreId(store), since: ObjectId(1), through: ObjectId(0) }];
            world.change(ns::PutGroup { group: Group { group: on(store).group, epoch: 1, members } }).unwrap();
        }
        world
    }

    /// Makes a change. Afterwards all rules between the records must hold.
    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        let ctx = self.0.context(Timestamp(5), &Actor::admin(), None);
        let done = self.0.change_wait(Durability::Synced, ctx, op);
        let mut found = Vec::new();
        self.0.read(|read| ns::check(read, &mut |finding| found.push(finding))).unwrap();
        assert_eq!(found, [], "what the check finds");
        done
    }

    fn refused<O: Operation + Send + 'static>(&self, op: O) -> ErrorCode {
        match self.change(op) {
            Ok(_) => panic!("it was done"),
            Err(error) => error.code(),
        }
    }

    fn units(&self, object: ObjectId) -> Vec<ns::Content> {
        let (_, units) = self.0.read(|read| ns::units_of(read, object)).unwrap();
        units.iter().map(|unit| *unit.content().unwrap()).collect()
    }

    /// Opens a unit again for the writer of the file.
    fn open_unit(&self, of: ns::WriterToken, unit: u8) -> Result<ns::OpenedWrite, NsError> {
        let client = ns::unit_writer(PrincipalId(0), of.object, unit);
        let open = ns::OpenWrite::new(path("/f"), WriteMode::Update, client, BootId(1));
        self.change(ns::OpenWrite { unit_of: Some(of), ..open })
    }

    fn close_unit(&self, opened: &ns::OpenedWrite, len: u64) {
        self.close_unit_as(opened, len, 0);
    }

    fn close_unit_as(&self, opened: &ns::OpenedWrite, len: u64, crc: u32) {
        let sums = Some(ns::Sums { adler32: Adler32(1), crc32c: Crc32c(crc) });
        let content = ns::Committed { len, sums, mtime: None };
        let commit = ns::Commit { writer: opened.writer, content, completion: ns::Completion::ByClient };
        let by = opened.in_sync[0].store;
        self.change(ns::CommitPlaced { commit, group: opened.group, by, holders: vec![by] }).unwrap();
    }

    /// The writer of a unit goes away.
    fn interrupt_unit(&self, opened: &ns::OpenedWrite, kept_len: u64) {
        let interrupt = ns::Interrupt { writer: opened.writer, kept_len };
        let by = opened.in_sync[0].store;
        self.change(ns::InterruptPlaced { interrupt, by: Some(by), holders: vec![by] }).unwrap();
    }

    /// Opens a unit, in whatever state, for a writer that resumes the file.
    fn take_up_unit(&self, of: ns::WriterToken, unit: u8) -> ns::OpenedWrite {
        let client = ns::unit_writer(PrincipalId(0), of.object, unit);
        let open = ns::OpenWrite::new(path("/f"), WriteMode::Update, client, BootId(1));
        let placement = on(u64::from(unit) + 1);
        self.change(ns::OpenWrite { unit_of: Some(of), resume: Some(ns::Resume::Visible), placement, ..open }).unwrap()
    }

    /// Writes all units of a file of `len` bytes.
    fn write_units(&self, of: ns::WriterToken, len: u64) {
        for unit in 0..3 {
            let opened = self.open_unit(of, unit).unwrap();
            self.close_unit(&opened, Stripe::new(3, CHUNK).unwrap().unit_len(unit, len));
        }
    }

    fn content(&self, at: &str) -> ns::Content {
        *self.0.read(|read| ns::stat(read, &Actor::admin(), &path(at))).unwrap().content().unwrap()
    }

    fn due(&self) -> Vec<ObjectId> {
        let due = self.0.read(|read| ns::due_deletions(read, None, 100)).unwrap();
        due.iter().map(|due| due.object).collect()
    }
}

fn close(writer: ns::WriterToken) -> ns::CommitStriped {
    let writing = StripedOpenWrite { writer, secret: SECRET };
    ns::CommitStriped { writing, mtime: Some(Timestamp(77)), sums: None, unit_sums: None }
}

#[test]
fn file_is_complete_when_all_its_units_are() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly)).unwrap();
    assert_eq!((opened.group, opened.in_sync.len()), (GroupId::STRIPED, 0));
    let groups: Vec<_> = world.units(opened.object).iter().map(|unit| unit.group.0).collect();
    assert_eq!(groups, [101, 102, 103]);
    // The file is not complete while a unit has an open write, whatever the request says.
    let len = 4 * CHUNK + 9;
    let content = ns::Committed { len, sums: None, mtime: None };
    let said = ns::Commit { writer: opened.writer, content, completion: ns::Completion::ByClient };
    for unit in 0..3 {
        assert_eq!(world.refused(close(opened.writer)), ErrorCode::Stale);
        assert_eq!(world.refused(said), ErrorCode::Stale);
        let part = world.open_unit(opened.writer, unit).unwrap();
        assert_eq!(part.in_sync[0].store, StoreId(u64::from(unit) + 1));
        world.close_unit(&part, Stripe::new(3, CHUNK).unwrap().unit_len(unit, len));
    }
    // Everything except the secret can be guessed.
    let guessed = StripedOpenWrite { writer: opened.writer, secret: WriteSecret(0) };
    assert_eq!(world.refused(ns::CommitStriped { writing: guessed, ..close(opened.writer) }), ErrorCode::Denied);
    let done = world.change(close(opened.writer)).unwrap();
    let file = world.content("/f");
    assert_eq!((file.len, file.state, file.sums), (len, FileState::Complete, None));
    assert_eq!(world.change(close(opened.writer)).unwrap(), done, "the answer was lost");
    assert_eq!(world.refused(said), ErrorCode::Stale);
    // A complete striped file can be replaced, and not changed.
    assert_eq!(world.refused(open("/f", WriteMode::Update)), ErrorCode::Invalid);
    assert_eq!(world.open_unit(opened.writer, 0).unwrap_err().code(), ErrorCode::Stale);
}

#[test]
fn checksums_of_the_whole_are_kept_if_the_writer_knows_them() {
    let world = World::new();
    let sums = ns::Sums { adler32: Adler32(1), crc32c: Crc32c(2) };
    for (name, said) in [("/f", Some(sums)), ("/g", None)] {
        let opened = world.change(open(name, WriteMode::NewOnly)).unwrap();
        for unit in 0..3 {
            let open = ns::OpenWrite::new(
                path(name),
                WriteMode::Update,
                ns::unit_writer(PrincipalId(0), opened.object, unit),
                BootId(1),
            );
            let part = world.change(ns::OpenWrite { unit_of: Some(opened.writer), ..open }).unwrap();
            world.close_unit(&part, if unit == 0 { 10 } else { 0 });
        }
        world.change(ns::CommitStriped { sums: said.map(|sums| (10, sums)), ..close(opened.writer) }).unwrap();
        assert_eq!((world.content(name).sums, world.content(name).len), (said, 10), "{name}");
    }
}

#[test]
fn unit_that_differs_from_the_sent_bytes_interrupts_the_file() {
    let with = |opened: &ns::OpenedWrite, sums: [u32; 3]| {
        let unit_sums = Some(sums.into_iter().map(Crc32c).collect());
        ns::CommitStriped { unit_sums, ..close(opened.writer) }
    };
    let write = |world: &World, how| {
        let opened = world.change(open("/f", how)).unwrap();
        for (unit, len, crc) in [(0, 10, 7), (1, 0, 8), (2, 0, 9)] {
            world.close_unit_as(&world.open_unit(opened.writer, unit).unwrap(), len, crc);
        }
        opened
    };
    for wrong in [[6, 8, 9], [7, 7, 9], [8, 7, 9], [7, 8, 8]] {
        let world = World::new();
        let opened = write(&world, WriteMode::NewOnly);
        assert_eq!(world.refused(with(&opened, wrong)), ErrorCode::Checksum);
        // The end of a grace period does not complete it either: it does not know the sent checksums.
        assert!(matches!(world.content("/f").state, FileState::Interrupted(_)));
        assert_eq!(world.refused(ns::EndStriped { writer: opened.writer }), ErrorCode::Stale);
        assert_eq!(world.refused(with(&opened, [7, 8, 9])), ErrorCode::Stale);
    }
    let world = World::new();
    let opened = write(&world, WriteMode::NewOnly);
    world.change(with(&opened, [7, 8, 9])).unwrap();
    let file = world.content("/f");
    assert_eq!(file.state, FileState::Complete);
    // The file that it should have replaced stays.
    let over = write(&world, WriteMode::Replace);
    assert_eq!(world.refused(with(&over, [6, 8, 9])), ErrorCode::Checksum);
    assert_eq!(world.refused(ns::EndStriped { writer: over.writer }), ErrorCode::Stale);
    assert_eq!(world.content("/f"), file);
}

#[test]
fn units_of_another_length_than_sent_interrupt_the_file() {
    let sums = ns::Sums { adler32: Adler32(1), crc32c: Crc32c(2) };
    for (announced, said) in [(None, Some(11)), (Some(9), None), (Some(9), Some(10))] {
        let world = World::new();
        let opened = world.change(ns::OpenWrite { expected_len: announced, ..open("/f", WriteMode::NewOnly) }).unwrap();
        world.write_units(opened.writer, 10);
        let close = ns::CommitStriped { sums: said.map(|len| (len, sums)), ..close(opened.writer) };
        assert_eq!(world.refused(close), ErrorCode::Checksum);
        assert!(matches!(world.content("/f").state, FileState::Interrupted(_)));
    }
}

#[test]
fn units_that_do_not_fit_together_interrupt_the_file() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly)).unwrap();
    // The second unit has lost a byte in the middle of the file.
    for (unit, len) in [(0, 2 * CHUNK), (1, CHUNK - 1), (2, CHUNK)] {
        let part = world.open_unit(opened.writer, unit).unwrap();
        world.close_unit(&part, len);
    }
    assert_eq!(world.refused(close(opened.writer)), ErrorCode::Stale);
    assert!(!world.change(ns::EndStriped { writer: opened.writer }).unwrap());
    let file = world.content("/f");
    assert!(matches!(file.state, FileState::Interrupted(_)));
    assert_eq!(file.len, 2 * CHUNK - 1, "all before the byte that is missing");
}

#[test]
fn reopening_a_file_fences_the_earlier_writers_units() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly)).unwrap();
    let before = world.open_unit(opened.writer, 1).unwrap();
    let again = world.change(ns::OpenWrite { stripe: None, ..open("/f", WriteMode::Update) }).unwrap();
    assert_eq!((again.object, again.writer.epoch), (opened.object, opened.writer.epoch + 1));
    assert_eq!(world.open_unit(opened.writer, 1).unwrap_err().code(), ErrorCode::Stale, "by the one before");
    let after = world.open_unit(again.writer, 1).unwrap();
    assert_eq!((after.object, after.writer.epoch), (before.object, before.writer.epoch + 1));
    world.write_units(again.writer, 5);
    assert_eq!(world.refused(close(opened.writer)), ErrorCode::Stale);
    world.change(close(again.writer)).unwrap();
    assert_eq!(world.content("/f").len, 5);
}

#[test]
fn abandoned_open_write_ends_when_those_of_its_units_have_ended() {
    let world = World::new();
    let announced = ns::OpenWrite { expected_len: Some(3 * CHUNK), ..open("/f", WriteMode::NewOnly) };
    let opened = world.change(announced).unwrap();
    assert_eq!(world.refused(ns::EndStriped { writer: opened.writer }), ErrorCode::Stale, "a unit is written still");
    world.write_units(opened.writer, 3 * CHUNK);
    assert!(world.change(ns::EndStriped { writer: opened.writer }).unwrap(), "all that was announced is there");
    assert_eq!(world.content("/f").state, FileState::Complete);

    let announced = ns::OpenWrite { expected_len: Some(3 * CHUNK), ..open("/g", WriteMode::NewOnly) };
    let opened = world.change(announced).unwrap();
    for unit in 0..3 {
        let open = ns::OpenWrite::new(
            path("/g"),
            WriteMode::Update,
            ns::unit_writer(PrincipalId(0), opened.object, unit),
            BootId(1),
        );
        let part = world.change(ns::OpenWrite { unit_of: Some(opened.writer), ..open }).unwrap();
        let interrupt = ns::Interrupt { writer: part.writer, kept_len: if unit == 0 { CHUNK } else { 7 } };
        let by = part.in_sync[0].store;
        world.change(ns::InterruptPlaced { interrupt, by: Some(by), holders: vec![by] }).unwrap();
    }
    assert!(!world.change(ns::EndStriped { writer: opened.writer }).unwrap());
    let file = world.content("/g");
    assert!(matches!(file.state, FileState::Interrupted(_)));
    assert_eq!(file.len, CHUNK + 7);
}

#[test]
fn interrupted_file_is_resumed_with_its_complete_and_incomplete_units() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly)).unwrap();
    let first = world.open_unit(opened.writer, 0).unwrap();
    world.close_unit(&first, CHUNK);
    for unit in 1..3 {
        let part = world.open_unit(opened.writer, unit).unwrap();
        let interrupt = ns::Interrupt { writer: part.writer, kept_len: 7 };
        let by = part.in_sync[0].store;
        world.change(ns::InterruptPlaced { interrupt, by: Some(by), holders: vec![by] }).unwrap();
    }
    assert!(!world.change(ns::EndStriped { writer: opened.writer }).unwrap());
    assert_eq!(world.content("/f").len, CHUNK + 7);
    let update = ns::OpenWrite { stripe: None, ..open("/f", WriteMode::Update) };
    assert_eq!(world.refused(update.clone()), ErrorCode::Interrupted, "nobody asked to continue it");
    let client = ClientIdentity { principal: PrincipalId(0), user: "other".into(), pid: 2, host: "h".into() };
    let again = world
        .change(ns::OpenWrite { resume: Some(ns::Resume::Visible), client: client.clone(), ..update.clone() })
        .unwrap();
    assert_eq!((again.object, again.len), (opened.object, CHUNK + 7));
    let go_on = |of: ns::WriterToken, unit: u8| {
        let client = ns::unit_writer(PrincipalId(0), of.object, unit);
        let open = ns::OpenWrite::new(path("/f"), WriteMode::Update, client, BootId(1));
        let placement = on(u64::from(unit) + 1);
        ns::OpenWrite { unit_of: Some(of), resume: Some(ns::Resume::Visible), placement, ..open }
    };
    assert_eq!(world.refused(go_on(opened.writer, 0)), ErrorCode::Stale, "by the one before");
    assert_eq!(world.refused(go_on(again.writer, 3)), ErrorCode::NotFound);
    for unit in 0..3 {
        assert_eq!(world.open_unit(again.writer, unit).unwrap_err().code(), ErrorCode::Stale, "it has ended");
        let part = world.change(go_on(again.writer, unit)).unwrap();
        assert_eq!(part.len, if unit == 0 { CHUNK } else { 7 });
        assert_eq!(world.refused(close(again.writer)), ErrorCode::Stale, "a unit is written");
        world.close_unit(&part, CHUNK);
    }
    world.change(close(again.writer)).unwrap();
    let file = world.content("/f");
    assert_eq!((file.len, file.state), (3 * CHUNK, FileState::Complete));
    assert_eq!(world.refused(update.clone()), ErrorCode::Stale, "the one before does not come back to it");
    let by_other = ns::OpenWrite { client, ..update };
    assert_eq!(world.refused(by_other), ErrorCode::Invalid, "what is complete is not changed");
    world.change(ns::Remove { path: path("/f") }).unwrap();
    assert_eq!(world.due().len(), 3);
}

#[test]
fn unit_with_an_interrupted_change_is_no_longer_complete() {
    let world = World::new();
    let len = 3 * CHUNK;
    let opened = world.change(ns::OpenWrite { expected_len: Some(len), ..open("/f", WriteMode::NewOnly) }).unwrap();
    for unit in 0..3 {
        let part = world.open_unit(opened.writer, unit).unwrap();
        if unit == 1 { world.close_unit(&part, CHUNK) } else { world.interrupt_unit(&part, 7) }
    }
    assert!(!world.change(ns::EndStriped { writer: opened.writer }).unwrap());
    let update = ns::OpenWrite { stripe: None, expected_len: Some(len), ..open("/f", WriteMode::Update) };
    let go_on = |world: &World| {
        let again = ns::OpenWrite { resume: Some(ns::Resume::Visible), ..update.clone() };
        world.change(again).unwrap().writer
    };
    // The resuming client has cut the second unit, and goes away. The unit has a gap and its former length.
    let again = go_on(&world);
    for unit in 0..3 {
        let part = world.take_up_unit(again, unit);
        if unit == 1 { world.interrupt_unit(&part, CHUNK) } else { world.close_unit(&part, CHUNK) }
    }
    assert_eq!(world.units(opened.object)[1].state, FileState::Complete, "as any content is that is changed in place");
    assert_eq!(world.0.read(|read| ns::units_written(read, opened.object)).unwrap(), ns::UnitsWritten::NotAll);
    assert_eq!(world.refused(close(again)), ErrorCode::Stale);
    assert!(!world.change(ns::EndStriped { writer: again }).unwrap());
    assert!(matches!(world.content("/f").state, FileState::Interrupted(_)));
    // Until a client closes it.
    let again = go_on(&world);
    for unit in 0..3 {
        world.close_unit(&world.take_up_unit(again, unit), CHUNK);
    }
    world.change(close(again)).unwrap();
    assert_eq!((world.content("/f").state, world.content("/f").len), (FileState::Complete, len));
}

#[test]
fn a_unit_that_was_interrupted_under_its_writer_is_not_opened_again_by_it() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly)).unwrap();
    for unit in 0..3 {
        let part = world.open_unit(opened.writer, unit).unwrap();
        // The primary of each unit has changed, of some more often than of others.
        let part = (0..unit * 3).fold(part, |_, _| world.open_unit(opened.writer, unit).unwrap());
        world.interrupt_unit(&part, 7);
    }
    assert!(!world.change(ns::EndStriped { writer: opened.writer }).unwrap());
    let resume = ns::OpenWrite { stripe: None, resume: Some(ns::Resume::Visible), ..open("/f", WriteMode::Update) };
    let again = world.change(resume.clone()).unwrap().writer;
    let first = world.take_up_unit(again, 0);
    // The client seems to be gone: what it wrote into this unit after a gap is dropped. It would not send that again.
    world.interrupt_unit(&first, 7);
    let late = |of: ns::WriterToken, unit: u8| {
        let open = ns::OpenWrite::new(
            path("/f"),
            WriteMode::Update,
            ns::unit_writer(PrincipalId(0), of.object, unit),
            BootId(1),
        );
        let placement = on(u64::from(unit) + 1);
        ns::OpenWrite { unit_of: Some(of), resume: Some(ns::Resume::Visible), placement, ..open }
    };
    assert_eq!(world.refused(late(again, 0)), ErrorCode::Stale);
    // A unit that it has closed has all of its bytes. It may go on with that, and with one that it has not opened yet.
    let second = world.take_up_unit(again, 1);
    world.close_unit(&second, CHUNK);
    let second = world.change(late(again, 1)).unwrap();
    // An interrupted change in place leaves gaps, too.
    world.interrupt_unit(&second, CHUNK);
    assert_eq!(world.refused(late(again, 1)), ErrorCode::Stale);
    world.interrupt_unit(&world.take_up_unit(again, 2), 7);
    assert_eq!(world.refused(close(again)), ErrorCode::Stale);
    assert!(!world.change(ns::EndStriped { writer: again }).unwrap());
    // Whoever resumes it next knows what is left.
    let next = world.change(resume).unwrap().writer;
    for unit in 0..3 {
        world.close_unit(&world.take_up_unit(next, unit), CHUNK);
    }
    world.change(close(next)).unwrap();
    assert_eq!((world.content("/f").state, world.content("/f").len), (FileState::Complete, 3 * CHUNK));
}

/// A file of ten bytes whose units are closed. The manager has completed it, as if its client had gone.
fn completed_by_manager() -> (World, ns::OpenedWrite) {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly)).unwrap();
    for (unit, len, crc) in [(0, 10, 7), (1, 0, 8), (2, 0, 9)] {
        world.close_unit_as(&world.open_unit(opened.writer, unit).unwrap(), len, crc);
    }
    assert!(world.change(ns::EndStriped { writer: opened.writer }).unwrap(), "all units are closed");
    (world, opened)
}

#[test]
fn a_close_after_the_end_of_the_grace_period_compares_the_sent_bytes_too() {
    let with = |opened: &ns::OpenedWrite, sums: [u32; 3]| {
        let unit_sums = Some(sums.into_iter().map(Crc32c).collect());
        ns::CommitStriped { unit_sums, ..close(opened.writer) }
    };
    let sums = ns::Sums { adler32: Adler32(1), crc32c: Crc32c(2) };
    let (world, opened) = completed_by_manager();
    world.change(ns::CommitStriped { sums: Some((10, sums)), ..with(&opened, [7, 8, 9]) }).unwrap();
    let file = world.content("/f");
    assert_eq!((file.state, file.len, file.sums), (FileState::Complete, 10, Some(sums)));
    let inode = world.0.read(|read| ns::stat(read, &ns::Actor::admin(), &path("/f"))).unwrap();
    assert_eq!(inode.mtime, Timestamp(77), "as after any close");
    assert_eq!(world.refused(with(&opened, [7, 8, 8])), ErrorCode::Checksum);
    assert_eq!(world.content("/f"), file, "what its client has closed stays");

    let (world, opened) = completed_by_manager();
    let longer = ns::CommitStriped { sums: Some((11, sums)), ..with(&opened, [7, 8, 9]) };
    assert_eq!(world.refused(longer), ErrorCode::Checksum);
    assert!(matches!(world.content("/f").state, FileState::Interrupted(_)));

    let (world, opened) = completed_by_manager();
    let stranger = ns::Actor::new(PrincipalId(7), [PrincipalId(7)].into());
    let ctx = world.0.context(Timestamp(5), &stranger, None);
    let by_stranger = world.0.change_wait(Durability::Synced, ctx, with(&opened, [7, 8, 8]));
    assert_eq!(by_stranger.unwrap_err().code(), ErrorCode::Denied);
    assert_eq!(world.refused(with(&opened, [7, 8, 8])), ErrorCode::Checksum);
    assert!(matches!(world.content("/f").state, FileState::Interrupted(_)), "nobody reads other bytes than were sent");
    assert_eq!(world.refused(with(&opened, [7, 8, 9])), ErrorCode::Stale);
    let written = || world.0.read(|read| ns::units_written(read, opened.object)).unwrap();
    assert_eq!(written(), ns::UnitsWritten::NotAll, "the unit that differs is not whole");
}

#[test]
fn a_removed_file_that_was_not_as_sent_is_refused_as_that() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly)).unwrap();
    world.write_units(opened.writer, 10);
    world.change(ns::Remove { path: path("/f") }).unwrap();
    let unit_sums = Some([5, 0, 0].into_iter().map(Crc32c).collect());
    assert_eq!(world.refused(ns::CommitStriped { unit_sums, ..close(opened.writer) }), ErrorCode::Checksum);
    assert_eq!(world.due().len(), 3);
}

#[test]
fn a_file_that_was_not_as_sent_is_completed_only_by_a_client() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly)).unwrap();
    world.write_units(opened.writer, 10);
    let sums = ns::Sums { adler32: Adler32(1), crc32c: Crc32c(2) };
    // It has another length than its client wrote.
    assert_eq!(
        world.refused(ns::CommitStriped { sums: Some((12, sums)), ..close(opened.writer) }),
        ErrorCode::Checksum
    );
    let resume = ns::OpenWrite { stripe: None, resume: Some(ns::Resume::Visible), ..open("/f", WriteMode::Update) };
    let again = world.change(resume).unwrap().writer;
    // Its client goes away before it has opened a unit, so all of them are as they were.
    assert_eq!(world.0.read(|read| ns::units_written(read, opened.object)).unwrap(), ns::UnitsWritten::All);
    assert!(!world.change(ns::EndStriped { writer: again }).unwrap());
    assert!(matches!(world.content("/f").state, FileState::Interrupted(_)));
}

#[test]
fn a_client_that_returns_does_not_resume_a_second_time() {
    for stripe in [true, false] {
        let world = World::new();
        let fitting = |open: ns::OpenWrite| match stripe {
            true => open,
            false => ns::OpenWrite { stripe: None, placement: on(1), ..open },
        };
        let opened = world.change(fitting(open("/f", WriteMode::NewOnly))).unwrap();
        let interrupt = |opened: &ns::OpenedWrite| match stripe {
            true => {
                for unit in 0..3 {
                    world.interrupt_unit(&world.take_up_unit(opened.writer, unit), 7);
                }
                assert!(!world.change(ns::EndStriped { writer: opened.writer }).unwrap());
            }
            false => world.interrupt_unit(opened, 7),
        };
        interrupt(&opened);
        let mut resume =
            fitting(ns::OpenWrite { stripe: None, resume: Some(ns::Resume::Visible), ..open("/f", WriteMode::Update) });
        resume.stripe = None;
        let again = world.change(resume.clone()).unwrap();
        if stripe {
            assert_eq!(world.refused(resume.clone()), ErrorCode::Stale, "it goes on already");
        }
        interrupt(&again);
        let late = ns::OpenWrite { restarted: true, ..resume.clone() };
        let refused = world.change(late).unwrap_err();
        assert!(matches!(refused, NsError::WriteEnded { .. }), "{refused}");
        world.change(resume).unwrap();
    }
}

#[test]
fn units_are_deleted_with_their_file() {
    let world = World::new();
    // A complete file.
    let opened = world.change(open("/f", WriteMode::NewOnly)).unwrap();
    world.write_units(opened.writer, 10);
    world.change(close(opened.writer)).unwrap();
    let first: Vec<_> = world.units(opened.object).iter().map(|unit| unit.object).collect();
    // Another file replaces it when that is complete, and not before.
    let over = world.change(open("/f", WriteMode::Replace)).unwrap();
    world.write_units(over.writer, 20);
    assert_eq!((world.content("/f").len, world.due()), (10, vec![]));
    world.change(close(over.writer)).unwrap();
    assert_eq!((world.content("/f").len, world.due()), (20, first.clone()));
    assert!(world.0.read(|read| ns::stripe_of(read, opened.object)).unwrap().is_none());
    world.change(ns::Remove { path: path("/f") }).unwrap();
    assert_eq!(world.due().len(), 6);

    // A file with an open write is deleted when its writers have ended.
    let opened = world.change(open("/f", WriteMode::NewOnly)).unwrap();
    let parts: Vec<_> = (0..3).map(|unit| world.open_unit(opened.writer, unit).unwrap()).collect();
    world.close_unit(&parts[0], 4);
    world.change(ns::Remove { path: path("/f") }).unwrap();
    assert_eq!(world.due().len(), 6, "its writer does not know yet");
    assert_eq!(world.refused(close(opened.writer)), ErrorCode::Stale);
    for part in &parts[1..] {
        world.close_unit(part, 0);
    }
    assert_eq!(world.change(close(opened.writer)).unwrap(), ns::CommitReply::Unlinked);
    assert_eq!(world.due().len(), 9);
}

#[test]
fn restarting_client_drops_its_earlier_units() {
    let world = World::new();
    let opened = world.change(open("/f", WriteMode::NewOnly)).unwrap();
    let part = world.open_unit(opened.writer, 2).unwrap();
    let again = world.change(ns::OpenWrite { restarted: true, ..open("/f", WriteMode::NewOnly) }).unwrap();
    assert_ne!(again.object, opened.object);
    assert!(world.0.read(|read| ns::stripe_of(read, opened.object)).unwrap().is_none());
    // The open write of the old unit ends by itself, and then its object is deleted.
    world.close_unit(&part, 5);
    assert_eq!(world.due(), [part.object]);
    world.write_units(again.writer, 8);
    world.change(close(again.writer)).unwrap();
    assert_eq!(world.content("/f").len, 8);
}

#[test]
fn a_striped_upload_that_is_taken_back_leaves_neither_units_nor_their_writers() {
    let world = World::new();
    for how in [WriteMode::NewOnly, WriteMode::Replace] {
        let due = world.due().len();
        let opened = world.change(open("/f", how)).unwrap();
        let parts: Vec<_> = (0..3).map(|unit| world.open_unit(opened.writer, unit).unwrap()).collect();
        // One unit is complete, one is interrupted, one is being written.
        world.close_unit(&parts[0], CHUNK);
        world.interrupt_unit(&parts[1], 5);
        let abandon = ns::Abandon { writer: opened.writer, request: None };
        assert_eq!(world.change(abandon).unwrap(), ns::InterruptReply::Unlinked);
        assert_eq!(world.refused(close(opened.writer)), ErrorCode::Stale);
        assert_eq!(world.due().len(), due + 3, "{how:?}");
        assert!(world.0.read(|read| ns::writers(read, None, 10)).unwrap().is_empty(), "{how:?}");
        assert!(world.0.read(|read| ns::stripe_of(read, opened.object)).unwrap().is_none());
        match how {
            WriteMode::NewOnly => {
                let gone = world.0.read(|read| ns::stat(read, &Actor::admin(), &path("/f")));
                assert_eq!(gone.unwrap_err().code(), ErrorCode::NotFound);
                let opened = world.change(open("/f", WriteMode::NewOnly)).unwrap();
                world.write_units(opened.writer, 10);
                world.change(close(opened.writer)).unwrap();
            }
            _ => assert_eq!(world.content("/f").len, 10, "the old file stays"),
        }
    }
}
