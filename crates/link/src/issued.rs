//! Certificates on their way to their holders.

use std::fmt::Display;

use rustls::pki_types::CertificateDer;
use types::Timestamp;

use crate::admin::AdminName;
use crate::authority_set::AuthoritySet;
use crate::{AuthorityError, NodeName};

/// A certificate with everything that its holder needs beside it. `N` is the holder's name.
#[derive(Clone, Debug)]
pub(crate) struct IssuedTo<N> {
    pub(crate) name: N,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) authority: AuthoritySet,
    pub(crate) expires: Timestamp,
}

/// To a node.
pub(crate) type Issued = IssuedTo<NodeName>;
/// To an administrator.
pub(crate) type IssuedAdmin = IssuedTo<AdminName>;

/// The name of a holder, as certificates and messages have it.
pub(crate) trait HolderName: Display + Sized {
    /// `None`: it is no such name.
    fn of_text(text: &str) -> Option<Self>;
}

impl HolderName for NodeName {
    fn of_text(text: &str) -> Option<Self> {
        Self::from_text(text)
    }
}

impl HolderName for AdminName {
    fn of_text(text: &str) -> Option<Self> {
        Self::from_text(text)
    }
}

#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct IssuedBytes {
    name: String,
    certificate: Vec<u8>,
    authority: Vec<u8>,
    expires: i64,
}

impl<N: HolderName> IssuedTo<N> {
    pub(crate) fn to_message(&self) -> IssuedBytes {
        IssuedBytes {
            name: self.name.to_string(),
            certificate: self.certificate.to_vec(),
            authority: self.authority.to_bytes(),
            expires: self.expires.0,
        }
    }

    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, AuthorityError> {
        crate::message::encode(&self.to_message()).map_err(|_| AuthorityError::Request("the answer cannot be written"))
    }

    pub(crate) fn from_message(message: IssuedBytes) -> Option<Self> {
        Some(Self {
            name: N::of_text(&message.name)?,
            certificate: message.certificate.into(),
            authority: AuthoritySet::from_bytes(&message.authority)?,
            expires: Timestamp(message.expires),
        })
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::from_message(crate::message::decode(bytes).ok()?)
    }
}
