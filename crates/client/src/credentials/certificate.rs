//! The certificate of the user, or a proxy of it. It is searched for at each login, because proxies are renewed: the proxy that
//! `X509_USER_PROXY` names, the certificate and the key of `X509_USER_CERT` and `X509_USER_KEY`, the proxy `/tmp/x509up_u<uid>`, and
//! `.globus/usercert.pem` with `.globus/userkey.pem` in the home directory.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use gsi::{BINDING_LEN, ClientHandshake, ClientSecret, Delegation, HandshakeError, NoRandom, Random};
use ring::rand::{SecureRandom as _, SystemRandom};
use rustix::fs::{Mode, OFlags};
use tls::Trust;

use super::{Server, Stopped};

/// The longest file of a certificate or a proxy.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Where the certificate and its key come from.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum CertificateSource {
    /// The places where tools of the grid leave them.
    #[default]
    UsualPlaces,
    /// This file has a proxy: its certificate, its key, and the certificates that have issued it.
    Proxy(PathBuf),
    /// These files have a certificate and its key.
    Certificate {
        /// The certificate.
        certificate: PathBuf,
        /// The key. Only its owner may have access to it.
        key: PathBuf,
    },
    /// This proxy, which is in memory only.
    Held(HeldProxy),
}

/// A proxy that is in memory only, such as one that somebody has delegated.
#[derive(Clone, Debug)]
pub struct HeldProxy(Arc<ClientSecret>);

impl HeldProxy {
    /// Reads a proxy in PEM form: its certificate, its key, and the certificates that have issued it.
    ///
    /// # Errors
    /// Why it cannot be used.
    pub fn new(text: &[u8]) -> Result<Self, String> {
        let secret = ClientSecret::new(text, text).map_err(|why| format!("cannot use the proxy: {why}"))?;
        Ok(Self(Arc::new(secret)))
    }
}

/// Two are equal if they are the same one.
impl PartialEq for HeldProxy {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for HeldProxy {}

/// The certificate of the user or a proxy of it, with its key.
#[derive(Clone, Debug)]
pub struct UserCertificate(Arc<ClientSecret>);

impl UserCertificate {
    /// Finds that of this program's user, where tools of the grid leave it.
    ///
    /// # Errors
    /// There is none, or it must not be used.
    pub fn usual() -> Result<Self, String> {
        Self::of(&CertificateSource::UsualPlaces)
    }

    /// That of `source`.
    ///
    /// # Errors
    /// There is none, or it must not be used.
    pub fn of(source: &CertificateSource) -> Result<Self, String> {
        source.find().map(Self)
    }

    /// The certificates in DER form. The key is that of the first one.
    #[must_use]
    pub fn chain(&self) -> &[Vec<u8>] {
        self.0.certificates()
    }

    /// Signs the value of a connection of TLS with the key: whoever is at the other end then knows that the holder is here.
    ///
    /// # Errors
    /// The key cannot sign.
    pub fn sign(&self, binding: &[u8; BINDING_LEN]) -> Result<Vec<u8>, String> {
        self.0.show_possession(binding, &mut SystemNumbers::new()).map_err(|why| why.to_string())
    }
}

impl CertificateSource {
    fn find(&self) -> Result<Arc<ClientSecret>, String> {
        match self {
            Self::UsualPlaces => Places::usual().find().map(Arc::new),
            Self::Proxy(path) => read(path, path, None).map(Arc::new),
            Self::Certificate { certificate, key } => read(certificate, key, None).map(Arc::new),
            Self::Held(proxy) => Ok(Arc::clone(&proxy.0)),
        }
    }
}

/// Where to look.
struct Places<'a> {
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    uid: u32,
    /// The directory in which any user can create files.
    shared: PathBuf,
}

impl Places<'static> {
    fn usual() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Self { variable: &|name| std::env::var_os(name), uid, shared: PathBuf::from("/tmp") }
    }
}

