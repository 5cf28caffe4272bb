//! Answers to stat: one line of text.

use crate::WireError;
use crate::reader::{decimal, text};

flags! {
    /// The flags of a stat answer (`XStatRespFlags`).
    StatFlags(u32) {
        /// It can be executed or searched.
        XSET = 1;
        /// It is a directory.
        IS_DIR = 2;
        /// It is neither a file nor a directory.
        OTHER = 4;
        /// It is not on disk.
        OFFLINE = 8;
        /// It can be read.
        READABLE = 16;
        /// It can be written.
        WRITABLE = 32;
        /// It is kept only if it is closed, and is not closed yet.
        POSC_PENDING = 64;
        /// A backup exists.
        BACKUP_EXISTS = 128;
    }
}

/// `id size flags mtime` and, from servers of protocol 4 and up, `ctime atime mode owner group`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatReply {
    /// Distinguishes the files that a server has at one time. At weir and at stock servers it is the inode number.
    pub id: u64,
    /// The size in bytes.
    pub size: u64,
    /// The type and the state.
    pub flags: StatFlags,
    /// The modification time in seconds since 1970.
    pub mtime: i64,
    /// The fields that newer servers add.
    pub extra: Option<StatExtra>,
}

/// The second part of a stat line.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatExtra {
    /// The change time in seconds since 1970.
    pub ctime: i64,
    /// The access time in seconds since 1970.
    pub atime: i64,
    /// The twelve permission bits.
    pub mode: u16,
    /// A name or number without blanks.
    pub owner: String,
    /// A name or number without blanks.
    pub group: String,
}

impl StatReply {
    /// Returns the id that distinguishes the file from others that its server has now; `None`: the server gave
    /// none. Servers without file numbers send 0; in stock servers 0 means that the file is not online
    /// (`XrdXrootdProtocol::StatGen`). Another id means another file. The same id does not always mean the same
    /// bytes: at weir a replaced file keeps its id, and at a stock server the file system may reuse the id of a
    /// removed file.
    #[must_use]
    pub fn identity(&self) -> Option<u64> {
        Some(self.id).filter(|id| *id != 0)
    }

    /// Appends the line to `out`, without a line end or NUL. An entry of a listing uses this form; a stat answer
    /// needs [`StatReply::encode`].
    pub fn write_line(&self, out: &mut Vec<u8>) {
        let Self { id, size, flags, mtime, extra } = self;
        push(out, format_args!("{id} {size} {} {mtime}", flags.0));
        if let Some(StatExtra { ctime, atime, mode, owner, group }) = extra {
            push(out, format_args!(" {ctime} {atime} {:04o} ", mode & 0o7777));
            push_word(out, owner);
            out.push(b' ');
            push_word(out, group);
        }
    }

    /// Appends the body to `out`: the line and a NUL.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write_line(out);
        out.push(0);
    }

    /// Parses a body or an entry's line.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "stat answer";
        // One more than a line may have. A listing has such a line for each entry, so this avoids an allocation.
        let (mut words, mut count) = ([&b""[..]; 10], 0);
        for word in text(WHAT, body)?.split(|&b| b == b' ').filter(|word| !word.is_empty()).take(words.len()) {
            words[count] = word;
            count += 1;
        }
        let (first, extra) = match count {
            4 => (&words[..4], None),
            9 => (&words[..4], Some(&words[4..9])),
            _ => return Err(WireError::Malformed { what: WHAT, why: "it has neither 4 nor 9 words" }),
        };
        let natural = |word: &[u8]| {
            let value = decimal(WHAT, word)?;
            u64::try_from(value).map_err(|_| WireError::OutOfRange { what: "size in a stat answer", value })
        };
        Ok(Self {
            id: id(first[0])?,
            size: natural(first[1])?,
            flags: StatFlags(u32::try_from(natural(first[2])?).unwrap_or(u32::MAX)),
            mtime: decimal(WHAT, first[3])?,
            extra: match extra {
                None => None,
                Some(words) => Some(StatExtra {
                    ctime: decimal(WHAT, words[0])?,
                    atime: decimal(WHAT, words[1])?,
                    mode: octal(words[2])?,
                    owner: word(words[3])?,
                    group: word(words[4])?,
                }),
            },
        })
    }
}

/// The stock server prints its device and inode number as a signed number. Any 64 bits are valid.
fn id(word: &[u8]) -> Result<u64, WireError> {
    let text = std::str::from_utf8(word).unwrap_or("");
    text.parse::<u64>()
        .or_else(|_| text.parse::<i64>().map(i64::cast_unsigned))
        .map_err(|_| WireError::Malformed { what: "id in a stat answer", why: "it is not a decimal number" })
}

fn octal(word: &[u8]) -> Result<u16, WireError> {
    let text = std::str::from_utf8(word).unwrap_or("");
    u16::from_str_radix(text, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or(WireError::Malformed { what: "mode in a stat answer", why: "it is not an octal number of at most 7777" })
}

fn word(word: &[u8]) -> Result<String, WireError> {
    if word.iter().any(|&b| b <= b' ' || b == 0x7f) {
        return Err(WireError::Malformed {
            what: "owner or group in a stat answer",
            why: "it holds control characters",
        });
    }
    Ok(String::from_utf8_lossy(word).into_owned())
}

/// Blanks and control characters would shift the following words.
fn push_word(out: &mut Vec<u8>, word: &str) {
    if word.is_empty() {
        out.push(b'?');
    }
    out.extend(word.bytes().map(|b| if b <= b' ' || b == 0x7f { b'_' } else { b }));
}

pub(crate) fn push(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    // writing to memory does not fail
    let _ = out.write_fmt(text);
}

/// The answer to stat with [`crate::request::StatOptions::VFS`]: six numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct VfsReply {
    /// The number of servers that can be written.
    pub write_nodes: u64,
    /// The largest free space on one of them, in MiB.
    pub write_free_mib: u64,
    /// Their usage in percent.
    pub write_used_percent: u64,
    /// The number of servers that stage.
    pub stage_nodes: u64,
    /// The largest free space on one of them, in MiB.
    pub stage_free_mib: u64,
    /// Their usage in percent.
    pub stage_used_percent: u64,
}

impl VfsReply {
    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        push(
            out,
            format_args!(
                "{} {} {} {} {} {}\0",
                self.write_nodes,
                self.write_free_mib,
                self.write_used_percent,
                self.stage_nodes,
                self.stage_free_mib,
                self.stage_used_percent
            ),
        );
    }

    /// Parses the body.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        const WHAT: &str = "file system answer";
        let mut words = text(WHAT, body)?.split(|&b| b == b' ').filter(|word| !word.is_empty());
        let mut next = || {
            let word = words.next().ok_or(WireError::Malformed { what: WHAT, why: "it has fewer than 6 words" })?;
            let value = decimal(WHAT, word)?;
            u64::try_from(value).map_err(|_| WireError::OutOfRange { what: WHAT, value })
        };
        let reply = Self {
            write_nodes: next()?,
            write_free_mib: next()?,
            write_used_percent: next()?,
            stage_nodes: next()?,
            stage_free_mib: next()?,
            stage_used_percent: next()?,
        };
        if words.next().is_some() {
            return Err(WireError::Malformed { what: WHAT, why: "it has more than 6 words" });
        }
        Ok(reply)
    }
}
