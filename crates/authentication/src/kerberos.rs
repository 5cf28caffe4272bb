//! Kerberos: the keytab of the node, and the messages of clients that it has seen.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use identity::{Credential, KerberosPrincipal};
use krb5::{Client, KEYTAB_BYTES_MAX, Keytab, KeytabError, Principal, Replays, Verified};
use sss::{KeytabFileError, read_secret_file};
use types::Timestamp;

use crate::seen::{Seen, now};
use crate::{AuthenticationError, Clock};

/// What `krb5` needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KerberosSettings {
    /// The keytab. Only its owner may have access to it.
    pub keytab: PathBuf,
    /// The node's own principal; `None`: the one in the keytab.
    pub principal: Option<String>,
}

/// Why Kerberos cannot be used. No message shows a key.
#[derive(Debug, thiserror::Error)]
pub enum KerberosError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] KeytabFileError),
    /// Its content is wrong.
    #[error("cannot use the keytab {}: {source}", path.display())]
    Keytab {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: KeytabError,
    },
    /// The principal is none.
    #[error("`kerberos_principal` is `{0}`, and a principal is written as xrootd/se.example.org@EXAMPLE.ORG")]
    Principal(String),
    /// The principal has no key.
    #[error("the keytab {} has no key of {wanted}, which `kerberos_principal` names; it has keys of {known}", path.display())]
    NoKey {
        /// The file.
        path: PathBuf,
        /// The principal.
        wanted: String,
        /// The others.
        known: String,
    },
    /// Nobody says which principal the node has.
    #[error("the keytab {} has keys of {known}: say with `kerberos_principal` which of them this node is", path.display())]
    Several {
        /// The file.
        path: PathBuf,
        /// The principals.
        known: String,
    },
}

/// Most principals in a message.
const SHOWN_MAX: usize = 8;

/// The keys of the node, and who it is.
pub(crate) struct Kerberos {
    keytab: Keytab,
    service: Principal,
}

impl Kerberos {
    pub(crate) fn open(settings: &KerberosSettings) -> Result<Self, KerberosError> {
        let path = settings.keytab.clone();
        let bytes = read_secret_file(&path, KEYTAB_BYTES_MAX)?;
        let keytab = match Keytab::parse(&bytes) {
            Ok(keytab) => keytab,
            Err(source) => return Err(KerberosError::Keytab { path, source }),
        };
        let service = own_principal(&keytab, settings.principal.as_deref(), &path)?;
        Ok(Self { keytab, service })
    }

    /// The node's own principal.
    pub(crate) fn service(&self) -> String {
        self.service.to_string()
    }
}

fn own_principal(keytab: &Keytab, wanted: Option<&str>, path: &Path) -> Result<Principal, KerberosError> {
    let principals = keytab.principals();
    let known = || {
        let shown = principals.iter().take(SHOWN_MAX).map(ToString::to_string).collect::<Vec<_>>().join(", ");
        if principals.len() > SHOWN_MAX { format!("{shown}, and others") } else { shown }
    };
    let path = path.to_owned();
    match (wanted, principals.as_slice()) {
        (Some(wanted), _) => {
            let principal =
                Principal::parse(wanted).ok_or_else(|| KerberosError::Principal(identity::shown(wanted)))?;
            if keytab.has(&principal) {
                Ok(principal)
            } else {
                Err(KerberosError::NoKey { path, wanted: principal.to_string(), known: known() })
            }
        }
        (None, [only]) => Ok((*only).clone()),
        (None, _) => Err(KerberosError::Several { path, known: known() }),
    }
}

/// A message that is good, and who shows it. It does not count before [`SeenTickets::note`].
pub(crate) struct Shown {
    verified: Verified,
    pub(crate) credential: Credential,
    /// When its ticket ends.
    pub(crate) expires: Timestamp,
}

impl Kerberos {
    /// Who shows `message` at this time.
    pub(crate) fn verify(&self, message: &[u8], peer: IpAddr, wall: Timestamp) -> Result<Shown, AuthenticationError> {
        let verified = krb5::verify(&self.keytab, &self.service, message, peer, wall)?;
        let Client { principal, expires } = verified.client();
        let credential = Credential::Kerberos(KerberosPrincipal::parse(&principal.to_string())?);
        Ok(Shown { credential, expires: *expires, verified })
    }
}

/// The messages that were seen.
pub(crate) struct SeenTickets {
    seen: Seen<Replays>,
    /// When the node started.
    began: Duration,
}

impl SeenTickets {
    /// `path`: the file that says after a restart what was seen before.
    pub(crate) fn new(path: Option<PathBuf>, clock: &dyn Clock) -> Self {
        Self { seen: Seen::new(path), began: clock.steady() }
    }

    /// Lets a message count, once. See [`Seen::note`].
    pub(crate) fn note(&self, shown: Shown, clock: &dyn Clock) -> Result<(), AuthenticationError> {
        let (now, verified) = (now(clock), shown.verified);
        self.seen.note(
            |before| Replays::new(self.began, before),
            |replays| verified.admit(replays, now).map(drop),
            now,
        )?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// A keytab with a key of each of these services.
    fn keytab(services: &[&str]) -> Vec<u8> {
        let mut bytes = vec![5, 2];
        for service in services {
            let (name, realm) = service.split_once('@').unwrap();
            let parts: Vec<&str> = name.split('/').collect();
            let counted = |text: &[u8]| [&u16::try_from(text.len()).unwrap().to_be_bytes()[..], text].concat();
            let mut entry = u16::try_from(parts.len()).unwrap().to_be_bytes().to_vec();
            entry.extend(counted(realm.as_bytes()));
            parts.iter().for_each(|part| entry.extend(counted(part.as_bytes())));
            entry.extend([0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 18]);
            entry.extend(counted(&[7; 32]));
            bytes.extend(u32::try_from(entry.len()).unwrap().to_be_bytes());
            bytes.extend(entry);
        }
        bytes
    }

    #[test]
    fn the_node_is_who_the_keytab_or_the_configuration_says() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keytab");
        let open = |services: &[&str], principal: Option<&str>| {
            fs::write(&path, keytab(services)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let settings = KerberosSettings { keytab: path.clone(), principal: principal.map(str::to_owned) };
            Kerberos::open(&settings).map(|kerberos| kerberos.service()).map_err(|error| error.to_string())
        };
        let (one, other) = ("xrootd/a.example.org@A.ORG", "host/a.example.org@A.ORG");
        assert_eq!(open(&[one, one], None).unwrap(), one);
        let why = open(&[one, other], None).unwrap_err();
        assert!(why.contains(&format!("{other}, {one}")) && why.contains("kerberos_principal"), "{why}");
        assert_eq!(open(&[one, other], Some(other)).unwrap(), other);
        let why = open(&[one], Some(other)).unwrap_err();
        assert!(why.contains("no key of host/") && why.contains(one), "{why}");
        let why = open(&[one], Some("xrootd")).unwrap_err();
        assert!(why.contains("written as"), "{why}");
        let why = open(&[], None).unwrap_err();
        assert!(why.contains("no key that can be used"), "{why}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let why = Kerberos::open(&KerberosSettings { keytab: path.clone(), principal: None }).err().unwrap();
        assert!(why.to_string().contains("chmod 600"), "{why}");
    }
}
