//! Users of this machine, and their groups, as its files list them (passwd(5), group(5)).

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

const PASSWD: &str = "/etc/passwd";
const GROUP: &str = "/etc/group";
/// A longer file is not read to its end.
const FILE_MAX: u64 = 4 << 20;

/// A user of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalUser {
    /// The name.
    pub name: String,
    /// The names of its groups, the primary one first.
    pub groups: Vec<String>,
}

impl LocalUser {
    /// The user with this number; `None`: the files do not list it.
    #[must_use]
    pub fn of(uid: u32) -> Option<Self> {
        let (name, gid) = lines(Path::new(PASSWD)).find_map(|line| user_in(&line, uid))?;
        let (mut groups, mut primary) = (Vec::new(), None);
        for line in lines(Path::new(GROUP)) {
            match group_in(&line, &name, gid) {
                Some((group, true)) if primary.is_none() => primary = Some(group),
                Some((group, _)) => groups.push(group),
                None => {}
            }
        }
        Some(Self { name, groups: primary.into_iter().chain(groups).collect() })
    }
}

/// The name of the user with this number.
pub(crate) fn user_name(uid: u32) -> Option<String> {
    lines(Path::new(PASSWD)).find_map(|line| user_in(&line, uid)).map(|(name, _)| name)
}

fn lines(file: &Path) -> impl Iterator<Item = Vec<u8>> {
    let opened = File::open(file).ok().map(|file| BufReader::new(file.take(FILE_MAX)));
    opened.into_iter().flat_map(|lines| lines.split(b'\n').map_while(Result::ok))
}

/// The user's name and the number of its primary group, if this line of passwd(5) is about this number.
fn user_in(line: &[u8], uid: u32) -> Option<(String, u32)> {
    let mut fields = std::str::from_utf8(line).ok()?.split(':');
    let (name, number) = (fields.next()?, fields.nth(1)?);
    let is_it = number.parse() == Ok(uid) && !name.is_empty() && !name.starts_with(['+', '-']);
    let gid = fields.next().and_then(|gid| gid.parse().ok()).unwrap_or(u32::MAX);
    is_it.then(|| (name.to_owned(), gid))
}

/// The group's name, and whether it is the primary one, if this line of group(5) says that the user is in it.
fn group_in(line: &[u8], user: &str, gid: u32) -> Option<(String, bool)> {
    let mut fields = std::str::from_utf8(line).ok()?.split(':');
    let (name, number, members) = (fields.next()?, fields.nth(1)?, fields.next()?);
    let is_primary = number.parse() == Ok(gid);
    let is_in = is_primary || members.trim_end().split(',').any(|member| member == user);
    (is_in && !name.is_empty() && !name.starts_with(['+', '-'])).then(|| (name.to_owned(), is_primary))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_number() {
        assert_eq!(user_in(b"root:x:0:0:root:/root:/bin/sh", 0), Some(("root".into(), 0)));
        for (line, uid) in [(&b"root:x:0:0::/:"[..], 1), (b"+:x:0", 0), (b"root:x", 0), (b"", 0), (b"\xff:x:0", 0)] {
            assert_eq!(user_in(line, uid), None, "{line:?}");
        }
    }

    #[test]
    fn groups_are_the_primary_one_and_those_that_list_the_user() {
        let of = |line: &str| group_in(line.as_bytes(), "ana", 100);
        assert_eq!(of("users:x:100:"), Some(("users".into(), true)));
        assert_eq!(of("ops:x:7:ben,ana"), Some(("ops".into(), false)));
        for line in ["ops:x:7:anaa,an,Ana", "ops:x:7:", "ops:x:7", "", "+:x:7:ana", ":x:7:ana", "ana:x:7:ben"] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn root_is_a_user_of_every_machine() {
        let root = LocalUser::of(0).unwrap();
        assert_eq!((&*root.name, root.groups.first().map(String::as_str)), ("root", Some("root")));
        assert_eq!(LocalUser::of(u32::MAX - 7), None);
    }
}
