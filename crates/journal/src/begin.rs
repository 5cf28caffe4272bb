//! Starting a journal that replaces a lost one. Its numbers are above all numbers that the lost journal can have used.

use disk::{Access, Disk, OpenOptions};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::recover::{make_dir, make_with_header};
use crate::repair::NUMBERS_END;
use crate::scan::{numbers, path_of};
use crate::segment::{DecodedPage, PAGE, SegmentHeader, decode};
use crate::walk::read_around;
use crate::{Beginning, JournalConfig, JournalError, Seq};

impl Beginning {
    /// The start of the first journal in a directory.
    #[must_use]
    pub fn new(first: Seq, segment: u64) -> Self {
        Self { first, segment, incarnation: SmallRng::from_os_rng().next_u64() }
    }
}

/// See [`crate::Journal::begin`].
pub(crate) fn begin(
    disk: &dyn Disk,
    dir: &str,
    config: &JournalConfig,
    beginning: &Beginning,
) -> Result<(), JournalError> {
    let Beginning { first, segment, incarnation } = *beginning;
    if first.0 == 0 || segment == 0 || first.0.max(segment) > NUMBERS_END {
        return Err(JournalError::Config("a journal was to begin with numbers that no journal has; nothing was done"));
    }
    make_dir(disk, dir)?;
    let there = numbers(disk, dir)?;
    if there.contains(&segment) && is_same_journal(disk, dir, beginning)? {
        return Ok(());
    }
    // An interrupted run leaves only the file of this number, without a valid header.
    if there.iter().any(|number| *number != segment) {
        return Err(JournalError::Config("a journal was to begin where segments of another one lie; nothing was done"));
    }
    let header = SegmentHeader {
        incarnation,
        segment,
        first: first.0,
        previous_last: first.0 - 1,
        segment_bytes: config.segment_bytes,
        synced_to: first.0 - 1,
    };
    make_with_header(disk, dir, header).map(drop)
}

fn is_same_journal(disk: &dyn Disk, dir: &str, beginning: &Beginning) -> Result<bool, JournalError> {
    let mut page = vec![0; PAGE];
    let options = OpenOptions { access: Access::Read, direct: false };
    let read = read_around(&*disk.open(&path_of(dir, beginning.segment), options)?, &mut page, 0, &mut None)?;
    match decode(&page[..read]) {
        DecodedPage::Header(header) if header.incarnation == beginning.incarnation => Ok(true),
        DecodedPage::Header(_) | DecodedPage::Unsupported(_) => {
            Err(JournalError::Config("a journal was to begin where a segment of another one lies; nothing was done"))
        }
        DecodedPage::Zeros | DecodedPage::Bad(_) => Ok(false),
    }
}
