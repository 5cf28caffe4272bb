//! What fsck can find, each with what it means and what would help, in plain words.

use namespace::Sums;
use types::{Ino, ObjectId, ReplicaId};

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// The log was damaged, and was cut.
    Journal {
        /// Where, what is lost, and where it is saved.
        what: String,
    },
    /// Two records of the namespace disagree.
    Keys {
        /// The key, escaped.
        key: String,
        /// What is wrong with it.
        what: String,
        /// The directory, if its totals are all that is wrong: they can be counted anew.
        totals_of: Option<Ino>,
    },
    /// A file's content is not on the disk.
    ObjectMissing {
        /// Bytes that the namespace says it has.
        len: u64,
    },
    /// Namespace and store disagree about a file's length.
    LengthDiffers {
        /// What the namespace says.
        named: u64,
        /// What the store says.
        stored: u64,
    },
    /// Namespace and store disagree about a file's checksums.
    SumsDiffer {
        /// What the namespace says.
        named: Sums,
        /// What the store says.
        stored: Sums,
    },
    /// Namespace and store disagree about whether a file is whole.
    StateDiffers {
        /// What the namespace says.
        named: &'static str,
        /// What the store says.
        stored: &'static str,
    },
    /// Bytes on the disk do not match their checksum.
    Damaged {
        /// Which, as the store says it.
        what: String,
    },
    /// Every page matches its checksum, the whole does not.
    WholeDiffers {
        /// What was recorded when the file was closed.
        recorded: Sums,
        /// What was read.
        read: Sums,
    },
    /// The bytes could not be read.
    Unreadable {
        /// What the store says.
        why: String,
    },
    /// A content that no name, writer, upload or deletion refers to.
    Unreferenced {
        /// Its bytes.
        len: u64,
        /// Its state.
        state: &'static str,
        /// Where its file was when it was made; empty: the store does not know.
        made_at: Vec<u8>,
    },
    /// A writer is recorded whose content is not on the disk.
    WriterWithoutObject,
    /// An upload is recorded whose content is not on the disk.
    UploadWithoutObject,
    /// A file of the store that no record speaks of.
    UnexplainedFile {
        /// Where, below the data directory.
        file: String,
    },
    /// A checkpoint of an index does not read back as it was written.
    Checkpoint {
        /// What is wrong.
        what: String,
    },
    /// The store's index was lost, and made anew.
    StoreIndex {
        /// What was found for it.
        what: String,
    },
}

/// Kinds of problems, for counting and for programs that read the JSON.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)]
pub enum ProblemKind {
    Journal,
    Keys,
    ObjectMissing,
    LengthDiffers,
    SumsDiffer,
    StateDiffers,
    Damaged,
    WholeDiffers,
    Unreadable,
    Unreferenced,
    WriterWithoutObject,
    UploadWithoutObject,
    UnexplainedFile,
    Checkpoint,
    StoreIndex,
}

impl ProblemKind {
    /// As the summary's rows begin.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Journal => "damage in the journal",
            Self::Keys => "namespace records that disagree",
            Self::ObjectMissing => "files whose object is gone",
            Self::LengthDiffers => "files of another length than recorded",
            Self::SumsDiffer => "files with two different checksums on record",
            Self::StateDiffers => "files complete in the namespace and not in the store, or the reverse",
            Self::Damaged => "files with damaged bytes",
            Self::WholeDiffers => "files that differ from their checksum as a whole",
            Self::Unreadable => "files whose bytes cannot be read",
            Self::Unreferenced => "objects that nothing refers to",
            Self::WriterWithoutObject => "open writes without their object",
            Self::UploadWithoutObject => "uploads without their object",
            Self::UnexplainedFile => "files that no record speaks of",
            Self::Checkpoint => "index checkpoints that are damaged",
            Self::StoreIndex => "indexes that were lost",
        }
    }
}

