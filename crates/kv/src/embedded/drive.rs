//! The loop of a committer's thread.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::queue::{Queue, Request, enter_engine};
use super::responder::{Answers, Completions};

/// Takes the completions of a batch. The flag says whether it was the last one of the operations that were taken together.
pub type Give<'a> = &'a mut dyn FnMut(Completions, bool);

/// Takes operations from `queue`, at most `ops_max` together, lets `commit` commit them, and answers, until the queue is closed. `linger`: how
/// long it waits for the clients of the last operations to return. `idle`: `commit` is called without operations when none came for so long. A panic
/// breaks the queue off, so that no thread waits for it.
pub fn commit_until_closed(
    queue: &Queue,
    answers: Option<Answers>,
    (ops_max, linger, idle): (usize, Duration, Option<Duration>),
    mut commit: impl FnMut(VecDeque<Request>, Give<'_>),
) {
    enter_engine();
    let mut work = || {
        let mut expected = 0;
        loop {
            let Some(requests) = queue.take(ops_max, expected, linger, idle) else { return };
            // Clients that were answered together return together. Committing with half of them would keep them split.
            expected = if requests.len() > 4 { requests.len() - requests.len() / 4 } else { 0 };
            commit(requests, &mut |completions, is_last| {
                if let Some(answers) = &answers {
                    answers.give(completions, is_last && queue.is_empty());
                }
            });
        }
    };
    // Operations already taken from the queue get no answer: dropping a completion informs its caller.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(&mut work)) {
        std::mem::forget(panic); // dropping its contents may panic again
        queue.break_off("the thread that commits changes, the committer, has died by a panic");
        if let Some(answers) = answers {
            answers.flush();
        }
    }
}
