//! Opens that meet the open write of another client. Only its primary knows whether that client is there, so the manager asks it. If the client has
//! lost its connection, and both act for the same principal, the primary ends the open write. That is recorded in the namespace as any end is, so the
//! old writer is fenced before the new open succeeds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::{Presence, Time};
use namespace::{NsError, WriterKind};
use node::{Claim, ClaimResult, FromManager};
use types::{GroupId, NodeId, PrincipalId, StoreId, WriterToken};

use super::OpenService;
use super::open_request::OpeningError;
use super::opening::Answer;
use super::striped_writers::find_open_write;
use crate::tracked::Tracked;

/// How long a primary may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most claims that wait for an answer. Further opens are refused without one.
const WAITING_MAX: usize = 4096;
/// The most characters of a disk server's text that a client gets.
const TEXT_MAX: usize = 512;

/// The claims that no primary has answered yet.
pub(super) struct Claims(Tracked<State>);

struct State {
    last: u64,
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    node: NodeId,
    since: Time,
    writer: WriterToken,
    /// The open write may end for this client, if its own client is gone.
    may_end: bool,
    busy: NsError,
    answer: Answer,
}

impl Claims {
    /// `random` separates the claims from those of an earlier run.
    pub(super) fn new(random: u64) -> Self {
        Self(Tracked::new(State { last: random, waiting: BTreeMap::new() }))
    }
}

impl OpenService {
    /// An open of `principal` was refused with `busy`. Asks the primary of the open write that is in the way. `takes_over`: the open replaces the file or
    /// continues it.
    pub(super) fn claim(self: &Arc<Self>, busy: NsError, (principal, takes_over): (PrincipalId, bool), answer: Answer) {
        let NsError::Busy { writer, .. } = &busy else { return answer(Err(busy.into())) };
        let writer = *writer;
        let (record, units) = match self.names.read(|read| find_open_write(read, writer)) {
            Ok(Some(found)) => found,
            Ok(None) => return answer(Err(OpeningError::wait("an earlier write of it has just ended"))),
            Err(error) => return answer(Err(error.into())),
        };
        if record.placement.group == GroupId::STRIPED {
            return self.claim_striped((record, units), busy, (principal, takes_over), answer);
        }
        // Without its primary nobody knows. The grace period of writes without one goes on.
        let primary = record.primary().and_then(|primary| self.node_that_serves(primary.store));
        let Some(node) = primary else { return answer(Err(busy.into())) };
        let may_end = record.client.principal == principal && (takes_over || record.kind == WriterKind::Update);
        let waiting = Waiting { node, since: self.world.now(), writer: record.token(), may_end, busy, answer };
        let number = {
            let mut state = self.claims.0.lock();
            if state.waiting.len() >= WAITING_MAX {
                drop(state);
                return (waiting.answer)(Err(waiting.busy.into()));
            }
            state.last = state.last.wrapping_add(1);
            let number = state.last;
            state.waiting.insert(number, waiting);
            number
        };
        self.world.send(node, FromManager::Claim(Claim { number, writer: record.token(), principal, takes_over }));
    }

    /// The node that serves `store` at this moment.
    pub(super) fn node_that_serves(&self, store: StoreId) -> Option<NodeId> {
        let (view, now) = (self.view.get(), self.world.now());
        let is_there = view.standing(now, store).is_some_and(|standing| standing.presence != Presence::Away);
        view.node_of(store).filter(|node| is_there && self.world.is_up(*node))
    }

    /// A disk server answers a claim.
    pub(crate) fn claimed(&self, node: NodeId, number: u64, found: ClaimResult) {
        let waiting = {
            let mut state = self.claims.0.lock();
            // Ignore answers of nodes that were not asked.
            let is_of = state.waiting.get(&number).is_some_and(|waiting| waiting.node == node);
            if is_of { state.waiting.remove(&number) } else { None }
        };
        let Some(Waiting { writer, may_end, busy, answer, .. }) = waiting else { return };
        let ending = || OpeningError::wait("an earlier write of it is being ended at this moment");
        answer(Err(match found {
            ClaimResult::Ending => ending(),
            ClaimResult::Stays(why) => {
                OpeningError::BeingWritten(link::printable(why.chars().take(TEXT_MAX).collect::<String>().as_bytes()))
            }
            // The server has restarted, for example. Nobody is connected to this open write, unless its client is only on its
            // way there.
            ClaimResult::Unknown if may_end => {
                self.without_primary.end_soon(self.world.now(), &writer);
                ending()
            }
            ClaimResult::Unknown => busy.into(),
        }));
    }

    /// Refuses opens whose primary does not answer.
    pub(crate) fn tick(&self, now: Time) {
        self.tick_polls(now);
        let late: Vec<Waiting> = {
            let mut state = self.claims.0.lock();
            let is_late = |waiting: &Waiting| now.since(waiting.since) >= PATIENCE;
            let late: Vec<u64> =
                state.waiting.iter().filter(|(_, waiting)| is_late(waiting)).map(|(number, _)| *number).collect();
            late.into_iter().filter_map(|number| state.waiting.remove(&number)).collect()
        };
        for Waiting { busy, answer, .. } in late {
            answer(Err(busy.into()));
        }
    }
}
