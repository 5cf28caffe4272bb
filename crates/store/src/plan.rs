//! How to do a write: which of its bytes go straight to the file, and which through the journal.

use crate::sums::PAGE;

/// Bytes of one record through the journal at most.
const REDO_MAX: u64 = 1 << 20;

/// A part of a write, as byte offsets in the replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Whole pages that were never written: to the file, with only their checksums in the journal.
    Fresh { start: u64, end: u64 },
    /// Everything else: parts of pages, rewritten pages, small replicas. The bytes go to the journal, and later to the
    /// file.
    Redo { start: u64, end: u64 },
}

/// Splits the write of `start..end` into parts, in order. `large`: the replica has (or gets) its own file. `taken`:
/// whether a page was written before.
pub(crate) fn plan(start: u64, end: u64, large: bool, taken: &dyn Fn(u64) -> bool) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    let mut at = start;
    while at < end {
        let page = at / PAGE;
        let stop = end.min((page + 1) * PAGE);
        let fresh = large && at.is_multiple_of(PAGE) && stop - at == PAGE && !taken(page);
        match parts.last_mut() {
            Some(Part::Fresh { end, .. }) if fresh => *end = stop,
            Some(Part::Redo { start, end }) if !fresh && stop - *start <= REDO_MAX => *end = stop,
            _ if fresh => parts.push(Part::Fresh { start: at, end: stop }),
            _ => parts.push(Part::Redo { start: at, end: stop }),
        }
        at = stop;
    }
    parts
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // small numbers
mod tests {
    use super::*;

    #[test]
    fn whole_new_pages_go_to_the_file_and_the_rest_through_the_journal() {
        let none = |_: u64| false;
        assert_eq!(plan(0, 8192, true, &none), [Part::Fresh { start: 0, end: 8192 }]);
        assert_eq!(plan(0, 8192, false, &none), [Part::Redo { start: 0, end: 8192 }]);
        assert_eq!(
            plan(100, 9000, true, &none),
            [
                Part::Redo { start: 100, end: 4096 },
                Part::Fresh { start: 4096, end: 8192 },
                Part::Redo { start: 8192, end: 9000 }
            ]
        );
        let second = |page: u64| page == 1;
        assert_eq!(
            plan(0, 12288, true, &second),
            [
                Part::Fresh { start: 0, end: 4096 },
                Part::Redo { start: 4096, end: 8192 },
                Part::Fresh { start: 8192, end: 12288 }
            ]
        );
        assert_eq!(plan(5, 5, true, &none), []);
    }

    #[test]
    fn parts_cover_the_write_and_stay_short() {
        let parts = plan(10, (3 << 20) + 5, false, &|_| true);
        let mut at = 10;
        for part in parts {
            let Part::Redo { start, end } = part else { panic!("{part:?}") };
            assert!(start == at && end - start <= REDO_MAX && end > start);
            at = end;
        }
        assert_eq!(at, (3 << 20) + 5);
    }
}