impl Places<'_> {
    fn find(&self) -> Result<ClientSecret, String> {
        let given = |name| (self.variable)(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        if let Some(proxy) = given("X509_USER_PROXY") {
            return read(&proxy, &proxy, None);
        }
        if let Some(certificate) = given("X509_USER_CERT") {
            let key = given("X509_USER_KEY").unwrap_or_else(|| certificate.clone());
            return read(&certificate, &key, None);
        }
        let proxy = self.shared.join(format!("x509up_u{}", self.uid));
        // Anybody can create this name.
        if proxy.symlink_metadata().is_ok() {
            return read(&proxy, &proxy, Some(self.uid));
        }
        let globus = given("HOME").map(|home| home.join(".globus"));
        let files = globus.map(|directory| (directory.join("usercert.pem"), directory.join("userkey.pem")));
        match files {
            Some((certificate, key)) if certificate.exists() => read(&certificate, &key, None),
            _ => Err(format!(
                "no certificate was found: make a proxy, and set X509_USER_PROXY if it is not {}",
                proxy.display()
            )),
        }
    }
}

/// Reads a certificate and its key. `owner`: the file is in a directory of all, and must belong to this user.
fn read(certificate: &Path, key: &Path, owner: Option<u32>) -> Result<ClientSecret, String> {
    let (certificates, _) = contents(certificate, owner)?;
    let (key_text, mode) = contents(key, owner)?;
    if mode & 0o077 != 0 {
        let key = key.display();
        return Err(format!("others than its owner have access to {key} (mode {:04o}): chmod 600 it", mode & 0o7777));
    }
    ClientSecret::new(&certificates, &key_text).map_err(|why| format!("cannot use {}: {why}", certificate.display()))
}

