//! Contexts: the clusters that a user of this machine administers. Each is a file with everything that is needed to
//! ask that cluster: the addresses of its managers, a key, and a certificate. Or, for people who show a token or a certificate
//! of the grid, the addresses and the fingerprint of the cluster's authority.
//!
//! The folder is `weir` in `$XDG_CONFIG_HOME`, else `~/.config/weir`. `contexts/NAME` is a context, `current` holds the
//! name of the one that commands use by themselves. `contexts/.managers-NAME` has the addresses that the cluster has told. `contexts/.key-ID` is the key of an invitation while that is redeemed.

mod command;
mod credential;
mod learned;
mod target;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use link::admin::{AdminId, AdminIdentity, AdminIdentityError, TrustedCluster, key_to_redeem};
use link::{FileError, Fingerprint, NewKey};

pub(crate) use command::run;
pub(crate) use target::{Target, on_own_thread, watched};

const CONTEXTS: &str = "contexts";
const CURRENT: &str = "current";
const NAME_MAX: usize = 64;

/// A context cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContextError {
    /// No folder for settings is known.
    #[error("neither HOME nor XDG_CONFIG_HOME names a folder; weir keeps contexts in ~/.config/weir")]
    NoHome,
    /// The name is not possible.
    #[error(
        "`{0}` is no name for a context: write 1 to 64 letters, digits, and any of `.`, `_`, `-`, and begin with a letter or digit"
    )]
    Name(String),
    /// There is no such context.
    #[error("there is no context {name} in {folder}; `weir context list` shows all")]
    Unknown {
        /// The name.
        name: String,
        /// The folder.
        folder: String,
    },
    /// There is one of this name already.
    #[error("there is a context {0} already; `weir context remove {0}` first, or choose another name")]
    Exists(String),
    /// Its file cannot be read or written.
    #[error("context {name}: {source}")]
    Identity {
        /// The name.
        name: String,
        /// What is wrong.
        source: AdminIdentityError,
    },
    /// The folder cannot be read or changed.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// A context.
#[derive(Clone, Debug)]
pub(crate) enum Context {
    /// Commands show a certificate of the cluster.
    Certificate(Box<AdminIdentity>),
    /// Commands show the bearer token of the user, or a certificate of the grid.
    Person(TrustedCluster),
}

impl Context {
    /// Addresses of managers, as `host:port`.
    pub(crate) fn managers(&self) -> &[String] {
        match self {
            Self::Certificate(identity) => identity.managers(),
            Self::Person(cluster) => &cluster.managers,
        }
    }

    /// The authority by which it knows the cluster.
    pub(crate) fn authority(&self) -> Fingerprint {
        match self {
            Self::Certificate(identity) => identity.authority(),
            Self::Person(cluster) => cluster.authority,
        }
    }

    /// The same with other addresses.
    fn with_managers(self, managers: Vec<String>) -> Self {
        match self {
            Self::Certificate(identity) => Self::Certificate(Box::new(identity.with_managers(managers))),
            Self::Person(cluster) => Self::Person(TrustedCluster { managers, ..cluster }),
        }
    }
}

/// The contexts of the user.
pub(crate) struct Contexts {
    folder: PathBuf,
}

/// Whether a context may have this name. It is the name of a file.
fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_MAX).contains(&name.len()) && name.bytes().all(fits) && name.as_bytes()[0].is_ascii_alphanumeric()
}

impl Contexts {
    /// Those of the user who runs this process.
    pub(crate) fn of_user() -> Result<Self, ContextError> {
        let folder = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let config = folder("XDG_CONFIG_HOME").or_else(|| folder("HOME").map(|home| home.join(".config")));
        Ok(Self { folder: config.ok_or(ContextError::NoHome)?.join("weir") })
    }

    fn path(&self, name: &str) -> Result<PathBuf, ContextError> {
        match is_name(name) {
            true => Ok(self.folder.join(CONTEXTS).join(name)),
            false => Err(ContextError::Name(name.to_owned())),
        }
    }

