//! What an administrator's machine keeps of a cluster: key, certificate, the cluster's authority, and where its
//! managers are. All are in one file, so that a key never gets separated from its certificate.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use types::Timestamp;

use crate::admin::{AdminName, AdminRole, is_admin_name};
use crate::authority_set::AuthoritySet;
use crate::credentials;
use crate::issued::IssuedAdmin;
use crate::message::MessageError;
use crate::secret_file::{Existing, FileError, SecretFile};
use crate::verify::{Verifier, admin_name_of};
use crate::{Authority, AuthorityError, Fingerprint, NewKey};

const KIND: SecretFile = SecretFile {
    first_line: "weir administrator 1",
    hint: "remove the context and ask an administrator for a new invitation (`weir admin invite`)",
};
/// The most addresses of managers that an administrator's identity has room for.
pub const MANAGERS_MAX: usize = 16;

/// An administrator's identity cannot be made, read or used.
#[derive(Debug, thiserror::Error)]
pub enum AdminIdentityError {
    /// A problem with its file.
    #[error(transparent)]
    File(#[from] FileError),
    /// A problem of the authority.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// A manager sent no certificate for this administrator.
    #[error("the certificate that came is not the one that was asked for: {0}")]
    Answer(&'static str),
    /// The request for a certificate cannot be written.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The key and the certificates cannot be used.
    #[error("key and certificate cannot be used: {0}")]
    Unusable(rustls::Error),
}

/// The identity of an administrator of one cluster.
#[derive(Clone)]
pub struct AdminIdentity {
    subject: AdminName,
    name: String,
    role: AdminRole,
    managers: Vec<String>,
    pkcs8: Vec<u8>,
    certificate: CertificateDer<'static>,
    authority: CertificateDer<'static>,
    made: Timestamp,
    expires: Timestamp,
}

impl fmt::Debug for AdminIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AdminIdentity({}, {}, certificate until {}, ..)", self.subject, self.name, self.expires)
    }
}

impl AdminIdentity {
    pub(crate) fn new(
        key: &NewKey,
        issued: IssuedAdmin,
        (name, role): (String, AdminRole),
        managers: Vec<String>,
        made: Timestamp,
    ) -> Result<Self, AdminIdentityError> {
        let IssuedAdmin { name: subject, certificate, authority, expires } = issued;
        let pkcs8 = key.pkcs8.clone();
        // Managers show certificates of the current authority alone, so no other needs to be trusted.
        let authority = authority.current().clone();
        let identity = Self { subject, name, role, managers, pkcs8, certificate, authority, made, expires };
        identity.check()?;
        Ok(identity)
    }

    /// Checks that all parts belong together. Ignores the time: an expired certificate is reported when it is used.
    fn check(&self) -> Result<(), AdminIdentityError> {
        if admin_name_of(&self.certificate) != Some(self.subject) {
            return Err(AdminIdentityError::Answer("it is for somebody else"));
        }
        if !is_admin_name(&self.name) || self.managers.is_empty() || self.managers.len() > MANAGERS_MAX {
            return Err(AdminIdentityError::Answer("its name or its addresses make no sense"));
        }
        self.client().map(drop)
    }

    /// This administrator with a new key and the certificate from a manager's `answer` to [`NewKey::admin_renewal`].
    ///
    /// # Errors
    /// The answer is no certificate of this administrator for this key.
    pub fn renewed(&self, key: &NewKey, answer: &str, now: Timestamp) -> Result<Self, AdminIdentityError> {
        let answer = STANDARD.decode(answer).ok().and_then(|bytes| IssuedAdmin::from_bytes(&bytes));
        let mut issued = answer.ok_or(AdminIdentityError::Answer("it makes no sense"))?;
        let known = AuthoritySet::only(self.authority.clone());
        // The administrator has moved to the new authority before, and the cluster still trusts the old one.
        issued.authority = issued.authority.without_dropped(&known);
        if issued.name != self.subject || !issued.authority.follows(&known) {
            return Err(AdminIdentityError::Answer("it is for somebody else, or of another authority"));
        }
        if let Some((previous, voucher)) = issued.authority.predecessor() {
            let vouched = Verifier::of(self.subject.cluster, [previous])
                .and_then(|verifier| verifier.check_admin(&issued.certificate, std::slice::from_ref(voucher), now));
            if vouched != Ok(Some(self.subject)) {
                return Err(AdminIdentityError::Answer("the authority that is known does not vouch for the new one"));
            }
        }
        Self::new(key, issued, (self.name.clone(), self.role), self.managers.clone(), now)
    }

