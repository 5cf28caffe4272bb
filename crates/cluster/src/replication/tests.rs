//! A primary and a secondary driven by hand: when each request is answered.

use std::time::Duration;

use types::{Adler32, BootGeneration, Crc32c, ErrorCode, InSyncReplica, SessionId, StoreId};

use super::*;
use crate::{ProcessEpoch, Time};

const ME: StoreId = StoreId(1);
const OTHER: StoreId = StoreId(2);
const SESSION: SessionId = SessionId(9);
const VALID: LeaseView = LeaseView { session: Some(SESSION), is_valid: true };
const LAPSED: LeaseView = LeaseView { session: Some(SESSION), is_valid: false };
const WHOLE: ObjectDigest = ObjectDigest { len: 3, crc32c: Crc32c(7), adler32: Adler32(8) };

fn at(ms: u64) -> Time {
    Time(Duration::from_millis(ms))
}

fn in_sync_replica(store: StoreId) -> InSyncReplica {
    InSyncReplica { store, boot_generation: BootGeneration(1) }
}

/// This store becomes the primary of a write with these in-sync replicas.
fn promotion(in_sync: &[StoreId], may_make: bool) -> Promotion {
    Promotion {
        me: ME,
        boot_generation: BootGeneration(1),
        process_epoch: ProcessEpoch(1),
        epoch: Epoch(1),
        session: SESSION,
        in_sync: in_sync.iter().copied().map(in_sync_replica).collect(),
        may_make,
        is_ending: false,
    }
}

struct Story {
    primary: Primary,
    out: Vec<PrimaryEffect>,
}

impl Story {
    /// A store becomes the primary. Also its first effects.
    fn of(takes: Promotion) -> (Self, Vec<PrimaryEffect>) {
        let mut out = Vec::new();
        let primary = Primary::new(at(0), VALID, takes, ReplicaTimeouts::default(), None, &mut out).unwrap();
        (Self { primary, out: Vec::new() }, out)
    }

    fn new() -> (Self, Stream) {
        let (story, out) = Self::of(promotion(&[ME, OTHER], true));
        let [
            PrimaryEffect::Tell(
                OTHER,
                ToReplica::Begin { stream, from: Seq(1), may_make: true, boot_generation: BootGeneration(1) },
            ),
        ] = out[..]
        else {
            panic!("{out:?}")
        };
        (story, stream)
    }

    fn step(&mut self, ms: u64, lease: LeaseView, input: PrimaryInput) -> Vec<PrimaryEffect> {
        self.primary.step(at(ms), lease, input, &mut self.out);
        std::mem::take(&mut self.out)
    }

    fn says(&mut self, ms: u64, said: FromReplica) -> Vec<PrimaryEffect> {
        self.step(ms, VALID, PrimaryInput::Replica(OTHER, said))
    }
}

#[test]
fn a_change_is_answered_when_both_have_it() {
    let (mut story, stream) = Story::new();
    assert_eq!(story.step(1, VALID, PrimaryInput::Change(Ask(5))), [PrimaryEffect::Apply(Seq(1))]);
    let change = PrimaryEffect::Tell(OTHER, ToReplica::Change { stream, seq: Seq(1) });
    assert_eq!(story.says(2, FromReplica::Began { stream }), [change]);
    assert_eq!(story.says(3, FromReplica::Applied { stream, upto: Seq(1) }), []);
    let answered = [PrimaryEffect::Answer(Ask(5), Ok(())), PrimaryEffect::Release(Seq(1))];
    // The lease ran out while the disk was at work. No answer is sent until there is a lease again.
    assert_eq!(story.step(4, LAPSED, PrimaryInput::Applied(Seq(1), Ok(()))), []);
    assert_eq!(story.step(5, VALID, PrimaryInput::Tick), answered);
}

