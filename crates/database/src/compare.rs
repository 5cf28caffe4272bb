//! The comparison of two engines, entry by entry.

use std::cmp::Ordering;

use kv::{EntrySource, KvError};

/// The result of a comparison.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Compared {
    /// Both have the same entries.
    Equal {
        /// How many.
        entries: u64,
    },
    /// They differ. Only the first difference is looked for.
    Different {
        /// The lowest key that both do not have, or not with the same value.
        key: Vec<u8>,
        /// The difference, in words.
        what: &'static str,
    },
}

/// Compares all entries of both. `progress` is called with the number of entries that are equal so far, for each.
///
/// # Errors
/// Those of the two.
pub fn compare(
    source: &mut dyn EntrySource,
    copy: &mut dyn EntrySource,
    progress: &mut dyn FnMut(u64),
) -> Result<Compared, KvError> {
    let mut entries = 0;
    loop {
        let (key, what) = match (source.next()?, copy.next()?) {
            (None, None) => return Ok(Compared::Equal { entries }),
            (Some((key, _)), None) => (key, "the copy does not have it"),
            (None, Some((key, _))) => (key, "only the copy has it"),
            (Some((left, left_value)), Some((right, right_value))) => match left.cmp(right) {
                Ordering::Less => (left, "the copy does not have it"),
                Ordering::Greater => (right, "only the copy has it"),
                Ordering::Equal if left_value == right_value => {
                    entries += 1;
                    progress(entries);
                    continue;
                }
                Ordering::Equal => (left, "the copy has another value"),
            },
        };
        return Ok(Compared::Different { key: key.to_vec(), what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One chunk of entries.
    fn entries(list: &[(&str, &str)]) -> impl EntrySource {
        let mut list: Vec<_> =
            list.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.as_bytes().to_vec())).collect();
        kv::Chunks::new(move |_| Ok(std::mem::take(&mut list)))
    }

    #[test]
    fn the_first_difference_is_found() {
        let compared = |left: &[(&str, &str)], right: &[(&str, &str)]| {
            let mut seen = 0;
            match compare(&mut entries(left), &mut entries(right), &mut |n| seen = n).unwrap() {
                Compared::Equal { entries } => format!("{entries} {seen}"),
                Compared::Different { key, what } => format!("{}: {what}", String::from_utf8(key).unwrap()),
            }
        };
        let all = [("a", "1"), ("b", ""), ("c", "3")];
        assert_eq!(compared(&all, &all), "3 3");
        assert_eq!(compared(&[], &[]), "0 0");
        assert_eq!(compared(&all, &all[..2]), "c: the copy does not have it");
        assert_eq!(compared(&all, &all[1..]), "a: the copy does not have it");
        assert_eq!(compared(&all[1..], &all), "a: only the copy has it");
        assert_eq!(compared(&all[..2], &all), "c: only the copy has it");
        assert_eq!(compared(&all, &[("a", "1"), ("b", "2"), ("c", "3")]), "b: the copy has another value");
    }
}
