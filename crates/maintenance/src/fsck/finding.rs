//! Everything that fsck can find. Each finding has its meaning and its remedy in plain words.

use namespace::Sums;
use types::{Ino, ObjectId, ReplicaId};

/// A problem that the check can find.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// The journal was damaged, and was cut.
    Journal {
        /// The position, the loss, and where the removed part is saved.
        what: String,
    },
    /// Two records of the namespace disagree.
    Keys {
        /// The key, escaped.
        key: String,
        /// What is wrong with it.
        what: String,
        /// The directory, if only its totals are wrong. They can be recounted.
        totals_of: Option<Ino>,
        /// Whether only the kept usage of a tree, user or group is wrong. It can be recounted.
        is_usage: bool,
    },
    /// A file's object is not on the disk.
    ObjectMissing {
        /// Its length in bytes, according to the namespace.
        len: u64,
    },
    /// Namespace and store disagree about a file's length.
    LengthDiffers {
        /// The length in the namespace.
        named: u64,
        /// The length in the store.
        stored: u64,
    },
    /// Namespace and store disagree about a file's checksums.
    SumsDiffer {
        /// The checksums in the namespace.
        named: Sums,
        /// The checksums in the store.
        stored: Sums,
    },
    /// Namespace and store disagree about whether a file is complete.
    StateDiffers {
        /// The state in the namespace.
        named: &'static str,
        /// The state in the store.
        stored: &'static str,
    },
    /// Bytes on the disk do not match their checksum.
    Damaged {
        /// The store's description of the damage.
        what: String,
    },
    /// Every page matches its checksum, but the whole does not.
    WholeDiffers {
        /// The checksums recorded when the file was closed.
        recorded: Sums,
        /// The checksums of the bytes that were read.
        read: Sums,
    },
    /// The bytes could not be read.
    Unreadable {
        /// The store's error.
        why: String,
    },
    /// An object to which no name, writer, upload or deletion refers.
    Unreferenced {
        /// Its length in bytes.
        len: u64,
        /// Its state.
        state: &'static str,
        /// The path of its file at creation; empty: the store does not know it.
        made_at: Vec<u8>,
    },
    /// A writer is recorded whose object is not on the disk.
    WriterWithoutObject,
    /// An upload is recorded whose object is not on the disk.
    UploadWithoutObject,
    /// A file of the store that no record mentions.
    UnexplainedFile {
        /// Its path below the data directory.
        file: String,
    },
    /// A checkpoint of an index cannot be decoded as it was written.
    Checkpoint {
        /// What is wrong.
        what: String,
    },
    /// The store's index was lost and rebuilt.
    StoreIndex {
        /// The result of the rebuild.
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
    /// The beginning of its row in the summary.
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
    /// Its kind, for counting.
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

    /// Its meaning and its remedy.
    #[must_use]
    pub fn in_words(&self) -> String {
        let sums = |sums: &Sums| format!("adler32 {:08x}, crc32c {:08x}", sums.adler32.0, sums.crc32c.0);
        match self {
            Self::Journal { what } => what.clone(),
            Self::Keys { key, what, is_usage: true, .. } => {
                format!("the namespace's record {key}: {what}; --repair counts the usage of all trees again")
            }
            Self::Keys { key, what, totals_of: None, .. } => format!("the namespace's record {key}: {what}"),
            Self::Keys { key, what, totals_of: Some(_), .. } => {
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

/// A problem and its subject.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The file, if it has a name.
    pub path: Option<Vec<u8>>,
    /// The object.
    pub object: Option<ObjectId>,
    /// What is wrong.
    pub problem: Problem,
    /// What `--repair` did about it; `None`: nothing.
    pub repaired: Option<String>,
}

impl Finding {
    /// A finding about the object of `replica`.
    #[must_use]
    pub fn about(replica: ReplicaId, problem: Problem) -> Self {
        Self { path: None, object: Some(replica.object), problem, repaired: None }
    }

    /// A finding that is not about one object.
    #[must_use]
    pub fn general(problem: Problem) -> Self {
        Self { path: None, object: None, problem, repaired: None }
    }

    /// Its subject for people: the path, if there is one.
    #[must_use]
    pub fn subject(&self) -> String {
        match (&self.path, self.object) {
            (Some(path), _) => path.escape_ascii().to_string(),
            (None, Some(object)) => format!("object {:016x}", object.0),
            (None, None) => String::new(),
        }
    }
}
