//! What weir's own client asks and the protocol has no request for, as a query with a path (kXR_Qopaquf):
//! `path?weir.op=link&weir.target=existing`, `path?weir.op=symlink&weir.target=text`, `path?weir.op=touch`.
//! `weir.target` stands last: all that follows it belongs to it.

use namespace::{Link, Symlink, Utimes};
use wire::request::Query;
use wire::{ErrorNumber, StreamId};

use crate::connection::{Connection, Stop};
use crate::node::wall_clock;
use crate::refusal::Refusal;
use crate::requests::{parse_new_path, parse_path};

/// What stands before the target.
const TARGET: &[u8] = b"&weir.target=";

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
                    let op = Utimes { path, mtime: Some(wall_clock()), atime: None };
                    self.change(stream, "touch", op)
                }
                Err(refusal) => Ok(Err(refusal)),
            },
            _ => {
                let known = parse_path(&target.path);
                Ok(known.and_then(|_| Err(Refusal::unsupported("A query of the implementation's own kind"))))
            }
        }
    }
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
