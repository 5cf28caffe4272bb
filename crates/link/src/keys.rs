//! A node's key pair. It is made on the node and never leaves it. A certificate request proves possession of the
//! private part.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use serde::{Deserialize, Serialize};

use crate::admin::{AdminId, AdminName};
use crate::random::RandomError;
use crate::{NodeName, TokenRequest, message};

/// Signed bytes start with their purpose, so that a signature is useless elsewhere.
const RENEWAL: &[u8] = b"weir 2026 renewal of a certificate\0";
const JOIN: &[u8] = b"weir 2026 a node joins\0";
const REDEEM: &[u8] = b"weir 2026 an administrator redeems an invitation\0";
const ADMIN_RENEWAL: &[u8] = b"weir 2026 renewal of an administrator's certificate\0";

/// The fixed beginning of an Ed25519 key of version 1 (RFC 8410). Its seed follows.
const PKCS8_BEGINNING: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// A key without a certificate. Its private part is never shown.
pub struct NewKey {
    pub(crate) pkcs8: Vec<u8>,
    pair: Ed25519KeyPair,
}

impl fmt::Debug for NewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NewKey(not shown)")
    }
}

#[derive(Serialize, Deserialize)]
struct Renewal {
    key: [u8; 32],
    signature: Vec<u8>,
}

impl NewKey {
    /// Makes a new key.
    ///
    /// # Errors
    /// The kernel has no randomness.
    pub fn draw() -> Result<Self, RandomError> {
        let seed: [u8; 32] = crate::random::bytes()?;
        Ok(Self::of_seed(&seed))
    }

    fn of_seed(seed: &[u8; 32]) -> Self {
        let pkcs8 = [&PKCS8_BEGINNING[..], seed].concat();
        #[allow(clippy::expect_used)] // 32 bytes are a seed
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).expect("any 32 bytes are a seed");
        Self { pkcs8, pair }
    }

    /// The key with these bytes, as [`NewKey::draw`] makes them.
    pub(crate) fn from_pkcs8(pkcs8: &[u8]) -> Option<Self> {
        let seed = pkcs8.strip_prefix(&PKCS8_BEGINNING)?;
        Some(Self::of_seed(seed.try_into().ok()?))
    }

    /// The public part.
    #[must_use]
    pub fn public(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(self.pair.public_key().as_ref());
        bytes
    }

    /// The bytes that the node `name` sends to a manager to get a certificate for this key
    /// ([`crate::Authority::renew`]).
    ///
    /// # Errors
    /// None in practice: the message is short.
    pub fn renewal(&self, name: &NodeName) -> Result<Vec<u8>, message::MessageError> {
        let key = self.public();
        let signature = self.pair.sign(&signed_renewal(name, &key)).as_ref().to_vec();
        message::encode(&Renewal { key, signature })
    }

    /// The text that the administrator `name` sends to a manager to get a certificate for this key
    /// ([`crate::Authority::renew_admin`]).
    ///
    /// # Errors
    /// None in practice: the message is short.
    pub fn admin_renewal(&self, name: &AdminName) -> Result<String, message::MessageError> {
        let key = self.public();
        let signature = self.pair.sign(&signed_admin_renewal(name, &key)).as_ref().to_vec();
        Ok(STANDARD.encode(message::encode(&Renewal { key, signature })?))
    }

    pub(crate) fn sign_redeem(&self, challenge: &[u8], id: &AdminId) -> Vec<u8> {
        self.pair.sign(&signed_redeem(challenge, id, &self.public())).as_ref().to_vec()
    }

    pub(crate) fn sign_join(&self, challenge: &[u8], wish: &TokenRequest) -> Vec<u8> {
        self.pair.sign(&signed_join(challenge, wish)).as_ref().to_vec()
    }
}

fn signed_renewal(name: &NodeName, key: &[u8; 32]) -> Vec<u8> {
    [RENEWAL, name.to_string().as_bytes(), b"\0", key].concat()
}

fn signed_join(challenge: &[u8], wish: &TokenRequest) -> Vec<u8> {
    [JOIN, challenge, &wish.key, &[wish.roles.bits()], wish.name.as_bytes()].concat()
}

fn signed_admin_renewal(name: &AdminName, key: &[u8; 32]) -> Vec<u8> {
    [ADMIN_RENEWAL, name.to_string().as_bytes(), b"\0", key].concat()
}

fn signed_redeem(challenge: &[u8], id: &AdminId, key: &[u8; 32]) -> Vec<u8> {
    [REDEEM, challenge, &id.0, key].concat()
}

fn is_signed(key: &[u8; 32], what: &[u8], signature: &[u8]) -> bool {
    UnparsedPublicKey::new(&ED25519, key).verify(what, signature).is_ok()
}

