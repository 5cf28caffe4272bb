//! The numbers of requests that are under way. A repeated request waits for the first one: it must neither be refused as
//! unknown nor be done a second time.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use types::RequestNumber;

use crate::answer::Answer;
use crate::error::Error;

/// The numbers of closes and truncations that this node has begun and not answered. There are no more than open files.
#[derive(Default)]
pub(crate) struct Numbers(Mutex<HashSet<RequestNumber>>);

/// The number of a request that is under way, until this is dropped.
pub(crate) struct UnderWay {
    numbers: Arc<Numbers>,
    number: RequestNumber,
}

impl Numbers {
    /// Begins a request. `None`: one with this number is under way.
    pub(crate) fn begin(self: &Arc<Self>, number: RequestNumber) -> Option<UnderWay> {
        self.0.lock().insert(number).then(|| UnderWay { numbers: Arc::clone(self), number })
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.numbers.0.lock().remove(&self.number);
    }
}

/// The answer of a request whose number is under way until then.
pub(crate) struct Numbered<A> {
    answer: A,
    under_way: Option<UnderWay>,
}

impl<A> Numbered<A> {
    /// The answer of a request that has begun. Without a number nothing is under way.
    pub(crate) fn new(answer: A, under_way: impl Into<Option<UnderWay>>) -> Self {
        Self { answer, under_way: under_way.into() }
    }
}

impl<T, A: Answer<T>> Answer<T> for Numbered<A> {
    fn give(self, outcome: Result<T, Error>) {
        // A client that has the answer may already repeat the request on another connection.
        drop(self.under_way);
        self.answer.give(outcome);
    }

    fn is_unwanted(&self) -> bool {
        self.answer.is_unwanted()
    }

    fn put_off(&mut self, seconds: u32) {
        self.answer.put_off(seconds);
    }
}

/// The answer to a repeated request whose first one has not ended.
pub(crate) fn under_way(number: RequestNumber) -> Error {
    let text = format!("Request {} of session {} is under way; repeat it in a moment", number.number, number.session);
    Error::Wait { seconds: 1, text }
}

#[cfg(test)]
mod tests {
    use types::SessionId;

    use super::*;

    #[test]
    fn a_number_is_under_way_until_its_answer_is_given_or_dropped() {
        let (numbers, number) = (Arc::new(Numbers::default()), RequestNumber { session: SessionId(3), number: 1 });
        let (sender, receiver) = std::sync::mpsc::channel();
        let begun = numbers.begin(number).unwrap();
        assert!(numbers.begin(number).is_none());
        let answer = move |outcome: Result<(), Error>| sender.send(outcome).unwrap();
        Numbered::new(answer, begun).give(Ok(()));
        assert_eq!(receiver.recv().unwrap(), Ok(()));
        drop(numbers.begin(number).unwrap());
        assert!(numbers.begin(number).is_some());
    }
}
