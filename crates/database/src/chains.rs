//! Going along a chain of entries that lead to each other ([`kv::Chain`]).

use kv::{Chain, Follow, ID_LEN, ScanOrder};

use crate::fetched::Fetched;
use crate::needs::Range;

/// Longer than any key's end: a key that begins with `x` lies between `x` and `x` with these behind it.
const BEHIND: [u8; 256] = [0xff; 256];

/// Goes along a chain. Tells `each` all its keys, and with a number the beginnings of keys of which it wants so many; `each` says whether to go on.
/// `find` has the value at a key: `None` if that is not known, and then the chain ends. Returns whether `each` went on to the end.
pub(crate) fn walk_chain<'v>(
    chain: &Chain,
    find: impl Fn(&[u8]) -> Option<Option<&'v [u8]>>,
    mut each: impl FnMut(Vec<u8>, Option<u32>) -> bool,
) -> bool {
    // A value may be too short for an id that leads on, and long enough for one that is followed.
    let (mut id, mut value) = (Some(chain.first), None);
    for step in 0..=chain.names.len() {
        for follow in chain.follow.iter().filter(|follow| usize::try_from(follow.after) == Ok(step)) {
            if let Some(key) = follow_key(follow, id, value)
                && !each(key, follow.most)
            {
                return false;
            }
        }
        let (Some(name), Some(leads)) = (chain.names.get(step), id) else { return true };
        let key = [&chain.prefix, leads.as_slice(), name].concat();
        let found = find(&key);
        if !each(key, None) {
            return false;
        }
        let Some(Some(found)) = found else { return true };
        (id, value) = (id_at(found, chain.id_at), Some(found));
    }
    true
}

/// What is not known of a chain.
#[derive(Default)]
pub(crate) struct Unknown {
    /// Entries whose keys are known.
    pub(crate) keys: Vec<Vec<u8>>,
    /// Beginnings of keys that are known.
    pub(crate) ranges: Vec<Range>,
    /// What an unknown entry leads to, with that entry.
    pub(crate) rest: Option<Chain>,
}

/// What is not known of a chain. The database has to follow only what nobody knows here.
pub(crate) fn unknown_of_chain(mut chain: Chain, known: &Fetched) -> Unknown {
    let mut unknown = Unknown::default();
    let (mut id, mut value) = (Some(chain.first), None);
    for step in 0..=chain.names.len() {
        for follow in chain.follow.iter().filter(|follow| usize::try_from(follow.after) == Ok(step)) {
            match (follow_key(follow, id, value), follow.most) {
                (None, _) => {}
                (Some(key), None) if known.get(&key).is_some() => {}
                (Some(key), None) => unknown.keys.push(key),
                (Some(key), Some(most)) => unknown.ranges.extend(known.unknown_part(&beginning_with(key, most))),
            }
        }
        let (Some(name), Some(leads)) = (chain.names.get(step), id) else { break };
        match known.get(&[&chain.prefix, leads.as_slice(), name].concat()) {
            Some(None) => break,
            Some(Some(found)) => (id, value) = (id_at(found, chain.id_at), Some(found)),
            None => {
                chain.first = leads;
                chain.names.drain(..step);
                // Those before it are done, and those behind it are as far from its own beginning.
                chain.follow.retain(|follow| usize::try_from(follow.after).is_ok_and(|after| after > step));
                let done = u32::try_from(step).unwrap_or(u32::MAX);
                chain.follow.iter_mut().for_each(|follow| follow.after -= done);
                unknown.rest = Some(chain);
                break;
            }
        }
    }
    unknown
}

/// The key of what is followed, unless the value lacks a part of it.
fn follow_key(follow: &Follow, id: Option<[u8; ID_LEN]>, value: Option<&[u8]>) -> Option<Vec<u8>> {
    let mut key = follow.prefix.clone();
    match follow.ids_at.as_slice() {
        [] => key.extend(id?),
        places => {
            for place in places {
                key.extend(id_at(value?, *place)?);
            }
        }
    }
    key.extend(&follow.suffix);
    if let Some(at) = follow.rest_at {
        key.extend(value?.get(usize::try_from(at).ok()?..)?);
    }
    Some(key)
}

/// The range of the keys that begin with `key`.
pub(crate) fn beginning_with(key: Vec<u8>, most: u32) -> Range {
    let end = [key.as_slice(), &BEHIND].concat();
    Range { start: key, end, order: ScanOrder::Ascending, most: most.max(1) }
}

/// The end of the range that the database fetches for a [`Follow`] with several entries.
pub(crate) fn behind() -> &'static [u8] {
    &BEHIND
}

