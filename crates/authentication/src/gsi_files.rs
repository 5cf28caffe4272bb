//! The files of `gsi`: the node's certificate and key, and the directories that say whose certificates count. They are read again when
//! they have changed.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use gsi::{SecretError, ServerSecret};
use parking_lot::{Mutex, RwLock};
use tls::{Rereading, TrustError};

use crate::GsiSettings;
use crate::gsi_login::SystemNumbers;

/// How often the authorities are read, at most: sites fetch revocation lists every few hours.
const TRUST_EVERY: Duration = Duration::from_secs(600);
/// The longest file of a certificate or a key.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Why a file is not used.
#[derive(Debug, thiserror::Error)]
pub enum FilesProblem {
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// It is too long.
    #[error("it is longer than {} KiB", .0 >> 10)]
    TooLong(u64),
    /// Others may read the key.
    #[error("others have access to it (mode {0:o}); allow only its owner: chmod 600")]
    OpenToOthers(u32),
}

/// Why what `gsi` needs cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum GsiError {
    /// A file or a directory cannot be used.
    #[error("cannot use {} for gsi: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: FilesProblem,
    },
    /// The authorities cannot be read.
    #[error("cannot find out whose certificates count for gsi: {0}")]
    Authorities(#[from] TrustError),
    /// The certificate cannot be used.
    #[error("cannot use the certificate {} for gsi: {source}", path.display())]
    Certificate {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        source: SecretError,
    },
}

/// What the files say.
#[derive(Debug)]
pub(crate) struct Gsi {
    pub(crate) secret: Arc<ServerSecret>,
    pub(crate) trust: Arc<grid::Trust>,
    /// How many authorities had a list or policy that cannot be used when they were read last, even if the ones of before are in use.
    pub(crate) unusable_authorities: usize,
    /// Clients that allow it are asked for a proxy.
    pub(crate) delegation: bool,
}

/// What distinguishes the versions of a file: inode, length, and when its content and anything of it were changed, in seconds and
/// nanoseconds. The latter also tells when somebody has corrected its permissions.
type Version = (u64, u64, [i64; 4]);

/// When the files were looked at.
struct Looked {
    versions: [Option<Version>; 2],
    authorities: Rereading,
}

/// The files and their content.
pub(crate) struct GsiFiles {
    settings: GsiSettings,
    content: RwLock<Arc<Gsi>>,
    looked: Mutex<Looked>,
}

impl GsiFiles {
    /// Reads them at `now`, a time of the steady clock.
    pub(crate) fn open(settings: GsiSettings, now: Duration) -> Result<Self, GsiError> {
        // The versions are those of before the read: a change during it shows later.
        let versions = versions(&settings);
        let secret = Arc::new(secret(&settings)?);
        let trust = Arc::new(trust(&settings)?);
        let authorities = Rereading::new("gsi", TRUST_EVERY, now, &*trust);
        let looked = Mutex::new(Looked { versions, authorities });
        let (delegation, unusable_authorities) = (settings.delegation, trust.unusable_authorities());
        let content = Gsi { secret, trust, unusable_authorities, delegation };
        Ok(Self { settings, content: RwLock::new(Arc::new(content)), looked })
    }

    /// Their content.
    pub(crate) fn get(&self) -> Arc<Gsi> {
        Arc::clone(&self.content.read())
    }

    /// Reads the certificate again if it has changed, and at `now` the authorities if that is due. If a new version cannot be used, the log says so, and that of before stays.
    /// Logins do not wait for this.
    pub(crate) fn refresh(&self, now: Duration) {
        let mut looked = self.looked.lock();
        let before = self.get();
        let versions = versions(&self.settings);
        if versions != looked.versions {
            looked.versions = versions;
            match secret(&self.settings) {
                Ok(secret) => {
                    let certificate = self.settings.certificate.display();
                    tracing::info!(%certificate, "the certificate for gsi was read again");
                    *self.content.write() =
                        Arc::new(Gsi { secret: Arc::new(secret), trust: Arc::clone(&before.trust), ..*before });
                }
                Err(error) => tracing::error!("{error}; the one of before stays in use"),
            }
        }
        if looked.authorities.is_due(now) {
            match trust(&self.settings) {
                Ok(trust) => {
                    let before = self.get();
                    let chosen = looked.authorities.choose(now, trust, &before.trust);
                    let trust = chosen.map_or_else(|| Arc::clone(&before.trust), Arc::new);
                    let (secret, unusable_authorities) =
                        (Arc::clone(&before.secret), looked.authorities.unusable_authorities());
                    *self.content.write() = Arc::new(Gsi { secret, trust, unusable_authorities, ..*before });
                }
                Err(error) => {
                    looked.authorities.failed(now);
                    tracing::error!("{error}; the authorities of before stay in use");
                }
            }
        }
    }
}

