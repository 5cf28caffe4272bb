//! Paths in requests: `path?key=value&key=value`.

use std::fmt;

use crate::WireError;

/// The most pairs of an opaque part.
pub const OPAQUE_PAIRS_MAX: usize = 256;

/// A path with its opaque part. Neither is checked against the rules for names; `types` does that.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct PathArg {
    /// The bytes before the first `?`.
    pub path: Vec<u8>,
    /// The bytes after the first `?`, if there is one.
    pub opaque: Option<Opaque>,
}

/// The keys and values behind a path's `?`. The bytes are kept as received.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Opaque {
    raw: Vec<u8>,
}

impl PathArg {
    /// Makes a path without an opaque part.
    #[must_use]
    pub fn plain(path: &[u8]) -> Self {
        Self { path: path.to_vec(), opaque: None }
    }

    /// Splits a request's argument. Trailing NULs are dropped, because old clients send one.
    ///
    /// # Errors
    /// The path is empty, contains a NUL, or has more than [`OPAQUE_PAIRS_MAX`] pairs.
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

    /// Returns the first value of `key` in the opaque part.
    #[must_use]
    pub fn get(&self, key: &[u8]) -> Option<&[u8]> {
        self.opaque.as_ref()?.get(key)
    }

    /// Appends `path?opaque` to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.path);
        if let Some(opaque) = &self.opaque {
            out.push(b'?');
            out.extend_from_slice(&opaque.raw);
        }
    }
}

impl Opaque {
    /// Parses `key=value&…` without the `?`. Empty parts between two `&` are skipped.
    pub fn parse(raw: &[u8]) -> Result<Self, WireError> {
        let opaque = Self { raw: raw.to_vec() };
        let count = opaque.pairs().count();
        if count > OPAQUE_PAIRS_MAX {
            return Err(WireError::TooMany { what: "keys behind `?`", count, limit: OPAQUE_PAIRS_MAX });
        }
        Ok(opaque)
    }

    /// Returns the bytes as received.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.raw
    }

    /// Returns keys and values in order. A part without `=` is a key with an empty value. Nothing is unescaped,
    /// because the protocol has no escapes here.
    pub fn pairs(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.raw.split(|&b| b == b'&').filter(|part| !part.is_empty()).map(|part| {
            match part.iter().position(|&b| b == b'=') {
                Some(at) => (&part[..at], &part[at + 1..]),
                None => (part, &[][..]),
            }
        })
    }

    /// Returns the first value of `key`.
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
