//! A store driven by hand: how it answers requests, and what it forgets.

use std::time::Duration;

use types::{
    Adler32, BootGeneration, Crc32c, ErrorCode, GroupId, InSyncReplica, NodeId, ObjectId, ReplicaId, SessionId,
    StoreId, WriterKey, WriterToken,
};

use super::*;
use crate::message::{BetweenStores, ClosedBy, CopyFailure, FromStore, Original, ToStore};
use crate::replication::{Epoch, FromReplica, LeaseView, ObjectDigest, Seq, Stream, ToReplica};
use crate::{CopyId, Fence, FenceId, ProcessEpoch, Time};

const ME: StoreId = StoreId(1);
const OTHER: StoreId = StoreId(2);
const SESSION: SessionId = SessionId(9);
const WHOLE: ObjectDigest = ObjectDigest { len: 10, crc32c: Crc32c(7), adler32: Adler32(8) };
const ORIGINAL: Original = Original::Whole(WHOLE);

type Effects = Vec<Effect<u64, &'static str>>;

/// One store, a clock, and a client.
struct Story {
    part: StorePart<u64, &'static str>,
    ms: u64,
    session: SessionId,
    terms: PartTerms,
}

fn replica() -> ReplicaId {
    ReplicaId::first(ObjectId(5))
}

fn grant(epoch: u32) -> Grant {
    let writer = WriterToken { key: WriterKey(3), object: ObjectId(5), epoch };
    let in_sync = vec![InSyncReplica { store: ME, boot_generation: BootGeneration(1) }];
    let rights = GrantRights::Write { writer, in_sync, may_make: true };
    Grant { store: ME, session: SESSION, group: GroupId(2), rights }
}

fn to_read(epoch: u32) -> Grant {
    Grant { rights: GrantRights::Read { epoch: Epoch(epoch), whole: WHOLE }, ..grant(epoch) }
}

impl Story {
    fn new() -> Self {
        let terms = PartTerms { fetch: 4, ..PartTerms::default() };
        Self { part: StorePart::new(ME, terms), ms: 0, session: SESSION, terms }
    }

    fn view(&self) -> View {
        let lease = LeaseView { session: Some(self.session), is_valid: true };
        View { lease, boot_generation: Some(BootGeneration(1)), process_epoch: ProcessEpoch(1) }
    }

    fn step(&mut self, input: Input<u64, &'static str>) -> Effects {
        self.ms += 1;
        let (mut out, view) = (Vec::new(), self.view());
        self.part.step(Time(Duration::from_millis(self.ms)), view, input, &mut out);
        out
    }

    fn attach(&mut self, by: u64, epoch: u32) -> Effects {
        self.step(Input::Attach { by, replica: replica(), grant: grant(epoch), is_ending: false })
    }

    fn did(&mut self, by: WorkPurpose, did: WorkResult<&'static str>) -> Effects {
        self.step(Input::WorkResult { replica: replica(), by, did })
    }

    fn manager(&mut self, message: ToStore) -> Effects {
        self.step(Input::OfManager(message))
    }

    /// Attaches a client.
    fn open(&mut self, epoch: u32) {
        assert_eq!(self.attach(1, epoch), [work(WorkPurpose::Lead(Epoch(epoch)), Work::Open { may_make: true })]);
        assert_eq!(self.did(WorkPurpose::Lead(Epoch(epoch)), WorkResult::Opened(Ok(()))), [answer(1, Ok(()))]);
    }

    /// Closes it, as far as the manager's answer. Returns that answer.
    fn begin_close(&mut self, epoch: u32) -> ToStore {
        let primary_replica = WorkPurpose::Lead(Epoch(epoch));
        let (mtime, closed, by, epoch) = (Some(types::Timestamp(4)), ClosedBy::GraceEnd, 7, Epoch(epoch));
        assert_eq!(
            self.step(Input::Close { by, replica: replica(), epoch, mtime, closed }),
            [work(primary_replica, Work::Complete)]
        );
        let out = self.did(primary_replica, WorkResult::Completed(Ok(WHOLE)));
        let [Effect::ToManager(FromStore::Commit { whole: WHOLE, holders, mtime, by, request, .. })] = &out[..] else {
            panic!("{out:?}")
        };
        assert_eq!((holders.as_slice(), *mtime, *by), (&[ME][..], Some(types::Timestamp(4)), ClosedBy::GraceEnd));
        ToStore::Ended { replica: replica(), epoch, request: *request, result: Ok(()) }
    }