    /// The names of all contexts, in order.
    pub(crate) fn names(&self) -> Result<Vec<String>, ContextError> {
        let path = self.folder.join(CONTEXTS);
        let failed = |source| ContextError::Io { what: "list", path: path.display().to_string(), source };
        let entries = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let mut names = Vec::new();
        for entry in entries {
            // Files with other names are not contexts.
            let name = entry.map_err(failed)?.file_name().into_string().unwrap_or_default();
            if is_name(&name) && !name.contains(".new-") {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// The context `name`; `None` if there is none.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Context>, ContextError> {
        if !is_name(name) {
            return Ok(None);
        }
        let path = self.path(name)?;
        let read = match TrustedCluster::read(&path) {
            Ok(Some(cluster)) => Ok(Context::Person(cluster)),
            Ok(None) => AdminIdentity::read(&path).map(|identity| Context::Certificate(Box::new(identity))),
            Err(error) => Err(error),
        };
        match read {
            Ok(context) => Ok(Some(context)),
            Err(AdminIdentityError::File(FileError::Missing { .. })) => Ok(None),
            Err(source) => Err(ContextError::Identity { name: name.to_owned(), source }),
        }
    }

    /// The context `name`.
    pub(crate) fn read(&self, name: &str) -> Result<Context, ContextError> {
        self.find(name)?.ok_or_else(|| ContextError::Unknown {
            name: name.to_owned(),
            folder: self.folder.join(CONTEXTS).display().to_string(),
        })
    }

    /// The context `name` with all addresses to ask: those of the user, and those that the cluster has told. `None` if there is none.
    pub(crate) fn find_to_ask(&self, name: &str) -> Result<Option<Context>, ContextError> {
        let Some(context) = self.find(name)? else { return Ok(None) };
        let managers = learned::together(context.managers(), &learned::read(&self.learned_path(name)));
        Ok(Some(context.with_managers(managers)))
    }

    fn learned_path(&self, name: &str) -> PathBuf {
        // No context has such a name.
        self.folder.join(CONTEXTS).join(format!(".managers-{name}"))
    }

    /// Whether a new context may have this name.
    pub(crate) fn check_new(&self, name: &str) -> Result<(), ContextError> {
        match fs::symlink_metadata(self.path(name)?) {
            Ok(_) => Err(ContextError::Exists(name.to_owned())),
            Err(_) => Ok(()),
        }
    }

    fn key_path(&self, invitation: AdminId) -> PathBuf {
        // No context has such a name.
        self.folder.join(CONTEXTS).join(format!(".key-{invitation}"))
    }

    /// The key with which the new context `name` redeems this invitation. It is kept from now on: an invitation is good for one key, and a command
    /// that gets no further must be able to go on with it.
    pub(crate) fn key_for(&self, name: &str, invitation: AdminId) -> Result<NewKey, ContextError> {
        key_to_redeem(&self.key_path(invitation))
            .map_err(|source| ContextError::Identity { name: name.to_owned(), source })
    }

    /// Removes the key of an invitation that needs it no more.
    pub(crate) fn forget_key(&self, invitation: AdminId) {
        // What is left does no harm.
        let _ = fs::remove_file(self.key_path(invitation));
    }

    /// Writes the context `name`.
    pub(crate) fn write(&self, name: &str, identity: &AdminIdentity) -> Result<(), ContextError> {
        let written = identity.write(&self.path(name)?);
        written.map_err(|source| ContextError::Identity { name: name.to_owned(), source })
    }

    /// Writes the context `name` of a cluster that is asked with a token or a certificate of the grid.
    pub(crate) fn write_cluster(&self, name: &str, cluster: &TrustedCluster) -> Result<(), ContextError> {
        let written = cluster.write(&self.path(name)?).map_err(AdminIdentityError::from);
        written.map_err(|source| ContextError::Identity { name: name.to_owned(), source })
    }

    /// Keeps the addresses that the active manager of the context's cluster has told, in place of those that it told before.
    pub(crate) fn learn(&self, name: &str, told: &[String]) -> Result<(), ContextError> {
        let given = self.read(name)?;
        let told = learned::together(given.managers(), told).split_off(given.managers().len());
        let path = self.learned_path(name);
        learned::replace(&path, &told).map_err(|source| failed("write", &path, source))
    }

    /// Removes the context `name`, with its key.
    pub(crate) fn remove(&self, name: &str) -> Result<(), ContextError> {
        let path = self.path(name)?;
        // First, so that none is left for another context of this name.
        let _ = fs::remove_file(self.learned_path(name));
        match fs::remove_file(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.read(name).map(drop)?,
            other => other.map_err(|source| failed("remove", &path, source))?,
        }
        if self.current()?.as_deref() == Some(name) {
            let current = self.folder.join(CURRENT);
            fs::remove_file(&current).map_err(|source| failed("remove", &current, source))?;
        }
        Ok(())
    }

    /// The name of the current context.
    pub(crate) fn current(&self) -> Result<Option<String>, ContextError> {
        let path = self.folder.join(CURRENT);
        let mut text = String::new();
        match fs::File::open(&path).and_then(|file| file.take(4096).read_to_string(&mut text)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(failed("read", &path, source)),
            Ok(_) => Ok(Some(text.trim().to_owned()).filter(|name| !name.is_empty())),
        }
    }

    /// Makes the context `name` the current one. It must exist.
    pub(crate) fn set_current(&self, name: &str) -> Result<(), ContextError> {
        self.read(name)?;
        let (path, unfinished) = (self.folder.join(CURRENT), self.folder.join(format!("{CURRENT}.new")));
        let write = || {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            writeln!(file, "{name}")?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)
        };
        write().map_err(|source| failed("write", &path, source))
    }
}

fn failed(what: &'static str, path: &Path, source: io::Error) -> ContextError {
    ContextError::Io { what, path: path.display().to_string(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_never_a_path() {
        for name in ["cern", "mgr1.example.org", "a_b-c", "0"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", ".", "..", "a/b", "/a", "-a", ".a", "a b", "a:1", "ä", &"a".repeat(65)] {
            assert!(!is_name(name), "{name}");
        }
        let temp = tempfile::tempdir().unwrap();
        let contexts = Contexts { folder: temp.path().join("weir") };
        assert!(matches!(contexts.remove("../current"), Err(ContextError::Name(_))));
        assert!(matches!(contexts.remove("gone"), Err(ContextError::Unknown { .. })));
        assert!(matches!(contexts.set_current("gone"), Err(ContextError::Unknown { .. })));
        assert!(contexts.names().unwrap().is_empty() && contexts.current().unwrap().is_none());
        assert!(!temp.path().join("weir").exists(), "reading makes nothing");
    }

    #[test]
    fn a_context_learns_managers_forgets_the_removed_ones_and_keeps_the_users_own() {
        let temp = tempfile::tempdir().unwrap();
        let contexts = Contexts { folder: temp.path().join("weir") };
        let (authority, managers) = (Fingerprint([7; 32]), vec!["localhost:9".to_owned()]);
        contexts.write_cluster("lab", &TrustedCluster { authority, managers }).unwrap();
        let known = || contexts.find_to_ask("lab").unwrap().unwrap().managers().join(" ");
        let learn = |told: &[&str]| {
            let told: Vec<String> = told.iter().map(|one| (*one).to_owned()).collect();
            contexts.learn("lab", &told).unwrap();
            known()
        };
        assert_eq!(known(), "localhost:9");
        assert_eq!(learn(&["m1:1", "localhost:9", "m2:1"]), "localhost:9 m1:1 m2:1");
        assert_eq!(learn(&["m2:1", "m3:1"]), "localhost:9 m2:1 m3:1", "m1 was removed from the cluster");
        assert_eq!(learn(&["m3:1", "no address", "a:1\nb:2", "\u{1b}[2J:1"]), "localhost:9 m3:1");
        let many: Vec<String> = (1..40).map(|number| format!("n{number}:1")).collect();
        contexts.learn("lab", &many).unwrap();
        assert_eq!(known().split(' ').count(), link::admin::MANAGERS_MAX);
        assert!(matches!(contexts.learn("gone", &many), Err(ContextError::Unknown { .. })));
        // The context itself has only what the user has given, and the rest goes with it.
        assert_eq!(contexts.read("lab").unwrap().managers(), ["localhost:9"]);
        assert_eq!(contexts.names().unwrap(), ["lab"]);
        contexts.remove("lab").unwrap();
        assert_eq!(fs::read_dir(contexts.folder.join(CONTEXTS)).unwrap().count(), 0);
    }

    #[test]
    fn an_invitation_keeps_its_key_until_the_context_is_written() {
        let temp = tempfile::tempdir().unwrap();
        let contexts = Contexts { folder: temp.path().join("weir") };
        let (one, other) = (AdminId([1; 16]), AdminId([2; 16]));
        let key = |name, id| contexts.key_for(name, id).unwrap().public();
        let first = key("a", one);
        assert_eq!((key("a", one), key("b", one)), (first, first), "whatever the context is called");
        assert!(key("a", other) != first);
        assert!(contexts.names().unwrap().is_empty(), "a key is no context");
        contexts.check_new("a").unwrap();
        contexts.forget_key(one);
        assert!(key("a", one) != first);
        // Where nothing can be kept, the invitation is not used.
        let contexts = Contexts { folder: temp.path().join("file") };
        fs::write(&contexts.folder, "").unwrap();
        assert!(matches!(contexts.key_for("a", one), Err(ContextError::Identity { .. })));
    }
}