/// The key in a certificate request of `name`, if the request proves possession of its private part.
pub(crate) fn check_renewal(name: &NodeName, request: &[u8]) -> Result<[u8; 32], &'static str> {
    let Renewal { key, signature } = message::decode(request).map_err(|_| "it makes no sense")?;
    if !is_signed(&key, &signed_renewal(name, &key), &signature) {
        return Err("it is not signed with the key that it is for");
    }
    Ok(key)
}

/// Like [`check_renewal`], for the administrator `name`.
pub(crate) fn check_admin_renewal(name: &AdminName, request: &str) -> Result<[u8; 32], &'static str> {
    let request = STANDARD.decode(request).map_err(|_| "it makes no sense")?;
    let Renewal { key, signature } = message::decode(&request).map_err(|_| "it makes no sense")?;
    if !is_signed(&key, &signed_admin_renewal(name, &key), &signature) {
        return Err("it is not signed with the key that it is for");
    }
    Ok(key)
}

pub(crate) fn check_redeem(challenge: &[u8], id: &AdminId, key: &[u8; 32], signature: &[u8]) -> bool {
    is_signed(key, &signed_redeem(challenge, id, key), signature)
}

pub(crate) fn check_join(challenge: &[u8], wish: &TokenRequest, signature: &[u8]) -> bool {
    is_signed(&wish.key, &signed_join(challenge, wish), signature)
}

#[cfg(test)]
mod tests {
    use types::{ClusterId, NodeId};

    use super::*;
    use crate::Roles;

    #[test]
    fn only_the_holder_of_a_key_gets_its_certificate() {
        let name = NodeName { cluster: ClusterId(1), node: NodeId(2), roles: Roles::DISK };
        let key = NewKey::draw().unwrap();
        let request = key.renewal(&name).unwrap();
        assert_eq!(check_renewal(&name, &request), Ok(key.public()));
        assert!(check_renewal(&NodeName { node: NodeId(3), ..name }, &request).is_err());
        assert!(check_renewal(&NodeName { roles: Roles::BOTH, ..name }, &request).is_err());
        for at in 0..request.len() {
            let mut altered = request.clone();
            altered[at] ^= 1;
            assert!(check_renewal(&name, &altered).is_err(), "{at}");
        }
        assert!(check_renewal(&name, &[]).is_err());
        assert!(!format!("{key:?}").contains("48, 46"));
        assert_eq!(NewKey::from_pkcs8(&key.pkcs8).unwrap().public(), key.public());
        for wrong in [&key.pkcs8[1..], &key.pkcs8[..47], &[&key.pkcs8[..], b"x"].concat(), b""] {
            assert!(NewKey::from_pkcs8(wrong).is_none());
        }
    }

    #[test]
    fn a_signature_of_an_administrator_is_good_for_one_purpose() {
        let name = AdminName { cluster: ClusterId(1), id: AdminId([2; 16]) };
        let key = NewKey::draw().unwrap();
        let request = key.admin_renewal(&name).unwrap();
        assert_eq!(check_admin_renewal(&name, &request), Ok(key.public()));
        assert!(check_admin_renewal(&AdminName { id: AdminId([3; 16]), ..name }, &request).is_err());
        assert!(check_admin_renewal(&AdminName { cluster: ClusterId(2), ..name }, &request).is_err());
        let node = NodeName { cluster: ClusterId(1), node: NodeId(2), roles: Roles::DISK };
        assert!(check_renewal(&node, &STANDARD.decode(&request).unwrap()).is_err());
        assert!(check_admin_renewal(&name, &STANDARD.encode(key.renewal(&node).unwrap())).is_err());
        let signature = key.sign_redeem(b"challenge", &name.id);
        assert!(check_redeem(b"challenge", &name.id, &key.public(), &signature));
        assert!(!check_redeem(b"Challenge", &name.id, &key.public(), &signature));
        assert!(!check_redeem(b"challenge", &AdminId([3; 16]), &key.public(), &signature));
    }

    #[test]
    fn a_signature_is_valid_only_for_its_challenge() {
        let key = NewKey::draw().unwrap();
        let wish = TokenRequest { roles: Roles::DISK, name: "disk1".into(), key: key.public() };
        let signature = key.sign_join(b"challenge", &wish);
        assert!(check_join(b"challenge", &wish, &signature));
        assert!(!check_join(b"Challenge", &wish, &signature));
        assert!(!check_join(b"challenge", &TokenRequest { roles: Roles::BOTH, ..wish.clone() }, &signature));
        assert!(!check_join(b"challenge", &TokenRequest { name: "disk2".into(), ..wish }, &signature));
    }
}
