//! Content that the server copies from one open file into another, so that it does not travel to the client and back. The ranges are copied in
//! their order, a length of 0 means all up to the source's end, and a range that reaches past it, or overlaps itself, is refused.
//! Ranges need not lie on blocks, and every page is compared with its checksum on the way.

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

/// When more than this is to be copied, the client is told that the answer comes by itself: clients give up after a time.
const PUT_OFF_BYTES: u64 = 256 << 20;
/// It is told that it comes within this time.
const CLONE_SECONDS: u32 = 24 * 3600;

/// What is to be copied.
#[derive(Clone)]
pub struct CopyRange {
    /// From which file.
    pub source: Arc<OpenFile>,
    /// From which byte on.
    pub from: u64,
    /// How many bytes; 0: all up to its end.
    pub len: u64,
    /// To which byte of the target.
    pub to: u64,
}

impl Service {
    /// Copies `ranges` into `target`, on the calling thread. Nothing is copied if one of them is wrong. It stops when the answer is unwanted.
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

    /// The end of an open with a template: the new file gets its content, and the client its handle. A file that does not get all of it
    /// is kept as interrupted.
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
                // Whoever has taken the file up since has a mark of its own.
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

    /// For the open of a file that is to have the content of `template`.
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

    /// Copies in turns, like any other data. What is not copied counts as missing from the target: it must not be closed as whole.
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
        // What waits for a striped file's units waits for servers that may need the turns here.
        let in_turns = ranges.iter().map(|range| range.source.in_turns(total)).fold(target.in_turns(total), usize::min);
        let mut turn = self.transfers.of(session, session.number(), Class::Move, in_turns);
        let mut result = Ok(());
        for range in ranges {
            let mut done = 0;
            while result.is_ok() && done < range.len {
                // The bytes lie in the buffer as they will in the target's pages.
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
            return Err(Error::new(ErrorCode::Unavailable, "The server is going down"));
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

/// Checks a range, and says how long it is.
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
