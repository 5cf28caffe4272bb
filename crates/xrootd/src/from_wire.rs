//! Requests as plain data: paths, and what the words behind them say.

use std::sync::Arc;

use service::{FileSums, GoOn, Handle, Hints, How, Intent, Open, OpenFile, Process, UnitHint};
use types::capability::{CONTENT_KEY, OPAQUE_KEY};
use types::direct::DIRECT_KEY;
use types::stale_replicas::{STALE_REPLICAS_KEY, StaleReplica};
use types::striping::{UNIT_KEY, UNIT_OF_KEY, UNIT_WRITER_KEY, parse_writer};
use types::{LocationPrefix, NsPath, ObjectId, Timestamp, UploadId};
use wire::request::{self, Login, OpenOptions};
use wire::{ErrorNumber, FileHandle, PathArg};

use crate::third_party::part_of;
use crate::to_wire::Refusal;

/// Where a time is given. A client learns by the config query of this name that it is taken.
pub(crate) const MTIME: &[u8] = b"weir.mtime";
/// Longest word of a login's description that is remembered.
const WORD_MAX: usize = 256;

/// Checks a path from the wire.
pub(crate) fn parse_path(path: &[u8]) -> Result<NsPath, Refusal> {
    NsPath::parse(path).map_err(|error| Refusal::of_name(path, error))
}

/// As [`parse_path`], of a line of a list: a path, perhaps with its opaque part.
pub(crate) fn parse_line(line: &[u8]) -> Result<NsPath, Refusal> {
    parse_path(line.split(|&b| b == b'?').next().unwrap_or(line))
}

/// As [`parse_path`], of a name that is to be made. This protocol's listings end names at line ends, so that nobody
/// gets a name with one through this door.
pub(crate) fn parse_new_path(path: &[u8]) -> Result<NsPath, Refusal> {
    if path.contains(&b'\n') {
        let text = "A name with a line end cannot be listed over root://, so it cannot be made over it either";
        return Err(Refusal::new(ErrorNumber::ARG_INVALID, text));
    }
    parse_path(path)
}

/// What the service calls an open file.
pub(crate) fn handle(FileHandle(bytes): FileHandle) -> Handle {
    Handle(u32::from_be_bytes(bytes))
}

/// The process that a login describes; `None`: it does not say on which machine it is.
pub(crate) fn process_of(login: &Login) -> Option<Process> {
    let details = login.details().ok()?;
    let word = |key: &[u8]| details.get(key).filter(|word| !word.is_empty() && word.len() <= WORD_MAX);
    let host = word(b"xrd.hostname")?.to_vec();
    Some(Process { pid: login.pid, host, program: word(b"xrd.appname").unwrap_or_default().to_vec() })
}

/// The permission that a client shows.
pub(crate) fn capability_of(target: &PathArg) -> Option<&[u8]> {
    target.get(OPAQUE_KEY.as_bytes())
}

/// The time that a client wants a file to show as that of its last change.
pub(crate) fn mtime_of(target: &PathArg) -> Option<Timestamp> {
    std::str::from_utf8(target.get(MTIME)?).ok()?.parse().ok().map(Timestamp)
}

/// How a client came here, and what it says and shows besides.
pub(crate) fn hints_of(target: &PathArg) -> Hints {
    let text = |key: &[u8]| target.get(key).and_then(|value| std::str::from_utf8(value).ok());
    let list = |key: &[u8]| text(key).into_iter().flat_map(|list| list.split(',')).filter(|one| !one.is_empty());
    let tried: Vec<String> = list(b"tried").map(str::to_owned).collect();
    Hints {
        location: text(b"weir.place").and_then(|place| place.parse::<LocationPrefix>().ok()),
        announced: text(b"oss.asize").and_then(|len| len.parse().ok()),
        // XrdCl says why beside each that has answered.
        all_refused: !tried.is_empty() && list(b"triedrc").count() >= tried.len(),
        comes_again: target.get(b"tried").is_some_and(|hosts| !hosts.is_empty())
            || target.get(CONTENT_KEY.as_bytes()).is_some(),
        tried,
        stale_replicas: text(STALE_REPLICAS_KEY.as_bytes()).map(StaleReplica::parse_all).unwrap_or_default(),
        is_direct: text(DIRECT_KEY.as_bytes()) == Some("1"),
        capability: capability_of(target).map(<[u8]>::to_vec),
        unit: unit_of(target),
    }
}

