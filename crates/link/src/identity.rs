//! The identity that a node keeps on its disk: its key, its certificate, and those of the authorities that it trusts. All are in
//! one file, so that a key never gets separated from its certificate.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use types::{NodeId, Timestamp};

use crate::authority::{Authority, AuthorityError};
use crate::authority_set::AuthoritySet;
use crate::issued::Issued;
use crate::secret_file::{Existing, FileError, SecretFile};
use crate::verify::Verifier;
use crate::{CertificateProblem, NewKey, NodeName, Roles};

const KIND: SecretFile = SecretFile {
    first_line: "weir node identity 1",
    hint: "put back the file of a backup, or let the node join again with a new token (`weir token create` on a manager)",
};

/// The identity of a node.
pub struct Identity {
    name: NodeName,
    pkcs8: Vec<u8>,
    certificate: CertificateDer<'static>,
    authority: AuthoritySet,
    expires: Timestamp,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({}, certificate until {}, ..)", self.name, self.expires)
    }
}

/// An identity cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// A problem with its file.
    #[error("the node's identity: {0}")]
    File(#[from] FileError),
    /// A problem of the authority.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A manager sent no certificate for this node.
    #[error("the certificate that came is not the one that was asked for: {0}")]
    Answer(String),
    /// The key and the certificate do not match.
    #[error("the node's key and certificate cannot be used: {0}")]
    Unusable(rustls::Error),
}

impl Identity {
    /// Makes the identity of a node that has the authority itself: the first manager of a cluster, or a node of a test.
    ///
    /// # Errors
    /// [`IdentityError`].
    pub fn issue(
        authority: &Authority,
        node: NodeId,
        roles: Roles,
        now: Timestamp,
        validity: Duration,
    ) -> Result<Self, IdentityError> {
        let key = NewKey::draw().map_err(AuthorityError::from)?;
        let name = NodeName { cluster: authority.cluster(), node, roles };
        let issued = authority.issue(&name, &key.public(), now, validity)?;
        Self::new(&key, issued)
    }

    pub(crate) fn new(key: &NewKey, issued: Issued) -> Result<Self, IdentityError> {
        let Issued { name, certificate, authority, expires } = issued;
        let identity = Self { name, pkcs8: key.pkcs8.clone(), certificate, authority, expires };
        identity.check()?;
        Ok(identity)
    }

    /// This node with a new key and the certificate from a manager's `answer` to [`NewKey::renewal`].
    ///
    /// # Errors
    /// The answer is for another node, another key, or another cluster.
    pub fn renewed(&self, key: &NewKey, answer: &[u8]) -> Result<Self, IdentityError> {
        let wrong = |why: &str| IdentityError::Answer(why.to_owned());
        let mut issued = Issued::from_bytes(answer).ok_or_else(|| wrong("it makes no sense"))?;
        issued.authority = issued.authority.without_dropped(&self.authority);
        if issued.name != self.name {
            return Err(wrong(&format!("it is for {}, and this is {}", issued.name, self.name)));
        }
        if !issued.authority.follows(&self.authority) {
            return Err(wrong("it is of another authority, for which no trusted one vouches"));
        }
        Self::new(key, issued)
    }

    /// This node with the same certificate, and trusting the authorities `set`: the present one stays, and its predecessor is dropped.
    ///
    /// # Errors
    /// `set` has another authority, or one that this node does not trust.
    pub fn trusting(&self, set: AuthoritySet) -> Result<Self, IdentityError> {
        if set.current() != self.authority.current() || !set.follows(&self.authority) {
            return Err(IdentityError::Answer("it names authorities that this node does not trust".into()));
        }
        let Self { name, pkcs8, certificate, expires, .. } = self;
        let (name, pkcs8, certificate, expires) = (*name, pkcs8.clone(), certificate.clone(), *expires);
        let identity = Self { name, pkcs8, certificate, authority: set, expires };
        identity.check()?;
        Ok(identity)
    }