    fn close(&mut self, epoch: u32) {
        let ended = self.begin_close(epoch);
        assert_eq!(self.manager(ended.clone()), [answer(7, Ok(()))]);
        assert_eq!(self.manager(ended), [], "twice");
    }

    fn wait(&mut self, time: Duration) {
        self.ms += u64::try_from(time.as_millis()).unwrap();
        self.step(Input::Tick);
    }

    fn reads(&self, grant: &Grant) -> Result<ReadView, ErrorCode> {
        self.part.may_read(self.view(), replica(), grant)
    }
}

fn work(by: WorkPurpose, work: Work<&'static str>) -> Effect<u64, &'static str> {
    Effect::Work { replica: replica(), by, work }
}

fn answer(to: u64, result: Result<(), ErrorCode>) -> Effect<u64, &'static str> {
    Effect::Answer { to, result }
}

#[test]
fn clients_that_write_together_wait_until_the_replica_is_open() {
    let mut story = Story::new();
    let lead = WorkPurpose::Lead(Epoch(1));
    assert_eq!(story.attach(1, 1), [work(lead, Work::Open { may_make: true })]);
    assert_eq!([story.attach(2, 1), story.attach(3, 1)], [[], []]);
    let all = [1, 2, 3].map(|to| answer(to, Ok(())));
    assert_eq!(story.did(lead, WorkResult::Opened(Ok(()))), all);
    // It cannot be opened.
    let lead = WorkPurpose::Lead(Epoch(2));
    assert_eq!(story.attach(1, 2), [work(lead, Work::Open { may_make: true })]);
    assert_eq!(story.attach(2, 2), []);
    let all = [1, 2].map(|to| answer(to, Err(ErrorCode::Io)));
    assert_eq!(story.did(lead, WorkResult::Opened(Err(ErrorCode::Io))), all);
}

#[test]
fn a_client_that_begins_a_new_open_write_lets_the_earlier_close_learn_its_outcome() {
    let mut story = Story::new();
    story.open(1);
    let ended = story.begin_close(1);
    assert_eq!(story.attach(2, 2), [], "the manager's answer is on its way");
    let open = work(WorkPurpose::Lead(Epoch(2)), Work::Open { may_make: true });
    assert_eq!(story.manager(ended), [answer(7, Ok(())), open]);
    assert_eq!(story.did(WorkPurpose::Lead(Epoch(2)), WorkResult::Opened(Ok(()))), [answer(2, Ok(()))]);
    // The answer does not come.
    story.begin_close(2);
    assert_eq!(story.attach(3, 3), []);
    story.ms += 500;
    let out = story.step(Input::Tick);
    let [Effect::ToManager(FromStore::Commit { .. }), late] = &out[..] else { panic!("{out:?}") };
    assert_eq!(*late, answer(3, Err(ErrorCode::Overloaded)));
}

#[test]
fn more_clients_than_can_wait_are_told_to_come_again() {
    let mut story = Story::new();
    story.attach(0, 1);
    assert!((1..=64).all(|by| story.attach(by, 1).is_empty()));
    assert_eq!(story.attach(65, 1), [answer(65, Err(ErrorCode::Overloaded))]);
    assert_eq!(story.did(WorkPurpose::Lead(Epoch(1)), WorkResult::Opened(Ok(()))).len(), 65);
}