fn versions(settings: &GsiSettings) -> [Option<Version>; 2] {
    [&settings.certificate, &settings.key].map(|path| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.ino(), about.len(), [about.mtime(), about.mtime_nsec(), about.ctime(), about.ctime_nsec()]))
    })
}

fn secret(settings: &GsiSettings) -> Result<ServerSecret, GsiError> {
    let (certificate, _) = contents(&settings.certificate)?;
    let (key, mode) = contents(&settings.key)?;
    if mode & 0o077 != 0 {
        return Err(file(&settings.key, FilesProblem::OpenToOthers(mode)));
    }
    let secret = ServerSecret::new(&certificate, &key, &mut SystemNumbers::new());
    secret.map_err(|source| GsiError::Certificate { path: settings.certificate.clone(), source })
}

fn trust(settings: &GsiSettings) -> Result<grid::Trust, GsiError> {
    let voms_servers = Some(settings.voms_servers.as_path()).filter(|directory| directory.exists());
    Ok(tls::load_grid_trust(&settings.authorities, voms_servers, settings.own_hosts.clone())?)
}

fn file(path: &Path, problem: FilesProblem) -> GsiError {
    GsiError::File { path: path.to_owned(), problem }
}

/// A file's bytes, and its permission bits.
fn contents(path: &Path) -> Result<(Vec<u8>, u32), GsiError> {
    let read = || {
        let opened = File::open(path)?;
        let mode = opened.metadata()?.mode() & 0o7777;
        let mut bytes = Vec::new();
        opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX { Err(FilesProblem::TooLong(FILE_BYTES_MAX)) } else { Ok((bytes, mode)) }
    };
    read().map_err(|problem| file(path, problem))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_damaged_list_shuts_nobody_out_while_it_may_be_written() {
        let folder = tempfile::TempDir::new().unwrap();
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gsi/tests/data");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("authorities")).unwrap();
        for (from, to) in [("ca.pem", "authorities/e93ab527.0"), ("server.pem", "cert.pem"), ("server.key", "key.pem")]
        {
            fs::copy(data.join(from), path(to)).unwrap();
        }
        fs::set_permissions(path("key.pem"), Permissions::from_mode(0o600)).unwrap();
        let settings = GsiSettings {
            certificate: path("cert.pem"),
            key: path("key.pem"),
            authorities: path("authorities"),
            voms_servers: path("vomsdir"),
            own_hosts: Vec::new(),
            delegation: false,
        };
        let at = Duration::from_secs;
        let files = GsiFiles::open(settings, at(0)).unwrap();
        let seen = |secs| {
            files.refresh(at(secs));
            let now = files.get();
            (now.trust.unusable_authorities(), now.unusable_authorities)
        };
        let list = path("authorities/e93ab527.r0");
        fs::write(&list, "").unwrap();
        assert_eq!(seen(599), (0, 0), "it is not read yet");
        assert_eq!(seen(600), (0, 1), "the metric shows it, and users may still log in");
        fs::remove_file(&list).unwrap();
        assert_eq!(seen(609), (0, 1));
        assert_eq!(seen(610), (0, 0), "it is read again soon");
        fs::write(&list, "no list").unwrap();
        assert_eq!(seen(1210), (0, 1));
        assert_eq!(seen(1800), (0, 1));
        assert_eq!(seen(1811), (1, 1), "it stays damaged, so its authority is not believed");
        assert_eq!(seen(1821), (1, 1));
        fs::remove_file(&list).unwrap();
        assert_eq!(seen(1831), (0, 0));
    }
}
