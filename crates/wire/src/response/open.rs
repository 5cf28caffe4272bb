//! Answers to open, readv and chkpoint.

use super::StatReply;
use crate::reader::Reader;
use crate::request::Segment;
use crate::{FileHandle, WireError};

/// The answer to open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenReply {
    /// The handle of the open file.
    pub handle: FileHandle,
    /// Present if the client asked for compression or attributes.
    pub compression: Option<Compression>,
    /// Present if the client asked for attributes ([`crate::request::OpenOptions::RETSTAT`]).
    pub stat: Option<StatReply>,
    /// An extension of weir, behind the attributes' NUL: the first bytes of the file, if the client asked for them
    /// ([`crate::request::Open::beginning_kib`]) and for attributes.
    pub beginning: Vec<u8>,
}

/// The compression of a file. Weir never compresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compression {
    /// The page length in bytes, 0 for no compression.
    pub page_len: u32,
    /// The algorithm, zeros for none.
    pub kind: [u8; 4],
}

impl OpenReply {
    /// Appends the body to `out`. The compression fields always precede attributes; they are zero without
    /// compression.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.handle.0);
        if self.compression.is_some() || self.stat.is_some() {
            let compression = self.compression.unwrap_or_default();
            out.extend_from_slice(&compression.page_len.to_be_bytes());
            out.extend_from_slice(&compression.kind);
        }
        if let Some(stat) = &self.stat {
            stat.encode(out);
            out.extend_from_slice(&self.beginning);
        }
    }

    /// Parses the body.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("open answer", body);
        let handle = reader.handle()?;
        let compression = match reader.left() {
            0 => None,
            _ => Some(Compression { page_len: reader.u31("compression page length")?, kind: *reader.array()? }),
        };
        let rest = reader.rest();
        let (attributes, beginning) = match rest.iter().position(|byte| *byte == 0) {
            Some(end) => (&rest[..end], &rest[end + 1..]),
            None => (rest, &[][..]),
        };
        let stat = if rest.is_empty() { None } else { Some(StatReply::decode(attributes)?) };
        Ok(Self { handle, compression, stat, beginning: beginning.to_vec() })
    }
}

/// The header before the data of each segment in a readv answer: the request's 16 bytes again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadvSegment(pub Segment);

impl ReadvSegment {
    /// Returns the 16 bytes. The length is the number of bytes read. XrdCl treats any other length than the
    /// requested one as an error, so a server fails the whole readv if a segment ends past the end of the file.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[0..4].copy_from_slice(&self.0.handle.0);
        bytes[4..8].copy_from_slice(&self.0.len.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.0.offset.to_be_bytes());
        bytes
    }

    /// Splits a whole answer (the bodies of all its frames, joined) into segments and their data.
    pub fn decode_all(body: &[u8]) -> Result<Vec<(Segment, &[u8])>, WireError> {
        let mut reader = Reader::new("readv answer", body);
        let mut segments = Vec::new();
        while reader.left() > 0 {
            let handle = reader.handle()?;
            let len = reader.u31("segment length")?;
            let offset = reader.u63("segment offset")?;
            let data = reader.take(usize::try_from(len).unwrap_or(usize::MAX))?;
            segments.push((Segment { handle, len, offset }, data));
        }
        Ok(segments)
    }
}

/// The answer to the query about checkpoints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChkpointReply {
    /// The largest size of a checkpoint, in bytes.
    pub limit: u32,
    /// Its present size in bytes.
    pub used: u32,
}

impl ChkpointReply {
    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.limit.to_be_bytes());
        out.extend_from_slice(&self.used.to_be_bytes());
    }

    /// Parses the body.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("checkpoint answer", body);
        let reply = Self { limit: reader.u32()?, used: reader.u32()? };
        reader.end()?;
        Ok(reply)
    }
}
