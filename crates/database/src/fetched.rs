//! What a transaction knows of the database: entries and absences that it has fetched.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

use kv::{Chain, OwnedEntry, ScanOrder, Visit};

use crate::chains::{beginning_with, walk_chain};
use crate::needs::Range;

/// How a scan of what is known ended.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Scanned {
    /// The visitor stopped, or the range is finished.
    Done,
    /// Entries from here on are not known: what is left of the range.
    Missing { start: Vec<u8>, end: Vec<u8> },
}

/// Known entries and absences.
#[derive(Default, Debug)]
pub(crate) struct Fetched {
    /// `None`: there is no such entry.
    entries: BTreeMap<Box<[u8]>, Option<Box<[u8]>>>,
    /// Ranges without unknown entries: first key, and the first key behind it. They do not overlap.
    ranges: BTreeMap<Box<[u8]>, Box<[u8]>>,
    /// What the entries and ranges take, about.
    bytes: usize,
}

/// What an entry or a range takes besides its bytes, about.
const ENTRY_BYTES: usize = 64;

impl Fetched {
    /// Whether it says nothing.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.ranges.is_empty()
    }

    /// What it takes, about, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// All entries, and absences.
    pub(crate) fn entries(&self) -> impl ExactSizeIterator<Item = (&[u8], Option<&[u8]>)> {
        self.entries.iter().map(|(key, value)| (&**key, value.as_deref()))
    }

    /// The ranges without unknown entries: first key, and the first key behind it.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.ranges.iter().map(|(start, end)| (&**start, &**end))
    }

    /// Adds what `other` knows of the same state of the database.
    pub(crate) fn absorb(&mut self, other: Self) {
        if self.is_empty() {
            *self = other;
            return;
        }
        for (key, value) in other.entries {
            self.insert(&key, value.as_deref());
        }
        for (start, end) in other.ranges {
            self.cover(&start, &end);
        }
    }

    /// Copies the first entries of a range, in its order, if they are known. Returns whether they are.
    pub(crate) fn copy_range(&self, range: &Range, into: &mut Self) -> bool {
        let (start, end) = (range.start.as_slice(), range.end.as_slice());
        // The part of it that one known range has.
        let part = match range.order {
            ScanOrder::Ascending => self.range_around(start).map(|(_, known)| (start, end.min(known))),
            ScanOrder::Descending => self.range_before(end).map(|(known, _)| (start.max(known), end)),
        };
        let Some(part) = part else { return false };
        let entries = self.entries.range::<[u8], _>((Bound::Included(part.0), Bound::Excluded(part.1)));
        let entries = entries.filter_map(|(key, value)| Some((&**key, value.as_deref()?)));
        let most = usize::try_from(range.most).unwrap_or(usize::MAX);
        let rows: Vec<_> = match range.order {
            ScanOrder::Ascending => entries.take(most).collect(),
            ScanOrder::Descending => entries.rev().take(most).collect(),
        };
        let is_known = part == (start, end) || rows.len() >= most;
        if is_known {
            into.insert_range(range, rows.into_iter());
        }
        is_known
    }

    /// The entry at `key`: `None` if it is unknown, `Some(None)` if it does not exist.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        match self.entries.get(key) {
            Some(value) => Some(value.as_deref()),
            None => self.range_around(key).map(|_| None),
        }
    }

    pub(crate) fn insert(&mut self, key: &[u8], value: Option<&[u8]>) {
        let len = |value: Option<&[u8]>| value.map_or(0, <[u8]>::len);
        // In a range of which all is known, what is not there does not exist.
        if value.is_none() && self.range_around(key).is_some() {
            if let Some(known) = self.entries.remove(key) {
                self.bytes -= ENTRY_BYTES + key.len() + len(known.as_deref());
            }
            return;
        }
        match self.entries.get_mut(key) {
            Some(known) => {
                self.bytes = self.bytes + len(value) - len(known.as_deref());
                *known = value.map(Into::into);
            }
            None => {
                self.bytes += ENTRY_BYTES + key.len() + len(value);
                self.entries.insert(key.into(), value.map(Into::into));
            }
        }
    }

    /// Nothing is known of `key` any more.
    pub(crate) fn forget(&mut self, key: &[u8]) {
        if let Some(known) = self.entries.remove(key) {
            self.bytes -= ENTRY_BYTES + key.len() + known.as_ref().map_or(0, |value| value.len());
        }
        let Some((start, end)) = self.range_around(key).map(|(start, end)| (start.to_vec(), end.to_vec())) else {
            return;
        };
        self.ranges.remove(start.as_slice());
        self.bytes -= ENTRY_BYTES + start.len() + end.len();
        self.cover(&start, key);
        self.cover(&[key, &[0]].concat(), &end);
    }

    /// The known range with `key`.
    fn range_around(&self, key: &[u8]) -> Option<(&[u8], &[u8])> {
        let (start, end) = self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(key))).next_back()?;
        (key < &**end).then_some((&**start, &**end))
    }

    /// The known range that ends with or behind the last key before `key`.
    fn range_before(&self, key: &[u8]) -> Option<(&[u8], &[u8])> {
        let (start, end) = self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Excluded(key))).next_back()?;
        (key <= &**end).then_some((&**start, &**end))
    }

    /// All entries with `start <= key < end` are known from now on.
    pub(crate) fn cover(&mut self, start: &[u8], end: &[u8]) {
        if start >= end {
            return;
        }
        let (mut low, mut high): (Box<[u8]>, Box<[u8]>) = (start.into(), end.into());
        if let Some((before, until)) =
            self.ranges.range::<[u8], _>((Bound::Unbounded, Bound::Included(start))).next_back()
            && until.as_ref() >= start
        {
            low = before.clone();
            high = high.max(until.clone());
        }
        let inside: Vec<Box<[u8]>> = self
            .ranges
            .range::<[u8], _>((Bound::Included(&*low), Bound::Included(&*high)))
            .map(|(start, _)| start.clone())
            .collect();
        for start in inside {
            if let Some(until) = self.ranges.remove(&start) {
                self.bytes -= ENTRY_BYTES + start.len() + until.len();
                high = high.max(until);
            }
        }
        self.bytes += ENTRY_BYTES + low.len() + high.len();
        self.ranges.insert(low, high);
    }

    /// Takes over the answer for a range: its first entries, in its order, at most `most`.
    pub(crate) fn insert_range<'a>(&mut self, range: &Range, rows: impl Iterator<Item = (&'a [u8], &'a [u8])>) {
        let (mut count, mut last) = (0u32, None);
        for (key, value) in rows {
            self.insert(key, Some(value));
            count += 1;
            last = Some(key);
        }
        match (last.filter(|_| count >= range.most), range.order) {
            (None, _) => self.cover(&range.start, &range.end),
            (Some(last), ScanOrder::Ascending) => self.cover(&range.start, &[last, &[0]].concat()),
            (Some(last), ScanOrder::Descending) => self.cover(last, &range.end),
        }
    }

    /// Takes over the answer for a chain: `rows` has every entry of it that exists.
    pub(crate) fn insert_chain(&mut self, chain: &Chain, rows: &BTreeMap<&[u8], &[u8]>) {
        let find = |key: &[u8]| Some(rows.get(key).copied());
        walk_chain(chain, find, |key, most| {
            match most {
                None => self.insert(&key, rows.get(key.as_slice()).copied()),
                Some(most) => {
                    let range = beginning_with(key, most);
                    let bounds: (Bound<&[u8]>, Bound<&[u8]>) =
                        (Bound::Included(&range.start), Bound::Excluded(&range.end));
                    let most = usize::try_from(range.most).unwrap_or(usize::MAX);
                    let found = rows.range::<[u8], _>(bounds).take(most).map(|(key, value)| (*key, *value));
                    self.insert_range(&range, found);
                }
            }
            true
        });
    }

    /// What of a range is not known of its first `most` entries. `None`: all of them are.
    pub(crate) fn unknown_part(&self, range: &Range) -> Option<Range> {
        let mut left = range.most;
        let ended = self.scan(&range.start, &range.end, range.order, &mut |_, _| {
            left = left.saturating_sub(1);
            if left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match ended {
            Scanned::Done => None,
            Scanned::Missing { start, end } => Some(Range { start, end, order: range.order, most: left }),
        }
    }

    /// The known entries with `start <= key < end` in order, for a visitor that may read more while it visits them.
    pub(crate) fn entries_between(&self, (start, end): (&[u8], &[u8]), order: ScanOrder) -> (Vec<OwnedEntry>, Scanned) {
        let mut entries = Vec::new();
        let scanned = self.scan(start, end, order, &mut |key, value| {
            entries.push((key.to_vec(), value.to_vec()));
            ControlFlow::Continue(())
        });
        (entries, scanned)
    }

    /// Visits the known entries with `start <= key < end` in order.
    pub(crate) fn scan(&self, start: &[u8], end: &[u8], order: ScanOrder, visit: Visit<'_>) -> Scanned {
        match order {
            ScanOrder::Ascending => {
                let mut at = start;
                while at < end {
                    let Some((_, known)) = self.range_around(at) else { return missing(at, end) };
                    let until = known.min(end);
                    for (key, value) in self.entries.range::<[u8], _>((Bound::Included(at), Bound::Excluded(until))) {
                        if let Some(value) = value
                            && visit(key, value) == ControlFlow::Break(())
                        {
                            return Scanned::Done;
                        }
                    }
                    at = until;
                }
            }
            ScanOrder::Descending => {
                let mut at = end;
                while start < at {
                    let Some((known, _)) = self.range_before(at) else { return missing(start, at) };
                    let until = known.max(start);
                    let entries = self.entries.range::<[u8], _>((Bound::Included(until), Bound::Excluded(at)));
                    for (key, value) in entries.rev() {
                        if let Some(value) = value
                            && visit(key, value) == ControlFlow::Break(())
                        {
                            return Scanned::Done;
                        }
                    }
                    at = until;
                }
            }
        }
        Scanned::Done
    }
}

fn missing(start: &[u8], end: &[u8]) -> Scanned {
    Scanned::Missing { start: start.to_vec(), end: end.to_vec() }
}

#[cfg(test)]
mod tests {
    use kv::{Follow, Prefetch};

    use crate::needs::Needs;

    use super::*;

    fn keys(known: &Fetched, start: &[u8], end: &[u8], order: ScanOrder) -> (Vec<String>, Scanned) {
        let mut seen = Vec::new();
        let ended = known.scan(start, end, order, &mut |key, _| {
            seen.push(String::from_utf8_lossy(key).into_owned());
            ControlFlow::Continue(())
        });
        (seen, ended)
    }

    fn range(start: &[u8], end: &[u8], order: ScanOrder, most: u32) -> Range {
        Range { start: start.into(), end: end.into(), order, most }
    }

    #[test]
    fn a_scan_stops_where_nothing_is_known() {
        let mut known = Fetched::default();
        let up = range(b"a", b"z", ScanOrder::Ascending, 2);
        known.insert_range(&up, [(b"b".as_slice(), b"1".as_slice()), (b"d", b"2")].into_iter());
        let (seen, ended) = keys(&known, b"a", b"z", ScanOrder::Ascending);
        assert_eq!((seen, ended), (vec!["b".into(), "d".into()], missing(b"d\0", b"z")));
        assert_eq!(known.get(b"c"), Some(None), "inside the range, so it does not exist");
        assert_eq!(known.get(b"e"), None);
        assert_eq!(keys(&known, b"a", b"d", ScanOrder::Ascending), (vec!["b".into()], Scanned::Done));
        let down = range(b"a", b"z", ScanOrder::Descending, 1);
        known.insert_range(&down, [(b"x".as_slice(), b"3".as_slice())].into_iter());
        let (seen, ended) = keys(&known, b"a", b"z", ScanOrder::Descending);
        assert_eq!((seen, ended), (vec!["x".into()], missing(b"a", b"x")));
        let rest = range(b"d\0", b"x", ScanOrder::Ascending, 5);
        known.insert_range(&rest, std::iter::empty());
        assert_eq!(known.ranges.len(), 1, "ranges that touch become one");
        assert_eq!(
            keys(&known, b"a", b"z", ScanOrder::Descending),
            (vec!["x".into(), "d".into(), "b".into()], Scanned::Done)
        );
    }

    #[test]
    fn covered_ranges_join_whatever_their_order() {
        // All orders of three ranges, two of which overlap.
        let parts = [(b"b".as_slice(), b"d".as_slice()), (b"c", b"f"), (b"f", b"h")];
        for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            let mut known = Fetched::default();
            for place in order {
                known.cover(parts[place].0, parts[place].1);
            }
            let ranges: Vec<_> = known.ranges.iter().map(|(start, end)| (start.to_vec(), end.to_vec())).collect();
            assert_eq!(ranges, [(b"b".to_vec(), b"h".to_vec())], "{order:?}");
            assert_eq!(known.get(b"h"), None);
            assert_eq!(known.get(b"a"), None);
        }
    }

    fn chain(names: &[&[u8]], follow: Vec<Follow>) -> Chain {
        let names = names.iter().map(|name| name.to_vec()).collect();
        Chain { prefix: b"D".to_vec(), first: [0; 8], names, id_at: 1, follow }
    }

    #[test]
    fn a_chain_says_what_exists_and_what_does_not() {
        let follow =
            |after, most| Follow { after, prefix: b"A".to_vec(), suffix: b"s".to_vec(), most, ..Follow::default() };
        let asked = chain(&[b"a", b"b", b"c"], vec![follow(1, None), follow(1, Some(2)), follow(3, None)]);
        let key = |prefix: &[u8], id: u8, name: &[u8]| [prefix, &[id; 8], name].concat();
        let (first, second, one) = (key(b"D", 0, b"a"), key(b"D", 1, b"b"), key(b"A", 1, b"s"));
        let rows: BTreeMap<&[u8], &[u8]> =
            [(first.as_slice(), [b"v".as_slice(), &[1; 8]].concat().leak() as &[u8]), (&one, b"shard")].into();
        let mut known = Fetched::default();
        let unknown = |chain: &Chain, known: &Fetched| {
            let mut needs = Needs::default();
            needs.add(vec![Prefetch::Chain(chain.clone())], known);
            needs
        };
        assert_eq!(unknown(&asked, &known).chains, std::slice::from_ref(&asked));
        known.insert_chain(&asked, &rows);
        assert!(unknown(&asked, &known).is_empty());
        assert_eq!(known.get(&first).unwrap().unwrap().len(), 9);
        assert_eq!(known.get(&second), Some(None), "the chain ended here");
        assert_eq!(known.get(&one), Some(Some(b"shard".as_slice())));
        assert_eq!(known.get(&key(b"A", 1, b"sx")), Some(None));
        assert_eq!(known.get(&key(b"D", 2, b"c")), None, "nobody asked for it");
        let longer = chain(&[b"a", b"x"], Vec::new());
        let mut needs = Needs::default();
        needs.add(vec![Prefetch::Chain(asked), Prefetch::Chain(longer.clone()), Prefetch::Key(first)], &known);
        let rest = Chain { first: [1; 8], names: vec![b"x".to_vec()], ..longer };
        assert_eq!(needs.chains, [rest]);
        assert!(needs.keys.is_empty());
    }
}