#[test]
fn an_open_write_from_open_to_close_and_the_requests_after_it() {
    let mut story = Story::new();
    let follow = Grant { rights: GrantRights::Follow, ..to_read(1) };
    assert_eq!(story.reads(&follow), Err(ErrorCode::Overloaded), "its writer has not come yet");
    story.open(1);
    assert_eq!(story.attach(2, 1), [answer(2, Ok(()))], "again with the same");
    assert_eq!(story.reads(&follow), Ok(ReadView::OfWriter));
    let change = Input::Change { by: 3, replica: replica(), epoch: Epoch(1), change: "some bytes" };
    let apply = Work::Apply { seq: Seq(1), change: "some bytes" };
    assert_eq!(story.step(change.clone()), [work(WorkPurpose::Lead(Epoch(1)), apply)]);
    assert_eq!(story.part.pending(replica()), 1);
    assert_eq!(story.reads(&to_read(1)), Ok(ReadView::OfWriter));
    assert_eq!(story.did(WorkPurpose::Lead(Epoch(1)), WorkResult::Applied(Seq(1), Ok(()))), [answer(3, Ok(()))]);
    assert_eq!(story.part.pending(replica()), 0);
    story.close(1);
    // The write is over. The same capability opens nothing any more, and readers get the complete object.
    assert_eq!(story.step(change), [answer(3, Err(ErrorCode::Stale))]);
    assert_eq!(story.attach(4, 1), [answer(4, Err(ErrorCode::Stale))]);
    assert_eq!(story.reads(&to_read(1)), Ok(ReadView::Whole(WHOLE)));
    assert_eq!(story.reads(&follow), Err(ErrorCode::Stale), "the manager knows what became of it");
    // The store remembers only the floor, and later not even that.
    assert_eq!(story.part.remembered(), [0, 0, 0, 1]);
    story.wait(story.terms.kept);
    assert_eq!(story.part.remembered(), [0; 4]);
    // An update has the next epoch, and fences earlier readers.
    story.open(2);
    story.close(2);
    assert_eq!(story.reads(&to_read(1)), Err(ErrorCode::Stale));
    let other = Grant { session: SessionId(8), ..to_read(2) };
    assert_eq!(story.reads(&other), Err(ErrorCode::Stale), "of another session");
}

#[test]
fn an_open_write_whose_replica_is_something_else_ends_with_no_bytes() {
    let mut story = Story::new();
    assert_eq!(story.attach(1, 3), [work(WorkPurpose::Lead(Epoch(3)), Work::Open { may_make: true })]);
    let nothing = |grant: Grant| Input::NothingKept { replica: replica(), grant };
    assert_eq!(story.step(nothing(grant(3))), [], "it is not known yet what is there");
    let exists = Err(ErrorCode::Exists);
    assert_eq!(story.did(WorkPurpose::Lead(Epoch(3)), WorkResult::Opened(exists)), [answer(1, exists)]);
    let told = story.step(nothing(grant(3)));
    let [Effect::ToManager(FromStore::Interrupt { writer, kept_len: 0, holders, .. })] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!((writer.epoch, &holders[..]), (3, &[][..]));
    assert_eq!(story.step(nothing(Grant { session: SessionId(8), ..grant(3) })), [], "of another session");
    assert_eq!(story.step(nothing(grant(2))), [], "of another time");
}

#[test]
fn an_open_write_whose_client_is_gone_is_ended_and_marked() {
    let mut story = Story::new();
    story.open(1);
    let primary_replica = WorkPurpose::Lead(Epoch(1));
    story.step(Input::Change { by: 3, replica: replica(), epoch: Epoch(1), change: "some bytes" });
    let interrupt = Input::Interrupt { by: 4, replica: replica(), epoch: Epoch(1) };
    assert_eq!(story.step(interrupt.clone()), []);
    assert_eq!(story.step(interrupt), [answer(4, Err(ErrorCode::Busy))]);
    assert_eq!(story.reads(&to_read(1)), Err(ErrorCode::Overloaded), "what is left of it may be cut");
    let late = Input::Change { by: 5, replica: replica(), epoch: Epoch(1), change: "more" };
    assert_eq!(story.step(late), [answer(5, Err(ErrorCode::Stale))]);
    let announced = story.did(primary_replica, WorkResult::Applied(Seq(1), Ok(())));
    let [first, Effect::ToManager(FromStore::Place { in_sync, is_ending: true, request, .. })] = &announced[..] else {
        panic!("{announced:?}")
    };
    assert_eq!((first, in_sync.len()), (&answer(3, Ok(())), 1));
    let placed = ToStore::Placed { replica: replica(), epoch: Epoch(1), request: *request, result: Ok(()) };
    assert_eq!(story.manager(placed), [work(primary_replica, Work::Interrupt { is_alone: false })]);
    let told = story.did(primary_replica, WorkResult::Interrupted(Ok(WHOLE)));
    let [Effect::ToManager(FromStore::Interrupt { kept_len: 10, holders, request, .. })] = &told[..] else {
        panic!("{told:?}")
    };
    assert_eq!(holders, &[ME]);
    let request = *request;
    // The answer does not come, so the request is repeated.
    story.ms += 500;
    assert_eq!(story.step(Input::Tick), told);
    let ended = ToStore::Ended { replica: replica(), epoch: Epoch(1), request, result: Ok(()) };
    assert_eq!(story.manager(ended), [answer(4, Ok(()))]);
    assert_eq!(story.attach(6, 1), [answer(6, Err(ErrorCode::Stale))]);
    // If a close is in progress, its result counts.
    story.open(2);
    let (mtime, closed) = (None, ClosedBy::Client { request: None });
    story.step(Input::Close { by: 8, replica: replica(), epoch: Epoch(2), mtime, closed });
    let refused = story.step(Input::Interrupt { by: 9, replica: replica(), epoch: Epoch(2) });
    assert_eq!(refused, [answer(9, Err(ErrorCode::Busy))]);
}

