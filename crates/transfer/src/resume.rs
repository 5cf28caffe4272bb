//! Examines what an earlier copy left: whether it is the whole file, and whether a copy may continue it.
//!
//! No copy continues without a comparison with the beginning of the source. If a server has a checksum of the whole, a quick comparison
//! comes first, and that checksum is compared at the end.

use std::ops::Range;
use std::path::Path;

use client::{Algorithm, Client, ClientError, Opened, RESUMED, Sum, Units, Url};
use disk::AlignedBuf;
use wire::request::OpenOptions;
use wire::response::StatReply;

use crate::bulk::{Bulk, Copied, told};
use crate::ends::{CHUNK, Sink};
use crate::error::TransferError;
use crate::held_back;
use crate::local::{LocalSink, LocalSource};
use crate::own_target::is_in_progress;
use crate::place::CopyPath;
use crate::sums::PartChecksums;
use crate::units::StridedRead;

/// The sum of a range of a local part file.
pub(super) fn sum_part(sink: &LocalSink, range: Range<u64>, algorithm: Algorithm) -> Result<Sum, TransferError> {
    let read = |at, into: &mut [u8]| sink.read(range.start + at, into).map(|()| true);
    // A local read is never short, so the sum exists.
    sum_reads(range.end - range.start, algorithm, read).map(|sum| sum.unwrap_or(algorithm.of_nothing()))
}

/// The first and last ranges of a beginning of `len` bytes: enough to notice another file.
fn both_ends(len: u64) -> [Range<u64>; 2] {
    let first = len.min(CHUNK as u64);
    [0..first, first.max(len - first)..len]
}

/// The sum of `len` bytes that `read` returns from their beginning on; `None` if there are fewer.
fn sum_reads(
    len: u64,
    algorithm: Algorithm,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<bool, TransferError>,
) -> Result<Option<Sum>, TransferError> {
    let (mut sum, mut buffer, mut at) = (algorithm.of_nothing(), vec![0; CHUNK], 0);
    while at < len {
        let part = usize::try_from(len - at).unwrap_or(CHUNK).min(CHUNK);
        if !read(at, &mut buffer[..part])? {
            return Ok(None);
        }
        sum = sum.combine(algorithm.of(&buffer[..part]), part as u64);
        at += part as u64;
    }
    Ok(Some(sum))
}