fn contents(path: &Path, owner: Option<u32>) -> Result<(Vec<u8>, u32), String> {
    let wrong = |why: &dyn fmt::Display| format!("cannot read {}: {why}", path.display());
    // A pipe must not be waited for.
    let link = if owner.is_some() { OFlags::NOFOLLOW } else { OFlags::empty() };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | link;
    let read = || -> io::Result<(Vec<u8>, std::fs::Metadata)> {
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let about = file.metadata()?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        Ok((bytes, about))
    };
    let (bytes, about) = read().map_err(|error| wrong(&error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(wrong(&format_args!("it is longer than {} KiB", FILE_BYTES_MAX >> 10)));
    }
    if owner.is_some_and(|owner| about.uid() != owner) {
        return Err(wrong(&"it belongs to another user"));
    }
    Ok((bytes, about.mode()))
}

/// A login with a certificate.
pub(super) struct GsiLogin {
    secret: Arc<ClientSecret>,
    handshake: ClientHandshake,
    first: Vec<u8>,
    trust: Trust,
    host: String,
    delegation: Delegation,
    /// The server has shown its certificate.
    has_shown: bool,
}

/// The randomness of the system.
pub(crate) struct SystemNumbers(SystemRandom);

impl SystemNumbers {
    pub(crate) fn new() -> Self {
        Self(SystemRandom::new())
    }
}

impl Random for SystemNumbers {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandom> {
        self.0.fill(bytes).map_err(|_| NoRandom)
    }
}

impl GsiLogin {
    /// Begins with a server that has offered `gsi` with `parameters`.
    pub(super) fn begin(
        source: &CertificateSource,
        delegation: Delegation,
        parameters: &[u8],
        server: Server<'_>,
    ) -> Result<Self, String> {
        let secret = source.find()?;
        let trust = server.authorities.trust().map_err(|error| error.to_string())?;
        let begun = ClientHandshake::begin(&secret, parameters, delegation, &mut SystemNumbers::new());
        let (handshake, first) = begun.map_err(|why| why.to_string())?;
        // The certificate has the address without the form for sockets of both versions of IP.
        let host = match server.host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().to_string(),
            Err(_) => server.host.to_owned(),
        };
        Ok(Self { secret, handshake, first, trust, host, delegation, has_shown: false })
    }

    pub(super) fn first(&self) -> Vec<u8> {
        self.first.clone()
    }

    pub(super) fn session_key(&self) -> Option<gsi::SessionKey> {
        self.handshake.session_key().cloned()
    }

    /// Whether the server can accept the client.
    pub(super) fn is_complete(&self) -> bool {
        self.has_shown
    }

    pub(super) fn next(&mut self, asked: &[u8]) -> Result<Vec<u8>, Stopped> {
        let Self { secret, handshake, trust, host, has_shown, delegation, .. } = self;
        if *has_shown {
            if *delegation == Delegation::Never {
                let why = "the server asks for more than a certificate, and no proxy is delegated to it";
                return Err(Stopped::Method(why.to_owned()));
            }
            // The server has shown who it is, and the request comes in what only both can read.
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            let now = i64::try_from(now).unwrap_or(i64::MAX);
            let signed = handshake.sign(secret, asked, now, &mut SystemNumbers(SystemRandom::new()));
            return signed.map_err(|why| match why {
                HandshakeError::Signature(_) | HandshakeError::OtherTag => Stopped::WrongServer(why.to_string()),
                why => Stopped::Method(why.to_string()),
            });
        }
        let check = |certificate: &[u8]| {
            trust.check_server(certificate, host, SystemTime::now()).map_err(|error| error.to_string())
        };
        let shown = handshake.show(secret, asked, &check, &mut SystemNumbers::new());
        let shown = shown.map_err(|why| match why {
            HandshakeError::Server(_)
            | HandshakeError::Signature(_)
            | HandshakeError::OtherTag
            | HandshakeError::Lowered => Stopped::WrongServer(why.to_string()),
            why => Stopped::Method(why.to_string()),
        })?;
        *has_shown = true;
        Ok(shown)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use std::collections::HashMap;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    const CERTIFICATE: &[u8] = include_bytes!("../../../gsi/tests/data/user.pem");
    const KEY: &[u8] = include_bytes!("../../../gsi/tests/data/user.key");

    fn file(path: &Path, content: &[u8], mode: u32) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_certificate_is_looked_for_where_tools_leave_it() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        let proxy = [CERTIFICATE, KEY].concat();
        let uid = rustix::process::geteuid().as_raw();
        let shared = path("shared");
        fs::create_dir(&shared).unwrap();
        let found = |variables: &[(&str, PathBuf)]| {
            let variables: HashMap<&str, &PathBuf> = variables.iter().map(|(name, value)| (*name, value)).collect();
            let variable = |name: &str| variables.get(name).map(|path| path.as_os_str().to_owned());
            Places { variable: &variable, uid, shared: shared.clone() }.find().map(|_| ())
        };
        let why = |variables: &[(&str, PathBuf)]| found(variables).unwrap_err();
        let home = || ("HOME", path("home"));
        assert!(why(&[home()]).contains("X509_USER_PROXY"));
        file(&path("home/.globus/usercert.pem"), CERTIFICATE, 0o644);
        file(&path("home/.globus/userkey.pem"), KEY, 0o600);
        assert_eq!(found(&[home()]), Ok(()));
        // A proxy in the directory of all goes first, and must not be a link.
        let usual = shared.join(format!("x509up_u{uid}"));
        file(&path("proxy"), &proxy, 0o600);
        symlink(path("proxy"), &usual).unwrap();
        assert!(why(&[home()]).contains("cannot read"));
        fs::remove_file(&usual).unwrap();
        file(&usual, &proxy, 0o640);
        assert!(why(&[home()]).contains("0640"));
        file(&usual, &proxy, 0o600);
        assert_eq!(found(&[]), Ok(()));
        // What is named goes before.
        assert!(why(&[("X509_USER_PROXY", path("gone"))]).contains("gone"));
        assert_eq!(found(&[("X509_USER_PROXY", path("proxy")), ("X509_USER_CERT", path("gone"))]), Ok(()));
        assert!(why(&[("X509_USER_CERT", path("home/.globus/usercert.pem"))]).contains("0644"));
        let user = [
            ("X509_USER_CERT", path("home/.globus/usercert.pem")),
            ("X509_USER_KEY", path("home/.globus/userkey.pem")),
        ];
        assert_eq!(found(&user), Ok(()));
    }
}