#[test]
fn a_silent_secondary_is_left_out_when_the_manager_has_recorded_it() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    story.step(1, VALID, PrimaryInput::Change(Ask(5)));
    assert_eq!(story.step(2, VALID, PrimaryInput::Applied(Seq(1), Ok(()))), []);
    // The primary tries again before it leaves the secondary out.
    let again = story.step(600, VALID, PrimaryInput::Tick);
    assert!(matches!(again[..], [PrimaryEffect::Tell(OTHER, ToReplica::Begin { from: Seq(1), .. })]), "{again:?}");
    let location = story.step(2100, VALID, PrimaryInput::Tick);
    let [PrimaryEffect::Place(request, keep, false)] = &location[..] else { panic!("{location:?}") };
    assert_eq!(keep, &[in_sync_replica(ME)]);
    assert_eq!(story.step(2200, VALID, PrimaryInput::Placed(request + 7, Ok(()))), []);
    let answered = [PrimaryEffect::Answer(Ask(5), Ok(())), PrimaryEffect::Release(Seq(1))];
    assert_eq!(story.step(2300, VALID, PrimaryInput::Placed(*request, Ok(()))), answered);
    // A message from a secondary that was left out has no effect.
    assert_eq!(story.says(2400, FromReplica::Applied { stream, upto: Seq(1) }), []);
    assert!(matches!(story.step(2500, VALID, PrimaryInput::Close(Ask(6)))[..], [PrimaryEffect::CompleteOwn]));
    let commit = story.step(2600, VALID, PrimaryInput::Completed(Ok(WHOLE)));
    let [PrimaryEffect::Commit(request, WHOLE, holders)] = &commit[..] else { panic!("{commit:?}") };
    assert_eq!(holders, &[ME]);
    let answered = story.step(2700, VALID, PrimaryInput::Ended(*request, Ok(())));
    assert_eq!(answered[0], PrimaryEffect::Answer(Ask(6), Ok(())));
    let late = story.step(2800, VALID, PrimaryInput::Change(Ask(7)));
    assert_eq!(late, [PrimaryEffect::Answer(Ask(7), Err(ErrorCode::Stale))]);
}

#[test]
fn a_primary_must_be_confirmed_in_a_new_session() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    story.step(1, VALID, PrimaryInput::Change(Ask(5)));
    story.says(2, FromReplica::Applied { stream, upto: Seq(1) });
    let other = LeaseView { session: Some(SessionId(10)), is_valid: true };
    let location = story.step(3, other, PrimaryInput::Applied(Seq(1), Ok(())));
    let [PrimaryEffect::Place(request, keep, false)] = &location[..] else { panic!("{location:?}") };
    assert_eq!(keep.len(), 2);
    let refused = story.step(4, other, PrimaryInput::Placed(*request, Err(ErrorCode::Stale)));
    assert_eq!(refused, [PrimaryEffect::Answer(Ask(5), Err(ErrorCode::Stale)), PrimaryEffect::Release(Seq(1))]);
    assert!(story.primary.is_fenced());
}

#[test]
fn a_sync_is_answered_when_the_manager_has_recorded_the_writer() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    let told = story.step(2, VALID, PrimaryInput::Sync(Ask(1)));
    let sync = PrimaryEffect::Tell(OTHER, ToReplica::Sync { stream, upto: Seq(0) });
    assert_eq!(told, [PrimaryEffect::SyncOwn, sync]);
    assert_eq!(story.step(3, VALID, PrimaryInput::Synced(Ok(()))), []);
    let location = story.says(4, FromReplica::Synced { stream, upto: Seq(0) });
    let [PrimaryEffect::Place(request, _, false)] = location[..] else { panic!("{location:?}") };
    let answered = story.step(5, VALID, PrimaryInput::Placed(request, Ok(())));
    assert_eq!(answered, [PrimaryEffect::Answer(Ask(1), Ok(()))]);
    // The manager need not be asked again.
    story.step(6, VALID, PrimaryInput::Sync(Ask(2)));
    story.step(7, VALID, PrimaryInput::Synced(Ok(())));
    assert_eq!(story.says(8, FromReplica::Synced { stream, upto: Seq(0) }), [PrimaryEffect::Answer(Ask(2), Ok(()))]);
}

/// Before, the second one waited for the next tick.
#[test]
fn a_sync_behind_another_one_begins_when_that_is_answered() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    story.step(2, VALID, PrimaryInput::Sync(Ask(1)));
    story.step(3, VALID, PrimaryInput::Synced(Ok(())));
    let location = story.says(4, FromReplica::Synced { stream, upto: Seq(0) });
    let [PrimaryEffect::Place(request, _, false)] = location[..] else { panic!("{location:?}") };
    story.step(5, VALID, PrimaryInput::Placed(request, Ok(())));
    story.step(6, VALID, PrimaryInput::Sync(Ask(2)));
    assert_eq!(story.step(7, VALID, PrimaryInput::Sync(Ask(3))), []);
    assert_eq!(story.step(8, VALID, PrimaryInput::Close(Ask(4))), []);
    let told = || PrimaryEffect::Tell(OTHER, ToReplica::Sync { stream, upto: Seq(0) });
    let answered = |ask| PrimaryEffect::Answer(Ask(ask), Ok(()));
    story.step(9, VALID, PrimaryInput::Synced(Ok(())));
    let out = story.says(10, FromReplica::Synced { stream, upto: Seq(0) });
    assert_eq!(out, [answered(2), PrimaryEffect::SyncOwn, told()]);
    story.step(11, VALID, PrimaryInput::Synced(Ok(())));
    let out = story.says(12, FromReplica::Synced { stream, upto: Seq(0) });
    let complete = PrimaryEffect::Tell(OTHER, ToReplica::Complete { stream, upto: Seq(0) });
    assert_eq!(out, [answered(3), PrimaryEffect::CompleteOwn, complete]);
}

