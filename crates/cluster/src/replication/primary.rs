//! The primary of an open write.

mod ending;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use types::{BootGeneration, ErrorCode, InSyncReplica, SessionId, StoreId};

use self::ending::{Barrier, Flushed, Interruption, Kind, Step};
use super::{Epoch, FromReplica, LeaseView, ObjectDigest, PlantedBug, Seq, Stream, ToReplica};
use crate::{ProcessEpoch, Time};

/// The number that the shell gives to a client's request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ask(pub u64);

/// How many times [`ReplicaTimeouts::replica`] a primary whose store has failed waits for another one to take over.
const HAND_OVER_PATIENCE: u32 = 5;

/// How long the primary waits for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaTimeouts {
    /// The primary leaves a secondary out if it waits for its answer and hears nothing from it for this time.
    pub replica: Duration,
    /// How often the primary repeats a message to a silent secondary, or a request to the manager.
    pub again: Duration,
}

impl Default for ReplicaTimeouts {
    fn default() -> Self {
        Self { replica: Duration::from_secs(2), again: Duration::from_millis(500) }
    }
}

/// What a store needs to know to become a primary.
#[derive(Clone, Debug)]
pub struct Promotion {
    /// This store.
    pub me: StoreId,
    /// The boot generation of its node.
    pub boot_generation: BootGeneration,
    /// The process epoch of its node.
    pub process_epoch: ProcessEpoch,
    /// The writer's epoch.
    pub epoch: Epoch,
    /// This server's session in which the manager made it primary.
    pub session: SessionId,
    /// All in-sync replicas, including this store.
    pub in_sync: Vec<InSyncReplica>,
    /// The object is new: a store without a replica lacks no acknowledged change.
    pub may_make: bool,
    /// The manager has the open write ended, and refuses its client since then.
    pub is_ending: bool,
}

/// The events that the primary takes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    /// A client's change. The shell keeps the bytes until they are released.
    Change(Ask),
    /// A client asks for its acknowledged changes to be durable.
    Sync(Ask),
    /// A client has written everything.
    Close(Ask),
    /// The client has gone. The open write ends here.
    Interrupt(Ask),
    /// The own store has applied this change. Changes are given to it in order.
    Applied(Seq, Result<(), ErrorCode>),
    /// The own replica is durable.
    Synced(Result<(), ErrorCode>),
    /// The own replica is complete and durable.
    Completed(Result<ObjectDigest, ErrorCode>),
    /// The own replica has ended incomplete. These bytes are kept durably.
    Interrupted(Result<ObjectDigest, ErrorCode>),
    /// A message from a secondary.
    Replica(StoreId, FromReplica),
    /// The manager's answer to [`Effect::Place`].
    Placed(u64, Result<(), ErrorCode>),
    /// The manager's answer to [`Effect::Commit`] or [`Effect::Interrupt`].
    Ended(u64, Result<(), ErrorCode>),
    /// Time has passed, or the lease has changed.
    Tick,
}

/// What the caller must do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Apply this change to the own replica. Changes are applied in order.
    Apply(Seq),
    /// Send a message to a secondary. A change is sent with its bytes.
    Tell(StoreId, ToReplica),
    /// Release the bytes of all changes up to this one.
    Release(Seq),
    /// Answer a client.
    Answer(Ask, Result<(), ErrorCode>),
    /// Ask the manager to record durably that these are the in-sync replicas. It refuses if the writer's epoch has
    /// changed. A primary also uses this to find out whether it still is the primary. With `true`, the manager also
    /// records that the open write is ending, so that its client cannot return to it.
    Place(u64, Vec<InSyncReplica>, bool),
    /// Make the own replica durable.
    SyncOwn,
    /// Make the own replica complete and durable.
    CompleteOwn,
    /// Ask the manager to commit the object with this digest, which these stores hold.
    Commit(u64, ObjectDigest, Vec<StoreId>),
    /// End the own replica without making it complete, after all earlier work.
    InterruptOwn {
        /// No other store ends it too.
        is_alone: bool,
    },
    /// Ask the manager to mark the file interrupted. This number of bytes was kept, and these stores hold them.
    Interrupt(u64, u64, Vec<StoreId>),
    /// A secondary's replica differs from the own one. It is left out of the holders.
    Differs {
        /// The secondary.
        store: StoreId,
        /// Changes that an earlier primary did not answer may be on some stores only.
        is_expected: bool,
    },
    /// The own store has failed. Ask the manager to let one of these in-sync replicas take over. The manager fences
    /// this primary if it does.
    HandOver(u64, Vec<InSyncReplica>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// The primary has not sent a begin yet, or the secondary has not answered it.
    Beginning,
    /// The secondary applies the changes.
    Following,
    /// The secondary is left out as soon as the manager has recorded that.
    Leaving,
}