#[test]
fn a_replica_in_use_is_deleted_on_request() {
    let mut story = Story::new();
    story.open(1);
    story.step(Input::Change { by: 3, replica: replica(), epoch: Epoch(1), change: "some bytes" });
    let delete = ToStore::Delete { replicas: vec![replica()], exist_elsewhere: false };
    let out = story.manager(delete.clone());
    assert_eq!(out, [answer(3, Err(ErrorCode::Stale)), work(WorkPurpose::Delete, Work::Delete)]);
    assert_eq!(story.manager(delete.clone()), [], "it is under way");
    // The disk had this change before. Nobody waits for it.
    assert_eq!(story.did(WorkPurpose::Lead(Epoch(1)), WorkResult::Applied(Seq(1), Ok(()))), []);
    let deleted = [Effect::ToManager(FromStore::Deleted { replicas: vec![replica()] })];
    assert_eq!(story.did(WorkPurpose::Delete, WorkResult::Deleted(Ok(()))), deleted);
    // A late client or store does not create the replica again.
    assert_eq!(story.attach(4, 2), [answer(4, Err(ErrorCode::Stale))]);
    assert_eq!(story.reads(&to_read(1)), Err(ErrorCode::Stale));
    let stream = Stream { epoch: Epoch(2), process_epoch: ProcessEpoch(1), number: 1 };
    let told = ToReplica::Begin { stream, boot_generation: BootGeneration(1), from: Seq(1), may_make: true };
    let out = story.step(Input::OfStore(BetweenStores::ToReplica { from: OTHER, replica: replica(), told }, None));
    let said = FromReplica::Fenced { stream, epoch: Epoch(u32::MAX) };
    let message = BetweenStores::FromReplica { from: ME, replica: replica(), said };
    assert_eq!(out, [Effect::ToStore { to: OTHER, message, change: None }]);
    // The manager did not get the message, and asks again. If the disk fails, the store sends nothing.
    assert_eq!(story.manager(delete.clone()), [work(WorkPurpose::Delete, Work::Delete)]);
    assert_eq!(story.did(WorkPurpose::Delete, WorkResult::Deleted(Err(ErrorCode::Io))), []);
    let mut restarted = Story::new();
    assert_eq!(restarted.manager(delete), [work(WorkPurpose::Delete, Work::Delete)]);
    assert_eq!(restarted.did(WorkPurpose::Delete, WorkResult::Deleted(Ok(()))), deleted);
}

/// The store was drained, and is used again.
#[test]
fn a_replica_of_an_object_that_exists_elsewhere_returns_with_a_copy() {
    for exist_elsewhere in [true, false] {
        let mut story = Story::new();
        let out = story.manager(ToStore::Delete { replicas: vec![replica()], exist_elsewhere });
        assert_eq!(out, [work(WorkPurpose::Delete, Work::Delete)]);
        let deleted = [Effect::ToManager(FromStore::Deleted { replicas: vec![replica()] })];
        assert_eq!(story.did(WorkPurpose::Delete, WorkResult::Deleted(Ok(()))), deleted);
        assert_eq!(story.reads(&to_read(3)), Err(ErrorCode::Stale));
        let out = story.manager(order(70));
        if exist_elsewhere {
            assert_eq!(out, [work(WorkPurpose::Copy(CopyId(70)), Work::Look { original: ORIGINAL })]);
            // Clients with older capabilities are refused as before.
            assert_eq!(story.reads(&to_read(2)), Err(ErrorCode::Stale));
            assert_eq!(story.attach(4, 3), [answer(4, Err(ErrorCode::Stale))]);
        } else {
            assert_eq!(out, [copied(70, false)], "it is late, and the object does not exist any more");
        }
    }
}