#[test]
fn a_secondary_that_leaves_during_a_request_is_left_out_by_the_next_one() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    story.step(2, VALID, PrimaryInput::Sync(Ask(1)));
    story.step(3, VALID, PrimaryInput::Synced(Ok(())));
    let kept = story.says(4, FromReplica::Synced { stream, upto: Seq(0) });
    assert!(matches!(kept[..], [PrimaryEffect::Place(..)]), "{kept:?}");
    // In another session the primary asks again, with both replicas.
    let other = LeaseView { session: Some(SessionId(10)), is_valid: true };
    let location = story.step(5, other, PrimaryInput::Tick);
    let [PrimaryEffect::Place(older, both, false)] = &location[..] else { panic!("{location:?}") };
    assert_eq!(both.len(), 2);
    let failed = FromReplica::Failed { stream, why: ErrorCode::Io };
    assert_eq!(story.step(6, other, PrimaryInput::Replica(OTHER, failed)), []);
    // The sync makes its own request, and leaves the secondary out.
    let later = story.step(504, other, PrimaryInput::Tick);
    let [PrimaryEffect::Place(newer, alone, false)] = &later[..] else { panic!("{later:?}") };
    assert_eq!((*newer > *older, &alone[..]), (true, &[in_sync_replica(ME)][..]));
    // The older answer records both replicas, so nothing may be answered without the second one.
    let again = story.step(505, other, PrimaryInput::Placed(*older, Ok(())));
    let [PrimaryEffect::Place(third, alone, false)] = &again[..] else { panic!("{again:?}") };
    assert_eq!(alone, &[in_sync_replica(ME)]);
    story.step(506, other, PrimaryInput::Change(Ask(2)));
    assert_eq!(story.step(507, other, PrimaryInput::Applied(Seq(1), Ok(()))), []);
    let answered = story.step(508, other, PrimaryInput::Placed(*third, Ok(())));
    assert!(answered.contains(&PrimaryEffect::Answer(Ask(2), Ok(()))), "{answered:?}");
}

#[test]
fn the_answer_to_an_earlier_sync_does_not_count_for_a_later_one() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    story.step(2, VALID, PrimaryInput::Sync(Ask(1)));
    story.step(3, VALID, PrimaryInput::Synced(Ok(())));
    let first = FromReplica::Synced { stream, upto: Seq(0) };
    let location = story.says(4, first);
    let [PrimaryEffect::Place(request, _, false)] = location[..] else { panic!("{location:?}") };
    story.step(5, VALID, PrimaryInput::Placed(request, Ok(())));
    story.step(6, VALID, PrimaryInput::Change(Ask(2)));
    story.step(7, VALID, PrimaryInput::Applied(Seq(1), Ok(())));
    story.says(8, FromReplica::Applied { stream, upto: Seq(1) });
    story.step(9, VALID, PrimaryInput::Sync(Ask(3)));
    story.step(10, VALID, PrimaryInput::Synced(Ok(())));
    assert_eq!(story.says(11, first), [], "it came twice");
    let answered = story.says(12, FromReplica::Synced { stream, upto: Seq(1) });
    assert_eq!(answered, [PrimaryEffect::Answer(Ask(3), Ok(()))]);
}

/// The network may deliver an answer twice. Before, the close then waited for ever.
#[test]
fn the_repeated_answer_to_a_sync_does_not_count_for_a_close() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    story.step(2, VALID, PrimaryInput::Sync(Ask(1)));
    story.step(3, VALID, PrimaryInput::Synced(Ok(())));
    let synced = FromReplica::Synced { stream, upto: Seq(0) };
    let placed = story.says(4, synced);
    let [PrimaryEffect::Place(request, _, false)] = placed[..] else { panic!("{placed:?}") };
    story.step(5, VALID, PrimaryInput::Placed(request, Ok(())));
    let complete = PrimaryEffect::Tell(OTHER, ToReplica::Complete { stream, upto: Seq(0) });
    assert_eq!(story.step(6, VALID, PrimaryInput::Close(Ask(2))), [PrimaryEffect::CompleteOwn, complete]);
    story.step(7, VALID, PrimaryInput::Completed(Ok(WHOLE)));
    assert_eq!(story.says(8, synced), []);
    let commit = story.says(9, FromReplica::Completed { stream, whole: WHOLE });
    let [PrimaryEffect::Commit(_, WHOLE, holders)] = &commit[..] else { panic!("{commit:?}") };
    assert_eq!(holders, &[ME, OTHER]);
}

