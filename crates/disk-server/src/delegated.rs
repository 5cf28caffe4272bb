//! Proxies that clients have delegated. Clients log in at the manager, so this server asks the manager for them. Nothing waits for its answers: these
//! come as completions.

use cluster::Time;
use node::{FoundProxy, FromDisk, ProxyAnswer, ProxyRequest};
use types::ObjectId;

use super::DiskServer;

/// The most questions that wait for the manager. Each answer may have 64 KiB.
pub(super) const WAITING_MAX: usize = 16;

impl DiskServer {
    /// Asks the manager for the proxy that the client of this new object has delegated. Call it only for a client that has shown a capability for the
    /// object. Calls `then` once, perhaps in another thread; it must not wait. `None`: the manager has not answered, or too many questions wait.
    pub fn take_delegated(&self, object: ObjectId, then: impl FnOnce(Option<FoundProxy>) + Send + 'static) {
        if self.member.lock().session().is_none() {
            return then(None);
        }
        let number = match self.proxy_questions.add(self.world.now(), Box::new(then)) {
            Ok(number) => number,
            Err((_, then)) => return then(None),
        };
        self.world.to_manager(FromDisk::TakeProxy(ProxyRequest { number, object }));
    }

    /// The manager has answered a question.
    pub(super) fn proxy_answered(&self, answer: ProxyAnswer) {
        if let Some(then) = self.proxy_questions.answered(answer.number) {
            then(Some(answer.found));
        }
    }

    /// Gives up questions that the manager has not answered in time.
    pub(super) fn give_up_proxy_questions(&self, now: Time) {
        self.proxy_questions.late(now).into_iter().for_each(|then| then(None));
    }

    /// Fails all questions, now and later: the connection with the manager has ended.
    pub(super) fn let_go_of_proxy_questions(&self) {
        self.proxy_questions.let_go().into_iter().for_each(|then| then(None));
    }
}