/// Which unit of a striped file is meant; `None`: the file.
fn unit_of(target: &PathArg) -> Option<UnitHint> {
    let text = |key: &str| target.get(key.as_bytes()).map(|value| std::str::from_utf8(value).unwrap_or(""));
    let number = text(UNIT_KEY)?;
    Some(UnitHint {
        number: number.parse().ok(),
        of: text(UNIT_OF_KEY).and_then(|text| u64::from_str_radix(text, 16).ok()).map(ObjectId),
        writing: text(UNIT_WRITER_KEY).and_then(parse_writer),
    })
}

/// What a file is opened for.
pub(crate) fn intent_of(options: OpenOptions) -> Intent {
    let has = |option| options.has(option);
    if has(OpenOptions::DELETE) {
        Intent::Write(How::Replace)
    } else if has(OpenOptions::NEW) {
        Intent::Write(How::NewOnly)
    } else if has(OpenOptions::UPDATE) || has(OpenOptions::APPEND) || has(OpenOptions::WRITE_ONLY) {
        Intent::Write(How::Update)
    } else if has(OpenOptions::READ) {
        Intent::Read
    } else {
        // XrdCl opens again what it had opened with `new` alone by asking for nothing: neither to read nor to update.
        Intent::Unsaid
    }
}

/// An open; `template`: the file whose content a new one gets.
pub(crate) fn open_of(
    r: &request::Open,
    path: NsPath,
    with_stat: bool,
    template: Option<Arc<OpenFile>>,
) -> Result<Open, Refusal> {
    let has = |option| r.options.has(option);
    let upload = r.target.get(b"weir.upload").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    let go_on = match upload {
        Some(upload) => Some(GoOn::Upload(UploadId(upload))),
        None => (r.target.get(b"weir.resume") == Some(b"1")).then_some(GoOn::Visible),
    };
    Ok(Open {
        path,
        intent: intent_of(r.options),
        // The stock server takes `async`, which all its clients send, for `mkpath`: whoever makes a file over root:// counts on it.
        make_parents: has(OpenOptions::MKPATH) || has(OpenOptions::ASYNC),
        mode: r.mode.0,
        hidden_until_closed: has(OpenOptions::POSC),
        partial: r.target.get(b"weir.partial") == Some(b"1"),
        with_stat,
        mtime: mtime_of(&r.target),
        go_on,
        copy: part_of(&r.target)?,
        template,
        hints: hints_of(&r.target),
    })
}

/// The checksums that weir keeps of every complete file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Algorithm {
    Adler32,
    Crc32c,
}

impl Algorithm {
    /// The one that a request names; adler32 if it names none.
    pub(crate) fn named(name: Option<&[u8]>) -> Result<Self, Refusal> {
        let Some(name) = name else { return Ok(Self::Adler32) };
        // gfal2 writes names as its user does
        match name.to_ascii_lowercase().as_slice() {
            b"adler32" => Ok(Self::Adler32),
            b"crc32c" => Ok(Self::Crc32c),
            _ => {
                let text = format!("The checksum {} is not kept here; adler32 and crc32c are", name.escape_ascii());
                Err(Refusal::new(ErrorNumber::UNSUPPORTED, text))
            }
        }
    }

    /// Its name, and its value of a file.
    pub(crate) fn of(self, sums: FileSums) -> (&'static str, u32) {
        match self {
            Self::Adler32 => (self.name(), sums.adler32.0),
            Self::Crc32c => (self.name(), sums.crc32c.0),
        }
    }

    /// Its name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Adler32 => "adler32",
            Self::Crc32c => "crc32c",
        }
    }
}