#[test]
fn a_replica_that_differs_is_not_a_holder() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    story.step(2, VALID, PrimaryInput::Close(Ask(1)));
    story.step(3, VALID, PrimaryInput::Completed(Ok(WHOLE)));
    let other = ObjectDigest { crc32c: Crc32c(1), ..WHOLE };
    let commit = story.says(4, FromReplica::Completed { stream, whole: other });
    assert_eq!(commit[0], PrimaryEffect::Differs { store: OTHER, is_expected: false });
    assert!(matches!(&commit[1], PrimaryEffect::Commit(_, WHOLE, holders) if holders == &[ME]), "{commit:?}");
}

#[test]
fn a_primary_of_another_boot_generation_is_stale() {
    let takes = Promotion {
        me: ME,
        boot_generation: BootGeneration(2),
        process_epoch: ProcessEpoch(1),
        epoch: Epoch(1),
        session: SESSION,
        in_sync: vec![in_sync_replica(ME)],
        may_make: true,
        is_ending: false,
    };
    let taken = Primary::new(at(0), VALID, takes, ReplicaTimeouts::default(), None, &mut Vec::new());
    assert_eq!(taken.err(), Some(ErrorCode::Stale));
}

#[test]
fn a_late_message_starts_nothing_again() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    story.step(2, VALID, PrimaryInput::Close(Ask(1)));
    assert_eq!(story.says(3, FromReplica::Completed { stream, whole: WHOLE }), []);
    assert_eq!(story.says(4, FromReplica::Missing { stream }), [], "its piece is whole");
    let commit = story.step(5, VALID, PrimaryInput::Completed(Ok(WHOLE)));
    let [PrimaryEffect::Commit(request, ..)] = commit[..] else { panic!("{commit:?}") };
    assert_eq!(story.says(6, FromReplica::Missing { stream }), []);
    story.step(7, VALID, PrimaryInput::Ended(request, Ok(())));
    assert_eq!(story.says(8, FromReplica::Missing { stream }), []);
}

struct SecondaryStory {
    replica: Replica,
    out: Vec<ReplicaEffect>,
}

impl SecondaryStory {
    fn new() -> Self {
        Self { replica: Replica::new(at(0), BootGeneration(1), None), out: Vec::new() }
    }

    fn step(&mut self, input: ReplicaInput) -> Vec<ReplicaEffect> {
        self.replica.step(at(0), input, &mut self.out);
        std::mem::take(&mut self.out)
    }

    fn told(&mut self, told: ToReplica) -> Vec<ReplicaEffect> {
        self.step(ReplicaInput::Told(told))
    }
}

fn stream(epoch: u32, number: u64) -> Stream {
    Stream { epoch: Epoch(epoch), process_epoch: ProcessEpoch(1), number }
}

fn begin(stream: Stream, from: u64) -> ToReplica {
    ToReplica::Begin { stream, boot_generation: BootGeneration(1), from: Seq(from), may_make: false }
}

#[test]
fn a_replica_applies_in_order_without_gaps() {
    let mut secondary = SecondaryStory::new();
    let way = stream(1, 1);
    let change = |seq| ToReplica::Change { stream: way, seq: Seq(seq) };
    assert_eq!(secondary.told(change(1)), [ReplicaEffect::Say(FromReplica::Missing { stream: way })]);
    assert_eq!(secondary.told(begin(way, 1)), [ReplicaEffect::Open { stream: way, may_make: false }]);
    assert_eq!(
        secondary.step(ReplicaInput::Opened(way, Ok(()))),
        [ReplicaEffect::Say(FromReplica::Began { stream: way })]
    );
    assert_eq!(secondary.told(change(1)), [ReplicaEffect::Apply(way, Seq(1))]);
    assert_eq!(secondary.told(change(3)), [ReplicaEffect::Say(FromReplica::Missing { stream: way })]);
    let applied = |upto| ReplicaEffect::Say(FromReplica::Applied { stream: way, upto: Seq(upto) });
    assert_eq!(secondary.told(change(1)), [applied(0)]);
    assert_eq!(secondary.step(ReplicaInput::Applied(way, Seq(1), Ok(()))), [applied(1)]);
    assert_eq!(secondary.told(change(2)), [ReplicaEffect::Apply(way, Seq(2))]);
    // Changes must be applied before the replica can be complete.
    assert_eq!(secondary.told(ToReplica::Complete { stream: way, upto: Seq(2) }), []);
    let whole = secondary.step(ReplicaInput::Applied(way, Seq(2), Ok(())));
    assert_eq!(whole, [applied(2), ReplicaEffect::Complete(way)]);
}