    /// Checks that all parts belong together. Ignores the time: an expired certificate is reported when it is used.
    fn check(&self) -> Result<(), IdentityError> {
        self.check_under(self.authority.current(), &[])?;
        // This proves the voucher: the previous authority has signed the key that has signed the certificate.
        if let Some((previous, voucher)) = self.authority.predecessor() {
            self.check_under(previous, std::slice::from_ref(voucher))?;
        }
        crate::credentials::certified_key(self).map(drop)
    }

    fn check_under(
        &self,
        authority: &CertificateDer<'static>,
        vouchers: &[CertificateDer<'static>],
    ) -> Result<(), IdentityError> {
        let verifier = Verifier::of(self.name.cluster, [authority])
            .map_err(|problem| IdentityError::Answer(problem.to_string()))?;
        let before = Timestamp(self.expires.0 - 1_000_000_000);
        match verifier.check(&self.certificate, vouchers, before) {
            Ok(name) if name == self.name => Ok(()),
            Ok(other) => Err(IdentityError::Answer(format!("it says {other}, not {}", self.name))),
            Err(CertificateProblem::NotYet { .. }) => {
                Err(IdentityError::Answer("it does not expire when it is said to".into()))
            }
            Err(problem) => Err(IdentityError::Answer(problem.to_string())),
        }
    }

    /// Reads the file `path`.
    ///
    /// # Errors
    /// The file is missing, damaged, or readable by others, or its parts do not belong together.
    pub fn read(path: &Path) -> Result<Self, IdentityError> {
        let keys = ["name", "expires", "key", "certificate", "authority"];
        let [name, expires, key, certificate, authority] = KIND.read(path, keys)?;
        let damaged = |why| KIND.damaged(path, why);
        let bytes = |text: String, why| STANDARD.decode(text).map_err(|_| damaged(why));
        let identity = Self {
            name: NodeName::from_text(&name).ok_or_else(|| damaged("its name is none"))?,
            expires: Timestamp::from_secs(expires.parse().map_err(|_| damaged("its end is no number"))?),
            pkcs8: bytes(key, "its key is not base64")?,
            certificate: bytes(certificate, "its certificate is not base64")?.into(),
            authority: AuthoritySet::from_bytes(&bytes(authority, "its authority is not base64")?)
                .ok_or_else(|| damaged("its authority is none"))?,
        };
        identity.check().map_err(|error| match error {
            IdentityError::File(error) => error,
            _ => damaged("its key, name and certificates do not belong together"),
        })?;
        Ok(identity)
    }

    /// Writes the file `path` durably, replacing an existing one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), IdentityError> {
        let lines = [
            ("name", self.name.to_string()),
            ("expires", self.expires.secs().to_string()),
            ("key", STANDARD.encode(&self.pkcs8)),
            ("certificate", STANDARD.encode(&self.certificate)),
            ("authority", STANDARD.encode(self.authority.to_bytes())),
        ];
        Ok(KIND.write(path, &lines, Existing::Replace)?)
    }

    /// The node's name.
    #[must_use]
    pub fn name(&self) -> &NodeName {
        &self.name
    }

    /// When its certificate expires.
    #[must_use]
    pub fn expires(&self) -> Timestamp {
        self.expires
    }

    /// Whether at most a third of `validity` is left, so that the node should ask for a new certificate.
    #[must_use]
    pub fn wants_renewal(&self, now: Timestamp, validity: Duration) -> bool {
        now.plus(validity / 3) >= self.expires
    }

    /// The authorities that it trusts. The current one has signed its certificate.
    #[must_use]
    pub fn authority(&self) -> &AuthoritySet {
        &self.authority
    }

    pub(crate) fn chain(&self) -> Vec<CertificateDer<'static>> {
        // A joining node knows the authority only by its fingerprint, so this adds the authority's certificate.
        std::iter::once(&self.certificate).chain(self.authority.chain()).cloned().collect()
    }

    pub(crate) fn key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.pkcs8.clone()).into()
    }
}
