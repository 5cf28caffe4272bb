//! Extended attributes of open files. They are in the namespace, so this server asks the manager for them.

use std::collections::BTreeMap;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use node::{AttributeAction, AttributeAnswer, AttributeRequest, AttributeResult, FromDisk, OpenedFile};
use parking_lot::Mutex;
use types::ErrorCode;

use super::DiskServer;

/// How long a request waits for the manager.
pub const MANAGER_ANSWERS_WITHIN: Duration = Duration::from_secs(10);
/// The most questions that wait for the manager. Each is a small record.
const WAITING_MAX: usize = 16_384;

/// The result of one question, and its place among those that were asked together.
type Told = (usize, Result<AttributeResult, ErrorCode>);

/// The questions that the manager has not answered yet.
#[derive(Default)]
pub(super) struct AttributeQuestions(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    last: u64,
    askers: BTreeMap<u64, (usize, SyncSender<Told>)>,
}

impl AttributeQuestions {
    /// `random` separates the questions from those of an earlier run, whose answers may still arrive.
    pub(super) fn new(random: u64) -> Self {
        Self(Mutex::new(Waiting { last: random, askers: BTreeMap::new() }))
    }
}

/// Why the manager has not answered a question about attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unanswered {
    /// Too many questions wait already. Nothing was asked.
    TooMany,
    /// It did not answer in time. A change may have happened.
    TooLate,
}

impl DiskServer {
    /// Asks the manager about attributes of a file that a client has open here, and waits for at most [`MANAGER_ANSWERS_WITHIN`]. Returns a result for
    /// each action, in their order.
    ///
    /// # Errors
    /// The manager did not answer all of them.
    pub fn attributes(
        &self,
        file: OpenedFile,
        actions: Vec<AttributeAction>,
    ) -> Result<Vec<Result<AttributeResult, ErrorCode>>, Unanswered> {
        let wanted = actions.len();
        let (sender, receiver) = sync_channel(wanted);
        let mut numbers = Vec::with_capacity(wanted);
        {
            let mut waiting = self.questions.0.lock();
            if waiting.askers.len() + wanted > WAITING_MAX {
                return Err(Unanswered::TooMany);
            }
            for at in 0..wanted {
                waiting.last = waiting.last.wrapping_add(1);
                let number = waiting.last;
                waiting.askers.insert(number, (at, sender.clone()));
                numbers.push(number);
            }
        }
        for (number, action) in numbers.iter().zip(actions) {
            self.world.to_manager(FromDisk::Attribute(AttributeRequest { number: *number, file, action }));
        }
        let begun = self.world.now();
        let mut results = vec![Err(ErrorCode::Unavailable); wanted];
        for _ in 0..wanted {
            let Ok((at, result)) =
                receiver.recv_timeout(MANAGER_ANSWERS_WITHIN.saturating_sub(self.world.now().since(begun)))
            else {
                let mut waiting = self.questions.0.lock();
                numbers.iter().for_each(|number| drop(waiting.askers.remove(number)));
                return Err(Unanswered::TooLate);
            };
            if let Some(place) = results.get_mut(at) {
                *place = result;
            }
        }
        Ok(results)
    }

    /// The manager has answered a question.
    pub(super) fn attribute_answered(&self, answer: AttributeAnswer) {
        let asker = self.questions.0.lock().askers.remove(&answer.number);
        if let Some((at, asker)) = asker {
            // The channel has room for all answers. Its receiver may have given up just now.
            let _ = asker.try_send((at, answer.result));
        }
    }
}