#[test]
fn a_change_applied_after_a_failed_one_does_not_count() {
    let mut secondary = SecondaryStory::new();
    let way = stream(1, 1);
    secondary.told(begin(way, 1));
    secondary.step(ReplicaInput::Opened(way, Ok(())));
    for seq in 1..=3 {
        secondary.told(ToReplica::Change { stream: way, seq: Seq(seq) });
    }
    secondary.step(ReplicaInput::Applied(way, Seq(1), Ok(())));
    let failed = secondary.step(ReplicaInput::Applied(way, Seq(2), Err(ErrorCode::Io)));
    assert_eq!(failed, [ReplicaEffect::Say(FromReplica::Failed { stream: way, why: ErrorCode::Io })]);
    assert_eq!(secondary.step(ReplicaInput::Applied(way, Seq(3), Ok(()))), []);
}

#[test]
fn a_replica_follows_only_the_highest_epoch() {
    let mut secondary = SecondaryStory::new();
    secondary.told(begin(stream(2, 1), 1));
    secondary.step(ReplicaInput::Opened(stream(2, 1), Ok(())));
    let fenced = |stream| [ReplicaEffect::Say(FromReplica::Fenced { stream, epoch: Epoch(2) })];
    assert_eq!(secondary.told(begin(stream(1, 9), 1)), fenced(stream(1, 9)));
    secondary.told(begin(stream(2, 2), 5));
    assert_eq!(secondary.told(begin(stream(2, 1), 1)), [], "an older attempt, late");
    secondary.replica.fence(Epoch(3));
    let late = secondary.told(ToReplica::Change { stream: stream(2, 2), seq: Seq(5) });
    assert_eq!(late, [ReplicaEffect::Say(FromReplica::Fenced { stream: stream(2, 2), epoch: Epoch(3) })]);
    assert_eq!(secondary.step(ReplicaInput::Opened(stream(2, 2), Ok(()))), []);
}

#[test]
fn a_replica_of_another_boot_generation_is_stale() {
    let mut secondary = SecondaryStory::new();
    let begin =
        ToReplica::Begin { stream: stream(1, 1), boot_generation: BootGeneration(0), from: Seq(4), may_make: false };
    let failed = FromReplica::Failed { stream: stream(1, 1), why: ErrorCode::Stale };
    assert_eq!(secondary.told(begin), [ReplicaEffect::Say(failed)]);
}

#[test]
fn a_primary_without_a_lease_sends_nothing() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    // This store may no longer be the primary, and a secondary that has restarted cannot tell.
    assert_eq!(story.step(2, LAPSED, PrimaryInput::Change(Ask(5))), [PrimaryEffect::Apply(Seq(1))]);
    assert_eq!(story.step(9000, LAPSED, PrimaryInput::Replica(OTHER, FromReplica::Missing { stream })), []);
    // The lease is valid again. The primary did not count the time in between as silence.
    let told = story.step(9100, VALID, PrimaryInput::Tick);
    let [PrimaryEffect::Tell(OTHER, ToReplica::Begin { stream: other, from: Seq(1), .. })] = told[..] else {
        panic!("{told:?}")
    };
    assert!(other > stream);
}

#[test]
fn a_primary_whose_store_is_full_hands_over_and_answers_nothing_meanwhile() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    story.step(1, VALID, PrimaryInput::Change(Ask(5)));
    let asked = story.step(2, VALID, PrimaryInput::Applied(Seq(1), Err(ErrorCode::NoSpace)));
    assert_eq!(asked, [PrimaryEffect::HandOver(1, vec![in_sync_replica(OTHER)])]);
    // The other replica may have the change by now. That does not make it acknowledged.
    assert_eq!(story.says(3, FromReplica::Applied { stream, upto: Seq(1) }), []);
    assert_eq!(story.step(4, VALID, PrimaryInput::Change(Ask(6))), [], "the full store gets nothing more");
    assert_eq!(story.step(4, VALID, PrimaryInput::Close(Ask(7))), []);
    assert_eq!(story.step(600, VALID, PrimaryInput::Tick), [PrimaryEffect::HandOver(2, vec![in_sync_replica(OTHER)])]);
    // The answer to an earlier request.
    assert_eq!(story.step(700, VALID, PrimaryInput::Placed(1, Err(ErrorCode::Unavailable))), []);
    story.primary.fence(&mut story.out);
    let answers = [5, 6, 7].map(|ask| PrimaryEffect::Answer(Ask(ask), Err(ErrorCode::Stale)));
    assert_eq!(std::mem::take(&mut story.out), [&answers[..], &[PrimaryEffect::Release(Seq(2))]].concat());
    assert!(story.primary.is_fenced());
}