/// A writer has opened the object since it was copied last, so that copy is out of date. Its order may come again.
#[test]
fn a_returning_replica_keeps_to_the_fences_of_the_time_without_it() {
    for fenced_first in [true, false] {
        let mut story = Story::new();
        let (session, epoch) = (Some(SESSION), Epoch(4));
        let fence = Fence { fence: FenceId(1), node: NodeId(4), store: ME, session, replica: replica(), epoch };
        if fenced_first {
            story.manager(ToStore::Fence(fence));
        }
        story.manager(ToStore::Delete { replicas: vec![replica()], exist_elsewhere: true });
        story.did(WorkPurpose::Delete, WorkResult::Deleted(Ok(())));
        if !fenced_first {
            story.manager(ToStore::Fence(fence));
        }
        assert_eq!(story.manager(order(70)), [copied(70, false)]);
        assert_eq!(story.reads(&to_read(3)), Err(ErrorCode::Stale));
    }
}

fn order(copy: u64) -> ToStore {
    order_of(copy, ORIGINAL)
}

fn order_of(copy: u64, original: Original) -> ToStore {
    ToStore::Copy { copy: CopyId(copy), session: SESSION, replica: replica(), epoch: Epoch(3), original, from: OTHER }
}

fn copied(copy: u64, is_there: bool) -> Effect<u64, &'static str> {
    copy_ended(copy, if is_there { Ok(()) } else { Err(CopyFailure::Superseded) })
}

/// The end of a copy that is equal to the original, or not.
fn compared(copy: u64, is_it: bool) -> Effect<u64, &'static str> {
    copy_ended(copy, if is_it { Ok(()) } else { Err(CopyFailure::Differs) })
}

fn copy_ended(copy: u64, result: Result<(), CopyFailure>) -> Effect<u64, &'static str> {
    Effect::ToManager(FromStore::Copied { session: SESSION, copy: CopyId(copy), result })
}

#[test]
fn a_copy_that_is_missing_is_fetched_part_by_part() {
    let mut story = Story::new();
    let by = WorkPurpose::Copy(CopyId(70));
    let fetch = |offset| {
        let message =
            BetweenStores::Fetch { to: ME, copy: CopyId(70), replica: replica(), original: ORIGINAL, offset, len: 4 };
        Effect::ToStore { to: OTHER, message, change: None }
    };
    let fetched = |offset, part| Input::OfStore(answered(70, offset, Ok(())), part);
    assert_eq!(story.manager(order(70)), [work(by, Work::Look { original: ORIGINAL })]);
    assert_eq!(story.did(by, WorkResult::Looked(Ok(Found::Other))), [fetch(0)]);
    let apply = |seq, change| work(by, Work::Apply { seq: Seq(seq), change });
    assert_eq!(story.step(fetched(0, Some("0123"))), [work(by, Work::Renew), apply(1, "0123")]);
    assert_eq!(story.step(fetched(0, Some("0123"))), [], "twice");
    assert_eq!(story.did(by, WorkResult::Opened(Ok(()))), []);
    assert_eq!(story.did(by, WorkResult::Applied(Seq(1), Ok(()))), [fetch(4)]);
    // The manager repeats its order after a restart or a timeout. The same copy continues, for the latest order.
    assert_eq!(story.manager(order(71)), []);
    assert_eq!(story.step(fetched(4, Some("4567"))), [apply(2, "4567")]);
    assert_eq!(story.did(by, WorkResult::Applied(Seq(2), Ok(()))), [fetch(8)]);
    assert_eq!(story.step(fetched(8, Some("89"))), [apply(3, "89")]);
    assert_eq!(story.did(by, WorkResult::Applied(Seq(3), Ok(()))), [work(by, Work::Complete)]);
    assert_eq!(story.did(by, WorkResult::Completed(Ok(WHOLE))), [copied(71, true)]);
    // A copy that differs from the original is not a replica, and neither is one that does not arrive.
    story.manager(order(72));
    story.did(WorkPurpose::Copy(CopyId(72)), WorkResult::Looked(Ok(Found::Other)));
    let patience = story.terms.fetch_patience;
    story.ms += u64::try_from(patience.as_millis()).unwrap();
    assert_eq!(story.step(Input::Tick), [copy_ended(72, Err(CopyFailure::SourceSilent))]);
    // Meanwhile a client begins to write it, so the copy is abandoned.
    story.manager(order(73));
    let out = story.attach(1, 4);
    assert_eq!(out, [copied(73, false), work(WorkPurpose::Lead(Epoch(4)), Work::Open { may_make: true })]);
    assert_eq!(story.manager(order(74)), [copied(74, false)], "of a content that is no more");
}

