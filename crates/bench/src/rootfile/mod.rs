//! Where the data of branches lies in a real ROOT file: the baskets of trees (`TTree`) and the pages of `RNTuple`s, with their places,
//! lengths and entries, and how they are decompressed. It is what an analysis job asks its storage for.
//!
//! Baskets are found by their records in the file, one behind the other, as `TFile::Map` does; pages by the page lists that the format has for
//! it (ROOT's `BinaryFormatSpecification.md`). The values in them are not interpreted.
//!
//! What the scan of records cannot see: baskets that a tree keeps within its own object (often the last ones, of a small tree all). Their
//! entries are counted ([`Branch::entries_within_the_tree`]), and a job reads them with the tree's object, as real ones do. Trees of one name in
//! several directories of a file are taken for one.
//!
//! All bytes are from outside: every length and count is compared with what is there before it is used.

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

/// Most parts of all branches of a file.
const PARTS_MAX: usize = 1 << 22;
/// Longest part, as it lies in the file and uncompressed.
pub const PART_MAX: u32 = 256 << 20;

/// What kind of a data set it is.
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
    /// Bytes of the file.
    pub bytes: u64,
    /// In the order of their first record.
    pub trees: Vec<Tree>,
    /// What is in the file and was not read, in words.
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
    /// What everybody who reads it has to read first: the tree's object, or the ntuple's anchor, header, footer and page lists.
    pub head: Vec<Part>,
    /// Its branches or fields that have parts, by name.
    pub branches: Vec<Branch>,
}

/// A branch of a tree, or a field of an ntuple with all its columns.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Branch {
    /// Its name; of a field with those that it is in, with dots between.
    pub name: String,
    /// Entries that lie in baskets within the tree's own object.
    pub entries_within_the_tree: u64,
    /// Its baskets or pages, by their entries.
    pub parts: Vec<Part>,
}

/// A basket, a page, or another piece that is read and decompressed as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Part {
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes in the file, with what is before and behind the data.
    pub bytes: u32,
    /// Bytes before the data: the key of a basket.
    pub before: u32,
    /// Bytes behind the data: the checksum of a page.
    pub behind: u32,
    /// Bytes of the data uncompressed.
    pub uncompressed: u32,
    /// The first entry that it holds a part of; of an ntuple's page the first of its cluster.
    pub first_entry: u64,
    /// How many entries it holds; of an ntuple's page those of its cluster, as all its pages are read together.
    pub entries: u64,
}

impl Part {
    /// The entry after its last.
    #[must_use]
    pub fn end_entry(&self) -> u64 {
        self.first_entry.saturating_add(self.entries)
    }
}

impl RootFile {
    /// Reads where everything is.
    ///
    /// # Errors
    /// [`RootFileError`]: it cannot be read, is no ROOT file, or its bytes contradict each other.
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
    /// Bytes of all parts of all branches.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.branches.iter().flat_map(|branch| &branch.parts).map(|part| u64::from(part.bytes)).sum()
    }
}