impl Bulk<'_> {
    /// With `--resume`: whether the whole file exists at the target already.
    pub(super) fn is_there(
        &self,
        client: &mut Client,
        len: u64,
        algorithm: Option<Algorithm>,
    ) -> Result<Option<Copied>, TransferError> {
        let there = match self.to {
            CopyPath::Local(path) => path.metadata().ok().filter(std::fs::Metadata::is_file).map(|found| found.len()),
            CopyPath::Remote(url) => client.look(url)?.map(|stat| stat.size),
            CopyPath::Standard => None,
        };
        if there != Some(len) {
            return Ok(None);
        }
        // If no server keeps a checksum, the local file can still be summed.
        let algorithm = algorithm.unwrap_or(Algorithm::Crc32c);
        let mut sum_of = |place: &CopyPath| -> Result<Option<String>, TransferError> {
            match place {
                CopyPath::Local(path) => Ok(Some(format!("{:08x}", self.sum_local(path, 0..len, algorithm)?.value))),
                CopyPath::Remote(url) => told(client, url, algorithm),
                CopyPath::Standard => Ok(None),
            }
        };
        let from = sum_of(self.from)?;
        let to = match sum_of(self.to) {
            // It has the full length and is not complete: its writer was cut off before the close ended.
            Err(error) if is_in_progress(&error) => None,
            to => to?,
        };
        let same = match (from, to) {
            (Some(from), Some(to)) => u32::from_str_radix(&from, 16) == u32::from_str_radix(&to, 16),
            _ => false,
        };
        Ok(same.then_some(Copied { bytes: 0, len, sum: None, verified: true, skipped: true }))
    }

    /// Opens the file `found` at a server, which will have `whole` bytes. Returns its length and the source's sum up to there. The sum is
    /// of the kind `algorithm` if the whole is compared at the end. `target`: the file, with the words for its open.
    ///
    /// Refuses a file that is no beginning of the source before opening it for update. So the file keeps its mark and its length, and no
    /// writer of it has to time out.
    pub(super) fn go_on(
        &self,
        client: &mut Client,
        target: &Url,
        (found, whole): (&StatReply, u64),
        algorithm: Option<Algorithm>,
    ) -> Result<(Sink, u64, Sum), TransferError> {
        let no_beginning = || TransferError::NoBeginning { path: self.to.to_string(), from: self.from.to_string() };
        let there = found.size;
        if there > whole {
            return Err(no_beginning());
        }
        let offered = self.context.offered(client, target)?;
        let kind = algorithm.or(offered).unwrap_or(Algorithm::Crc32c);
        let (known, in_progress) = match told(client, target, kind) {
            // Only a complete file has a checksum; but a server that answers like this will have one.
            Err(error) if is_in_progress(&error) => (None, true),
            known => (known?, false),
        };
        // An incomplete file must not get all its bytes before the source is known to be whole.
        let is_held_back = in_progress && matches!(self.from, CopyPath::Remote(_));
        let kept_max = if is_held_back { held_back::begins_at(whole) } else { whole };
        let part = match known {
            Some(known) => {
                let beginning = self.sum_source(client, 0..there, kind)?;
                Some((there, beginning)).filter(|_| beginning.is(&known))
            }
            None => {
                let at_the_end = in_progress && algorithm.is_some() && algorithm == offered;
                self.part(client, target, (there.min(kept_max), kind), at_the_end)?
            }
        };
        let Some((there, beginning)) = part else { return Err(no_beginning()) };
        // Do not announce the length either: an earlier copy may have sent all bytes, and this one may be cut off before it removes the end
        // again.
        let mut resumed = if is_held_back { target.without("oss.asize") } else { target.clone() };
        resumed.add_words(RESUMED);
        let mut file = match client.open_direct(&resumed, OpenOptions::UPDATE, 0)? {
            Opened::File(mut file) => {
                // A later open must not resume the file: if it has ended meanwhile, acknowledged bytes may be gone.
                file.forget_word(RESUMED);
                file
            }
            Opened::Units(units) => {
                let sink = self.go_on_with_units(&units, found.id, there, beginning)?;
                return Ok((sink, there, beginning));
            }
        };
        let (id, len) = (file.stat().id, file.stat().size);
        if id == found.id && (there..=whole).contains(&len) {
            let kept = len.min(kept_max);
            let mut same = Some(beginning);
            // Before the connection was lost, this copy wrote bytes that are not durable yet; only their writer sees them.
            if kept != there {
                let beginning = self.sum_source(client, 0..kept, kind)?;
                let read = |at, into: &mut [u8]| Ok(file.read_at(at, into)? == into.len());
                same = sum_reads(kept, kind, read)?.filter(|sum| *sum == beginning);
            }
            if let Some(beginning) = same {
                if len > kept {
                    file.truncate(kept)?;
                }
                return Ok((Sink::remote(file, false), kept, beginning));
            }
        }
        // Cuts the connection, because a close would mark the file as complete.
        Err(TransferError::Meanwhile { path: self.to.to_string() })
    }

    /// Continues the units of a striped file. Its first `there` bytes stay if all of them are the `beginning` of the source. No server
    /// keeps a checksum of the whole that could show it at the end, because each unit's server knows only its own bytes. Anything further
    /// in the units is cut off.
    fn go_on_with_units(&self, units: &Units, found: u64, there: u64, beginning: Sum) -> Result<Sink, TransferError> {
        let meanwhile = || TransferError::Meanwhile { path: self.to.to_string() };
        if units.stat().id != found {
            return Err(meanwhile());
        }
        let opened = units.open_writer()?;
        let read = |at, into: &mut [u8]| Ok(opened.read(at, into)? == into.len());
        // Cuts the connections, because a close would mark the file as complete.
        if opened.whole_prefix() < there || sum_reads(there, beginning.algorithm, read)? != Some(beginning) {
            return Err(meanwhile());
        }
        if opened.len() != there {
            opened.truncate(there)?;
        }
        Ok(self.units_sink(units, opened, None))
    }

    /// Reads the file at a server, up to `len` or its present end. Returns how much that is, and its sum if the source's beginning has the
    /// same. If the whole is compared `at_the_end`, comparing the first and last bytes is enough.
    fn part(
        &self,
        client: &mut Client,
        target: &Url,
        (len, kind): (u64, Algorithm),
        at_the_end: bool,
    ) -> Result<Option<(u64, Sum)>, TransferError> {
        let mut target = target.clone();
        // weir gives interrupted files only to clients that say that they know.
        target.add_words("weir.partial=1");
        let mut reader = StridedRead::open(client, &target)?;
        let there = len.min(reader.len());
        let beginning = self.sum_source(client, 0..there, kind)?;
        let mut same = true;
        if at_the_end {
            for range in both_ends(there) {
                same &= self.sum_read(&mut reader, range.clone(), kind)? == self.sum_source(client, range, kind)?;
            }
        } else {
            same = self.sum_read(&mut reader, 0..there, kind)? == beginning;
        }
        reader.close(client, &target)?;
        Ok(same.then_some((there, beginning)))
    }

    /// Whether the local part of an earlier copy, `len` bytes, is the beginning of the source. Compares as much as the copy must know
    /// before it continues. `algorithm`: the checksum that is compared with the source's server at the end, if any.
    pub(super) fn is_beginning(
        &self,
        client: &mut Client,
        part: &LocalSink,
        len: u64,
        algorithm: Option<Algorithm>,
    ) -> Result<bool, TransferError> {
        let kind = algorithm.unwrap_or(Algorithm::Crc32c);
        let at_the_end = match (self.from, algorithm) {
            (CopyPath::Remote(url), Some(algorithm)) => told(client, url, algorithm)?.is_some(),
            _ => false,
        };
        let mut same = |range: Range<u64>| -> Result<bool, TransferError> {
            Ok(sum_part(part, range.clone(), kind)? == self.sum_source(client, range, kind)?)
        };
        match self.from {
            CopyPath::Local(_) => same(0..len),
            CopyPath::Remote(_) if at_the_end => {
                let [first, last] = both_ends(len);
                Ok(same(first)? && same(last)?)
            }
            // Reading all of it for the comparison would take as long as copying it again.
            CopyPath::Remote(_) | CopyPath::Standard => Ok(false),
        }
    }

    /// The sum of a range of the source.
    pub(super) fn sum_source(
        &self,
        client: &mut Client,
        range: Range<u64>,
        algorithm: Algorithm,
    ) -> Result<Sum, TransferError> {
        match self.from {
            CopyPath::Local(path) => self.sum_local(path, range, algorithm),
            CopyPath::Remote(url) => {
                let mut reader = StridedRead::open(client, url)?;
                let sum = self.sum_read(&mut reader, range, algorithm)?;
                reader.close(client, url)?;
                Ok(sum)
            }
            CopyPath::Standard => Err(TransferError::NotAFile { path: self.from.to_string() }),
        }
    }

    fn sum_local(&self, path: &Path, range: Range<u64>, algorithm: Algorithm) -> Result<Sum, TransferError> {
        let mut source = LocalSource::open(path, range.start, self.context.options.direct)?;
        let mut sum = algorithm.of_nothing();
        let mut buffer = AlignedBuf::new(CHUNK);
        let mut at = range.start;
        while at < range.end {
            let Some(chunk) = source.read_next(buffer)? else {
                let from = path.display().to_string();
                return Err(TransferError::Changed { from, expected: range.end, found: at });
            };
            let part = chunk.len.min(usize::try_from(range.end - at).unwrap_or(usize::MAX));
            sum = sum.combine(algorithm.of(&chunk.buffer[..part]), part as u64);
            at += part as u64;
            buffer = chunk.buffer;
        }
        Ok(sum)
    }

    /// The sum of a range of a file that is open at a server.
    pub(super) fn sum_read(
        &self,
        sought: &mut StridedRead,
        range: Range<u64>,
        algorithm: Algorithm,
    ) -> Result<Sum, TransferError> {
        let reader = match sought {
            StridedRead::File(reader) => reader,
            StridedRead::Units(units, _) => {
                let read = |at, into: &mut [u8]| Ok(units.read(range.start + at, into)? == into.len());
                let from = self.from.to_string();
                let found = range.start;
                return sum_reads(range.end - range.start, algorithm, read)?.ok_or(TransferError::Changed {
                    from,
                    expected: range.end,
                    found,
                });
            }
        };
        let mut sums = PartChecksums::new(algorithm);
        let (mut spare, mut asked) = (Vec::new(), range.start);
        loop {
            while asked < range.end && reader.under_way() < self.context.settings.window.max(1) {
                let part = usize::try_from(range.end - asked).unwrap_or(CHUNK).min(CHUNK);
                reader.ask(asked, part, spare.pop().unwrap_or_else(|| AlignedBuf::new(CHUNK)))?;
                asked += part as u64;
            }
            let Some(chunk) = reader.wait()? else { break };
            sums.add(chunk.offset - range.start, chunk.len as u64, algorithm.of(&chunk.buffer[..chunk.len]));
            spare.push(chunk.buffer);
        }
        let (what, end, expected) = (format!("read {}", reader.file().url()), range.start, range.end);
        sums.whole(range.end - range.start).ok_or_else(|| ClientError::Shorter { what, end, expected }.into())
    }
}
