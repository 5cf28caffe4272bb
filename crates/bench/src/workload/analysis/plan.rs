//! Plans which data a job reads, and in which order. This module only decides.

use std::ops::Range;

use crate::rootfile::Part;
use crate::splitmix;

/// The most entries from which events are chosen at random. Each is examined.
pub(super) const ENTRIES_MAX: u64 = 1_000_000_000;
/// The most events that are chosen.
pub(super) const CHOSEN_MAX: u64 = 50_000_000;
const MILLION: u64 = 1_000_000;

/// The events that a job reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Chosen {
    /// All events below this number.
    All(u64),
    /// These events, in ascending order.
    Some(Vec<u64>),
}

impl Chosen {
    /// Chooses at least one of `entries` events, each with a chance of `millionths`, by a seed. `None`: there are
    /// more than [`CHOSEN_MAX`] chosen events or [`ENTRIES_MAX`] entries.
    pub(super) fn new(entries: u64, millionths: u32, seed: u64) -> Option<Self> {
        let millionths = u64::from(millionths);
        if millionths >= MILLION {
            return Some(Self::All(entries));
        }
        if entries > ENTRIES_MAX || entries * millionths / MILLION > CHOSEN_MAX {
            return None;
        }
        let one = splitmix::next(seed) % entries.max(1);
        let takes = |event: &u64| splitmix::next(seed ^ splitmix::next(*event)) % MILLION < millionths || *event == one;
        Some(Self::Some((0..entries).filter(takes).collect()))
    }

    /// Returns the first chosen event from `event` on.
    pub(super) fn from(&self, event: u64) -> Option<u64> {
        match self {
            Self::All(entries) => (event < *entries).then_some(event),
            Self::Some(events) => events.get(events.partition_point(|chosen| *chosen < event)).copied(),
        }
    }

    /// Returns how many of `events` are chosen.
    pub(super) fn count(&self, events: Range<u64>) -> u64 {
        match self {
            Self::All(entries) => events.end.min(*entries).saturating_sub(events.start),
            Self::Some(chosen) => {
                let before = |event: u64| chosen.partition_point(|chosen| *chosen < event);
                before(events.end).saturating_sub(before(events.start)) as u64
            }
        }
    }
}

/// A needed part, and the first event that needs it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct NeededPart {
    pub(super) event: u64,
    /// Its index in the list of all parts.
    pub(super) part: u32,
}

/// Returns the parts with chosen events, in the order in which a job needs them: event by event, within an event
/// branch by branch, and each part once. `branches` has, for each branch, the indexes of its parts in the list of
/// all parts, ordered by entries.
pub(super) fn needs(parts: &[Part], branches: &[Range<u32>], chosen: &Chosen) -> Vec<NeededPart> {
    let mut needs = Vec::new();
    for branch in branches {
        let mut event = chosen.from(0);
        for place in branch.clone() {
            let Some(part) = usize::try_from(place).ok().and_then(|place| parts.get(place)) else { continue };
            while event.is_some_and(|event| event < part.first_entry) {
                event = chosen.from(part.first_entry);
            }
            let Some(first) = event else { break };
            if first < part.end_entry() {
                // The next part may have the same events, like pages of a cluster.
                needs.push(NeededPart { event: first, part: place });
            }
            let next =
                usize::try_from(place + 1).ok().filter(|_| place + 1 < branch.end).and_then(|next| parts.get(next));
            if next.is_some_and(|next| next.first_entry > part.first_entry) && first < part.end_entry() {
                event = chosen.from(part.end_entry());
            }
        }
    }
    needs.sort_unstable();
    needs
}

