//! Proxies that clients have delegated. Clients log in at the manager, so this server asks the manager for them. Nothing waits for its answers: these
//! come as completions.

use std::collections::BTreeMap;

use cluster::Time;
use node::{FoundProxy, FromDisk, ProxyAnswer, ProxyRequest};
use parking_lot::Mutex;
use types::ObjectId;

use super::DiskServer;
use super::attributes::MANAGER_ANSWERS_WITHIN;

/// The most questions that wait for the manager. Each answer may have 64 KiB.
const WAITING_MAX: usize = 16;

/// Called once with the manager's answer; `None`: there is none.
type Then = Box<dyn FnOnce(Option<FoundProxy>) + Send>;

/// The questions that the manager has not answered yet.
pub(super) struct ProxyQuestions(Mutex<Waiting>);

struct Waiting {
    last: u64,
    askers: BTreeMap<u64, (Time, Then)>,
    are_let_go: bool,
}

impl ProxyQuestions {
    /// `random` separates the questions from those of an earlier run, whose answers may still arrive.
    pub(super) fn new(random: u64) -> Self {
        Self(Mutex::new(Waiting { last: random, askers: BTreeMap::new(), are_let_go: false }))
    }
}

impl DiskServer {
    /// Asks the manager for the proxy that the client of this new object has delegated. Call it only for a client that has shown a capability for the
    /// object. Calls `then` once, perhaps in another thread; it must not wait. `None`: the manager has not answered, or too many questions wait.
    pub fn take_delegated(&self, object: ObjectId, then: impl FnOnce(Option<FoundProxy>) + Send + 'static) {
        let has_manager = self.member.lock().session().is_some();
        let number = {
            let mut waiting = self.proxy_questions.0.lock();
            if !has_manager || waiting.are_let_go || waiting.askers.len() >= WAITING_MAX {
                drop(waiting);
                return then(None);
            }
            waiting.last = waiting.last.wrapping_add(1);
            let number = waiting.last;
            waiting.askers.insert(number, (self.world.now(), Box::new(then)));
            number
        };
        self.world.to_manager(FromDisk::TakeProxy(ProxyRequest { number, object }));
    }

    /// The manager has answered a question.
    pub(super) fn proxy_answered(&self, answer: ProxyAnswer) {
        let asker = self.proxy_questions.0.lock().askers.remove(&answer.number);
        if let Some((_, then)) = asker {
            then(Some(answer.found));
        }
    }

    /// Gives up questions that the manager has not answered in time.
    pub(super) fn give_up_proxy_questions(&self, now: Time) {
        let late: Vec<(Time, Then)> = {
            let mut waiting = self.proxy_questions.0.lock();
            let is_late = |asked: Time| now.since(asked) >= MANAGER_ANSWERS_WITHIN;
            let numbers: Vec<u64> =
                waiting.askers.iter().filter(|(_, (asked, _))| is_late(*asked)).map(|(number, _)| *number).collect();
            numbers.iter().filter_map(|number| waiting.askers.remove(number)).collect()
        };
        late.into_iter().for_each(|(_, then)| then(None));
    }

    /// Fails all questions, now and later: the connection with the manager has ended.
    pub(super) fn let_go_of_proxy_questions(&self) {
        let askers = {
            let mut waiting = self.proxy_questions.0.lock();
            waiting.are_let_go = true;
            std::mem::take(&mut waiting.askers)
        };
        askers.into_values().for_each(|(_, then)| then(None));
    }
}