    /// Makes the identity of an administrator where the authority is at hand: in tests.
    ///
    /// # Errors
    /// [`AdminIdentityError`].
    pub fn issue(
        authority: &Authority,
        subject: AdminName,
        managers: Vec<String>,
        now: Timestamp,
        validity: std::time::Duration,
    ) -> Result<Self, AdminIdentityError> {
        let key = NewKey::draw().map_err(AuthorityError::from)?;
        let issued = authority.issue_admin(&subject, &key.public(), now, validity)?;
        Self::new(&key, issued, ("somebody".into(), AdminRole::Viewer), managers, now)
    }

    /// Reads the file `path`.
    ///
    /// # Errors
    /// The file is missing, damaged, or readable by others, or its parts do not belong together.
    pub fn read(path: &Path) -> Result<Self, AdminIdentityError> {
        let keys = ["administrator", "name", "role", "managers", "made", "expires", "key", "certificate", "authority"];
        let [subject, name, role, managers, made, expires, key, certificate, authority] = KIND.read(path, keys)?;
        let damaged = |why| KIND.damaged(path, why);
        let bytes = |text: String, why| STANDARD.decode(text).map_err(|_| damaged(why));
        let time = |text: &str| text.parse().map(Timestamp::from_secs).map_err(|_| damaged("a time is no number"));
        let identity = Self {
            subject: AdminName::from_text(&subject).ok_or_else(|| damaged("it names no administrator"))?,
            name,
            role: role.parse().map_err(|_| damaged("its role is none"))?,
            managers: managers.split(' ').map(str::to_owned).collect(),
            made: time(&made)?,
            expires: time(&expires)?,
            pkcs8: bytes(key, "its key is not base64")?,
            certificate: bytes(certificate, "its certificate is not base64")?.into(),
            authority: bytes(authority, "its authority is not base64")?.into(),
        };
        identity.check().map_err(|_| damaged("its key, name and certificates do not belong together"))?;
        Ok(identity)
    }

    /// Writes the file `path` durably, replacing an existing one. Only its owner may read it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), AdminIdentityError> {
        let lines = [
            ("administrator", self.subject.to_string()),
            ("name", self.name.clone()),
            ("role", self.role.to_string()),
            ("managers", self.managers.join(" ")),
            ("made", self.made.secs().to_string()),
            ("expires", self.expires.secs().to_string()),
            ("key", STANDARD.encode(&self.pkcs8)),
            ("certificate", STANDARD.encode(&self.certificate)),
            ("authority", STANDARD.encode(&self.authority)),
        ];
        Ok(KIND.write(path, &lines, Existing::Replace)?)
    }

    /// The administrator, as the certificate says.
    #[must_use]
    pub fn subject(&self) -> &AdminName {
        &self.subject
    }

    /// The name for people, as the manager said when it made the certificate.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The role, as the manager said when it made the certificate. The manager decides by its own record.
    #[must_use]
    pub fn role(&self) -> AdminRole {
        self.role
    }

    /// Addresses of managers, as `host:port`.
    #[must_use]
    pub fn managers(&self) -> &[String] {
        &self.managers
    }

    /// This identity with other addresses of managers.
    #[must_use]
    pub fn with_managers(self, managers: Vec<String>) -> Self {
        Self { managers, ..self }
    }

    /// The authority that has signed its certificate, and must have signed those of managers.
    #[must_use]
    pub fn authority(&self) -> Fingerprint {
        Fingerprint::of(&self.authority)
    }

    /// When its certificate expires.
    #[must_use]
    pub fn expires(&self) -> Timestamp {
        self.expires
    }

    /// Whether at most a third of the certificate's time is left.
    #[must_use]
    pub fn wants_renewal(&self, now: Timestamp) -> bool {
        let whole = self.expires.0.saturating_sub(self.made.0);
        now.0 >= self.expires.0.saturating_sub(whole / 3)
    }

    #[cfg(test)]
    pub(crate) fn certificate_for_tests(&self) -> CertificateDer<'static> {
        self.certificate.clone()
    }

    pub(crate) fn client(&self) -> Result<Arc<ClientConfig>, AdminIdentityError> {
        let chain = vec![self.certificate.clone(), self.authority.clone()];
        let config = credentials::administrator(self.subject.cluster, &self.authority, chain, &self.pkcs8);
        config.map_err(AdminIdentityError::Unusable)
    }
}