/// Divides needs into groups that are read at once. A group has as many as fit into a cache, and at least one.
pub(super) fn groups(parts: &[Part], needs: &[NeededPart], cache: u64) -> Vec<Range<usize>> {
    let mut groups = Vec::new();
    let (mut begin, mut bytes) = (0, 0);
    for (index, need) in needs.iter().enumerate() {
        let len =
            usize::try_from(need.part).ok().and_then(|part| parts.get(part)).map_or(0, |part| u64::from(part.bytes));
        if index > begin && bytes + len > cache {
            groups.push(begin..index);
            (begin, bytes) = (index, 0);
        }
        bytes += len;
    }
    if begin < needs.len() {
        groups.push(begin..needs.len());
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(first_entry: u64, entries: u64, bytes: u32) -> Part {
        Part { offset: 0, bytes, before: 0, behind: 0, uncompressed: bytes, first_entry, entries }
    }

    /// Branch 0: ten entries a basket; branch 1: four; branch 2: an ntuple's, two pages for each cluster of twenty.
    fn parts() -> (Vec<Part>, Vec<Range<u32>>) {
        let mut parts: Vec<Part> = (0..4).map(|n| part(n * 10, 10, 100)).collect();
        parts.extend((0..10).map(|n| part(n * 4, 4, 30)));
        parts.extend((0..4).map(|n| part(n / 2 * 20, 20, 7)));
        (parts, vec![0..4, 4..14, 14..18])
    }

    #[test]
    fn all_events_need_each_part_once_in_the_order_of_events() {
        let (parts, branches) = parts();
        let found = needs(&parts, &branches, &Chosen::All(40));
        assert_eq!(found.len(), parts.len());
        let first: Vec<_> = found.iter().take(7).map(|need| (need.event, need.part)).collect();
        assert_eq!(first, [(0, 0), (0, 4), (0, 14), (0, 15), (4, 5), (8, 6), (10, 1)]);
        assert!(found.is_sorted());
    }

    #[test]
    fn few_events_need_only_the_parts_that_hold_them() {
        let (parts, branches) = parts();
        for seed in 0..200 {
            let chosen = Chosen::new(40, 60_000, seed).unwrap();
            let Chosen::Some(events) = &chosen else { panic!("{chosen:?}") };
            assert!(!events.is_empty());
            assert_eq!(chosen.count(0..40), events.len() as u64);
            let mut expected: Vec<u32> = (0..18)
                .filter(|place| {
                    let part = parts[*place as usize];
                    events.iter().any(|event| (part.first_entry..part.end_entry()).contains(event))
                })
                .collect();
            expected.sort_unstable();
            let mut found: Vec<u32> = needs(&parts, &branches, &chosen).iter().map(|need| need.part).collect();
            found.sort_unstable();
            assert_eq!(found, expected, "{seed}: {events:?}");
            assert!(needs(&parts, &branches, &chosen).iter().all(|need| events.contains(&need.event)));
        }
    }

    #[test]
    fn a_share_is_about_that_share() {
        let chosen = Chosen::new(1_000_000, 10_000, 5).unwrap();
        let count = chosen.count(0..1_000_000);
        assert!((9_500..10_500).contains(&count), "{count}");
        assert_eq!(chosen.count(0..400_000) + chosen.count(400_000..2_000_000), count);
        assert_ne!(chosen, Chosen::new(1_000_000, 10_000, 6).unwrap());
        assert_eq!(Chosen::new(1_000_000, 0, 3).unwrap().count(0..1_000_000), 1);
        assert_eq!(Chosen::new(7, 1_000_000, 3), Some(Chosen::All(7)));
        assert_eq!(Chosen::new(u64::MAX, 10_000, 3), None);
    }

    #[test]
    fn groups_fit_into_the_cache_except_for_single_large_parts() {
        let (parts, branches) = parts();
        let all = needs(&parts, &branches, &Chosen::All(40));
        let found = groups(&parts, &all, 150);
        let bytes = |group: &Range<usize>| all[group.clone()].iter().map(|n| parts[n.part as usize].bytes).sum::<u32>();
        assert!(found.iter().all(|group| bytes(group) <= 150));
        assert_eq!(found.iter().map(Range::len).sum::<usize>(), all.len());
        assert_eq!(groups(&parts, &all, 1).len(), all.len());
        assert_eq!(groups(&parts, &all, 1 << 20).len(), 1);
    }
}
