//! Requests of weir's own client that the protocol does not have, as a query with a path (kXR_Qopaquf):
//! - `path?weir.op=link&weir.target=existing`
//! - `path?weir.op=symlink&weir.target=text`
//! - `path?weir.op=touch[&weir.mtime=ns]`
//! - `path?weir.op=chown[&weir.owner=NAME][&weir.group=NAME]`, with names or numbers
//! - `path?weir.op=acl` answers with the ACLs as text
//! - `path?weir.op=setacl&weir.edit=EDIT&weir.target=TEXT` ([`service::AclChange::ALL`])
//! - `path?weir.op=complete&weir.writer=…[&weir.sums=…][&weir.unit_sums=…][&weir.mtime=ns][&weir.request=…]`
//!   for a striped file
//!
//! `weir.target` comes last, and everything after it belongs to it. `weir.mtime` is the modification time in
//! nanoseconds since 1970. An open for writing also accepts it, for the file that it writes.

use service::{AclChange, Caller, Change, Service};
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
        if target.get(b"weir.op") == Some(b"acl") {
            return Ok(self.acl(stream, &target));
        }
        let change = change_of(&self.front.service, &self.session.open.caller(), &target, given);
        self.numbered_change(stream, change, number_of(&target))
    }

    /// The ACLs of a file or directory.
    fn acl(&self, stream: StreamId, target: &PathArg) -> Result<(), RequestError> {
        let path = parse_path(&target.path)?;
        let text = self.front.service.acl(&self.session.open.caller(), &path)?;
        self.ok(stream, |out| out.extend_from_slice(text.as_bytes()))
    }
}

fn change_of(
    service: &Service,
    caller: &Caller,
    target: &PathArg,
    given: Option<&[u8]>,
) -> Result<Change, RequestError> {
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
        Some(b"chown") => {
            let path = parse_path(&target.path)?;
            let text = |key: &[u8]| target.get(key).map(|text| text_of(text)).transpose();
            let (owner, group) = service.new_owner(caller, &path, text(b"weir.owner")?, text(b"weir.group")?)?;
            Ok(Change::Chown { path, owner, group })
        }
        Some(b"setacl") => {
            let path = parse_path(&target.path)?;
            let edit = target.get(b"weir.edit").unwrap_or_default();
            let (_, change) =
                AclChange::ALL.into_iter().find(|(name, _)| name.as_bytes() == edit).ok_or_else(|| {
                    let text = "Cannot change the ACL: weir.edit is replace, modify, remove, clear or clear-default";
                    RequestError::new(ErrorNumber::ARG_INVALID, text)
                })?;
            Ok(Change::SetAcl(service.acl_edit(caller, path, change, text_of(given.unwrap_or_default())?)?))
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

fn text_of(bytes: &[u8]) -> Result<&str, RequestError> {
    std::str::from_utf8(bytes)
        .map_err(|_| RequestError::new(ErrorNumber::ARG_INVALID, "The names of users and groups are text"))
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
