//! What to do with a writer whose connection is gone when its grace period ends: a pure decision.

use types::BootId;

/// What is known of the writer at the end of its grace period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraceFacts {
    /// The acknowledged bytes leave a gap.
    pub gaps: bool,
    /// End of the highest acknowledged byte.
    pub len: u64,
    /// What the client announced.
    pub expected_len: Option<u64>,
    /// The boot in which it wrote.
    pub wrote_in: BootId,
    /// The boot now.
    pub boot: BootId,
}

/// The decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GraceEnd {
    /// All that was announced is there: complete it, as the client believes already.
    Complete,
    /// Mark it interrupted.
    Interrupt,
}

/// A stock client that finds its connection broken at close reports success without having sent it. So what has no
/// gaps and is as long as announced, in the same boot, is completed; everything else is interrupted.
#[must_use]
pub fn at_grace_end(facts: &GraceFacts) -> GraceEnd {
    let whole = !facts.gaps && facts.expected_len == Some(facts.len) && facts.wrote_in == facts.boot;
    if whole { GraceEnd::Complete } else { GraceEnd::Interrupt }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_whole_as_announced_in_the_same_boot_is_completed() {
        let whole = GraceFacts { gaps: false, len: 7, expected_len: Some(7), wrote_in: BootId(1), boot: BootId(1) };
        assert_eq!(at_grace_end(&whole), GraceEnd::Complete);
        for broken in [
            GraceFacts { gaps: true, ..whole },
            GraceFacts { len: 6, ..whole },
            GraceFacts { len: 8, ..whole },
            GraceFacts { expected_len: None, ..whole },
            GraceFacts { boot: BootId(2), ..whole },
        ] {
            assert_eq!(at_grace_end(&broken), GraceEnd::Interrupt, "{broken:?}");
        }
        let empty = GraceFacts { len: 0, expected_len: Some(0), ..whole };
        assert_eq!(at_grace_end(&empty), GraceEnd::Complete);
    }
}