#[test]
fn a_full_primary_without_a_successor_refuses_and_can_be_interrupted() {
    for is_answered in [true, false] {
        let (mut story, stream) = Story::new();
        story.says(1, FromReplica::Began { stream });
        story.step(1, VALID, PrimaryInput::Change(Ask(5)));
        story.step(2, VALID, PrimaryInput::Applied(Seq(1), Err(ErrorCode::NoSpace)));
        let early = story.step(3, VALID, PrimaryInput::Interrupt(Ask(6)));
        assert_eq!(early, [PrimaryEffect::Answer(Ask(6), Err(ErrorCode::Overloaded))], "the successor would end it");
        let refused = match is_answered {
            true => story.step(4, VALID, PrimaryInput::Placed(1, Err(ErrorCode::Unavailable))),
            false => story.step(10_002, VALID, PrimaryInput::Tick),
        };
        let answer = PrimaryEffect::Answer(Ask(5), Err(ErrorCode::NoSpace));
        assert_eq!(refused, [answer, PrimaryEffect::Release(Seq(1))]);
        assert_eq!(story.primary.refusal(), Some(ErrorCode::NoSpace));
        let announced = story.step(10_003, VALID, PrimaryInput::Interrupt(Ask(8)));
        let [PrimaryEffect::Release(Seq(1)), PrimaryEffect::Place(request, both, true)] = &announced[..] else {
            panic!("{announced:?}")
        };
        assert_eq!(both.len(), 2);
        // The answer does not come, so the request is repeated.
        assert_eq!(story.step(10_600, VALID, PrimaryInput::Tick), announced[1..]);
        let ended = story.step(10_602, VALID, PrimaryInput::Placed(*request, Ok(())));
        assert_eq!(ended, [PrimaryEffect::InterruptOwn { is_alone: true }]);
        let marked = story.step(10_604, VALID, PrimaryInput::Interrupted(Ok(WHOLE)));
        assert!(matches!(&marked[..], [PrimaryEffect::Interrupt(_, 3, holders)] if holders == &[ME]), "{marked:?}");
    }
}

#[test]
fn a_failed_primary_that_is_alone_refuses_at_once() {
    for (why, may_end) in [(ErrorCode::NoSpace, true), (ErrorCode::Io, false)] {
        let (mut story, _) = Story::new();
        let left_out = story.step(2100, VALID, PrimaryInput::Tick);
        let [PrimaryEffect::Place(request, _, false)] = left_out[..] else { panic!("{left_out:?}") };
        story.step(2200, VALID, PrimaryInput::Placed(request, Ok(())));
        story.step(2300, VALID, PrimaryInput::Change(Ask(5)));
        let refused = story.step(2400, VALID, PrimaryInput::Applied(Seq(1), Err(why)));
        assert_eq!(refused, [PrimaryEffect::Answer(Ask(5), Err(why)), PrimaryEffect::Release(Seq(1))]);
        // What was acknowledged is on the full disk. Nobody knows that of a disk that has failed.
        let ended = story.step(2500, VALID, PrimaryInput::Interrupt(Ask(6)));
        let is_announced = ended.iter().any(|effect| matches!(effect, PrimaryEffect::Place(.., true)));
        assert_eq!(is_announced, may_end, "{ended:?}");
    }
}

#[test]
fn the_end_of_a_change_in_place_is_not_stopped_by_a_store_that_cannot_complete_it() {
    for fails_at_a_change in [false, true] {
        let (mut story, _) = Story::of(promotion(&[ME], false));
        let began = match fails_at_a_change {
            true => {
                story.step(1, VALID, PrimaryInput::Change(Ask(5)));
                story.step(2, VALID, PrimaryInput::Interrupt(Ask(6)));
                story.step(3, VALID, PrimaryInput::Applied(Seq(1), Err(ErrorCode::Io)))
            }
            false => {
                let completes = story.step(2, VALID, PrimaryInput::Interrupt(Ask(6)));
                assert_eq!(completes, [PrimaryEffect::CompleteOwn]);
                story.step(3, VALID, PrimaryInput::Completed(Err(ErrorCode::Io)))
            }
        };
        assert!(began.ends_with(&[PrimaryEffect::InterruptOwn { is_alone: true }]), "{began:?}");
        let marked = story.step(4, VALID, PrimaryInput::Interrupted(Ok(WHOLE)));
        let [PrimaryEffect::Interrupt(request, 3, holders)] = &marked[..] else { panic!("{marked:?}") };
        assert_eq!(holders, &[ME]);
        let ended = story.step(5, VALID, PrimaryInput::Ended(*request, Ok(())));
        assert_eq!(ended[0], PrimaryEffect::Answer(Ask(6), Ok(())));
    }
}

