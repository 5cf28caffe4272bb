//! Requests to the manager whose answers come as completions. Nothing waits for them.

use std::collections::BTreeMap;

use cluster::Time;
use parking_lot::Mutex;

use super::attributes::MANAGER_ANSWERS_WITHIN;

/// Called once with the answer, or with what stands for one that does not come.
pub(super) type Then<A> = Box<dyn FnOnce(A) + Send>;

/// The requests of one kind that the manager has not answered yet.
pub(super) struct Questions<A> {
    /// The most that wait.
    most: usize,
    waiting: Mutex<Waiting<A>>,
}

struct Waiting<A> {
    last: u64,
    askers: BTreeMap<u64, (Time, Then<A>)>,
    are_let_go: bool,
}

/// Why nothing was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NotAsked {
    /// The connection with the manager has ended.
    LetGo,
    /// Too many wait already.
    TooMany,
}

impl<A> Questions<A> {
    /// `random` separates the requests from those of an earlier run, whose answers may still arrive.
    pub(super) fn new(random: u64, most: usize) -> Self {
        Self { most, waiting: Mutex::new(Waiting { last: random, askers: BTreeMap::new(), are_let_go: false }) }
    }

    /// Remembers whom to tell. Returns the number to ask with.
    ///
    /// # Errors
    /// Nothing may be asked. The caller gets `then` back.
    pub(super) fn add(&self, now: Time, then: Then<A>) -> Result<u64, (NotAsked, Then<A>)> {
        let mut waiting = self.waiting.lock();
        if waiting.are_let_go {
            return Err((NotAsked::LetGo, then));
        }
        if waiting.askers.len() >= self.most {
            return Err((NotAsked::TooMany, then));
        }
        waiting.last = waiting.last.wrapping_add(1);
        let number = waiting.last;
        waiting.askers.insert(number, (now, then));
        Ok(number)
    }

    /// Whom to tell the answer to the request with this number; `None`: nobody waits for it any more.
    pub(super) fn answered(&self, number: u64) -> Option<Then<A>> {
        self.waiting.lock().askers.remove(&number).map(|(_, then)| then)
    }

    /// Whom to tell that the manager has not answered in time.
    pub(super) fn late(&self, now: Time) -> Vec<Then<A>> {
        let mut waiting = self.waiting.lock();
        let is_late = |asked: &Time| now.since(*asked) >= MANAGER_ANSWERS_WITHIN;
        let numbers: Vec<u64> =
            waiting.askers.iter().filter(|(_, (asked, _))| is_late(asked)).map(|(number, _)| *number).collect();
        numbers.iter().filter_map(|number| waiting.askers.remove(number)).map(|(_, then)| then).collect()
    }

    /// Whom to tell that no answers come any more. Nothing more may be asked.
    pub(super) fn let_go(&self) -> Vec<Then<A>> {
        let mut waiting = self.waiting.lock();
        waiting.are_let_go = true;
        std::mem::take(&mut waiting.askers).into_values().map(|(_, then)| then).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn each_asker_is_told_once_and_their_number_is_bounded() {
        let questions = Questions::new(u64::MAX, 2);
        let (sender, told) = channel();
        let ask = |name: &'static str, at: Time| {
            let sender = sender.clone();
            questions.add(at, Box::new(move |answer: u8| sender.send((name, answer)).unwrap()))
        };
        let begin = Time::default();
        let one = ask("one", begin).ok().unwrap();
        let later = begin + MANAGER_ANSWERS_WITHIN;
        let two = ask("two", later).ok().unwrap();
        assert_eq!((one, two), (0, 1), "numbers go on over the last one");
        assert_eq!(ask("three", later).err().unwrap().0, NotAsked::TooMany);
        assert!(questions.answered(7).is_none());
        questions.late(later).into_iter().for_each(|then| then(2));
        assert!(questions.answered(one).is_none(), "it was given up");
        questions.answered(two).unwrap()(3);
        ask("four", later).ok().unwrap();
        questions.let_go().into_iter().for_each(|then| then(4));
        assert_eq!(ask("five", later).err().unwrap().0, NotAsked::LetGo);
        assert_eq!(told.try_iter().collect::<Vec<_>>(), [("one", 2), ("two", 3), ("four", 4)]);
    }
}
