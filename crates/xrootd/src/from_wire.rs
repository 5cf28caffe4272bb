//! Translates requests into plain data: paths, and the opaque words behind them.

use std::sync::Arc;

use service::{FileSums, GoOn, Handle, Hints, Intent, Open, OpenFile, Process, UnitHint, WriteMode};
use types::absent_replicas::{ABSENT_REPLICAS_KEY, AbsentReplica};
use types::capability::{OBJECT_KEY, OPAQUE_KEY};
use types::direct::DIRECT_KEY;
use types::full_stores::{FULL_STORES_KEY, parse_full_stores};
use types::striping::{UNIT_KEY, UNIT_OF_KEY, UNIT_WRITER_KEY, parse_writer};
use types::{DigestKind, LocationPrefix, NsPath, ObjectId, Timestamp, UploadId};
use wire::request::{self, Login, OpenOptions};
use wire::{ErrorNumber, FileHandle, PathArg};

use crate::third_party::part_of;
use crate::to_wire::RequestError;

/// The key of a modification time. The config query of the same name tells a client that the server supports it.
pub(crate) const MTIME: &[u8] = b"weir.mtime";
/// Maximum length of a word in a login's description.
const WORD_MAX: usize = 256;

/// Checks a path from a request.
pub(crate) fn parse_path(path: &[u8]) -> Result<NsPath, RequestError> {
    NsPath::parse(path).map_err(|error| RequestError::of_name(path, error))
}

/// The same as [`parse_path`], for a line of a list, which may include opaque words.
pub(crate) fn parse_line(line: &[u8]) -> Result<NsPath, RequestError> {
    parse_path(line.split(|&b| b == b'?').next().unwrap_or(line))
}

/// The same as [`parse_path`], for a new name. Listings of this protocol end names with a line end, so this front end
/// creates no name that contains one.
pub(crate) fn parse_new_path(path: &[u8]) -> Result<NsPath, RequestError> {
    if path.contains(&b'\n') {
        let text = "A name with a line end cannot be listed over root://, so it cannot be made over it either";
        return Err(RequestError::new(ErrorNumber::ARG_INVALID, text));
    }
    parse_path(path)
}

/// The service's handle of an open file.
pub(crate) fn handle(FileHandle(bytes): FileHandle) -> Handle {
    Handle(u32::from_be_bytes(bytes))
}

/// The process that a login describes; `None`: it does not name its machine.
pub(crate) fn process_of(login: &Login) -> Option<Process> {
    let details = login.details().ok()?;
    let word = |key: &[u8]| details.get(key).filter(|word| !word.is_empty() && word.len() <= WORD_MAX);
    let host = word(b"xrd.hostname")?.to_vec();
    Some(Process { pid: login.pid, host, program: word(b"xrd.appname").unwrap_or_default().to_vec() })
}

/// The capability that a client presents.
pub(crate) fn capability_of(target: &PathArg) -> Option<&[u8]> {
    target.get(OPAQUE_KEY.as_bytes())
}

/// The modification time that a client wants to set.
pub(crate) fn mtime_of(target: &PathArg) -> Option<Timestamp> {
    std::str::from_utf8(target.get(MTIME)?).ok()?.parse().ok().map(Timestamp)
}

