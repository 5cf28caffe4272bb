//! Names and paths: any bytes except `/` and NUL.

use std::borrow::Borrow;
use std::fmt;

/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest path, in bytes.
pub const PATH_MAX: usize = 4096;

/// Why a name or path is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NameError {
    /// It is empty.
    #[error("the name is empty")]
    Empty,
    /// `.` or `..` as a name, or `..` in a path.
    #[error("`..` is not allowed in paths here, nor `.` as a name; give the path in full")]
    Dots,
    /// A `/` in a name, or a NUL byte anywhere.
    #[error("a name may hold any byte but `/` and NUL")]
    ForbiddenByte,
    /// Longer than [`NAME_MAX`] bytes.
    #[error("the name is {0} bytes long; 255 is the limit")]
    NameTooLong(usize),
    /// Longer than [`PATH_MAX`] bytes.
    #[error("the path is {0} bytes long; 4096 is the limit")]
    PathTooLong(usize),
    /// Does not begin with `/`.
    #[error("the path does not begin with `/`")]
    NotAbsolute,
}

/// One entry's name: 1 to 255 bytes, no `/`, no NUL, not `.` or `..`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(Box<[u8]>);

impl FileName {
    /// Checks `bytes`.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn new(bytes: &[u8]) -> Result<Self, NameError> {
        check_name(bytes)?;
        Ok(Self(bytes.into()))
    }

    /// The bytes, as given.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

fn check_name(bytes: &[u8]) -> Result<(), NameError> {
    if bytes.is_empty() {
        return Err(NameError::Empty);
    }
    if bytes.len() > NAME_MAX {
        return Err(NameError::NameTooLong(bytes.len()));
    }
    if bytes == b"." || bytes == b".." {
        return Err(NameError::Dots);
    }
    if bytes.iter().any(|&b| b == b'/' || b == 0) {
        return Err(NameError::ForbiddenByte);
    }
    Ok(())
}

impl Borrow<[u8]> for FileName {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

/// What the end of a path says about the last name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum End {
    /// Nothing: `/a/b`.
    Name,
    /// It is a directory, which may not exist yet: `/a/b/`.
    Slash,
    /// It is a directory that exists: `/a/b/.`.
    Dot,
}

/// A checked absolute path in canonical form: `/` for the root, otherwise `/name/name…` without empty parts. Repeated
/// slashes and `.` between slashes are removed, as in POSIX; `..` is an error.
///
/// A slash or `/.` at the end is remembered beside the canonical bytes: the path then names a directory and never a file
/// ([`NsPath::must_be_directory`]). The namespace checks that where it resolves the path. `/a/b` and `/a/b/` are not
/// equal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NsPath {
    bytes: Box<[u8]>,
    end: End,
}

impl NsPath {
    /// The root directory.
    #[must_use]
    pub fn root() -> Self {
        Self::named(b"/".as_slice())
    }

    fn named(bytes: &[u8]) -> Self {
        Self { bytes: bytes.into(), end: End::Name }
    }

    /// Checks and normalises `bytes`.
    ///
    /// # Errors
    /// [`NameError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, NameError> {
        if bytes.len() > PATH_MAX {
            return Err(NameError::PathTooLong(bytes.len()));
        }
        if bytes.first() != Some(&b'/') {
            return Err(if bytes.is_empty() { NameError::Empty } else { NameError::NotAbsolute });
        }
        let mut canonical = Vec::with_capacity(bytes.len());
        let mut end = End::Name;
        for part in bytes.split(|&b| b == b'/').skip(1) {
            end = match part {
                b"" => End::Slash,
                b"." => End::Dot,
                _ => End::Name,
            };
            if end == End::Name {
                check_name(part)?;
                canonical.push(b'/');
                canonical.extend_from_slice(part);
            }
        }
        if canonical.is_empty() {
            return Ok(Self::root());
        }
        Ok(Self { bytes: canonical.into(), end })
    }

    /// Whether the path says of itself that it names a directory: the root, or a path that ends in a slash or in `/.`.
    #[must_use]
    pub fn must_be_directory(&self) -> bool {
        self.end != End::Name || self.is_root()
    }

    /// Whether the path ends in `/.`. Such a directory must exist, and cannot be removed or moved by this path.
    #[must_use]
    pub fn ends_in_dot(&self) -> bool {
        self.end == End::Dot
    }

    /// Whether a file that was opened at the canonical path `bytes` is at this path.
    #[must_use]
    pub fn is_of_file(&self, bytes: &[u8]) -> bool {
        !self.must_be_directory() && self.as_bytes() == bytes
    }

    /// The canonical bytes, which never end in a slash but for the root.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether this is `/`.
    #[must_use]
    pub fn is_root(&self) -> bool {
        &*self.bytes == b"/"
    }

    /// The names from the root down; none for `/`. Each satisfies the rules of [`FileName`].
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.bytes.split(|&b| b == b'/').filter(|part| !part.is_empty())
    }

    /// The path of the parent directory and the last name; `None` for `/`.
    #[must_use]
    pub fn split_last(&self) -> Option<(NsPath, FileName)> {
        if self.is_root() {
            return None;
        }
        let slash = self.bytes.iter().rposition(|&b| b == b'/')?;
        let parent = if slash == 0 { Self::root() } else { Self::named(&self.bytes[..slash]) };
        Some((parent, FileName(self.bytes[slash + 1..].into())))
    }

    /// Whether `self` is `other` or lies below it.
    #[must_use]
    pub fn is_at_or_below(&self, other: &NsPath) -> bool {
        other.is_root()
            || (self.bytes.starts_with(&other.bytes)
                && (self.bytes.len() == other.bytes.len() || self.bytes.get(other.bytes.len()) == Some(&b'/')))
    }
}

