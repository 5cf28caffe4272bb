//! Invitations. `weir admin invite` makes the text; the person who is invited redeems it on a machine of their own. It
//! works once, until it expires.
//!
//! Like a join token it works in both directions: by the fingerprint the client recognises a manager of the right
//! cluster, by the secret the manager recognises the invited person. The manager keeps only a hash of the secret.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use types::{Crc32c, Timestamp};

use crate::admin::AdminId;
use crate::random::{self, RandomError};
use crate::{Fingerprint, message};

/// The prefix of an invitation's text.
const PREFIX: &str = "weir-invite-";
/// A longer text is no invitation.
const TEXT_MAX: usize = 4096;
const ADDRESSES_MAX: usize = 16;
const ADDRESS_BYTES_MAX: usize = 255;
const VERSION: u8 = 1;
/// The context in which the stored hash is derived from the secret.
const CONTEXT: &str = "weir 2026 hash of an invitation's secret";

/// Why a text is no invitation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvitationError {
    /// The text is no invitation.
    #[error("this is no invitation: {0}; copy the whole line that `weir admin invite` printed")]
    Malformed(&'static str),
    /// The addresses are not valid.
    #[error(
        "an invitation cannot hold {addresses} addresses: it needs 1 to {ADDRESSES_MAX}, of at most 255 bytes each"
    )]
    Addresses {
        /// The number of addresses.
        addresses: usize,
    },
}

/// Random bytes that make an invitation valid. Never shown.
#[derive(Clone, Serialize, Deserialize)]
struct Secret([u8; 32]);

impl Secret {
    fn hash(&self) -> blake3::Hash {
        blake3::Hash::from_bytes(blake3::derive_key(CONTEXT, &self.0))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

/// The part of an invitation that is shown to a manager.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PresentedInvitation {
    /// The id of the administrator.
    pub id: AdminId,
    secret: Secret,
}

impl PresentedInvitation {
    /// Whether its secret has this hash. Compares in constant time.
    #[must_use]
    pub fn has_hash(&self, hash: &[u8; 32]) -> bool {
        self.secret.hash() == *hash
    }
}

/// An invitation. [`Invitation::text`] is the form to copy. There is no `Display`, so that none gets into a log.
#[derive(Clone, Debug)]
pub struct Invitation {
    /// The id that the administrator will have.
    pub id: AdminId,
    secret: Secret,
    /// The fingerprint of the cluster's authority.
    pub authority: Fingerprint,
    /// When it expires.
    pub expires: Timestamp,
    /// Addresses of managers, as `host:port`; the client tries them in order.
    pub addresses: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Bytes {
    version: u8,
    id: AdminId,
    secret: Secret,
    authority: [u8; 32],
    expires: i64,
    addresses: Vec<String>,
}

impl Invitation {
    /// Makes a new invitation, and the hash of its secret for the manager to keep.
    ///
    /// # Errors
    /// The kernel has no randomness.
    pub fn make(
        addresses: Vec<String>,
        authority: Fingerprint,
        expires: Timestamp,
    ) -> Result<(Self, [u8; 32]), RandomError> {
        let (id, secret) = (AdminId(random::bytes()?), Secret(random::bytes()?));
        let hash = *secret.hash().as_bytes();
        Ok((Self { id, secret, authority, expires, addresses }, hash))
    }

    /// One line of text. Anyone who reads it can become the invited administrator.
    ///
    /// # Errors
    /// [`InvitationError::Addresses`].
    pub fn text(&self) -> Result<String, InvitationError> {
        let addresses = InvitationError::Addresses { addresses: self.addresses.len() };
        if !addresses_are_good(&self.addresses) {
            return Err(addresses);
        }
        let bytes = Bytes {
            version: VERSION,
            id: self.id,
            secret: self.secret.clone(),
            authority: self.authority.0,
            expires: self.expires.0,
            addresses: self.addresses.clone(),
        };
        let mut bytes = message::encode(&bytes).map_err(|_| addresses)?;
        bytes.extend(Crc32c::of(&bytes).0.to_le_bytes());
        Ok(format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)))
    }

