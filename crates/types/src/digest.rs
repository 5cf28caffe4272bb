//! Checksums of whole files that weir computes on demand, beside the two that it always keeps.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An algorithm for a whole file. It cannot be combined from those of its parts, so the file is read through.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Serialize, Deserialize)]
pub enum DigestKind {
    /// MD5.
    Md5,
    /// SHA-256.
    Sha256,
    /// CRC-64/XZ (also called ECMA).
    Crc64,
}

impl DigestKind {
    /// All of them.
    pub const ALL: [DigestKind; 3] = [DigestKind::Md5, DigestKind::Sha256, DigestKind::Crc64];

    /// The name in configurations and in requests of clients.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha256 => "sha256",
            Self::Crc64 => "crc64",
        }
    }

    /// The algorithm of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for DigestKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for kind in DigestKind::ALL {
            assert_eq!(DigestKind::named(kind.name()), Some(kind));
        }
        assert_eq!(DigestKind::named("adler32"), None);
        assert_eq!(DigestKind::named("MD5"), None);
    }
}
