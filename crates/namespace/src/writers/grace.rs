//! Decides about a disconnected writer at the end of its grace period, without I/O.

use types::BootId;

/// The facts about the writer at the end of its grace period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GraceFacts {
    /// The acknowledged bytes have a gap.
    pub gaps: bool,
    /// End of the highest acknowledged byte.
    pub len: u64,
    /// The length that the client announced.
    pub expected_len: Option<u64>,
    /// The boot in which the client wrote.
    pub wrote_in: BootId,
    /// The present boot.
    pub boot: BootId,
}

/// The decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GraceEnd {
    /// All announced bytes are there. Complete the file, because the client believes that already.
    Complete,
    /// Mark it interrupted.
    Interrupt,
}

/// A stock client that loses its connection at close reports success without having sent the close. So a file is completed if it has no gaps, has the
/// announced length, and was written in the same boot. Every other file is interrupted.
#[must_use]
pub fn at_grace_end(facts: &GraceFacts) -> GraceEnd {
    let whole = !facts.gaps && facts.expected_len == Some(facts.len) && facts.wrote_in == facts.boot;
    if whole { GraceEnd::Complete } else { GraceEnd::Interrupt }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_of_announced_length_without_gaps_from_the_same_boot_is_completed() {
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