/// The other in-sync replica has everything that was acknowledged, also if the manager is away for long.
#[test]
fn the_end_of_a_change_in_place_waits_for_a_store_that_can_take_over() {
    let (mut story, out) = Story::of(promotion(&[ME, OTHER], false));
    let [PrimaryEffect::Tell(OTHER, ToReplica::Begin { stream, .. })] = out[..] else { panic!("{out:?}") };
    story.says(1, FromReplica::Began { stream });
    story.step(2, VALID, PrimaryInput::Interrupt(Ask(6)));
    let asked = story.step(3, VALID, PrimaryInput::Completed(Err(ErrorCode::Io)));
    assert!(matches!(asked[..], [PrimaryEffect::HandOver(..)]), "{asked:?}");
    let asked = story.step(60_000, VALID, PrimaryInput::Tick);
    let [PrimaryEffect::HandOver(request, _)] = asked[..] else { panic!("{asked:?}") };
    // Nobody can take over: what the own store has is kept.
    let alone = story.step(60_001, VALID, PrimaryInput::Placed(request, Err(ErrorCode::Unavailable)));
    assert!(alone.ends_with(&[PrimaryEffect::InterruptOwn { is_alone: true }]), "{alone:?}");
    // A result of work before that comes late.
    assert_eq!(story.step(60_002, VALID, PrimaryInput::Completed(Err(ErrorCode::Io))), []);
    let marked = story.step(60_003, VALID, PrimaryInput::Interrupted(Ok(WHOLE)));
    assert!(matches!(&marked[..], [PrimaryEffect::Interrupt(_, 3, holders)] if holders == &[ME]), "{marked:?}");
}

/// All in-sync replicas of a change in place keep it. Until repair has made others, the primary's alone might be damaged or lost.
#[test]
fn a_change_in_place_without_its_client_is_kept_by_all_in_sync_replicas() {
    let (mut story, out) = Story::of(promotion(&[ME, OTHER, StoreId(3)], false));
    let streams: Vec<(StoreId, Stream)> = out
        .iter()
        .map(|effect| match effect {
            PrimaryEffect::Tell(to, ToReplica::Begin { stream, .. }) => (*to, *stream),
            other => panic!("{other:?}"),
        })
        .collect();
    for (store, stream) in &streams {
        story.step(1, VALID, PrimaryInput::Replica(*store, FromReplica::Began { stream: *stream }));
    }
    story.step(2, VALID, PrimaryInput::Change(Ask(5)));
    // The change is on its way when the client is given up.
    assert_eq!(story.step(3, VALID, PrimaryInput::Interrupt(Ask(6))), []);
    let refused = story.step(4, VALID, PrimaryInput::Change(Ask(7)));
    assert_eq!(refused, [PrimaryEffect::Answer(Ask(7), Err(ErrorCode::Stale))]);
    story.step(5, VALID, PrimaryInput::Applied(Seq(1), Ok(())));
    for (store, stream) in &streams {
        story.step(6, VALID, PrimaryInput::Replica(*store, FromReplica::Applied { stream: *stream, upto: Seq(1) }));
    }
    story.step(7, VALID, PrimaryInput::Completed(Ok(WHOLE)));
    let mut said = Vec::new();
    for (store, stream) in &streams {
        // The replica of the third store has become another one.
        let whole = if *store == OTHER { WHOLE } else { ObjectDigest { crc32c: Crc32c(1), ..WHOLE } };
        let completed = FromReplica::Completed { stream: *stream, whole };
        said = story.step(8, VALID, PrimaryInput::Replica(*store, completed));
    }
    let [
        PrimaryEffect::Differs { store: StoreId(3), is_expected: false },
        PrimaryEffect::Interrupt(request, 3, holders),
    ] = &said[..]
    else {
        panic!("{said:?}")
    };
    assert_eq!(holders, &[ME, OTHER]);
    // The request is repeated as it was.
    assert_eq!(story.step(700, VALID, PrimaryInput::Tick), said[1..]);
    let ended = story.step(800, VALID, PrimaryInput::Ended(*request, Ok(())));
    assert_eq!(ended[0], PrimaryEffect::Answer(Ask(6), Ok(())));
}

