//! Certificates on their way to their holders.

use rustls::pki_types::CertificateDer;
use types::Timestamp;

use crate::admin::AdminName;
use crate::authority_set::AuthoritySet;
use crate::{AuthorityError, NodeName};

/// A certificate with everything that a node needs beside it.
#[derive(Clone, Debug)]
pub(crate) struct Issued {
    pub(crate) name: NodeName,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) authority: AuthoritySet,
    pub(crate) expires: Timestamp,
}

#[derive(serde::Serialize, serde::Deserialize)]
pub(crate) struct IssuedBytes {
    name: String,
    certificate: Vec<u8>,
    authority: Vec<u8>,
    expires: i64,
}

impl Issued {
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
            name: NodeName::from_text(&message.name)?,
            certificate: message.certificate.into(),
            authority: AuthoritySet::from_bytes(&message.authority)?,
            expires: Timestamp(message.expires),
        })
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::from_message(crate::message::decode(bytes).ok()?)
    }
}

/// A certificate with everything that an administrator needs beside it. Its message has the form of a node's.
#[derive(Clone, Debug)]
pub(crate) struct IssuedAdmin {
    pub(crate) subject: AdminName,
    pub(crate) certificate: CertificateDer<'static>,
    pub(crate) authority: AuthoritySet,
    pub(crate) expires: Timestamp,
}

impl IssuedAdmin {
    pub(crate) fn to_message(&self) -> IssuedBytes {
        IssuedBytes {
            name: self.subject.to_string(),
            certificate: self.certificate.to_vec(),
            authority: self.authority.to_bytes(),
            expires: self.expires.0,
        }
    }

    pub(crate) fn from_message(message: IssuedBytes) -> Option<Self> {
        Some(Self {
            subject: AdminName::from_text(&message.name)?,
            certificate: message.certificate.into(),
            authority: AuthoritySet::from_bytes(&message.authority)?,
            expires: Timestamp(message.expires),
        })
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Self::from_message(crate::message::decode(bytes).ok()?)
    }
}