#[test]
fn damaged_bytes_are_replaced_only_after_the_source_has_sent_all() {
    let by = WorkPurpose::Copy(CopyId(75));
    let fetched = |offset, part| Input::OfStore(answered(75, offset, Ok(())), Some(part));
    let is_fetch = |out: &Effects, at: u64| matches!(out[..], [Effect::ToStore { message: BetweenStores::Fetch { offset, .. }, .. }] if offset == at);
    let mut story = Story::new();
    story.manager(order(75));
    assert!(is_fetch(&story.did(by, WorkResult::Looked(Ok(Found::Damaged))), 0));
    // Nothing is written in the first pass.
    assert!(is_fetch(&story.step(fetched(0, "0123")), 4));
    assert!(is_fetch(&story.step(fetched(4, "4567")), 8));
    assert_eq!(story.step(fetched(4, "4567")), [], "twice");
    assert!(is_fetch(&story.step(fetched(8, "89")), 0), "the second pass begins");
    let apply = |seq, change| work(by, Work::Apply { seq: Seq(seq), change });
    assert_eq!(story.step(fetched(0, "0123")), [work(by, Work::Renew), apply(1, "0123")]);
    // The source has a damaged part, too: the own replica stays as it is, also if it may be intact.
    for found in [Found::Damaged, Found::Unproved] {
        let mut story = Story::new();
        story.manager(order(75));
        story.did(by, WorkResult::Looked(Ok(found)));
        assert!(is_fetch(&story.step(fetched(0, "0123")), 4));
        let out = story.step(Input::OfStore(answered(75, 4, Err(ErrorCode::Checksum)), None));
        assert_eq!(out, [copy_ended(75, Err(CopyFailure::Source(ErrorCode::Checksum)))]);
    }
    // What the store has is the original, and intact.
    let mut story = Story::new();
    story.manager(order(75));
    assert_eq!(story.did(by, WorkResult::Looked(Ok(Found::Same))), [copied(75, true)]);
}

fn answered(copy: u64, offset: u64, result: Result<(), ErrorCode>) -> BetweenStores {
    BetweenStores::Fetched { copy: CopyId(copy), replica: replica(), offset, result }
}

/// A connection drops messages when it ends, and when its queue is full.
#[test]
fn a_lost_part_is_asked_for_again_and_does_not_end_the_copy() {
    let mut story = Story::new();
    let by = WorkPurpose::Copy(CopyId(90));
    let fetch = |offset| {
        let (copy, replica, original) = (CopyId(90), replica(), ORIGINAL);
        let message = BetweenStores::Fetch { to: ME, copy, replica, original, offset, len: 4 };
        Effect::ToStore { to: OTHER, message, change: None }
    };
    story.manager(order(90));
    assert_eq!(story.did(by, WorkResult::Looked(Ok(Found::Other))), [fetch(0)]);
    let mut pauses = Vec::new();
    let asked = story.ms;
    while story.ms - asked < u64::try_from(story.terms.fetch_patience.as_millis()).unwrap() / 2 {
        if story.step(Input::Tick) == [fetch(0)] {
            pauses.push(story.ms - asked);
        }
    }
    assert_eq!(pauses, [1000, 3000], "each pause is twice as long as the one before");
    // Both the first answer and a repeated one arrive. An answer without its bytes counts for nothing.
    assert_eq!(story.step(Input::OfStore(answered(90, 0, Ok(())), None)), []);
    let out = story.step(Input::OfStore(answered(90, 0, Ok(())), Some("0123")));
    assert_eq!(out, [work(by, Work::Renew), work(by, Work::Apply { seq: Seq(1), change: "0123" })]);
    assert_eq!(story.step(Input::OfStore(answered(90, 0, Ok(())), Some("0123"))), []);
    assert_eq!(story.did(by, WorkResult::Opened(Ok(()))), []);
    assert_eq!(story.did(by, WorkResult::Applied(Seq(1), Ok(()))), [fetch(4)]);
    assert_eq!(story.step(Input::OfStore(answered(90, 0, Ok(())), Some("0123"))), []);
    // The pauses of the next part are short again.
    story.ms += 997;
    assert_eq!(story.step(Input::Tick), []);
    assert_eq!(story.step(Input::Tick), [fetch(4)]);
}