fn id_at(value: &[u8], at: u32) -> Option<[u8; ID_LEN]> {
    let at = usize::try_from(at).ok()?;
    value.get(at..at.checked_add(ID_LEN)?)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::Bound;

    use kv::Prefetch;

    use crate::needs::Needs;

    use super::*;

    type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

    /// What the database answers.
    fn fetch(rows: &Rows, needs: &Needs, known: &mut Fetched) {
        for key in &needs.keys {
            known.insert(key, rows.get(key).map(Vec::as_slice));
        }
        for range in &needs.ranges {
            let bounds = (Bound::Included(range.start.clone()), Bound::Excluded(range.end.clone()));
            let most = usize::try_from(range.most).unwrap();
            let found = rows.range(bounds).take(most).map(|(key, value)| (key.as_slice(), value.as_slice()));
            known.insert_range(range, found);
        }
        let all = rows.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
        for chain in &needs.chains {
            known.insert_chain(chain, &all);
        }
    }

    /// Whatever is known beforehand: what is fetched is what was unknown, and then all of the chain is known.
    #[test]
    fn only_what_is_not_known_of_a_chain_is_fetched() {
        let key = |prefix: &[u8], id: u8, name: &[u8]| [prefix, &[id; 8], name].concat();
        let follow = |after, prefix: &[u8], most| Follow { after, prefix: prefix.to_vec(), most, ..Follow::default() };
        let of_value = |after, prefix: &[u8]| Follow { ids_at: vec![1], ..follow(after, prefix, None) };
        let follow = vec![
            follow(0, b"I", None),
            follow(1, b"I", None),
            follow(1, b"A", Some(2)),
            of_value(2, b"G"),
            follow(3, b"I", None),
            follow(3, b"A", Some(2)),
            Follow { suffix: b"s".to_vec(), ..of_value(3, b"O") },
        ];
        let names = [b"a", b"b", b"c"].map(|name| name.to_vec()).to_vec();
        let chain = Chain { prefix: b"D".to_vec(), first: [0; 8], names, id_at: 1, follow };
        let leads_to = |id: u8| [b"v".as_slice(), &[id; 8]].concat();
        let rows: Rows = [
            (key(b"D", 0, b"a"), leads_to(1)),
            (key(b"D", 1, b"b"), leads_to(2)),
            (key(b"D", 2, b"c"), leads_to(3)),
            (key(b"I", 1, b""), b"inode".to_vec()),
            (key(b"G", 2, b""), b"group".to_vec()),
            (key(b"A", 3, b"1"), b"total".to_vec()),
            (key(b"A", 3, b"2"), b"total".to_vec()),
            (key(b"A", 3, b"3"), b"total".to_vec()),
            (key(b"O", 3, b"s"), b"other".to_vec()),
        ]
        .into();
        let absent = [key(b"I", 0, b""), key(b"I", 3, b"")];
        let some: Vec<(&Vec<u8>, Option<&[u8]>)> = rows
            .iter()
            .map(|(key, value)| (key, Some(value.as_slice())))
            .chain(absent.iter().map(|key| (key, None)))
            .collect();
        let wanted = |known: &Fetched| {
            let mut needs = Needs::default();
            needs.add(vec![Prefetch::Chain(chain.clone())], known);
            needs
        };
        let mut whole = Fetched::default();
        fetch(&rows, &wanted(&whole), &mut whole);
        let mut trimmed = 0;
        for chosen in 0..1u32 << some.len() {
            let mut known = Fetched::default();
            for (place, (key, value)) in some.iter().enumerate() {
                if chosen & 1 << place != 0 {
                    known.insert(key, *value);
                }
            }
            let needs = wanted(&known);
            assert!(needs.keys.iter().all(|key| known.get(key).is_none()));
            trimmed += u32::from(needs.chains.is_empty());
            fetch(&rows, &needs, &mut known);
            assert!(wanted(&known).is_empty(), "{chosen:b}: {needs:?}");
            for (key, value) in whole.entries() {
                assert_eq!(known.get(key), Some(value), "{chosen:b}: {key:?}");
            }
        }
        assert_eq!(trimmed, 1 << (some.len() - 3), "with all three names there is nothing to follow");
    }

    #[test]
    fn of_a_range_only_the_rest_is_fetched() {
        let range =
            |start: &[u8], most| Range { start: start.into(), end: b"e".into(), order: ScanOrder::Ascending, most };
        let mut known = Fetched::default();
        known.insert_range(&range(b"a", 2), [(b"a".as_slice(), b"1".as_slice()), (b"b", b"1")].into_iter());
        assert_eq!(known.unknown_part(&range(b"a", 2)), None);
        assert_eq!(known.unknown_part(&range(b"b", 5)), Some(range(b"b\0", 4)));
        assert_eq!(known.unknown_part(&range(b"c", 5)), Some(range(b"c", 5)));
    }
}
