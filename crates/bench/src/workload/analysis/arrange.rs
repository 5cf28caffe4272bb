//! A file with its baskets in random order: the same bytes, each basket at another offset. Merged files, or files
//! written branch by branch, are similar.

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::rootfile::Part;

/// A section of the original. The new file consists of these sections, one behind the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Region {
    pub(super) from: u64,
    pub(super) len: u64,
}

/// Returns the sections of a file of `bytes`. The bytes between `parts` come first, then `parts` in random order.
pub(super) fn arrange<'a>(bytes: u64, parts: impl Iterator<Item = &'a Part>, seed: u64) -> Result<Vec<Region>, String> {
    let mut moved: Vec<Region> = parts
        .map(|part| Region { from: part.offset, len: u64::from(part.bytes) })
        .filter(|part| part.len > 0)
        .collect();
    moved.sort_by_key(|part| (part.from, part.len));
    // Several columns may share a page.
    moved.dedup();
    let mut regions = Vec::new();
    let mut at = 0;
    for part in &moved {
        if part.from < at || part.from.saturating_add(part.len) > bytes {
            return Err(format!("the part at byte {} overlaps another one, or is outside of the file", part.from));
        }
        if part.from > at {
            regions.push(Region { from: at, len: part.from - at });
        }
        at = part.from + part.len;
    }
    if at < bytes {
        regions.push(Region { from: at, len: bytes - at });
    }
    moved.shuffle(&mut StdRng::seed_from_u64(seed));
    regions.extend(moved);
    Ok(regions)
}

/// Maps an offset of the original to its offset in the file made of `regions`.
pub(super) fn place_of(regions: &[Region]) -> impl Fn(u64) -> Option<u64> + use<> {
    let mut places: Vec<(Region, u64)> = Vec::with_capacity(regions.len());
    let mut at = 0;
    for region in regions {
        places.push((*region, at));
        at += region.len;
    }
    places.sort_by_key(|(region, _)| region.from);
    move |offset| {
        let (region, to) = places.get(places.partition_point(|(region, _)| region.from <= offset).checked_sub(1)?)?;
        let within = offset - region.from;
        (within < region.len).then(|| to + within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u64, bytes: u32) -> Part {
        Part { offset, bytes, before: 0, behind: 0, uncompressed: 0, first_entry: 0, entries: 0 }
    }

    #[test]
    fn every_byte_is_somewhere_and_once() {
        let parts: Vec<Part> = (0..20).map(|n| part(100 + n * 10, if n % 3 == 0 { 10 } else { 7 })).collect();
        let twice = [&parts[..], &parts[3..5]].concat();
        let regions = arrange(400, twice.iter(), 9).unwrap();
        assert_eq!(regions.iter().map(|region| region.len).sum::<u64>(), 400);
        let place = place_of(&regions);
        let mut seen: Vec<u64> = (0..400).map(|offset| place(offset).unwrap()).collect();
        assert_eq!(place(400), None);
        assert!(parts.windows(2).any(|pair| place(pair[0].offset) > place(pair[1].offset)));
        for part in &parts {
            let begin = place(part.offset).unwrap();
            assert_eq!(place(part.offset + u64::from(part.bytes) - 1), Some(begin + u64::from(part.bytes) - 1));
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..400));
        assert_ne!(regions, arrange(400, parts.iter(), 10).unwrap());
        assert_eq!(place_of(&[Region { from: 0, len: 5 }])(3), Some(3));
    }

    #[test]
    fn parts_that_overlap_are_refused() {
        arrange(100, [part(0, 10), part(5, 10)].iter(), 1).unwrap_err();
        arrange(100, [part(95, 10)].iter(), 1).unwrap_err();
    }
}
