//! Finds the data of branches in a real ROOT file: the baskets of trees (`TTree`) and the pages of `RNTuple`s, with
//! their offsets, lengths and entries. It also decompresses them. An analysis job requests these from its storage.
//!
//! Baskets are found by their records in the file, like `TFile::Map` does. Pages are found by the format's page
//! lists (ROOT's `BinaryFormatSpecification.md`). The values in them are not interpreted.
//!
//! The scan of records does not see baskets within a tree's own object (often the last ones, or all of a small
//! tree). Their entries are counted ([`Branch::entries_within_the_tree`]), and a job reads them with the tree's
//! object, like real jobs do. Trees with the same name in several directories of a file count as one.
//!
//! All bytes are untrusted: every length and count is checked before it is used.

mod block;
mod bytes;
mod error;
mod key;
mod ntuple;
mod source;
mod ttree;

pub use block::Unpacker;
pub use error::RootFileError;
pub use source::Source;

/// The most parts of all branches of a file.
const PARTS_MAX: usize = 1 << 22;
/// The longest part, compressed or uncompressed.
pub const PART_MAX: u32 = 256 << 20;

/// The kind of a data set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A `TTree`, `TNtuple` or `TNtupleD`: baskets.
    Tree,
    /// An `RNTuple`: pages.
    Ntuple,
}

/// The data sets of a file.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct RootFile {
    /// The length of the file in bytes.
    pub bytes: u64,
    /// The data sets in the order of their first record.
    pub trees: Vec<Tree>,
    /// Readable notes about data that were not read.
    pub notes: Vec<String>,
}

/// A data set.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Tree {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub kind: Kind,
    /// Its entries (events).
    pub entries: u64,
    /// The parts that every reader needs first: the tree's object, or the ntuple's anchor, header, footer and page
    /// lists.
    pub head: Vec<Part>,
    /// Its branches or fields with parts, by name.
    pub branches: Vec<Branch>,
}

/// A branch of a tree, or a field of an ntuple with all its columns.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Branch {
    /// Its name. A field's name includes its parents, with dots in between.
    pub name: String,
    /// The entries in baskets within the tree's own object.
    pub entries_within_the_tree: u64,
    /// Its baskets or pages, ordered by entries.
    pub parts: Vec<Part>,
}

/// A basket, a page, or another section that is read and decompressed as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Part {
    /// Its offset in the file.
    pub offset: u64,
    /// Its bytes in the file, including those before and behind the data.
    pub bytes: u32,
    /// Bytes before the data: the key of a basket.
    pub before: u32,
    /// Bytes behind the data: the checksum of a page.
    pub behind: u32,
    /// Bytes of the data uncompressed.
    pub uncompressed: u32,
    /// The first entry of which it holds a part. For an ntuple's page it is the first of its cluster.
    pub first_entry: u64,
    /// The number of entries. For an ntuple's page it is that of its cluster, because all pages of a cluster are
    /// read together.
    pub entries: u64,
}

impl Part {
    /// Returns its last entry plus one.
    #[must_use]
    pub fn end_entry(&self) -> u64 {
        self.first_entry.saturating_add(self.entries)
    }
}

impl RootFile {
    /// Finds all parts of a file.
    ///
    /// # Errors
    /// [`RootFileError`]: the file cannot be read, is not a ROOT file, or contradicts itself.
    pub fn read(source: &Source<'_>) -> Result<Self, RootFileError> {
        let keys = key::scan(source)?;
        let mut notes = Vec::new();
        let mut pages_left = PARTS_MAX;
        let mut trees = ttree::trees(source, &keys)?;
        for anchor in keys.iter().filter(|key| key.class == ntuple::CLASS) {
            match ntuple::read(source, anchor, &mut pages_left) {
                Ok(ntuple) => trees.push(ntuple),
                Err(RootFileError::Unsupported { what }) => notes.push(format!("{}: {what}", anchor.name)),
                Err(error) => return Err(error),
            }
        }
        Ok(Self { bytes: source.len(), trees, notes })
    }
}

impl Tree {
    /// Returns the bytes of all parts of all branches.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.branches.iter().flat_map(|branch| &branch.parts).map(|part| u64::from(part.bytes)).sum()
    }
}