/// What a client says about itself and its earlier attempts.
pub(crate) fn hints_of(target: &PathArg) -> Hints {
    let text = |key: &[u8]| target.get(key).and_then(|value| std::str::from_utf8(value).ok());
    let list = |key: &[u8]| text(key).into_iter().flat_map(|list| list.split(',')).filter(|one| !one.is_empty());
    let tried: Vec<String> = list(b"tried").map(str::to_owned).collect();
    let wants_another = list(b"triedrc").next().is_some() && list(b"triedrc").all(|reason| reason == "resel");
    Hints {
        location: text(b"weir.location").and_then(|location| location.parse::<LocationPrefix>().ok()),
        announced: text(b"oss.asize").and_then(|len| len.parse().ok()),
        // XrdCl adds a reason for each host that has answered.
        all_refused: !tried.is_empty() && list(b"triedrc").count() >= tried.len() && !wants_another,
        wants_another,
        comes_again: target.get(b"tried").is_some_and(|hosts| !hosts.is_empty())
            || target.get(OBJECT_KEY.as_bytes()).is_some(),
        tried,
        same_object: same_object_of(list(service::SAME_OBJECT_KEY.as_bytes())),
        returns: text(service::RETURNS_KEY.as_bytes()) == Some("1"),
        absent_replicas: text(ABSENT_REPLICAS_KEY.as_bytes()).map(AbsentReplica::parse_all).unwrap_or_default(),
        full_stores: text(FULL_STORES_KEY.as_bytes()).map(parse_full_stores).unwrap_or_default(),
        is_direct: text(DIRECT_KEY.as_bytes()) == Some("1"),
        capability: capability_of(target).map(<[u8]>::to_vec),
        unit: unit_of(target),
    }
}

/// The requested stripe unit; `None`: the whole file.
fn unit_of(target: &PathArg) -> Option<UnitHint> {
    let text = |key: &str| target.get(key.as_bytes()).map(|value| std::str::from_utf8(value).unwrap_or(""));
    let number = text(UNIT_KEY)?;
    Some(UnitHint {
        number: number.parse().ok(),
        of: text(UNIT_OF_KEY).and_then(parse_object),
        writing: text(UNIT_WRITER_KEY).and_then(parse_writer),
    })
}

/// XrdCl joins the values of several redirects with commas. An object that is none is equal to no file's.
fn same_object_of<'a>(mut values: impl Iterator<Item = &'a str>) -> Option<ObjectId> {
    let first = values.next()?;
    let is_clear = values.all(|other| other == first);
    Some(parse_object(first).filter(|_| is_clear).unwrap_or(ObjectId(u64::MAX)))
}

fn parse_object(text: &str) -> Option<ObjectId> {
    u64::from_str_radix(text, 16).ok().map(ObjectId)
}

/// The purpose of an open.
pub(crate) fn intent_of(options: OpenOptions) -> Intent {
    let has = |option| options.has(option);
    if has(OpenOptions::DELETE) {
        Intent::Write(WriteMode::Replace)
    } else if has(OpenOptions::NEW) {
        Intent::Write(WriteMode::NewOnly)
    } else if has(OpenOptions::UPDATE) || has(OpenOptions::APPEND) || has(OpenOptions::WRITE_ONLY) {
        Intent::Write(WriteMode::Update)
    } else if has(OpenOptions::READ) {
        Intent::Read
    } else {
        // XrdCl reopens a file that it had opened with `new` alone, with neither read nor update.
        Intent::Unsaid
    }
}

/// Translates an open. `template` is the file whose data a new file gets.
pub(crate) fn open_of(
    r: &request::Open,
    path: NsPath,
    with_stat: bool,
    template: Option<Arc<OpenFile>>,
) -> Result<Open, RequestError> {
    let has = |option| r.options.has(option);
    let upload = r.target.get(b"weir.upload").and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    let go_on = match upload {
        Some(upload) => Some(GoOn::Upload(UploadId(upload))),
        None => (r.target.get(b"weir.resume") == Some(b"1")).then_some(GoOn::Visible),
    };
    Ok(Open {
        path,
        intent: intent_of(r.options),
        // The stock server treats `async`, which all its clients send, as `mkpath`. Clients rely on this.
        make_parents: has(OpenOptions::MKPATH) || has(OpenOptions::ASYNC),
        mode: r.mode.0,
        hidden_until_closed: has(OpenOptions::POSC),
        partial: r.target.get(b"weir.partial") == Some(b"1"),
        follows: r.target.get(service::FOLLOW_KEY.as_bytes()) == Some(b"1"),
        with_stat,
        mtime: mtime_of(&r.target),
        go_on,
        appends: has(OpenOptions::APPEND),
        copy: part_of(&r.target)?,
        template,
        hints: hints_of(&r.target),
        // Its clients do not number their requests.
        request: None,
    })
}

