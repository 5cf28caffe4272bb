//! What weir's own client asks and the protocol has no request for, as a query with a path (kXR_Qopaquf):
//! `path?weir.op=link&weir.target=existing`, `path?weir.op=symlink&weir.target=text`, `path?weir.op=touch[&weir.mtime=ns]`,
//! `path?weir.op=complete&weir.writer=…[&weir.sums=…][&weir.unit_sums=…][&weir.mtime=ns]` of a striped file.
//! `weir.target` stands last: all that follows it belongs to it. `weir.mtime` is the time of the last change in nanoseconds since
//! 1970; an open for writing takes it too, for the content that it makes.

use namespace::{CommitStriped, Link, Sums, Symlink, Utimes};
use types::striping::{
    SUMS_KEY, StripedOpenWrite, UNIT_SUMS_KEY, UNIT_WRITER_KEY, parse_sums, parse_unit_sums, parse_writer,
};
use types::{Crc32c, Timestamp};
use wire::request::Query;
use wire::{ErrorNumber, StreamId};

use crate::connection::{Connection, Stop};
use crate::node::wall_clock;
use crate::refusal::Refusal;
use crate::requests::{parse_new_path, parse_path};

/// What stands before the target.
const TARGET: &[u8] = b"&weir.target=";
/// Where a time is given. A client learns by the config query of this name that it is taken.
pub(crate) const MTIME: &[u8] = b"weir.mtime";

impl Connection {
    /// kXR_query with kXR_Qopaquf.
    pub(crate) fn own_operation(&mut self, stream: StreamId, r: &Query) -> Result<Result<(), Refusal>, Stop> {
        let (args, given) = split_target(&r.args);
        let target = match wire::PathArg::parse(args) {
            Ok(target) => target,
            Err(error) => return Ok(Err(Refusal::of_wire(&error))),
        };
        let missing = || Refusal::new(ErrorNumber::ARG_MISSING, "Cannot make a link: weir.target is missing");
        match target.get(b"weir.op") {
            Some(b"link") => match (parse_new_path(&target.path), given.ok_or_else(missing).and_then(parse_path)) {
                (Ok(new), Ok(existing)) => self.change(stream, "link", Link { existing, new }),
                (Err(refusal), _) | (_, Err(refusal)) => Ok(Err(refusal)),
            },
            Some(b"symlink") => match (parse_new_path(&target.path), given.ok_or_else(missing)) {
                (Ok(path), Ok(given)) => self.change(stream, "make the link", Symlink { path, target: given.to_vec() }),
                (Err(refusal), _) | (_, Err(refusal)) => Ok(Err(refusal)),
            },
            Some(b"touch") => match parse_path(&target.path) {
                Ok(path) => {
                    let mtime = mtime_of(&target).unwrap_or_else(wall_clock);
                    let op = Utimes { path, mtime: Some(mtime), atime: None };
                    self.change(stream, "touch", op)
                }
                Err(refusal) => Ok(Err(refusal)),
            },
            // Of a striped file, when its units are closed.
            Some(b"complete") => match (parse_path(&target.path), writer_of(&target)) {
                (Ok(_), Some(writing)) => self.change(
                    stream,
                    "close",
                    CommitStriped {
                        writing,
                        mtime: mtime_of(&target),
                        sums: sums_of(&target),
                        unit_sums: unit_sums_of(&target),
                    },
                ),
                (Err(refusal), _) => Ok(Err(refusal)),
                (Ok(_), None) => {
                    let text = format!("Cannot close a striped file: {UNIT_WRITER_KEY} is missing or not valid");
                    Ok(Err(Refusal::new(ErrorNumber::ARG_MISSING, text)))
                }
            },
            _ => {
                let known = parse_path(&target.path);
                Ok(known.and_then(|_| Err(Refusal::unsupported("A query of the implementation's own kind"))))
            }
        }
    }
}

/// The time that a client wants a file to show as that of its last change.
pub(crate) fn mtime_of(target: &wire::PathArg) -> Option<Timestamp> {
    std::str::from_utf8(target.get(MTIME)?).ok()?.parse().ok().map(Timestamp)
}

/// What whoever has written a striped file says of the whole: how long it is, and its checksums.
fn sums_of(target: &wire::PathArg) -> Option<(u64, Sums)> {
    let (len, adler32, crc32c) = parse_sums(std::str::from_utf8(target.get(SUMS_KEY.as_bytes())?).ok()?)?;
    Some((len, Sums { adler32, crc32c }))
}

/// And of its units.
fn unit_sums_of(target: &wire::PathArg) -> Option<Vec<Crc32c>> {
    parse_unit_sums(std::str::from_utf8(target.get(UNIT_SUMS_KEY.as_bytes())?).ok()?)
}

/// Who writes a striped file.
fn writer_of(target: &wire::PathArg) -> Option<StripedOpenWrite> {
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
    fn a_target_is_all_that_follows() {
        assert_eq!(split_target(b"/a?weir.op=touch"), (&b"/a?weir.op=touch"[..], None));
        let (args, target) = split_target(b"/a?weir.op=symlink&weir.target=x&y?z\0");
        assert_eq!((args, target), (&b"/a?weir.op=symlink"[..], Some(&b"x&y?z"[..])));
    }
}
