//! clone, and open with a template (protocol 5.2.0): content that the server copies from one open file into another, so that it does not
//! travel to the client and back. As with the stock server (which leaves it to the file system's FICLONERANGE) the ranges are copied in
//! their order, a length of 0 means all up to the source's end, and a range that reaches past it, or overlaps itself, is refused. Unlike
//! there, ranges need not lie on blocks, and every page is compared with its checksum on the way.

use std::sync::Arc;

use store::REPLICA_LEN_MAX;
use wire::request::CloneRanges;
use wire::response::OpenReply;
use wire::{ErrorNumber, StreamId};

use crate::answer::Reply;
use crate::connection::{Connection, Stop};
use crate::endings;
use crate::fair::Class;
use crate::open_file::{Access, OpenFile};
use crate::part::{lead_of, store_bytes, write_access};
use crate::refusal::Refusal;
use crate::requests::read::{len_of, read_file};

/// When more than this is to be copied, the client is told that the answer comes by itself: clients give up after a time.
const PUT_OFF_BYTES: u64 = 256 << 20;
/// It is told that it comes within this time.
const CLONE_SECONDS: u32 = 24 * 3600;

/// What is to be copied.
struct Range {
    source: Arc<OpenFile>,
    from: u64,
    len: u64,
    to: u64,
}

impl Connection {
    /// kXR_clone. Nothing is copied if one of the ranges is wrong.
    #[inline(never)] // see `dispatch`
    pub(crate) fn clone_ranges(&mut self, stream: StreamId, r: &CloneRanges) -> Result<Result<(), Refusal>, Stop> {
        let target = match self.writable(r.target) {
            Ok(target) => target,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let ranges: Result<Vec<Range>, Refusal> = r
            .ranges
            .iter()
            .map(|range| {
                let source = self.file(range.source)?;
                range_of(source, &target, (range.source_offset, range.len, range.target_offset))
            })
            .collect();
        let ranges = match ranges {
            Ok(ranges) => ranges,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let mut reply = self.hand_on(stream)?;
        put_off(&mut reply, total(&ranges));
        self.out.leave()?;
        let result = self.copy(&target, &ranges);
        self.out.back();
        reply.settle(result);
        Ok(Ok(()))
    }

    /// The end of an open with a template: the new file gets its content, and the client its handle. A file that does not get all of it
    /// is kept as interrupted.
    pub(crate) fn fill_from(
        &mut self,
        template: Arc<OpenFile>,
        mut opened: OpenReply,
        reply: Reply,
    ) -> Result<(), Stop> {
        self.out.leave()?;
        let len = len_of(&template);
        let result = self.file(opened.handle).and_then(|target| {
            let ranges = [Range { source: template, from: 0, len, to: 0 }];
            let copied = self.copy(&target, &ranges).and_then(|()| {
                let access = write_access(&target)?;
                // Whoever has taken the file up since has a mark of its own.
                let _hold = access.hold()?;
                access.lease.missing.lock().written(0, u64::MAX);
                Ok(())
            });
            copied.inspect_err(|refusal| self.give_up(&opened, &target, refusal))
        });
        self.out.back();
        match result {
            Ok(()) => {
                if let Some(stat) = &mut opened.stat {
                    stat.size = len;
                }
                reply.ok(|out| opened.encode(out));
            }
            Err(refusal) => reply.refuse(&refusal),
        }
        Ok(())
    }

    /// For the open of a file that is to have the content of `template`.
    pub(crate) fn put_off_template(reply: &mut Reply, template: &OpenFile) {
        put_off(reply, len_of(template));
    }

    fn give_up(&self, opened: &OpenReply, target: &OpenFile, refusal: &Refusal) {
        let Access::Write(access) = &target.access else { return };
        self.session.handles.close(opened.handle, access.lease.failure());
        if self.node.writers.lock().begin_close(target.object, access.key) {
            access.lease.set_failure(refusal);
            endings::interrupt(&self.node, &access.lease);
        }
    }

    /// Copies in turns, like any other data. What is not copied counts as missing from the target: it must not be closed as whole.
    fn copy(&self, target: &OpenFile, ranges: &[Range]) -> Result<(), Refusal> {
        let access = write_access(target)?;
        let total = usize::try_from(total(ranges)).unwrap_or(usize::MAX);
        let mut buffer = self.node.buffers.take_for_write(total);
        // What waits for a striped file's units waits for servers that may need the turns here.
        let in_turns = ranges.iter().map(|range| range.source.in_turns(total)).fold(target.in_turns(total), usize::min);
        let mut turn = self.node.transfers.of(&self.session, self.number, Class::Move, in_turns);
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
                result =
                    self.read_all(range, range.from + done, part).and_then(|()| store_bytes(access, at, part, None));
                done += if result.is_ok() { step as u64 } else { 0 };
            }
            if let Err(refusal) = &result {
                access.refused(range.to + done, range.len - done, refusal);
            }
        }
        result
    }

    fn read_all(&self, range: &Range, at: u64, into: &mut [u8]) -> Result<(), Refusal> {
        if self.input.is_half_closed() || self.out.is_dead() {
            return Err(Refusal::new(ErrorNumber::CANCELLED, "The client has gone"));
        }
        if self.node.stopping() {
            return Err(Refusal::new(ErrorNumber::SERVER_ERROR, "The server is going down"));
        }
        let n = read_file(&range.source, at, into)?;
        if n < into.len() {
            return Err(past_end(&range.source));
        }
        Ok(())
    }
}

fn total(ranges: &[Range]) -> u64 {
    ranges.iter().fold(0, |sum, range| range.len.saturating_add(sum))
}

fn put_off(reply: &mut Reply, bytes: u64) {
    if bytes > PUT_OFF_BYTES {
        reply.put_off(CLONE_SECONDS);
    }
}

fn past_end(source: &OpenFile) -> Refusal {
    let text = format!("Cannot copy from {}: the range reaches past its end", source.path);
    // as FICLONERANGE (EINVAL)
    Refusal::new(ErrorNumber::ARG_INVALID, text)
}

/// Checks a range: `(from, len, to)`.
fn range_of(source: Arc<OpenFile>, target: &OpenFile, (from, len, to): (u64, u64, u64)) -> Result<Range, Refusal> {
    let end = len_of(&source);
    let left = end.checked_sub(from).ok_or_else(|| past_end(&source))?;
    if len > left {
        return Err(past_end(&source));
    }
    let len = if len == 0 { left } else { len };
    if source.object == target.object && from < to.saturating_add(len) && to < from.saturating_add(len) && len > 0 {
        let text = format!("Cannot copy within {}: the range overlaps its target", target.path);
        return Err(Refusal::new(ErrorNumber::ARG_INVALID, text));
    }
    if to.checked_add(len).is_none_or(|end| end > REPLICA_LEN_MAX) {
        let text = format!("Cannot copy into {}: no file can have bytes there", target.path);
        return Err(Refusal::new(ErrorNumber::ARG_INVALID, text));
    }
    Ok(Range { source, from, len, to })
}
