//! Builds trees from the records of their baskets.

use std::collections::BTreeMap;

use super::block::Unpacker;
use super::bytes::Bytes;
use super::key::Key;
use super::{Branch, Kind, PART_MAX, Part, RootFileError, Source, Tree};

/// This bit is set in a byte count before a version.
const BYTE_COUNT: u32 = 0x4000_0000;
/// From this version on, a tree stores its number of entries as a 64-bit number behind its base classes.
const VERSION_MIN: u16 = 16;
/// `TNamed`, `TAttLine`, `TAttFill`, `TAttMarker`.
const BASES: usize = 4;

/// Baskets by branch, and the tree's own object.
type TreeRecords<'a> = (BTreeMap<&'a str, Vec<Part>>, Option<&'a Key>);

/// Returns the trees of a file, ordered by their first record.
pub(super) fn trees(source: &Source<'_>, keys: &[Key]) -> Result<Vec<Tree>, RootFileError> {
    let mut order: Vec<&str> = Vec::new();
    let mut found: BTreeMap<&str, TreeRecords<'_>> = BTreeMap::new();
    for key in keys {
        let is_basket = key.class == "TBasket";
        if !is_basket && !key.class.starts_with('T') {
            continue;
        }
        let tree = if is_basket { key.title.as_str() } else { key.name.as_str() };
        let (branches, object) = found.entry(tree).or_insert_with(|| {
            order.push(tree);
            Default::default()
        });
        if is_basket {
            branches.entry(key.name.as_str()).or_default().push(key.part);
        } else if object.is_none_or(|other: &Key| other.cycle <= key.cycle) {
            // Older cycles are backups of the same unfinished tree.
            *object = Some(key);
        }
    }
    let mut unpacker = Unpacker::default();
    let mut trees = Vec::new();
    for name in order {
        if let Some((branches, object)) = found.remove(name) {
            trees.push(tree(source, &mut unpacker, name, branches, object)?);
        }
    }
    Ok(trees)
}

fn tree(
    source: &Source<'_>,
    unpacker: &mut Unpacker,
    name: &str,
    branches: BTreeMap<&str, Vec<Part>>,
    object: Option<&Key>,
) -> Result<Tree, RootFileError> {
    let said = object.map(|key| entries_of(source, unpacker, key)).transpose()?.flatten();
    let mut branches: Vec<Branch> = branches.into_iter().map(|(name, parts)| branch(name, parts)).collect();
    let in_baskets = |branch: &Branch| branch.parts.last().map_or(0, Part::end_entry);
    let entries = branches.iter().map(in_baskets).max().unwrap_or(0).max(said.unwrap_or(0));
    for branch in &mut branches {
        branch.entries_within_the_tree = entries - in_baskets(branch);
    }
    let head = object.map(|key| key.part).into_iter().collect();
    Ok(Tree { name: name.to_owned(), kind: Kind::Tree, entries, head, branches })
}

/// Baskets are written in the order of their entries.
fn branch(name: &str, mut parts: Vec<Part>) -> Branch {
    let mut next = 0_u64;
    for part in &mut parts {
        part.first_entry = next;
        next = next.saturating_add(part.entries);
    }
    Branch { name: name.to_owned(), entries_within_the_tree: 0, parts }
}

/// Returns the number of entries in a tree's object; `None` for old versions.
fn entries_of(source: &Source<'_>, unpacker: &mut Unpacker, key: &Key) -> Result<Option<u64>, RootFileError> {
    let part = key.part;
    if part.bytes > PART_MAX || part.uncompressed > PART_MAX {
        return Err(RootFileError::malformed(part.offset, format!("a tree's object of more than {PART_MAX} bytes")));
    }
    let record = source.at(part.offset, usize::try_from(part.bytes).unwrap_or(usize::MAX))?;
    let mut object = Vec::new();
    unpacker.unpack(&part, &record, &mut object)?;
    let mut bytes = Bytes::new(&object, part.offset);
    let (mut version, _) = version(&mut bytes)?;
    if key.class != "TTree" {
        // The derived class has its own header.
        (version, _) = self::version(&mut bytes)?;
    }
    if version < VERSION_MIN {
        return Ok(None);
    }
    for _ in 0..BASES {
        let (_, end) = self::version(&mut bytes)?;
        let end = end.ok_or_else(|| bytes.error("a base class without its length"))?;
        bytes.go_to(end)?;
    }
    Ok(Some(bytes.be_u64()?))
}

/// Reads a version, and the end of its object if it is given.
fn version(bytes: &mut Bytes<'_>) -> Result<(u16, Option<usize>), RootFileError> {
    let mut ahead = *bytes;
    let count = ahead.be_u32()?;
    if count & BYTE_COUNT == 0 {
        return Ok((bytes.be_u16()?, None));
    }
    let len = usize::try_from(count & !BYTE_COUNT).unwrap_or(usize::MAX);
    let end = ahead.position().saturating_add(len);
    *bytes = ahead;
    Ok((bytes.be_u16()?, Some(end)))
}

#[cfg(test)]
mod tests {
    use super::super::RootFile;
    use super::super::key::tests::{basket_key, file};
    use super::*;

    #[test]
    fn baskets_follow_one_another() {
        let (five, three) = (basket_key(5), basket_key(3));
        let bytes = file(&[
            ("TBasket", "x", "t", &five, b"12"),
            ("TBasket", "y", "t", &three, b"1"),
            ("TBasket", "x", "t", &three, b"123"),
            ("TBasket", "x", "other", &three, b"1"),
        ]);
        let found = RootFile::read(&Source::memory(&bytes)).unwrap();
        let trees: Vec<_> = found.trees.iter().map(|tree| (tree.name.as_str(), tree.entries)).collect();
        assert_eq!(trees, [("t", 8), ("other", 3)]);
        let branches = &found.trees[0].branches;
        let ranges: Vec<_> = branches[0].parts.iter().map(|part| (part.first_entry, part.end_entry())).collect();
        assert_eq!(ranges, [(0, 5), (5, 8)]);
        assert_eq!((branches[1].name.as_str(), branches[1].entries_within_the_tree), ("y", 5));
    }

    #[test]
    fn the_entries_of_a_tree_are_read() {
        let base = [&(BYTE_COUNT | 4).to_be_bytes()[..], &1_u16.to_be_bytes(), &[0; 2]].concat();
        let head = [&(BYTE_COUNT | 100).to_be_bytes()[..], &20_u16.to_be_bytes()].concat();
        let object = [head, base.repeat(4), 77_u64.to_be_bytes().to_vec()].concat();
        let bytes = file(&[("TBasket", "x", "t", &basket_key(5), b"12"), ("TTree", "t", "", &[], &object)]);
        let tree = RootFile::read(&Source::memory(&bytes)).unwrap().trees.remove(0);
        assert_eq!((tree.entries, tree.branches[0].entries_within_the_tree, tree.head.len()), (77, 72, 1));
        let cut = file(&[("TTree", "t", "", &[], &object[..20])]);
        assert!(RootFile::read(&Source::memory(&cut)).unwrap_err().to_string().contains("bytes more are to come"));
    }
}
