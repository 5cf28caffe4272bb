//! Asks disk servers whether the clients of open writes are there. Nothing changes by that.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use cluster::Time;
use node::{ClientPresence, FromManager};
use types::{NodeId, WriterToken};

use super::OpenService;
use crate::tracked::Tracked;

/// How long the servers may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The most callers that wait for answers. Further ones get none.
const WAITING_MAX: usize = 4096;

/// What a server answers about an open write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClientReport {
    pub(super) node: NodeId,
    pub(super) writer: WriterToken,
    pub(super) presence: ClientPresence,
}

/// Called with all answers. `None` if a server does not answer.
pub(super) type Then = Box<dyn FnOnce(Option<Vec<ClientReport>>) + Send>;

/// The polls whose servers have not all answered.
pub(super) struct ClientPolls(Tracked<State>);

struct State {
    last: u64,
    polls: BTreeMap<u64, Poll>,
    /// How many callers wait for all polls together.
    waiting: usize,
    /// The polls by what they ask, in the order in which they ask it.
    of: HashMap<Vec<(NodeId, WriterToken)>, u64>,
}

impl State {
    fn remove(&mut self, number: u64) -> Option<Poll> {
        let poll = self.polls.remove(&number)?;
        self.of.remove(&poll.asked);
        self.waiting = self.waiting.saturating_sub(poll.then.len());
        Some(poll)
    }
}

struct Poll {
    since: Time,
    asked: Vec<(NodeId, WriterToken)>,
    left: Vec<(NodeId, WriterToken)>,
    reports: Vec<ClientReport>,
    /// All who asked the same.
    then: Vec<Then>,
}

impl Poll {
    fn answer(self, found: Option<Vec<ClientReport>>) {
        self.then.into_iter().for_each(|then| then(found.clone()));
    }
}

impl ClientPolls {
    /// `random` separates the polls from those of an earlier run.
    pub(super) fn new(random: u64) -> Self {
        Self(Tracked::new(State { last: random, polls: BTreeMap::new(), waiting: 0, of: HashMap::new() }))
    }
}

impl OpenService {
    /// Asks each of these nodes about an open write. Calls `then` once, perhaps in another thread; it must not wait. If the same is being asked already, it
    /// gets that answer: many readers of a file cost no more messages than one.
    pub(super) fn ask_clients(&self, asked: Vec<(NodeId, WriterToken)>, then: Then) {
        if asked.is_empty() {
            return then(Some(Vec::new()));
        }
        let number = {
            let mut state = self.polls.0.lock();
            if state.waiting >= WAITING_MAX {
                drop(state);
                return then(None);
            }
            state.waiting += 1;
            let same = state.of.get(&asked).copied();
            if let Some(poll) = same.and_then(|number| state.polls.get_mut(&number)) {
                return poll.then.push(then);
            }
            state.last = state.last.wrapping_add(1);
            let number = state.last;
            let (since, left) = (self.world.now(), asked.clone());
            state
                .polls
                .insert(number, Poll { since, asked: asked.clone(), left, reports: Vec::new(), then: vec![then] });
            state.of.insert(asked.clone(), number);
            number
        };
        for (node, writer) in asked {
            if !self.world.send(node, FromManager::AskClient { number, writer }) {
                let poll = self.polls.0.lock().remove(number);
                return poll.into_iter().for_each(|poll| poll.answer(None));
            }
        }
    }

    /// A disk server says whether the client of an open write is there.
    pub(crate) fn client_found(&self, node: NodeId, number: u64, writer: WriterToken, presence: ClientPresence) {
        let poll = {
            let mut state = self.polls.0.lock();
            let Some(poll) = state.polls.get_mut(&number) else { return };
            // Ignore what was not asked.
            let Some(at) = poll.left.iter().position(|asked| *asked == (node, writer)) else { return };
            poll.left.swap_remove(at);
            poll.reports.push(ClientReport { node, writer, presence });
            if poll.left.is_empty() { state.remove(number) } else { None }
        };
        if let Some(mut poll) = poll {
            let reports = std::mem::take(&mut poll.reports);
            poll.answer(Some(reports));
        }
    }

    /// Ends the polls whose servers do not answer.
    pub(super) fn tick_polls(&self, now: Time) {
        let late: Vec<Poll> = {
            let mut state = self.polls.0.lock();
            let is_late = |poll: &Poll| now.since(poll.since) >= PATIENCE;
            let late: Vec<u64> =
                state.polls.iter().filter(|(_, poll)| is_late(poll)).map(|(number, _)| *number).collect();
            late.into_iter().filter_map(|number| state.remove(number)).collect()
        };
        late.into_iter().for_each(|poll| poll.answer(None));
    }
}