#[derive(Clone, Debug)]
struct Follower {
    in_sync_replica: InSyncReplica,
    stream: Stream,
    state: State,
    /// The secondary was told to begin.
    is_told: bool,
    sent: Seq,
    acked: Seq,
    /// When its last message came, or when the primary began to wait for its answer.
    heard: Time,
    /// When it was told to begin.
    begun: Time,
    /// Its state in the present barrier.
    flushed: Option<Flushed>,
    /// The first request to the manager that did not name this secondary. Later requests do not name it either.
    left_out_by: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SessionCheck {
    /// Confirmed in this session.
    Confirmed(SessionId),
    /// The manager has been asked.
    Checking { request: u64, session: SessionId, since: Time },
    /// Another store is the primary, or none is.
    Fenced(ErrorCode),
}

/// The own store has failed, and another in-sync replica is to take over. Requests wait until this primary is fenced.
#[derive(Clone, Copy, Debug)]
struct HandingOver {
    request: u64,
    began: Time,
    /// When the manager was last asked.
    asked: Time,
    why: ErrorCode,
}

/// Whether another store may do what the own store could not.
pub(crate) fn may_work_elsewhere(why: ErrorCode) -> bool {
    matches!(
        why,
        ErrorCode::NoSpace | ErrorCode::Io | ErrorCode::Unavailable | ErrorCode::Damaged | ErrorCode::Checksum
    )
}

/// The primary of an open write. See the module.
#[derive(Clone, Debug)]
pub struct Primary {
    me: InSyncReplica,
    process_epoch: ProcessEpoch,
    epoch: Epoch,
    patience: ReplicaTimeouts,
    planted: Option<PlantedBug>,
    standing: SessionCheck,
    /// Unanswered changes, in order. The first is `answered + 1`.
    changes: VecDeque<Ask>,
    answered: Seq,
    /// The last change that the own store has applied.
    own: Seq,
    followers: BTreeMap<StoreId, Follower>,
    streams: u64,
    may_make: bool,
    barriers: VecDeque<Barrier>,
    interruption: Option<Interruption>,
    requests: u64,
    /// The manager has recorded this writer durably.
    is_kept: bool,
    is_closing: bool,
    /// The manager has recorded that the open write is ending.
    is_announced: bool,
    broken: Option<ErrorCode>,
    handing_over: Option<HandingOver>,
    now: Time,
    lease: LeaseView,
}

impl Primary {
    /// Becomes primary, and tells the secondaries.
    ///
    /// # Errors
    /// [`ErrorCode::Stale`]: this store is not an in-sync replica, or was one in an earlier boot generation. Then
    /// it may have lost acknowledged changes.
    pub fn new(
        now: Time,
        lease: LeaseView,
        takes: Promotion,
        patience: ReplicaTimeouts,
        planted: Option<PlantedBug>,
        out: &mut Vec<Effect>,
    ) -> Result<Self, ErrorCode> {
        let me = InSyncReplica { store: takes.me, boot_generation: takes.boot_generation };
        if !takes.in_sync.contains(&me) {
            return Err(ErrorCode::Stale);
        }
        let mut primary = Self {
            me,
            process_epoch: takes.process_epoch,
            epoch: takes.epoch,
            patience,
            planted,
            standing: SessionCheck::Confirmed(takes.session),
            changes: VecDeque::new(),
            answered: Seq(0),
            own: Seq(0),
            followers: BTreeMap::new(),
            streams: 0,
            may_make: takes.may_make,
            barriers: VecDeque::new(),
            interruption: None,
            requests: 0,
            is_kept: false,
            is_closing: false,
            is_announced: takes.is_ending,
            broken: None,
            handing_over: None,
            now,
            lease,
        };
        for in_sync_replica in takes.in_sync {
            if in_sync_replica.store != takes.me {
                primary.follow(in_sync_replica);
            }
        }
        primary.go_on(out);
        Ok(primary)
    }