impl fmt::Display for NsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let end = match self.end {
            End::Name => "",
            End::Slash => "/",
            End::Dot => "/.",
        };
        write!(f, "{}{end}", self.bytes.escape_ascii())
    }
}

impl fmt::Debug for NsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_slashes_and_dots_are_removed_and_what_the_end_says_is_kept() {
        let canonical =
            |bytes: &[u8]| NsPath::parse(bytes).map(|path| String::from_utf8(path.as_bytes().to_vec()).unwrap());
        for same in ["/a/b", "//a///b", "/a/./b", "/./a/././/b", "/a/b/", "/a/b//", "/a/b/.", "/a/b/.//", "/a/b/./."] {
            assert_eq!(canonical(same.as_bytes()), Ok("/a/b".into()), "{same}");
        }
        let path = |text: &str| NsPath::parse(text.as_bytes()).unwrap();
        for (text, directory, dot, shown) in [
            ("/a/b", false, false, "/a/b"),
            ("/a/./b", false, false, "/a/b"),
            ("/a//b//", true, false, "/a/b/"),
            ("/a/./b/", true, false, "/a/b/"),
            ("/a/b/.", true, true, "/a/b/."),
            ("/a/b/./", true, false, "/a/b/"),
            ("/a/b/.//", true, false, "/a/b/"),
            ("/a/b//.", true, true, "/a/b/."),
            ("/a/.b", false, false, "/a/.b"),
        ] {
            let path = path(text);
            assert_eq!((path.must_be_directory(), path.ends_in_dot()), (directory, dot), "{text}");
            assert_eq!(path.to_string(), shown, "{text}");
        }
        for root in ["/", "///", "/.", "/./", "//.//."] {
            assert_eq!(path(root), NsPath::root());
            assert!(path(root).must_be_directory() && !path(root).ends_in_dot());
        }
        assert_ne!(path("/a"), path("/a/"));
        assert!(path("/a").is_of_file(b"/a") && !path("/a/").is_of_file(b"/a") && !path("/").is_of_file(b"/"));
        assert_eq!(NsPath::parse(b"/a/../b"), Err(NameError::Dots));
        assert_eq!(NsPath::parse(b"/a/.."), Err(NameError::Dots));
        assert_eq!(NsPath::parse(b"a"), Err(NameError::NotAbsolute));
        assert_eq!(NsPath::parse(b""), Err(NameError::Empty));
        assert_eq!(NsPath::parse(b"/a\0"), Err(NameError::ForbiddenByte));
        assert_eq!(NsPath::parse(b"/a/.\0"), Err(NameError::ForbiddenByte));
    }

    #[test]
    fn limits_are_exact() {
        let name = [b'n'; NAME_MAX];
        assert!(FileName::new(&name).is_ok());
        assert_eq!(FileName::new(&[b'n'; NAME_MAX + 1]), Err(NameError::NameTooLong(256)));
        let long = [b"/".as_slice(), &[b'n'; 255]].concat().repeat(16);
        assert_eq!(long.len(), PATH_MAX);
        assert!(NsPath::parse(&long).is_ok());
        assert_eq!(NsPath::parse(&[long.as_slice(), b"/"].concat()), Err(NameError::PathTooLong(4097)));
    }

    #[test]
    fn parents() {
        let path = NsPath::parse(b"/a/b").unwrap();
        let (parent, name) = path.split_last().unwrap();
        assert_eq!((parent.to_string().as_str(), name.as_bytes()), ("/a", b"b".as_slice()));
        assert_eq!(parent.split_last().unwrap().0, NsPath::root());
        assert_eq!(NsPath::root().split_last(), None);
        assert!(path.is_at_or_below(&parent) && path.is_at_or_below(&path) && !parent.is_at_or_below(&path));
        assert!(!NsPath::parse(b"/ab").unwrap().is_at_or_below(&parent));
    }
}
