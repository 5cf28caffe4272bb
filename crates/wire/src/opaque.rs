//! Paths as requests carry them: `path?key=value&key=value`.

use std::fmt;

use crate::WireError;

/// Pairs that an opaque part may hold.
pub const OPAQUE_PAIRS_MAX: usize = 256;

/// A path with the opaque part that came with it. Neither is checked against the rules of names (`types` does that).
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct PathArg {
    /// The bytes before the first `?`.
    pub path: Vec<u8>,
    /// What follows the first `?`, if there is one.
    pub opaque: Option<Opaque>,
}

/// Keys and values behind a path's `?`. The bytes are kept as they came.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Opaque {
    raw: Vec<u8>,
}

impl PathArg {
    /// A path without an opaque part.
    #[must_use]
    pub fn plain(path: &[u8]) -> Self {
        Self { path: path.to_vec(), opaque: None }
    }

    /// Splits a request's argument. Trailing NULs are dropped (old clients send one); an empty path, a NUL inside and
    /// more than [`OPAQUE_PAIRS_MAX`] pairs are errors.
    pub fn parse(bytes: &[u8]) -> Result<Self, WireError> {
        let end = bytes.iter().rposition(|&b| b != 0).map_or(0, |last| last + 1);
        let bytes = &bytes[..end];
        if bytes.contains(&0) {
            return Err(WireError::Malformed { what: "path", why: "it holds a NUL byte" });
        }
        let (path, opaque) = match bytes.iter().position(|&b| b == b'?') {
            Some(at) => (&bytes[..at], Some(Opaque::parse(&bytes[at + 1..])?)),
            None => (bytes, None),
        };
        if path.is_empty() {
            return Err(WireError::Missing { what: "path" });
        }
        Ok(Self { path: path.to_vec(), opaque })
    }

    /// The first value of `key` in the opaque part.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.opaque.as_ref()?.get(key)
    }

    /// Back to `path?opaque`, at the end of `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.path);
        if let Some(opaque) = &self.opaque {
            out.push(b'?');
            out.extend_from_slice(&opaque.raw);
        }
    }
}

impl Opaque {
    /// Takes `key=value&…` without the `?`. Empty parts between two `&` are allowed and skipped.
    pub fn parse(raw: &[u8]) -> Result<Self, WireError> {
        let opaque = Self { raw: raw.to_vec() };
        let count = opaque.pairs().count();
        if count > OPAQUE_PAIRS_MAX {
            return Err(WireError::TooMany { what: "keys behind `?`", count, limit: OPAQUE_PAIRS_MAX });
        }
        Ok(opaque)
    }

    /// The bytes as they came.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.raw
    }

    /// Keys and values in their order; a part without `=` is a key with an empty value. Nothing is unescaped: the
    /// protocol has no escapes here.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.raw.split(|&b| b == b'&').filter(|part| !part.is_empty()).map(|part| {
            match part.iter().position(|&b| b == b'=') {
                Some(at) => (&part[..at], &part[at + 1..]),
                None => (part, &[][..]),
            }
        })
    }

    /// The first value of `key`.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.pairs().find(|(name, _)| *name == key).map(|(_, value)| value)
    }
}

impl fmt::Debug for PathArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}", self.path.escape_ascii())?;
        if let Some(opaque) = &self.opaque {
            write!(f, "?{}", opaque.raw.escape_ascii())?;
        }
        f.write_str("\"")
    }
}

impl fmt::Debug for Opaque {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.raw.escape_ascii())
    }
}
