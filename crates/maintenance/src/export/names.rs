//! What exported files are called: decisions without I/O. A path of weir's is any bytes but `/` and NUL, never `.` or `..`, so it is a path of any
//! other file system too, as long as it stays below the target.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use types::{NAME_MAX, NsPath, ReplicaId};

/// Where contents go whose path nobody knows.
pub const UNNAMED: &str = "weir-unnamed";
/// Behind the name of a file that its writer left unfinished.
pub const INTERRUPTED: &str = ".weir-interrupted";
/// Behind the name of a file with damaged pages.
pub const DAMAGED: &str = ".weir-damaged";

/// Below the target: the path `path` of the namespace, something behind it. `None`: no file can be called so.
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

/// The names for a content, the best first: at its path; if that is taken, the same with its number behind; under its number alone.
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
