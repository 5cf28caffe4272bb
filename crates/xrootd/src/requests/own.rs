//! Requests of weir's own client that the protocol does not have, as a query with a path (kXR_Qopaquf):
//! - `path?weir.op=link&weir.target=existing`
//! - `path?weir.op=symlink&weir.target=text`
//! - `path?weir.op=touch[&weir.mtime=ns]`
//! - `path?weir.op=complete&weir.writer=…[&weir.sums=…][&weir.unit_sums=…][&weir.mtime=ns][&weir.request=…]`
//!   for a striped file
//!
//! `weir.target` comes last, and everything after it belongs to it. `weir.mtime` is the modification time in
//! nanoseconds since 1970. An open for writing also accepts it, for the file that it writes.

use service::Change;
use types::striping::{
    SUMS_KEY, StripedOpenWrite, UNIT_SUMS_KEY, UNIT_WRITER_KEY, parse_sums, parse_unit_sums, parse_writer,
};
use types::{Adler32, Crc32c, REQUEST_KEY, RequestNumber, Timestamp};
use wire::request::Query;
use wire::{ErrorNumber, PathArg, StreamId};

use crate::connection::{Connection, Stop};
use crate::from_wire::{mtime_of, parse_new_path, parse_path};
use crate::to_wire::RequestError;

/// The text before the target.
const TARGET: &[u8] = b"&weir.target=";

impl Connection {
    /// kXR_query with kXR_Qopaquf.
    pub(crate) fn own_operation(&mut self, stream: StreamId, r: &Query) -> Result<Result<(), RequestError>, Stop> {
        let (args, given) = split_target(&r.args);
        let target = match PathArg::parse(args) {
            Ok(target) => target,
            Err(error) => return Ok(Err(RequestError::of_wire(&error))),
        };
        let change = change_of(&target, given);
        self.numbered_change(stream, change, number_of(&target))
    }
}

fn change_of(target: &PathArg, given: Option<&[u8]>) -> Result<Change, RequestError> {
    let missing = || RequestError::new(ErrorNumber::ARG_MISSING, "Cannot make a link: weir.target is missing");
    match target.get(b"weir.op") {
        Some(b"link") => {
            let new = parse_new_path(&target.path)?;
            Ok(Change::Link { existing: given.ok_or_else(missing).and_then(parse_path)?, new })
        }
        Some(b"symlink") => {
            let path = parse_new_path(&target.path)?;
            Ok(Change::Symlink { path, target: given.ok_or_else(missing)?.to_vec() })
        }
        Some(b"touch") => {
            let path = parse_path(&target.path)?;
            let now = || Timestamp::from(std::time::SystemTime::now());
            Ok(Change::Touch { path, mtime: mtime_of(target).unwrap_or_else(now) })
        }
        // Completes a striped file after its stripe units have been closed.
        Some(b"complete") => {
            parse_path(&target.path)?;
            let writing = writer_of(target).ok_or_else(|| {
                let text = format!("Cannot close a striped file: {UNIT_WRITER_KEY} is missing or not valid");
                RequestError::new(ErrorNumber::ARG_MISSING, text)
            })?;
            let (sums, unit_sums) = (sums_of(target), unit_sums_of(target));
            Ok(Change::CloseStriped { writing, mtime: mtime_of(target), sums, unit_sums })
        }
        _ => {
            parse_path(&target.path)?;
            Err(RequestError::unsupported("A query of the implementation's own kind"))
        }
    }
}

/// The number of the request that a disk server passes on, if the client numbers its requests.
fn number_of(target: &PathArg) -> Option<RequestNumber> {
    RequestNumber::parse(std::str::from_utf8(target.get(REQUEST_KEY.as_bytes())?).ok()?)
}

/// The length and the checksums of a striped file, according to its writer.
fn sums_of(target: &PathArg) -> Option<(u64, Adler32, Crc32c)> {
    parse_sums(std::str::from_utf8(target.get(SUMS_KEY.as_bytes())?).ok()?)
}

/// The checksums of its stripe units.
fn unit_sums_of(target: &PathArg) -> Option<Vec<Crc32c>> {
    parse_unit_sums(std::str::from_utf8(target.get(UNIT_SUMS_KEY.as_bytes())?).ok()?)
}

/// The open write of a striped file.
fn writer_of(target: &PathArg) -> Option<StripedOpenWrite> {
    parse_writer(std::str::from_utf8(target.get(UNIT_WRITER_KEY.as_bytes())?).ok()?)
}

fn split_target(args: &[u8]) -> (&[u8], Option<&[u8]>) {
    match args.windows(TARGET.len()).position(|window| window == TARGET) {
        Some(at) => {
            let given = &args[at + TARGET.len()..];
            let end = given.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            (&args[..at], Some(&given[..end]))
        }
        None => (args, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_extends_to_the_end() {
        assert_eq!(split_target(b"/a?weir.op=touch"), (&b"/a?weir.op=touch"[..], None));
        let (args, target) = split_target(b"/a?weir.op=symlink&weir.target=x&y?z\0");
        assert_eq!((args, target), (&b"/a?weir.op=symlink"[..], Some(&b"x&y?z"[..])));
    }
}