/// The checksum of a file that a client wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Algorithm {
    /// One of those that weir keeps for every complete file.
    Adler32,
    /// The other.
    Crc32c,
    /// One that is computed on demand.
    Digest(DigestKind),
}

impl Algorithm {
    /// The algorithm that a request names; by default adler32. `offered` are those that are computed on demand.
    pub(crate) fn named(name: Option<&[u8]>, offered: &[DigestKind]) -> Result<Self, RequestError> {
        let Some(name) = name else { return Ok(Self::Adler32) };
        // gfal2 passes on names in the case that its user wrote.
        let lower = name.to_ascii_lowercase();
        if let Some(known) = Self::all(offered).find(|algorithm| algorithm.name().as_bytes() == lower) {
            return Ok(known);
        }
        let names: Vec<&str> = Self::all(offered).map(Self::name).collect();
        let text = format!(
            "The checksum {} is not kept here; these are: {} (the server's setting files.checksums adds others)",
            name.escape_ascii(),
            names.join(", ")
        );
        Err(RequestError::new(ErrorNumber::UNSUPPORTED, text))
    }

    /// All that a server offers, in the order in which it announces them.
    pub(crate) fn all(offered: &[DigestKind]) -> impl Iterator<Item = Self> {
        [Self::Adler32, Self::Crc32c].into_iter().chain(offered.iter().copied().map(Self::Digest))
    }

    /// The value among those that every complete file has; `None`: it is computed on demand.
    pub(crate) fn of(self, sums: FileSums) -> Option<u32> {
        match self {
            Self::Adler32 => Some(sums.adler32.0),
            Self::Crc32c => Some(sums.crc32c.0),
            Self::Digest(_) => None,
        }
    }

    /// The name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Adler32 => "adler32",
            Self::Crc32c => "crc32c",
            Self::Digest(kind) => kind.name(),
        }
    }
}

/// A checksum in the form of this protocol.
pub(crate) fn hex(value: &[u8]) -> String {
    value.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use wire::Opaque;

    use super::*;

    #[test]
    fn a_client_says_whether_servers_have_refused_it_or_are_in_use() {
        let of = |words: &str| {
            let target = PathArg { path: b"/file".to_vec(), opaque: Opaque::parse(words.as_bytes()).ok() };
            let hints = hints_of(&target);
            (hints.tried.len(), hints.all_refused, hints.wants_another)
        };
        assert_eq!(of("a=b"), (0, false, false));
        assert_eq!(of("tried=h1,h2"), (2, false, false));
        assert_eq!(of("tried=h1,h2&triedrc=ioerr"), (2, false, false));
        assert_eq!(of("tried=h1,h2&triedrc=ioerr,resel"), (2, true, false));
        assert_eq!(of("tried=h1,h2&triedrc=resel,resel"), (2, false, true));
        assert_eq!(of("tried=h1,h2&triedrc=resel"), (2, false, true), "as CMSSW says it");
        assert_eq!(of("tried=h1&triedrc="), (1, false, false));
    }

    #[test]
    fn a_reader_that_comes_back_gets_its_object_or_none() {
        let of = |words: &str| {
            let target = PathArg { path: b"/file".to_vec(), opaque: Opaque::parse(words.as_bytes()).ok() };
            hints_of(&target).same_object.map(|object| object.0)
        };
        assert_eq!(of("a=b"), None);
        assert_eq!(of("weir.same=00000000000000ff"), Some(255));
        assert_eq!(of("weir.same=00000000000000ff,00000000000000ff"), Some(255), "as XrdCl joins two redirects");
        for unclear in ["weir.same=00000000000000ff,00000000000000fe", "weir.same=x"] {
            assert_eq!(of(unclear), Some(u64::MAX), "{unclear}");
        }
    }
}
