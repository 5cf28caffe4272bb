//! Parses a listing part by part, so that the first entry is available before the server has sent the last.

use wire::response::{Dirlisting, StatReply};

use crate::{ClientError, Session};

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Entry {
    /// Its name. Bytes that are not UTF-8 are replaced.
    pub name: String,
    /// Its attributes, if the server gave them.
    pub stat: Option<StatReply>,
    /// The checksum as `algorithm:value`, or in another form of the server, if checksums were requested.
    pub checksum: Option<String>,
}

/// The longest line of a listing, in bytes.
const LINE_MAX: usize = 64 << 10;
const LEAD: &[u8] = b".\n0 0 0 0\n";

/// Takes the parts of a listing's answer and returns entries.
#[derive(Debug, Default)]
pub struct ListingParser {
    with_stat: Option<bool>,
    carried: Vec<u8>,
}

impl ListingParser {
    /// Takes the next part of the answer, and returns the entries that are complete. `last` marks the last part.
    ///
    /// # Errors
    /// [`ClientError::Protocol`], or [`ClientError::Unexpected`] if the answer is not a listing.
    pub fn push(&mut self, part: &[u8], last: bool, session: &Session) -> Result<Vec<Entry>, ClientError> {
        self.carried.extend_from_slice(part);
        if self.with_stat.is_none() {
            if self.carried.len() < LEAD.len() && !last {
                return Ok(Vec::new());
            }
            // The last byte of a listing that ends here is a NUL instead of a line end.
            let with_stat = self.carried.starts_with(&LEAD[..LEAD.len() - 1]);
            self.with_stat = Some(with_stat);
            if with_stat {
                self.carried.drain(..LEAD.len().min(self.carried.len()));
            }
        }
        let with_stat = self.with_stat == Some(true);
        let complete = if last { self.carried.len() } else { complete_part(&self.carried, with_stat) };
        if self.carried.len() - complete > LINE_MAX {
            let what = "a listing with a line that does not end".to_owned();
            return Err(ClientError::Unexpected { server: session.server().clone(), what });
        }
        let rest = self.carried.split_off(complete);
        let mut text = if with_stat { LEAD.to_vec() } else { Vec::new() };
        text.append(&mut self.carried);
        self.carried = rest;
        let listing = Dirlisting::decode(&text).map_err(|source| session.malformed(source))?;
        let entries = listing.entries.into_iter().map(|entry| Entry {
            name: String::from_utf8_lossy(&entry.name).into_owned(),
            stat: entry.stat,
            checksum: entry.checksum.map(|sum| String::from_utf8_lossy(&sum).into_owned()),
        });
        // Some servers list these two.
        Ok(entries.filter(|entry| entry.name != "." && entry.name != "..").collect())
    }
}

/// Returns the end of the last complete entry of `text`. An entry has one line or two.
fn complete_part(text: &[u8], with_stat: bool) -> usize {
    let mut lines = 0;
    let mut end = 0;
    for (at, _) in text.iter().enumerate().filter(|(_, byte)| **byte == b'\n') {
        lines += 1;
        if !with_stat || lines % 2 == 0 {
            end = at + 1;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_entries_are_returned() {
        assert_eq!(complete_part(b"a\nb\nc", false), 4);
        assert_eq!(complete_part(b"a\n1 2 3 4\nb\n1 2", true), 10);
        assert_eq!(complete_part(b"a\n1 2 3 4\nb\n", true), 10);
        assert_eq!(complete_part(b"abc", true), 0);
    }
}