impl Problem {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> ProblemKind {
        match self {
            Self::Journal { .. } => ProblemKind::Journal,
            Self::Keys { .. } => ProblemKind::Keys,
            Self::ObjectMissing { .. } => ProblemKind::ObjectMissing,
            Self::LengthDiffers { .. } => ProblemKind::LengthDiffers,
            Self::SumsDiffer { .. } => ProblemKind::SumsDiffer,
            Self::StateDiffers { .. } => ProblemKind::StateDiffers,
            Self::Damaged { .. } => ProblemKind::Damaged,
            Self::WholeDiffers { .. } => ProblemKind::WholeDiffers,
            Self::Unreadable { .. } => ProblemKind::Unreadable,
            Self::Unreferenced { .. } => ProblemKind::Unreferenced,
            Self::WriterWithoutObject => ProblemKind::WriterWithoutObject,
            Self::UploadWithoutObject => ProblemKind::UploadWithoutObject,
            Self::UnexplainedFile { .. } => ProblemKind::UnexplainedFile,
            Self::Checkpoint { .. } => ProblemKind::Checkpoint,
            Self::StoreIndex { .. } => ProblemKind::StoreIndex,
        }
    }

    /// What it is and what would help.
    #[must_use]
    pub fn in_words(&self) -> String {
        let sums = |sums: &Sums| format!("adler32 {:08x}, crc32c {:08x}", sums.adler32.0, sums.crc32c.0);
        match self {
            Self::Journal { what } => what.clone(),
            Self::Keys { key, what, totals_of: None } => format!("the namespace's record {key}: {what}"),
            Self::Keys { key, what, totals_of: Some(_) } => {
                format!("the namespace's record {key}: {what}; --repair counts the directory's entries again")
            }
            Self::ObjectMissing { len } => {
                format!(
                    "its object of {len} bytes is not on the disk; write the file again from its source, or remove it"
                )
            }
            Self::LengthDiffers { named, stored } => {
                format!(
                    "the namespace says {named} bytes, the disk holds {stored}; do not trust it before comparing it with its source"
                )
            }
            Self::SumsDiffer { named, stored } => format!(
                "the namespace recorded {}, the store {}; compare the file with its source",
                sums(named),
                sums(stored)
            ),
            Self::StateDiffers { named, stored } => {
                format!(
                    "the namespace says it is {named}, the store says it is {stored}; compare the file with its source"
                )
            }
            Self::Damaged { what } => {
                format!(
                    "damaged on the disk: {what}. The damaged pages are never served; write the file again from its source"
                )
            }
            Self::WholeDiffers { recorded, read } => format!(
                "closed with {}, reads with {}, though every page checks; compare the file with its source",
                sums(recorded),
                sums(read)
            ),
            Self::Unreadable { why } => format!("cannot be read: {why}"),
            Self::Unreferenced { len, state, made_at } => {
                let made_at = match made_at.as_slice() {
                    b"" => String::new(),
                    path => format!(", made as {}", path.escape_ascii()),
                };
                format!(
                    "{len} bytes, {state}{made_at}, that no name, writer, upload or deletion refers to; --remove-unreferenced removes it"
                )
            }
            Self::WriterWithoutObject => "is recorded as being written, but none of its bytes are on the disk".into(),
            Self::UploadWithoutObject => "is recorded as an upload, but none of its bytes are on the disk".into(),
            Self::UnexplainedFile { file } => {
                format!("{file} belongs to the store, but no record speaks of it; it is left alone")
            }
            Self::StoreIndex { what } => what.clone(),
            Self::Checkpoint { what } => {
                format!(
                    "{what}; nothing is lost while the journal and the index are whole, and the next checkpoint replaces it"
                )
            }
        }
    }
}

/// A problem, and what it is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The file, if it has a name.
    pub path: Option<Vec<u8>>,
    /// The content.
    pub object: Option<ObjectId>,
    /// What is wrong.
    pub problem: Problem,
    /// What `--repair` did about it; `None`: nothing.
    pub repaired: Option<String>,
}

impl Finding {
    /// About the content `replica`.
    #[must_use]
    pub fn about(replica: ReplicaId, problem: Problem) -> Self {
        Self { path: None, object: Some(replica.object), problem, repaired: None }
    }

    /// About something else.
    #[must_use]
    pub fn general(problem: Problem) -> Self {
        Self { path: None, object: None, problem, repaired: None }
    }

    /// What it is about, for people: the path where there is one.
    #[must_use]
    pub fn subject(&self) -> String {
        match (&self.path, self.object) {
            (Some(path), _) => path.escape_ascii().to_string(),
            (None, Some(object)) => format!("object {:016x}", object.0),
            (None, None) => String::new(),
        }
    }
}
