//! Proxies that clients have delegated. Clients log in at the manager, so this server asks the manager for them.

use std::collections::BTreeMap;
use std::sync::mpsc::{SyncSender, sync_channel};

use node::{FromDisk, ProxyAnswer, ProxyRequest, SentProxy};
use parking_lot::Mutex;
use types::ObjectId;

use super::DiskServer;
use super::attributes::MANAGER_ANSWERS_WITHIN;

/// The most questions that wait for the manager. Each answer may have 64 KiB.
const WAITING_MAX: usize = 16;

/// The questions that the manager has not answered yet.
pub(super) struct ProxyQuestions(Mutex<Waiting>);

struct Waiting {
    last: u64,
    askers: BTreeMap<u64, SyncSender<Option<SentProxy>>>,
}

impl ProxyQuestions {
    /// `random` separates the questions from those of an earlier run, whose answers may still arrive.
    pub(super) fn new(random: u64) -> Self {
        Self(Mutex::new(Waiting { last: random, askers: BTreeMap::new() }))
    }
}

impl DiskServer {
    /// Asks the manager for the proxy that the client of this new object has delegated, and waits for at most [`MANAGER_ANSWERS_WITHIN`]. Call it
    /// only for a client that has shown a capability for the object. `None`: there is none, or the manager has not answered.
    pub fn delegated_proxy(&self, object: ObjectId) -> Option<SentProxy> {
        let (sender, receiver) = sync_channel(1);
        let number = {
            let mut waiting = self.proxy_questions.0.lock();
            if waiting.askers.len() >= WAITING_MAX {
                tracing::warn!(%object, "too many clients wait for their delegated proxies, so one is not used");
                return None;
            }
            waiting.last = waiting.last.wrapping_add(1);
            let number = waiting.last;
            waiting.askers.insert(number, sender);
            number
        };
        self.world.to_manager(FromDisk::TakeProxy(ProxyRequest { number, object }));
        let answer = receiver.recv_timeout(MANAGER_ANSWERS_WITHIN);
        if answer.is_err() {
            self.proxy_questions.0.lock().askers.remove(&number);
            tracing::warn!(%object, "the manager has not said whether a client has delegated a proxy");
        }
        answer.ok().flatten()
    }

    /// The manager has answered a question.
    pub(super) fn proxy_answered(&self, answer: ProxyAnswer) {
        let asker = self.proxy_questions.0.lock().askers.remove(&answer.number);
        if let Some(asker) = asker {
            // Its receiver may have given up just now.
            let _ = asker.try_send(answer.proxy);
        }
    }
}