    /// Parses `text`, ignoring surrounding white space.
    ///
    /// # Errors
    /// [`InvitationError::Malformed`].
    pub fn parse(text: &str) -> Result<Self, InvitationError> {
        let malformed = InvitationError::Malformed;
        let text = text.trim();
        if text.len() > TEXT_MAX {
            return Err(malformed("it is too long"));
        }
        if text.starts_with("weir-join-") {
            return Err(malformed("it is a token with which a node joins"));
        }
        let text = text.strip_prefix(PREFIX).ok_or(malformed("it does not begin with `weir-invite-`"))?;
        let bytes = URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| malformed("it has characters that no invitation has, or characters are missing"))?;
        let (bytes, sum) = bytes.split_last_chunk().ok_or(malformed("it is too short"))?;
        if Crc32c::of(bytes).0 != u32::from_le_bytes(*sum) {
            return Err(malformed("a part of it is missing or was altered"));
        }
        if bytes.first() != Some(&VERSION) {
            return Err(malformed("a newer version of weir has made it; install that version here"));
        }
        let bytes: Bytes = message::decode(bytes).map_err(|_| malformed("there is something else in it"))?;
        if !addresses_are_good(&bytes.addresses) {
            return Err(malformed("its addresses are not valid"));
        }
        let Bytes { id, secret, authority, expires, addresses, .. } = bytes;
        Ok(Self { id, secret, authority: Fingerprint(authority), expires: Timestamp(expires), addresses })
    }

    /// The part to show to a manager.
    #[must_use]
    pub fn presented(&self) -> PresentedInvitation {
        PresentedInvitation { id: self.id, secret: self.secret.clone() }
    }
}

fn addresses_are_good(addresses: &[String]) -> bool {
    let is_good = |address: &String| !address.is_empty() && address.len() <= ADDRESS_BYTES_MAX;
    (1..=ADDRESSES_MAX).contains(&addresses.len()) && addresses.iter().all(is_good)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn made() -> (Invitation, [u8; 32]) {
        Invitation::make(vec!["mgr1:1095".into()], Fingerprint([3; 32]), Timestamp(4)).unwrap()
    }

    #[test]
    fn the_text_says_everything_and_debug_nothing_secret() {
        let (invitation, hash) = made();
        let read = Invitation::parse(&format!(" {}\n", invitation.text().unwrap())).unwrap();
        assert_eq!((read.id, read.authority, read.expires), (invitation.id, Fingerprint([3; 32]), Timestamp(4)));
        assert_eq!(read.addresses, ["mgr1:1095"]);
        assert!(read.presented().has_hash(&hash) && !made().0.presented().has_hash(&hash));
        let shown = format!("{invitation:?} {:?}", invitation.presented());
        let secret = invitation.secret.0;
        assert!(!shown.contains(&format!("{}, {}, {}", secret[0], secret[1], secret[2])), "{shown}");
    }

    #[test]
    fn the_bytes_are_pinned() {
        let invitation = Invitation {
            id: AdminId([1; 16]),
            secret: Secret([2; 32]),
            authority: Fingerprint([3; 32]),
            expires: Timestamp(4),
            addresses: vec!["m:5".into()],
        };
        assert_eq!(
            invitation.text().unwrap(),
            "weir-invite-AQEBAQEBAQEBAQEBAQEBAQECAgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDCAEDbTo14-Qb3A"
        );
    }

    #[test]
    fn other_texts_are_refused() {
        for (text, why) in [
            ("", "does not begin"),
            ("weir-join-AQEB", "a node joins"),
            ("weir-invite-", "too short"),
            ("weir-invite-AQEBAQEBAQEB", "altered"),
            ("weir-invite-!", "characters"),
        ] {
            let error = Invitation::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(Invitation::parse(&"weir-invite-".repeat(1000)).is_err());
        let (invitation, _) = made();
        for addresses in [vec![], vec![String::new()], vec!["a:1".into(); 17], vec!["a".repeat(256)]] {
            assert!(Invitation { addresses, ..invitation.clone() }.text().is_err());
        }
    }

    proptest! {
        #[test]
        fn any_altered_character_is_noticed(at in 0usize.., bit in 0u8..7) {
            let mut text = made().0.text().unwrap().into_bytes();
            let at = at % text.len();
            text[at] ^= 1 << bit;
            prop_assert!(Invitation::parse(&String::from_utf8(text).unwrap()).is_err());
        }
    }
}
