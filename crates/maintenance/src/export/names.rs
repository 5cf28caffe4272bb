//! Names of exported files: decisions without I/O. A path in weir has any bytes except `/` and NUL, and never `.` or `..`. So it is valid on any
//! other file system too, and stays below the target.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use types::{NAME_MAX, NsPath, ReplicaId};

/// The folder for objects without a known path.
pub const UNNAMED: &str = "weir-unnamed";
/// The suffix of a file that its writer left unfinished.
pub const INTERRUPTED: &str = ".weir-interrupted";
/// The suffix of a file with damaged pages.
pub const DAMAGED: &str = ".weir-damaged";

/// The path below the target for `path` of the namespace, with a suffix. `None`: no file can have this name.
pub fn below_target(path: &[u8], suffix: &str) -> Option<PathBuf> {
    let path = NsPath::parse(path).ok()?;
    let mut names = path.as_bytes().split(|byte| *byte == b'/').filter(|name| !name.is_empty()).peekable();
    names.peek()?;
    let mut below = PathBuf::new();
    while let Some(name) = names.next() {
        let name = if names.peek().is_none() { [name, suffix.as_bytes()].concat() } else { name.to_vec() };
        if name.len() > NAME_MAX {
            return None;
        }
        below.push(OsStr::from_bytes(&name));
    }
    Some(below)
}

/// The possible names of an object, the best first: its path, its path with its number appended, its number alone.
pub fn candidates(path: &[u8], suffix: &str, replica: ReplicaId) -> Vec<PathBuf> {
    let unnamed = PathBuf::from(UNNAMED).join(format!("{replica}{suffix}"));
    let numbered = format!(".weir-{:016x}{suffix}", replica.object.0);
    let at_path = [below_target(path, suffix), below_target(path, &numbered)];
    at_path.into_iter().flatten().chain([unnamed]).collect()
}

#[cfg(test)]
mod tests {
    use types::ObjectId;

    use super::*;

    #[test]
    fn names_stay_below_the_target() {
        let replica = ReplicaId::first(ObjectId(0xab));
        let shown = |path: &[u8], suffix| -> Vec<String> {
            candidates(path, suffix, replica).iter().map(|path| path.display().to_string()).collect()
        };
        assert_eq!(
            shown(b"/run1//a", ""),
            ["run1/a", "run1/a.weir-00000000000000ab", "weir-unnamed/00000000000000ab.0"]
        );
        assert_eq!(shown(b"/a", DAMAGED)[0], "a.weir-damaged");
        for path in [&b""[..], b"/", b"a", b"/../etc/passwd", b"/a/../../b", b"/a\0b"] {
            assert_eq!(shown(path, ""), ["weir-unnamed/00000000000000ab.0"], "{}", path.escape_ascii());
        }
        let long = [b"/".as_slice(), &[b'x'; 255]].concat();
        assert_eq!(shown(&long, "").len(), 2);
        assert_eq!(shown(&long, DAMAGED), ["weir-unnamed/00000000000000ab.0.weir-damaged"]);
    }
}