    /// Returns the epoch in which it is primary.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether it knows that it is no longer the primary.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        matches!(self.standing, SessionCheck::Fenced(_))
    }

    /// Whether it has ended: it is no longer the primary, or its own store has failed.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_fenced() || self.broken.is_some()
    }

    /// Whether the manager has been asked to record the end of the open write, and has not answered. The primary asks again until it does, so this
    /// ends at the latest when the manager can be reached or the session ends.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        self.barriers.front().is_some_and(|barrier| matches!(barrier.step, Step::Committing { .. }))
    }

    /// Whether readers may see its replica now, because it surely has every acknowledged change.
    #[must_use]
    pub fn may_show(&self, lease: LeaseView) -> bool {
        // An interrupted replica keeps fewer bytes than were acknowledged, if they have a gap.
        let is_cut = self.interruption.is_some() || self.may_make && self.is_ending();
        !is_cut && self.may_act(lease)
    }

    /// Whether it surely is the primary now.
    pub(crate) fn may_act(&self, lease: LeaseView) -> bool {
        self.planted == Some(PlantedBug::LeaseNotChecked) || lease.is_valid && self.is_sure(lease)
    }

    /// Returns the number of unanswered changes, which the shell bounds.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.changes.len()
    }

    /// A higher epoch exists. Nothing more is answered.
    pub fn fence(&mut self, out: &mut Vec<Effect>) {
        self.end(ErrorCode::Stale, out);
    }

    /// Takes one event, and appends the resulting effects to `out`.
    pub fn step(&mut self, now: Time, lease: LeaseView, input: Input, out: &mut Vec<Effect>) {
        (self.now, self.lease) = (now, lease);
        match input {
            Input::Change(ask) => self.change(ask, out),
            Input::Sync(ask) => self.barrier(ask, Kind::Sync, out),
            Input::Close(ask) => self.barrier(ask, Kind::Close, out),
            Input::Interrupt(ask) => self.interrupt(ask, out),
            Input::Applied(seq, result) => match result {
                Ok(()) if seq == self.own.next() => self.own = seq,
                // An earlier change has failed, so there is a gap before this one.
                Ok(()) => {}
                // No secondary was told of this change, and none will be.
                Err(_) if self.interruption.is_some() => {}
                Err(why) => self.fail(why, out),
            },
            Input::Synced(result) => self.flushed(result.map(|()| Flushed::Synced), out),
            Input::Completed(result) => self.flushed(result.map(Flushed::Whole), out),
            Input::Interrupted(result) => self.interrupted(result, out),
            Input::Replica(store, said) => self.heard(store, said, out),
            Input::Placed(request, result) => self.placed(request, result, out),
            Input::Ended(request, result) => self.ended(request, result, out),
            Input::Tick => {}
        }
        self.go_on(out);
    }

    fn change(&mut self, ask: Ask, out: &mut Vec<Effect>) {
        if let Some(why) = self.refusal() {
            out.push(Effect::Answer(ask, Err(why)));
            return;
        }
        self.changes.push_back(ask);
        // The own store applies nothing more. The client sends the change again to the store that takes over.
        if self.handing_over.is_none() {
            out.push(Effect::Apply(self.last()));
        }
    }

    /// Returns why no change is accepted, if that is so.
    #[must_use]
    pub fn refusal(&self) -> Option<ErrorCode> {
        match self.standing {
            SessionCheck::Fenced(why) => Some(why),
            _ if self.is_closing => Some(ErrorCode::Stale),
            _ => self.broken,
        }
    }

    /// The last change that was given a number.
    fn last(&self) -> Seq {
        Seq(self.answered.0 + self.changes.len() as u64)
    }

    /// The own store has failed. Its replica may differ from the others, so the primary answers nothing more. Another
    /// in-sync replica takes over if there is one: each of them has everything that was answered.
    fn fail(&mut self, why: ErrorCode, out: &mut Vec<Effect>) {
        if self.is_over() || self.handing_over.is_some() {
            return;
        }
        if may_work_elsewhere(why) && self.interruption.is_none() && !self.able().is_empty() {
            let (began, asked) = (self.now, self.now);
            self.handing_over = Some(HandingOver { request: self.hand_over(out), began, asked, why });
        } else {
            self.break_down(why, out);
        }
    }

    fn break_down(&mut self, why: ErrorCode, out: &mut Vec<Effect>) {
        if self.end_alone(out) {
            return;
        }
        self.broken = Some(why);
        self.refuse_all(why, out);
    }

    /// The in-sync replicas that can take over, as far as this primary knows.
    fn able(&self) -> Vec<InSyncReplica> {
        let able = self.followers.values().filter(|follower| follower.state != State::Leaving);
        able.map(|follower| follower.in_sync_replica).collect()
    }

    /// Asks the manager. Returns the number of the request.
    fn hand_over(&mut self, out: &mut Vec<Effect>) -> u64 {
        self.requests += 1;
        out.push(Effect::HandOver(self.requests, self.able()));
        self.requests
    }

    /// Asks again, in case the request or the answer was lost.
    fn go_on_handing_over(&mut self, out: &mut Vec<Effect>) {
        let Some(HandingOver { began, asked, why, .. }) = self.handing_over else { return };
        // Nobody waits for the end of an open write without its client. Another in-sync replica has all of it, and may be back later. So has the own
        // store, if it is only full.
        let may_wait = self.is_ending() && why != ErrorCode::NoSpace;
        if self.now.since(began) >= self.patience.replica * HAND_OVER_PATIENCE && !may_wait {
            return self.break_down(why, out);
        }
        if self.now.since(asked) >= self.patience.again && self.lease.session.is_some() {
            let request = self.hand_over(out);
            self.handing_over = Some(HandingOver { request, began, asked: self.now, why });
        }
    }

    fn end(&mut self, why: ErrorCode, out: &mut Vec<Effect>) {
        if !self.is_fenced() {
            self.standing = SessionCheck::Fenced(why);
            self.refuse_all(why, out);
        }
    }

    fn refuse_all(&mut self, why: ErrorCode, out: &mut Vec<Effect>) {
        self.handing_over = None;
        let last = self.last();
        let interruption = self.interruption.take().map(|interruption| interruption.ask);
        let barriers = self.barriers.drain(..).map(|barrier| barrier.ask);
        let asks = self.changes.drain(..).chain(barriers).chain(interruption);
        out.extend(asks.map(|ask| Effect::Answer(ask, Err(why))));
        out.push(Effect::Release(last));
        self.answered = last;
    }

    fn follow(&mut self, in_sync_replica: InSyncReplica) {
        self.streams += 1;
        let stream = Stream { epoch: self.epoch, process_epoch: self.process_epoch, number: self.streams };
        let before = self.followers.get(&in_sync_replica.store);
        let acked = before.map_or(self.answered, |before| before.acked);
        let heard = before.map_or(self.now, |before| before.heard);
        let follower = Follower {
            in_sync_replica,
            stream,
            state: State::Beginning,
            is_told: false,
            sent: acked,
            acked,
            heard,
            begun: self.now,
            flushed: None,
            left_out_by: before.and_then(|before| before.left_out_by),
        };
        self.followers.insert(in_sync_replica.store, follower);
    }

    fn heard(&mut self, store: StoreId, said: FromReplica, out: &mut Vec<Effect>) {
        // After the end, a late message must not start anything again. A secondary with a complete replica must not
        // begin again either.
        let is_over = self.is_over() || self.interruption.is_some() || self.handing_over.is_some();
        let flushing = self.barriers.front().map(|barrier| (barrier.kind, barrier.upto));
        let Some(follower) = self.followers.get_mut(&store).filter(|_| !is_over) else { return };
        if matches!(follower.flushed, Some(Flushed::Whole(_))) {
            return;
        }
        let (FromReplica::Began { stream }
        | FromReplica::Applied { stream, .. }
        | FromReplica::Missing { stream }
        | FromReplica::Synced { stream, .. }
        | FromReplica::Completed { stream, .. }
        | FromReplica::Failed { stream, .. }
        | FromReplica::Fenced { stream, .. }) = said;
        if stream != follower.stream || follower.state == State::Leaving {
            return;
        }
        match said {
            FromReplica::Began { .. } if follower.state == State::Beginning => {
                (follower.state, follower.heard) = (State::Following, self.now);
            }
            FromReplica::Applied { upto, .. } if upto <= follower.sent => {
                if upto > follower.acked {
                    follower.heard = self.now;
                }
                follower.acked = follower.acked.max(upto);
            }
            // A lower number, or a sync during a close, is the repeated answer to an earlier sync.
            FromReplica::Synced { upto, .. }
                if follower.flushed == Some(Flushed::Told)
                    && flushing.is_some_and(|(kind, flushed)| kind == Kind::Sync && upto >= flushed) =>
            {
                (follower.flushed, follower.heard) = (Some(Flushed::Synced), self.now);
            }
            FromReplica::Completed { whole, .. }
                if follower.flushed == Some(Flushed::Told) && flushing.is_some_and(|(kind, _)| kind.ends()) =>
            {
                (follower.flushed, follower.heard) = (Some(Flushed::Whole(whole)), self.now);
            }
            FromReplica::Missing { .. } => {
                let in_sync_replica = follower.in_sync_replica;
                self.follow(in_sync_replica);
            }
            FromReplica::Failed { .. } => follower.state = State::Leaving,
            FromReplica::Fenced { epoch, .. } if epoch > self.epoch => self.end(ErrorCode::Stale, out),
            _ => {}
        }
    }

    fn placed(&mut self, request: u64, result: Result<(), ErrorCode>, out: &mut Vec<Effect>) {
        if let Some(HandingOver { request: of, why, .. }) = self.handing_over {
            match result {
                // Nobody can take over. With success, the fence follows.
                Err(ErrorCode::Unavailable) if request == of => self.break_down(why, out),
                Err(ErrorCode::Stale) => self.end(ErrorCode::Stale, out),
                _ => {}
            }
            return;
        }
        if self.announced(request, result, out) {
            return;
        }
        let keeping = self
            .barriers
            .front()
            .is_some_and(|barrier| matches!(barrier.step, Step::Keeping { request: of, .. } if of == request));
        let asked = match self.standing {
            SessionCheck::Checking { request: of, session, .. } if of == request => Some(session),
            _ => None,
        };
        if !keeping && asked.is_none() {
            return;
        }
        if let Err(why) = result {
            self.end(why, out);
            return;
        }
        self.is_kept = true;
        if let Some(session) = asked {
            // A secondary that began to leave after the request stays until the manager has recorded that as well.
            let is_left_out = |follower: &Follower| follower.left_out_by.is_some_and(|first| first <= request);
            self.followers.retain(|_, follower| !is_left_out(follower));
            self.standing = SessionCheck::Confirmed(session);
        }
        if keeping && let Some(barrier) = self.barriers.pop_front() {
            out.push(Effect::Answer(barrier.ask, Ok(())));
        }
    }

    fn is_sure(&self, lease: LeaseView) -> bool {
        match self.standing {
            SessionCheck::Confirmed(session) => lease.session == Some(session),
            _ => false,
        }
    }

    /// Takes all steps that the present state allows.
    fn go_on(&mut self, out: &mut Vec<Effect>) {
        if self.is_over() {
            return;
        }
        if self.interruption.is_some() {
            self.go_on_interrupting(out);
            return;
        }
        if self.handing_over.is_some() {
            self.go_on_handing_over(out);
            return;
        }
        self.look_after_followers();
        self.look_after_standing(out);
        let may_act = self.may_act(self.lease);
        if may_act {
            self.tell_followers(out);
            self.answer(out);
        }
        self.pass_barriers(may_act, out);
    }

    fn look_after_followers(&mut self) {
        let (now, may_act) = (self.now, self.may_act(self.lease));
        let mut again = Vec::new();
        for follower in self.followers.values_mut() {
            let must_answer = follower.state == State::Beginning
                || follower.acked < follower.sent
                || follower.flushed == Some(Flushed::Told);
            if !must_answer || follower.state == State::Leaving {
                continue;
            }
            if !may_act {
                // The primary sends nothing meanwhile, so it expects no answer.
                follower.heard = now;
            } else if now.since(follower.heard) >= self.patience.replica {
                follower.state = State::Leaving;
            } else if now.since(follower.heard.max(follower.begun)) >= self.patience.again {
                again.push(follower.in_sync_replica);
            }
        }
        again.into_iter().for_each(|in_sync_replica| self.follow(in_sync_replica));
        if self.planted == Some(PlantedBug::LeftOutSilently) {
            self.followers.retain(|_, follower| follower.state != State::Leaving);
        }
    }

    /// Sends the pending messages to the secondaries. Only a confirmed primary may do that. Otherwise its changes
    /// may be old, and a secondary that has restarted cannot tell.
    fn tell_followers(&mut self, out: &mut Vec<Effect>) {
        let last = self.last();
        for (store, follower) in &mut self.followers {
            let stream = follower.stream;
            if follower.state == State::Beginning && !follower.is_told {
                (follower.is_told, follower.begun) = (true, self.now);
                let (boot_generation, from) = (follower.in_sync_replica.boot_generation, follower.acked.next());
                let may_make = self.may_make && follower.acked == Seq(0);
                out.push(Effect::Tell(*store, ToReplica::Begin { stream, boot_generation, from, may_make }));
            }
            if follower.state != State::Following || follower.sent == last {
                continue;
            }
            if follower.acked == follower.sent {
                follower.heard = self.now;
            }
            while follower.sent < last {
                follower.sent = follower.sent.next();
                out.push(Effect::Tell(*store, ToReplica::Change { stream, seq: follower.sent }));
            }
        }
    }

    fn look_after_standing(&mut self, out: &mut Vec<Effect>) {
        let somebody_leaves = self.followers.values().any(|follower| follower.state == State::Leaving);
        let due = match self.standing {
            SessionCheck::Confirmed(_) => !self.is_sure(self.lease) || somebody_leaves,
            SessionCheck::Checking { since, .. } => self.now.since(since) >= self.patience.again,
            SessionCheck::Fenced(_) => false,
        };
        // Without a session the manager would not listen.
        if due && let Some(session) = self.lease.session {
            let request = self.name_in_sync(out);
            self.standing = SessionCheck::Checking { request, session, since: self.now };
        }
    }

    /// Names the in-sync replicas to the manager. Returns the number of the request.
    fn name_in_sync(&mut self, out: &mut Vec<Effect>) -> u64 {
        self.requests += 1;
        for follower in self.followers.values_mut().filter(|follower| follower.state == State::Leaving) {
            follower.left_out_by.get_or_insert(self.requests);
        }
        out.push(Effect::Place(self.requests, self.staying(), false));
        self.requests
    }

    /// The in-sync replicas, without those that are being left out.
    fn staying(&self) -> Vec<InSyncReplica> {
        let staying = self.followers.values().filter(|follower| follower.state != State::Leaving);
        std::iter::once(self.me).chain(staying.map(|follower| follower.in_sync_replica)).collect()
    }

    /// The last change that all in-sync replicas have applied.
    fn applied_by_all(&self) -> Seq {
        if self.planted == Some(PlantedBug::AnswerBeforeReplicas) {
            return self.own;
        }
        self.followers.values().map(|follower| follower.acked).fold(self.own, Seq::min)
    }

    fn answer(&mut self, out: &mut Vec<Effect>) {
        let upto = self.applied_by_all();
        if upto <= self.answered {
            return;
        }
        while self.answered < upto {
            let Some(ask) = self.changes.pop_front() else { break };
            self.answered = self.answered.next();
            out.push(Effect::Answer(ask, Ok(())));
        }
        out.push(Effect::Release(self.answered));
    }
}