#[test]
fn a_failed_copy_says_why() {
    let failed = |give: &dyn Fn(&mut Story, WorkPurpose) -> Effects| {
        let mut story = Story::new();
        story.manager(order(95));
        story.did(WorkPurpose::Copy(CopyId(95)), WorkResult::Looked(Ok(Found::Other)));
        let out = give(&mut story, WorkPurpose::Copy(CopyId(95)));
        let [Effect::ToManager(FromStore::Copied { result: Err(why), .. })] = out[..] else { panic!("{out:?}") };
        why
    };
    let of_source = |story: &mut Story, _| story.step(Input::OfStore(answered(95, 0, Err(ErrorCode::Damaged)), None));
    assert_eq!(failed(&of_source), CopyFailure::Source(ErrorCode::Damaged));
    let of_target = |story: &mut Story, by| {
        story.step(Input::OfStore(answered(95, 0, Ok(())), Some("0123")));
        story.did(by, WorkResult::Opened(Err(ErrorCode::NoSpace)))
    };
    assert_eq!(failed(&of_target), CopyFailure::Target(ErrorCode::NoSpace));
    assert_eq!(
        CopyFailure::Target(ErrorCode::NoSpace).to_string(),
        "the target store cannot write it: its disk is full"
    );
    let another = |story: &mut Story, _| {
        let other = Original::Whole(ObjectDigest { len: 9, ..WHOLE });
        story.manager(order_of(96, other)).into_iter().take(1).collect()
    };
    assert_eq!(failed(&another), CopyFailure::Replaced);
}

#[test]
fn an_object_without_a_checksum_is_copied_from_the_start() {
    let mut story = Story::new();
    for (number, len, kept) in [(80, 3, 3), (81, 0, 0), (82, 3, 2)] {
        let original = Original::Kept { len, was_whole: false };
        let by = WorkPurpose::Copy(CopyId(number));
        assert_eq!(story.manager(order_of(number, original)), [work(by, Work::Look { original })]);
        let mut out = story.did(by, WorkResult::Looked(Ok(Found::Other)));
        if len > 0 {
            let (copy, replica) = (CopyId(number), replica());
            let message = BetweenStores::Fetch { to: ME, copy, replica, original, offset: 0, len: 4 };
            assert_eq!(out, [Effect::ToStore { to: OTHER, message, change: None }]);
            let fetched = BetweenStores::Fetched { copy, replica, offset: 0, result: Ok(()) };
            let apply = Work::Apply { seq: Seq(1), change: "012" };
            assert_eq!(story.step(Input::OfStore(fetched, Some("012"))), [work(by, Work::Renew), work(by, apply)]);
            story.did(by, WorkResult::Opened(Ok(())));
            out = story.did(by, WorkResult::Applied(Seq(1), Ok(())));
            assert_eq!(out, [work(by, Work::Interrupt { is_alone: false })]);
        } else {
            assert_eq!(out, [work(by, Work::Renew), work(by, Work::Interrupt { is_alone: false })]);
            story.did(by, WorkResult::Opened(Ok(())));
        }
        assert_eq!(
            story.did(by, WorkResult::Interrupted(Ok(ObjectDigest { len: kept, ..WHOLE }))),
            [compared(number, kept == len)]
        );
        // The order is repeated. The replica, which the manager has recorded by now, stays untouched.
        assert_eq!(story.manager(order_of(number, original)), [compared(number, kept == len)]);
        assert_eq!(story.manager(order_of(number - 1, original)), [], "one that comes late");
    }
}

