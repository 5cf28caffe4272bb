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
    /// `.` or `..`, which are no valid names and not allowed in paths.
    #[error("`.` and `..` are not allowed in paths here; give the path in full")]
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

/// A checked absolute path in canonical form: `/` for the root, otherwise `/name/name…` without empty parts and without
/// a trailing slash. Repeated and trailing slashes are removed; `.` and `..` are errors.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NsPath(Box<[u8]>);

impl NsPath {
    /// The root directory.
    #[must_use]
    pub fn root() -> Self {
        Self(b"/".as_slice().into())
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
        for part in bytes.split(|&b| b == b'/').filter(|part| !part.is_empty()) {
            check_name(part)?;
            canonical.push(b'/');
            canonical.extend_from_slice(part);
        }
        if canonical.is_empty() {
            canonical.push(b'/');
        }
        Ok(Self(canonical.into()))
    }

    /// The canonical bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether this is `/`.
    #[must_use]
    pub fn is_root(&self) -> bool {
        &*self.0 == b"/"
    }

    /// The names from the root down; none for `/`. Each satisfies the rules of [`FileName`].
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|&b| b == b'/').filter(|part| !part.is_empty())
    }

    /// The path of the parent directory and the last name; `None` for `/`.
    #[must_use]
    pub fn split_last(&self) -> Option<(NsPath, FileName)> {
        if self.is_root() {
            return None;
        }
        let slash = self.0.iter().rposition(|&b| b == b'/')?;
        let parent = if slash == 0 { Self::root() } else { Self(self.0[..slash].into()) };
        Some((parent, FileName(self.0[slash + 1..].into())))
    }

    /// Whether `self` is `other` or lies below it.
    #[must_use]
    pub fn is_at_or_below(&self, other: &NsPath) -> bool {
        other.is_root()
            || (self.0.starts_with(&other.0)
                && (self.0.len() == other.0.len() || self.0.get(other.0.len()) == Some(&b'/')))
    }
}

impl fmt::Display for NsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for NsPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extra_slashes_are_removed_and_dots_are_errors() {
        assert_eq!(NsPath::parse(b"//a///b/").map(|p| p.to_string()), Ok("/a/b".into()));
        assert_eq!(NsPath::parse(b"/"), Ok(NsPath::root()));
        assert_eq!(NsPath::parse(b"///"), Ok(NsPath::root()));
        assert_eq!(NsPath::parse(b"/a/../b"), Err(NameError::Dots));
        assert_eq!(NsPath::parse(b"/a/./b"), Err(NameError::Dots));
        assert_eq!(NsPath::parse(b"a"), Err(NameError::NotAbsolute));
        assert_eq!(NsPath::parse(b""), Err(NameError::Empty));
        assert_eq!(NsPath::parse(b"/a\0"), Err(NameError::ForbiddenByte));
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