/// A new file: the client must not come back to replicas that have lost what is behind their first gap.
#[test]
fn a_new_file_without_its_client_is_announced_and_kept_by_all_in_sync_replicas() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    story.step(2, VALID, PrimaryInput::Change(Ask(5)));
    assert_eq!(story.step(3, VALID, PrimaryInput::Interrupt(Ask(6))), []);
    assert!(!story.primary.may_show(VALID), "what a reader sees now may be cut off");
    story.step(4, VALID, PrimaryInput::Applied(Seq(1), Ok(())));
    let announced = story.says(5, FromReplica::Applied { stream, upto: Seq(1) });
    let [
        PrimaryEffect::Answer(Ask(5), Ok(())),
        PrimaryEffect::Release(Seq(1)),
        PrimaryEffect::Place(request, both, true),
    ] = &announced[..]
    else {
        panic!("{announced:?}")
    };
    assert_eq!(both.len(), 2);
    assert_eq!(story.step(600, VALID, PrimaryInput::Tick), announced[2..]);
    let ended = story.step(602, VALID, PrimaryInput::Placed(*request, Ok(())));
    let interrupt = PrimaryEffect::Tell(OTHER, ToReplica::Interrupt { stream, upto: Seq(1) });
    assert_eq!(ended, [PrimaryEffect::InterruptOwn { is_alone: false }, interrupt]);
    assert_eq!(story.step(603, VALID, PrimaryInput::Interrupted(Ok(WHOLE))), []);
    let marked = story.says(604, FromReplica::Completed { stream, whole: WHOLE });
    let [PrimaryEffect::Interrupt(request, 3, holders)] = &marked[..] else { panic!("{marked:?}") };
    assert_eq!(holders, &[ME, OTHER]);
    let ended = story.step(605, VALID, PrimaryInput::Ended(*request, Ok(())));
    assert_eq!(ended[0], PrimaryEffect::Answer(Ask(6), Ok(())));
}

#[test]
fn a_primary_that_may_not_announce_the_end_ends_nothing() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    let announced = story.step(2, VALID, PrimaryInput::Interrupt(Ask(6)));
    let [PrimaryEffect::Place(request, _, true)] = announced[..] else { panic!("{announced:?}") };
    // The client has come back, and another store has taken over.
    let refused = story.step(3, VALID, PrimaryInput::Placed(request, Err(ErrorCode::Stale)));
    assert_eq!(refused, [PrimaryEffect::Answer(Ask(6), Err(ErrorCode::Stale)), PrimaryEffect::Release(Seq(0))]);
    assert!(story.primary.is_fenced());
}

/// The manager has recorded the end before it had this store end the open write.
#[test]
fn a_store_that_the_manager_has_end_an_open_write_announces_nothing() {
    let (mut story, out) = Story::of(Promotion { is_ending: true, ..promotion(&[ME, OTHER], true) });
    let [PrimaryEffect::Tell(OTHER, ToReplica::Begin { stream, .. })] = out[..] else { panic!("{out:?}") };
    story.says(1, FromReplica::Began { stream });
    let ended = story.step(2, VALID, PrimaryInput::Interrupt(Ask(6)));
    assert_eq!(ended[0], PrimaryEffect::InterruptOwn { is_alone: false });
    story.step(3, VALID, PrimaryInput::Interrupted(Ok(WHOLE)));
    // The other one lacks a change that an earlier primary did not answer.
    let whole = ObjectDigest { len: 2, ..WHOLE };
    let marked = story.says(4, FromReplica::Completed { stream, whole });
    assert_eq!(marked[0], PrimaryEffect::Differs { store: OTHER, is_expected: true });
    assert!(matches!(&marked[1..], [PrimaryEffect::Interrupt(_, 3, holders)] if holders == &[ME]), "{marked:?}");
}

/// After a failed sync less may be durable than was acknowledged, and the other store has all of it.
#[test]
fn a_primary_that_cannot_end_all_of_a_new_file_hands_over() {
    let (mut story, stream) = Story::new();
    story.says(1, FromReplica::Began { stream });
    let announced = story.step(2, VALID, PrimaryInput::Interrupt(Ask(6)));
    let [PrimaryEffect::Place(request, _, true)] = announced[..] else { panic!("{announced:?}") };
    story.step(3, VALID, PrimaryInput::Placed(request, Ok(())));
    let handed = story.step(4, VALID, PrimaryInput::Interrupted(Err(ErrorCode::Io)));
    let [PrimaryEffect::HandOver(request, ref others)] = handed[..] else { panic!("{handed:?}") };
    assert_eq!(others, &[in_sync_replica(OTHER)]);
    // Nobody can: the own store keeps what it can.
    let alone = story.step(5, VALID, PrimaryInput::Placed(request, Err(ErrorCode::Unavailable)));
    assert_eq!(alone.last(), Some(&PrimaryEffect::InterruptOwn { is_alone: true }));
}
