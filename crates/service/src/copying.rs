//! Copies data from one open file into another on the server, so that it does not travel to the client and back.
//! Ranges are copied in order. A length of 0 means up to the end of the source. A range that reaches past the end of
//! the source, or overlaps its target, is refused. Ranges need no alignment. Every page is compared with its checksum
//! on the way.

use std::sync::Arc;

use store::REPLICA_LEN_MAX;
use types::ErrorCode;

use crate::answer::Answer;
use crate::error::Error;
use crate::fair::Class;
use crate::open_file::{Access, OpenFile};
use crate::opening::Opened;
use crate::part::{lead_of, store_bytes, write_access};
use crate::service::Service;
use crate::session::Session;

/// Above this size the client is told that the answer comes later, because clients give up after a time.
const PUT_OFF_BYTES: u64 = 256 << 20;
/// The time that the client is told.
const CLONE_SECONDS: u32 = 24 * 3600;

/// A range to copy.
#[derive(Clone)]
pub struct CopyRange {
    /// The source file.
    pub source: Arc<OpenFile>,
    /// The position in the source.
    pub from: u64,
    /// The length in bytes; 0 means up to the end of the source.
    pub len: u64,
    /// The position in the target.
    pub to: u64,
}

impl Service {
    /// Copies `ranges` into `target` on the calling thread. If a range is invalid, nothing is copied. The copy stops
    /// when the answer is unwanted.
    pub fn copy_ranges(
        &self,
        session: &Session,
        target: &Arc<OpenFile>,
        ranges: Vec<CopyRange>,
        mut answer: impl Answer<()>,
    ) {
        let checked: Result<Vec<CopyRange>, Error> = ranges.into_iter().map(|range| checked(range, target)).collect();
        let outcome = checked.and_then(|ranges| {
            put_off(&mut answer, total(&ranges));
            self.copy(session, target, &ranges, &|| answer.is_unwanted())
        });
        answer.give(outcome);
    }

    /// Finishes an open with a template: fills the new file with the template's data, then gives the client its
    /// handle. If the copy fails, the file is kept as interrupted.
    pub(crate) fn fill_from(
        &self,
        session: &Session,
        template: Arc<OpenFile>,
        mut opened: Opened,
        answer: impl Answer<Opened>,
    ) {
        let len = template.len();
        let result = self.file(session, opened.handle).and_then(|target| {
            let ranges = [CopyRange { source: template, from: 0, len, to: 0 }];
            let copied = self.copy(session, &target, &ranges, &|| answer.is_unwanted()).and_then(|()| {
                let access = write_access(&target)?;
                // A new owner of the file has its own mark.
                let _hold = access.hold()?;
                access.lease.missing.lock().written(0, u64::MAX);
                Ok(())
            });
            copied.inspect_err(|error| self.give_up(session, &opened, &target, error))
        });
        answer.give(result.map(|()| {
            if let Some(stat) = &mut opened.stat {
                stat.len = len;
            }
            opened
        }));
    }

    /// Puts off the answer to an open with a large `template`.
    pub(crate) fn put_off_template<T>(&self, answer: &mut impl Answer<T>, template: &OpenFile) {
        put_off(answer, template.len());
    }

    fn give_up(&self, session: &Session, opened: &Opened, target: &OpenFile, error: &Error) {
        let Access::Write(access) = &target.access else { return };
        session.handles.close(opened.handle, access.lease.failure());
        if self.writes.lock().begin_close(target.object, access.key) {
            access.lease.set_failure(error);
            self.endings.interrupt(&access.lease);
        }
    }

    /// Copies in transfer slots, like any other data. Ranges that are not copied count as missing from the target, so
    /// it cannot be closed as complete.
    fn copy(
        &self,
        session: &Session,
        target: &OpenFile,
        ranges: &[CopyRange],
        is_unwanted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        let access = write_access(target)?;
        let total = usize::try_from(total(ranges)).unwrap_or(usize::MAX);
        let mut buffer = self.buffers.take_for_write(total);
        // A copy of striped files waits for other servers, which may need the slots of this one.
        let in_turns = ranges.iter().map(|range| range.source.in_turns(total)).fold(target.in_turns(total), usize::min);
        let mut turn = self.transfers.of(session, session.number(), Class::Move, in_turns);
        let mut result = Ok(());
        for range in ranges {
            let mut done = 0;
            while result.is_ok() && done < range.len {
                // The data has the same offset within a page in the buffer and in the target.
                let at = range.to + done;
                let lead = lead_of(at);
                let step =
                    usize::try_from(range.len - done).map_or(buffer.len() - lead, |left| left.min(buffer.len() - lead));
                turn.let_others();
                turn.take(|| step as u64);
                let part = &mut buffer[lead..lead + step];
                result = self
                    .read_all(range, range.from + done, part, is_unwanted)
                    .and_then(|()| store_bytes(access, at, part, None));
                done += if result.is_ok() { step as u64 } else { 0 };
            }
            if let Err(error) = &result {
                access.refused(range.to + done, range.len - done, error);
            }
        }
        result
    }

    fn read_all(
        &self,
        range: &CopyRange,
        at: u64,
        into: &mut [u8],
        is_unwanted: &dyn Fn() -> bool,
    ) -> Result<(), Error> {
        if is_unwanted() {
            return Err(Error::new(ErrorCode::Cancelled, "The client has gone"));
        }
        if self.is_stopping() {
            return Err(Error::going_down());
        }
        let n = range.source.read(at, into)?;
        if n < into.len() {
            return Err(past_end(&range.source));
        }
        Ok(())
    }
}

fn total(ranges: &[CopyRange]) -> u64 {
    ranges.iter().fold(0, |sum, range| range.len.saturating_add(sum))
}

fn put_off<T>(answer: &mut impl Answer<T>, bytes: u64) {
    if bytes > PUT_OFF_BYTES {
        answer.put_off(CLONE_SECONDS);
    }
}

fn past_end(source: &OpenFile) -> Error {
    let text = format!("Cannot copy from {}: the range reaches past its end", source.path);
    // as FICLONERANGE (EINVAL)
    Error::new(ErrorCode::Invalid, text)
}

/// Validates a range, and replaces a length of 0.
fn checked(range: CopyRange, target: &OpenFile) -> Result<CopyRange, Error> {
    let CopyRange { source, from, len, to } = range;
    let left = source.len().checked_sub(from).ok_or_else(|| past_end(&source))?;
    if len > left {
        return Err(past_end(&source));
    }
    let len = if len == 0 { left } else { len };
    if source.object == target.object && from < to.saturating_add(len) && to < from.saturating_add(len) && len > 0 {
        let text = format!("Cannot copy within {}: the range overlaps its target", target.path);
        return Err(Error::new(ErrorCode::Invalid, text));
    }
    if to.checked_add(len).is_none_or(|end| end > REPLICA_LEN_MAX) {
        let text = format!("Cannot copy into {}: no file can have bytes there", target.path);
        return Err(Error::new(ErrorCode::Invalid, text));
    }
    Ok(CopyRange { source, from, len, to })
}
