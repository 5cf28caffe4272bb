//! What all managers of a cluster keep in files of their own, and send each other.

use serde::{Deserialize, Serialize};

use crate::admin::AdminRecord;
use crate::message;

/// The context in which the digest is derived from the contents.
const CONTEXT: &str = "weir 2026 digest of the managers' files";

/// The cluster's authority, with its key, and its administrators. Whoever has this is the authority, so it goes only to managers.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagerFiles {
    /// The authority: the bytes of [`crate::Authority::to_secret_bytes`].
    pub authority: Vec<u8>,
    /// The administrators.
    pub administrators: Vec<AdminRecord>,
}

impl std::fmt::Debug for ManagerFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ManagerFiles({} administrators, ..)", self.administrators.len())
    }
}

impl ManagerFiles {
    /// Differs between different contents, and tells nothing about them. `None`: the contents are too long to be sent.
    #[must_use]
    pub fn digest(&self) -> Option<[u8; 32]> {
        message::encode(self).ok().map(|bytes| blake3::derive_key(CONTEXT, &bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_of_the_contents_and_debug_shows_no_secret() {
        let files = |authority: &[u8]| ManagerFiles { authority: authority.to_vec(), administrators: Vec::new() };
        let (one, other) = (files(b"secret"), files(b"secres"));
        assert_eq!(one.digest(), files(b"secret").digest());
        assert_ne!(one.digest(), other.digest());
        assert_eq!(files(&vec![0; crate::MESSAGE_BYTES_MAX as usize]).digest(), None);
        assert_eq!(format!("{one:?}"), "ManagerFiles(0 administrators, ..)");
    }
}
