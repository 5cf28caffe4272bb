//! Listings: names and lines, in as many frames as they need.

use super::StatReply;
use crate::WireError;
use crate::planted::{self, Bug};
use crate::reader::without_trailing_nuls;

/// The first entry of a listing with attributes. Clients recognise such a listing by it.
const LEAD: &[u8] = b".\n0 0 0 0\n";

/// Builds the bodies of a listing. Push the entries. Whenever [`DirlistBody::len`] exceeds the size of a frame,
/// send [`DirlistBody::take_page`] as `oksofar`. At the end send [`DirlistBody::finish`] as `ok`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirlistBody {
    with_stat: bool,
    begun: bool,
    buffer: Vec<u8>,
    /// The start of the last entry in `buffer`.
    last: usize,
}

/// A listing cannot hold this name, because line ends separate its entries.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a name with a line end or a NUL cannot be listed over root://")]
pub struct NotListable;

impl DirlistBody {
    /// Starts an empty listing. `with_stat`: the client asked for [`crate::request::DirlistOptions::DSTAT`] or
    /// `DCKSM`.
    #[must_use]
    pub fn new(with_stat: bool) -> Self {
        let buffer = if with_stat { LEAD.to_vec() } else { Vec::new() };
        Self { with_stat, begun: false, last: buffer.len(), buffer }
    }

    /// Adds an entry. A listing with attributes uses `stat`; without it the client sees zeros. `checksum` has the
    /// form `adler32:0a1b2c3d` or `none`, if the client asked for checksums.
    ///
    /// # Errors
    /// The name cannot be listed. The listing is unchanged: log the name and continue without it.
    pub fn push(&mut self, name: &[u8], stat: Option<&StatReply>, checksum: Option<&[u8]>) -> Result<(), NotListable> {
        if name.is_empty() || name.iter().any(|&b| b == b'\n' || b == 0) {
            return Err(NotListable);
        }
        self.begun = true;
        self.last = self.buffer.len();
        self.buffer.extend_from_slice(name);
        self.buffer.push(b'\n');
        if self.with_stat {
            match stat {
                Some(stat) => stat.write_line(&mut self.buffer),
                None => self.buffer.extend_from_slice(b"0 0 0 0"),
            }
            if let Some(checksum) = checksum {
                self.buffer.extend_from_slice(b" [ ");
                self.buffer.extend(checksum.iter().map(|&b| if b <= b' ' { b'_' } else { b }));
                self.buffer.extend_from_slice(b" ]");
            }
            self.buffer.push(b'\n');
        }
        Ok(())
    }

    /// Returns the number of bytes that wait for sending.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Whether no bytes wait for sending.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }

    /// Takes all complete entries but the last one as the body of an `oksofar`. The final body must hold an entry,
    /// and the next one may be removed before it is listed.
    pub fn take_page(&mut self) -> Vec<u8> {
        let last = self.buffer.split_off(self.last);
        self.last = 0;
        std::mem::replace(&mut self.buffer, last)
    }

    /// Returns the final body, for `ok`. Its last line end is a NUL. It is empty for a directory without entries,
    /// except in a listing with attributes.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        if let Some(last) = self.buffer.last_mut().filter(|_| !planted::is(Bug::ListingNotEnded)) {
            *last = 0;
        }
        self.buffer
    }
}

/// A listing as a client receives it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Dirlisting {
    /// Whether it has attributes.
    pub with_stat: bool,
    /// The entries.
    pub entries: Vec<DirEntry>,
}

/// One entry of a listing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DirEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// Its attributes.
    pub stat: Option<StatReply>,
    /// `algorithm:value`.
    pub checksum: Option<Vec<u8>>,
}

impl Dirlisting {
    /// Parses the bodies of all frames of one listing, joined together.
    pub fn decode(bodies: &[u8]) -> Result<Self, WireError> {
        let with_stat = bodies.starts_with(&LEAD[..LEAD.len() - 1]);
        let text = without_trailing_nuls(bodies);
        let text = if with_stat { text.get(LEAD.len()..).unwrap_or_default() } else { text };
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let mut listing = Self { with_stat, entries: Vec::new() };
        if text.is_empty() {
            return Ok(listing);
        }
        let mut lines = text.split(|&b| b == b'\n');
        while let Some(name) = lines.next() {
            if name.is_empty() || name.contains(&0) {
                return Err(WireError::Malformed { what: "listing", why: "an entry has no name, or a NUL in it" });
            }
            let mut entry = DirEntry { name: name.to_vec(), stat: None, checksum: None };
            if with_stat {
                let line = lines.next().ok_or(WireError::TooShort { what: "listing", missing: 1 })?;
                let (stat, checksum) = split_checksum(line)?;
                entry.stat = Some(StatReply::decode(stat)?);
                entry.checksum = checksum.map(<[u8]>::to_vec);
            }
            listing.entries.push(entry);
        }
        Ok(listing)
    }
}

fn split_checksum(line: &[u8]) -> Result<(&[u8], Option<&[u8]>), WireError> {
    let Some(at) = line.iter().position(|&b| b == b'[') else { return Ok((line, None)) };
    let (stat, rest) = line.split_at(at);
    let inner = rest.strip_prefix(b"[ ").and_then(|rest| rest.strip_suffix(b" ]"));
    inner
        .map(|inner| (stat, Some(inner)))
        .ok_or(WireError::Malformed { what: "listing", why: "a checksum without its closing bracket" })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn a_listing_ends_correctly_although_its_next_entry_is_gone() {
        for with_stat in [false, true] {
            let mut body = DirlistBody::new(with_stat);
            body.push(b"first", None, None).unwrap();
            body.push(b"second", None, None).unwrap();
            let page = body.take_page();
            let end = body.finish();
            assert_eq!(end.last(), Some(&0));
            let listing = Dirlisting::decode(&[page, end].concat()).unwrap();
            let names: Vec<&[u8]> = listing.entries.iter().map(|entry| entry.name.as_slice()).collect();
            assert_eq!(names, [b"first".as_slice(), b"second"]);
        }
    }
}
