//! What an earlier copy has left: whether it is the whole file, and whether a copy may go on with it.
//!
//! Nothing is gone on with that is not compared: with the beginning of the source before the first byte is moved, or, where the target's
//! server keeps a checksum of the whole, at the end with that.

use client::{Algorithm, Client, ClientError, Reader, RemoteFile, Sum, Url};
use disk::AlignedBuf;
use wire::ErrorNumber;
use wire::request::OpenOptions;

use super::bulk::{Bulk, Copied, told};
use super::ends::{CHUNK, Opened};
use super::error::TransferError;
use super::local::{LocalSink, LocalSource};
use super::place::Place;
use super::sums::SumOfParts;

/// Adds the beginning of what is here of a copy.
pub(super) fn sum_part(sink: &LocalSink, len: u64, sums: &mut SumOfParts) -> Result<(), TransferError> {
    let algorithm = sums.algorithm();
    let (mut buffer, mut at) = (vec![0; CHUNK], 0);
    while at < len {
        let part = usize::try_from(len - at).unwrap_or(usize::MAX).min(CHUNK);
        sink.read(at, &mut buffer[..part])?;
        sums.add(at, part as u64, algorithm.of(&buffer[..part]));
        at += part as u64;
    }
    Ok(())
}

impl Bulk<'_> {
    /// Is the target what the source is, whole?
    pub fn is_whole(&self, client: &mut Client) -> Result<Option<Copied>, TransferError> {
        let algorithm = self.algorithm(client);
        let Opened { source, len, .. } = self.open_source(client)?;
        source.end(client, self.from);
        len.map_or(Ok(None), |len| self.is_there(client, len, algorithm))
    }

    /// With `--resume`: is the whole file at its place already?
    pub(super) fn is_there(
        &self,
        client: &mut Client,
        len: u64,
        algorithm: Option<Algorithm>,
    ) -> Result<Option<Copied>, TransferError> {
        let there = match self.to {
            Place::Local(path) => path.metadata().ok().filter(std::fs::Metadata::is_file).map(|found| found.len()),
            Place::Remote(url) => client.look(url)?.map(|stat| stat.size),
            Place::Standard => None,
        };
        if there != Some(len) {
            return Ok(None);
        }
        // Where nobody keeps a checksum, what is here can still be read for it.
        let algorithm = algorithm.unwrap_or(Algorithm::Crc32c);
        let mut sum_of = |place: &Place| -> Result<Option<String>, TransferError> {
            match place {
                Place::Local(path) => Ok(Some(format!("{:08x}", self.sum_local(path, len, algorithm)?.value))),
                Place::Remote(url) => told(client, url, algorithm),
                Place::Standard => Ok(None),
            }
        };
        let from = sum_of(self.from)?;
        let to = match sum_of(self.to) {
            // As long as it is to be, and not complete: whoever wrote it was cut off before the end of its close.
            Err(TransferError::Client(ClientError::Refused { number: ErrorNumber::IN_PROGRESS, .. })) => None,
            to => to?,
        };
        let same = match (from, to) {
            (Some(from), Some(to)) => u32::from_str_radix(&from, 16) == u32::from_str_radix(&to, 16),
            _ => false,
        };
        Ok(same.then_some(Copied { bytes: 0, len, sum: None, verified: true, skipped: true }))
    }

    /// Opens the unfinished file of `there` bytes at a server, to become one of `whole` bytes. Gives the sum of the source up to there: of
    /// the kind `algorithm`, where all is compared with it at the end. `target`: the file, with what is to be said in its open.
    pub(super) fn go_on(
        &self,
        client: &mut Client,
        target: &Url,
        (there, whole): (u64, u64),
        mode: u16,
        algorithm: Option<Algorithm>,
    ) -> Result<(RemoteFile, Sum), TransferError> {
        let no_beginning = || TransferError::NoBeginning { path: self.to.to_string(), from: self.from.to_string() };
        if there > whole {
            return Err(no_beginning());
        }
        let offered = self.context.offered(client, target);
        let kind = algorithm.or(offered).unwrap_or(Algorithm::Crc32c);
        let known = match told(client, target, kind) {
            // Interrupted, or still being written: only what is whole has a checksum.
            Err(TransferError::Client(ClientError::Refused { number: ErrorNumber::IN_PROGRESS, .. })) => None,
            known => known?,
        };
        let beginning = self.sum_source(client, there, kind)?;
        if known.as_ref().is_some_and(|known| !beginning.is(known)) {
            return Err(no_beginning());
        }
        let mut target = target.clone();
        target.add_words("weir.resume=1");
        let mut file = client.open(&target, OpenOptions::UPDATE, mode)?;
        let at_the_end = algorithm.is_some() && algorithm == offered;
        if known.is_none() && !at_the_end && sum_of(&mut file, there, kind)? != Some(beginning) {
            // Its connection is cut: a close would say that it is complete.
            return Err(no_beginning());
        }
        Ok((file, beginning))
    }

    /// Is what an earlier copy has left here known to be the beginning of the source?
    pub(super) fn is_beginning(&self, part: &LocalSink, len: u64) -> Result<bool, TransferError> {
        let Place::Local(path) = self.from else { return Ok(false) };
        let mut there = SumOfParts::new(Algorithm::Crc32c);
        sum_part(part, len, &mut there)?;
        Ok(there.whole(len) == Some(self.sum_local(path, len, Algorithm::Crc32c)?))
    }

    /// Of the source's first `len` bytes.
    fn sum_source(&self, client: &mut Client, len: u64, algorithm: Algorithm) -> Result<Sum, TransferError> {
        match self.from {
            Place::Local(path) => self.sum_local(path, len, algorithm),
            Place::Remote(url) => self.sum_remote(client, url, len, algorithm),
            Place::Standard => Err(TransferError::NotAFile { path: self.from.to_string() }),
        }
    }

    fn sum_local(&self, path: &std::path::Path, len: u64, algorithm: Algorithm) -> Result<Sum, TransferError> {
        let mut source = LocalSource::open(path, 0, self.context.options.direct)?;
        let mut sum = algorithm.of_nothing();
        let mut buffer = AlignedBuf::new(CHUNK);
        let mut read = 0;
        while read < len {
            let Some(chunk) = source.read_next(buffer)? else { break };
            let part = chunk.len.min(usize::try_from(len - read).unwrap_or(usize::MAX));
            sum = sum.combine(algorithm.of(&chunk.buffer[..part]), part as u64);
            read += part as u64;
            buffer = chunk.buffer;
        }
        Ok(sum)
    }

    fn sum_remote(&self, client: &mut Client, url: &Url, len: u64, algorithm: Algorithm) -> Result<Sum, TransferError> {
        let mut reader = Reader::new(client.open(url, OpenOptions::READ, 0)?);
        let mut sums = SumOfParts::new(algorithm);
        let (mut spare, mut asked) = (Vec::new(), 0);
        loop {
            while asked < len && reader.under_way() < self.context.settings.window.max(1) {
                let part = usize::try_from(len - asked).unwrap_or(CHUNK).min(CHUNK);
                reader.ask(asked, part, spare.pop().unwrap_or_else(|| AlignedBuf::new(CHUNK)))?;
                asked += part as u64;
            }
            let Some(chunk) = reader.wait()? else { break };
            sums.add(chunk.offset, chunk.len as u64, algorithm.of(&chunk.buffer[..chunk.len]));
            spare.push(chunk.buffer);
        }
        client.give_back(reader.close()?, url);
        sums.whole(len).ok_or_else(|| TransferError::NotAFile { path: url.to_string() })
    }
}

/// Of the first `len` bytes of a file that is open at a server; `None`: it is shorter.
fn sum_of(file: &mut RemoteFile, len: u64, algorithm: Algorithm) -> Result<Option<Sum>, TransferError> {
    let (mut sum, mut buffer, mut at) = (algorithm.of_nothing(), vec![0; CHUNK], 0);
    while at < len {
        let part = usize::try_from(len - at).unwrap_or(CHUNK).min(CHUNK);
        if file.read_at(at, &mut buffer[..part])? < part {
            return Ok(None);
        }
        sum = sum.combine(algorithm.of(&buffer[..part]), part as u64);
        at += part as u64;
    }
    Ok(Some(sum))
}
