//! What a mapping service has answered lately.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ring::digest::{SHA256, digest};

use crate::{MappingQuestion, MappingReply};

/// Most answers that are kept.
pub const MAPPING_MEMORY_ENTRIES_MAX: usize = 10_000;
/// Most bytes of all answers that are kept.
const BYTES_MAX: usize = 8 << 20;
/// A refusal is kept no longer than this: whoever is let in now shall not wait for long.
pub const MAPPING_REFUSAL_KEEP_MAX: Duration = Duration::from_secs(30);

/// A question, by its hash: questions are long.
type Key = [u8; 32];

#[derive(Debug)]
struct Entry {
    reply: MappingReply,
    until: Duration,
    /// The number of the answer.
    number: u64,
}

/// Answers, each for a time. If there are too many, the oldest are forgotten.
#[derive(Debug)]
pub struct MappingMemory {
    keep: Duration,
    entries: HashMap<Key, Entry>,
    /// The answers in their order. One that was replaced is still here.
    order: VecDeque<(u64, Key)>,
    bytes: usize,
    answers: u64,
}

fn key(question: &MappingQuestion) -> Key {
    let mut key = Key::default();
    key.copy_from_slice(digest(&SHA256, question.json()).as_ref());
    key
}

impl MappingMemory {
    /// Keeps who somebody is for `keep`, and a refusal for at most [`MAPPING_REFUSAL_KEEP_MAX`] of it.
    #[must_use]
    pub fn new(keep: Duration) -> Self {
        Self { keep, entries: HashMap::new(), order: VecDeque::new(), bytes: 0, answers: 0 }
    }

    /// The answer to `question` that counts at `now`, a time of a clock that never goes back.
    #[must_use]
    pub fn get(&self, question: &MappingQuestion, now: Duration) -> Option<&MappingReply> {
        self.entries.get(&key(question)).filter(|entry| now < entry.until).map(|entry| &entry.reply)
    }

    /// Keeps an answer.
    pub fn put(&mut self, question: &MappingQuestion, reply: MappingReply, now: Duration) {
        let keep = match &reply {
            MappingReply::Principal { .. } => self.keep,
            MappingReply::Refused(_) => self.keep.min(MAPPING_REFUSAL_KEEP_MAX),
        };
        let (key, number) = (key(question), self.answers);
        self.answers += 1;
        self.bytes += reply.size();
        if let Some(before) = self.entries.insert(key, Entry { reply, until: now + keep, number }) {
            self.bytes -= before.reply.size();
        }
        self.order.push_back((number, key));
        while self.order.len() > MAPPING_MEMORY_ENTRIES_MAX || self.bytes > BYTES_MAX {
            let Some((number, key)) = self.order.pop_front() else { break };
            // A newer answer to the question has its own place in the order.
            if self.entries.get(&key).is_some_and(|entry| entry.number == number)
                && let Some(entry) = self.entries.remove(&key)
            {
                self.bytes -= entry.reply.size();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credential, LoginName};
    use types::{PrincipalKind, PrincipalName};

    fn question(name: usize) -> MappingQuestion {
        let name = LoginName::parse(&format!("u{name}")).unwrap();
        MappingQuestion::new(&Credential::LocalUser { name, groups: Vec::new() }, None).unwrap()
    }

    fn principal(groups: usize) -> MappingReply {
        let groups = (0..groups)
            .map(|number| PrincipalName::parse(PrincipalKind::Group, &format!("{}{number}", "g".repeat(200))).unwrap());
        MappingReply::Principal {
            principal: PrincipalName::parse(PrincipalKind::User, "ana").unwrap(),
            groups: groups.collect(),
        }
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn answers_are_kept_for_a_time_and_refusals_for_a_shorter_one() {
        let refused = || MappingReply::Refused("no".into());
        let mut memory = MappingMemory::new(300 * SECOND);
        memory.put(&question(1), principal(0), 10 * SECOND);
        memory.put(&question(2), refused(), 10 * SECOND);
        let at = |memory: &MappingMemory, name, second| memory.get(&question(name), second * SECOND).cloned();
        assert_eq!(at(&memory, 1, 309), Some(principal(0)));
        assert_eq!(at(&memory, 1, 310), None);
        assert_eq!(at(&memory, 2, 39), Some(refused()));
        assert_eq!(at(&memory, 2, 40), None);
        assert_eq!(at(&memory, 3, 10), None);
        // The last answer counts.
        memory.put(&question(1), refused(), 20 * SECOND);
        assert_eq!(at(&memory, 1, 20), Some(refused()));
        let mut short = MappingMemory::new(5 * SECOND);
        short.put(&question(2), refused(), SECOND);
        assert_eq!(at(&short, 2, 6), None);
    }

    #[test]
    fn the_memory_is_bounded() {
        let mut memory = MappingMemory::new(SECOND * 1000);
        for name in 0..MAPPING_MEMORY_ENTRIES_MAX + 5 {
            memory.put(&question(name), principal(0), SECOND);
        }
        assert_eq!(
            (memory.entries.len(), memory.order.len()),
            (MAPPING_MEMORY_ENTRIES_MAX, MAPPING_MEMORY_ENTRIES_MAX)
        );
        assert_eq!(memory.get(&question(4), SECOND), None);
        assert!(memory.get(&question(5), SECOND).is_some());
        // Answers that are replaced all the time, and long ones.
        for _ in 0..2 * MAPPING_MEMORY_ENTRIES_MAX {
            memory.put(&question(1), principal(0), SECOND);
        }
        assert_eq!((memory.entries.len(), memory.order.len()), (1, MAPPING_MEMORY_ENTRIES_MAX));
        assert_eq!(memory.bytes, principal(0).size());
        for name in 0..1000 {
            memory.put(&question(name), principal(256), SECOND);
        }
        assert!(memory.bytes <= BYTES_MAX && memory.entries.len() < 200);
        assert!(memory.get(&question(999), SECOND).is_some());
        let sum: usize = memory.entries.values().map(|entry| entry.reply.size()).sum();
        assert_eq!(memory.bytes, sum);
    }
}
