//! The journal that belongs to this directory: a small file beside `FORMAT` names its incarnation. If an index was made
//! from another journal than the one that is here, the file tells which of the two does not belong here.

use disk::{Access, Disk, DiskError, OpenOptions};
use journal::{Journal, Opened};
use kv::JournalOwner;
use types::Crc32c;

use crate::marks::JournalReset;

/// The file.
pub(crate) const FILE: &str = "JOURNAL";
const TEXT_MAX: usize = 128;

/// What the file says about the journal that was opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OwnJournal {
    /// Whose journal it is.
    pub(crate) owner: JournalOwner,
    incarnation: u64,
    is_written: bool,
}

impl OwnJournal {
    /// Compares the file on `disk` with the journal that was opened there. A file that is missing or cannot be decoded
    /// says nothing.
    pub(crate) fn of(
        disk: &dyn Disk,
        journal: &Journal,
        opened: &Opened,
        journal_reset: Option<JournalReset>,
    ) -> Result<Self, DiskError> {
        let incarnation = journal.incarnation();
        let known = read(disk)?;
        // A repair gives the journal a new incarnation; the segments before it keep the old one.
        let continues = |known| journal.segments().iter().any(|segment| segment.incarnation == known);
        let was_begun = journal_reset.is_some_and(|mark| mark.beginning.incarnation == incarnation);
        let owner = match known {
            _ if opened.created || was_begun => JournalOwner::ThisDirectory,
            Some(known) if known == incarnation || continues(known) => JournalOwner::ThisDirectory,
            Some(_) => JournalOwner::AnotherDirectory,
            None => JournalOwner::Unknown,
        };
        Ok(Self { owner, incarnation, is_written: known == Some(incarnation) })
    }

    /// Records the journal as this directory's. Call it when all indexes were opened: then they agree with the journal.
    pub(crate) fn keep(self, disk: &dyn Disk) {
        if self.is_written {
            return;
        }
        // Without the file a start works as well, so that a full disk does not prevent it.
        if let Err(error) = disk::replace_file(disk, FILE, to_text(self.incarnation).as_bytes()) {
            tracing::warn!("cannot record which journal belongs to this directory: {error}");
        }
    }
}

fn read(disk: &dyn Disk) -> Result<Option<u64>, DiskError> {
    if disk.len_of(FILE)?.is_none() {
        return Ok(None);
    }
    let mut bytes = [0; TEXT_MAX];
    let got = disk.open(FILE, OpenOptions { access: Access::Read, direct: false })?.read_at(&mut bytes, 0)?;
    let text = String::from_utf8_lossy(&bytes[..got]);
    let known = parse(&text);
    if known.is_none() {
        tracing::warn!("{FILE} does not read as it was written and is written again: `{}`", text.escape_debug());
    }
    Ok(known)
}

fn to_text(incarnation: u64) -> String {
    let text = format!("journal {incarnation:016x}\n");
    format!("{text}crc32c {:08x}\n", Crc32c::of(text.as_bytes()).0)
}

fn parse(text: &str) -> Option<u64> {
    let incarnation = text.strip_prefix("journal ")?.lines().next()?;
    let incarnation = u64::from_str_radix(incarnation, 16).ok()?;
    (to_text(incarnation) == text).then_some(incarnation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_reads_back_and_any_other_text_says_nothing() {
        let text = to_text(0x12ab);
        assert_eq!(text, "journal 00000000000012ab\ncrc32c 27466531\n");
        assert_eq!(parse(&text), Some(0x12ab));
        for at in 0..text.len() {
            assert_eq!(parse(&text[..at]), None, "cut at {at}");
            let mut altered = text.clone().into_bytes();
            altered[at] ^= 1;
            assert_eq!(parse(&String::from_utf8_lossy(&altered)), None, "altered at {at}");
        }
        assert_eq!(parse(&format!("{text}x")), None);
    }
}