#[test]
fn a_copy_of_a_half_changed_complete_object_is_complete() {
    for (number, found, is_it) in [(90, 3, true), (91, 2, false)] {
        let mut story = Story::new();
        let (copy, replica, by) = (CopyId(number), replica(), WorkPurpose::Copy(CopyId(number)));
        story.manager(order_of(number, Original::Kept { len: 3, was_whole: true }));
        story.did(by, WorkResult::Looked(Ok(Found::Other)));
        story.step(Input::OfStore(BetweenStores::Fetched { copy, replica, offset: 0, result: Ok(()) }, Some("012")));
        story.did(by, WorkResult::Opened(Ok(())));
        assert_eq!(story.did(by, WorkResult::Applied(Seq(1), Ok(()))), [work(by, Work::Complete)]);
        let whole = ObjectDigest { len: found, ..WHOLE };
        assert_eq!(story.did(by, WorkResult::Completed(Ok(whole))), [compared(number, is_it)]);
    }
}

#[test]
fn a_store_that_was_left_out_shows_no_old_bytes_during_the_session() {
    let mut story = Story::new();
    assert_eq!(story.reads(&to_read(1)), Ok(ReadView::Whole(WHOLE)));
    let session = Some(story.session);
    let fence = Fence { fence: FenceId(1), node: NodeId(4), store: ME, session, replica: replica(), epoch: Epoch(2) };
    // The fence counts for the named session, and the node may have been given another one.
    let of_next = Fence { session: Some(SessionId(10)), ..fence };
    assert_eq!(story.manager(ToStore::Fence(of_next)), []);
    assert_eq!(story.manager(ToStore::Fence(fence)), [Effect::ToManager(FromStore::Fenced(fence))]);
    for _ in 0..3 {
        story.wait(story.terms.kept);
        assert_eq!(story.reads(&to_read(1)), Err(ErrorCode::Stale));
    }
    let elsewhere = Fence { store: OTHER, ..fence };
    assert_eq!(story.manager(ToStore::Fence(elsewhere)), [], "of another store of the same node");
    // In a new session the manager gives new, correct capabilities. The earlier ones are invalid.
    story.session = SessionId(10);
    story.step(Input::Tick);
    assert_eq!((story.part.remembered(), story.reads(&to_read(1))), ([0; 4], Err(ErrorCode::Stale)));
}

#[test]
fn a_secondary_of_a_silent_primary_is_forgotten_and_begins_again() {
    let mut story = Story::new();
    let stream = Stream { epoch: Epoch(2), process_epoch: ProcessEpoch(1), number: 1 };
    let tell =
        |told, change| Input::OfStore(BetweenStores::ToReplica { from: OTHER, replica: replica(), told }, change);
    let say = |said| {
        let message = BetweenStores::FromReplica { from: ME, replica: replica(), said };
        [Effect::ToStore { to: OTHER, message, change: None }]
    };
    let begin = ToReplica::Begin { stream, boot_generation: BootGeneration(1), from: Seq(1), may_make: true };
    let follow = WorkPurpose::Follow(stream);
    assert_eq!(story.step(tell(begin, None)), [work(follow, Work::Open { may_make: true })]);
    assert_eq!(story.did(follow, WorkResult::Opened(Ok(()))), say(FromReplica::Began { stream }));
    let change = ToReplica::Change { stream, seq: Seq(1) };
    assert_eq!(story.step(tell(change, None)), [], "without its bytes it is none");
    let apply = Work::Apply { seq: Seq(1), change: "bytes" };
    assert_eq!(story.step(tell(change, Some("bytes"))), [work(follow, apply)]);
    assert_eq!(
        story.did(follow, WorkResult::Applied(Seq(1), Ok(()))),
        say(FromReplica::Applied { stream, upto: Seq(1) })
    );
    // An earlier primary is told so, and its messages change nothing.
    let old = Stream { epoch: Epoch(1), ..stream };
    let out = story.step(tell(
        ToReplica::Begin { stream: old, boot_generation: BootGeneration(1), from: Seq(1), may_make: true },
        None,
    ));
    assert_eq!(out, say(FromReplica::Fenced { stream: old, epoch: Epoch(2) }));
    assert_eq!(story.attach(4, 1), [answer(4, Err(ErrorCode::Stale))]);
    story.wait(story.terms.kept);
    story.wait(story.terms.kept);
    assert_eq!(story.part.remembered(), [0; 4]);
    let next = ToReplica::Change { stream, seq: Seq(2) };
    assert_eq!(story.step(tell(next, Some("bytes"))), say(FromReplica::Missing { stream }));
}
