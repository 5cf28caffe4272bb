//! The bearer token. It is searched for at each login, because tokens are renewed (WLCG Bearer Token Discovery):
//! `BEARER_TOKEN`, the file that `BEARER_TOKEN_FILE` names, `$XDG_RUNTIME_DIR/bt_u<uid>`, `/tmp/bt_u<uid>`.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

/// The longest token. A request could not carry a longer one.
const LEN_MAX: usize = 60 << 10;

/// A bearer token. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Takes a token. White space around it does not count.
    ///
    /// # Errors
    /// The text says what is wrong. It does not show the token.
    pub fn new(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        if text.is_empty() {
            return Err("it is empty");
        }
        if text.len() > LEN_MAX {
            return Err("it is too long for a token");
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("it has characters that a token cannot have");
        }
        Ok(Self(text.to_owned()))
    }

    /// Finds the token of this program's user, where tools of the grid leave it.
    ///
    /// # Errors
    /// There is none, or it must not be used. The text does not show it.
    pub fn usual() -> Result<Self, String> {
        Places::usual().find()
    }

    /// The token, to send it to who may see it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

type Find = dyn Fn() -> Result<Token, String> + Send + Sync;

/// Where bearer tokens come from; by default from the places where tools of the grid leave them.
#[derive(Clone, Default)]
pub struct TokenSource(Option<Arc<Find>>);

impl TokenSource {
    /// Asks `find` at each login. It returns the token, or says why it has none.
    #[must_use]
    pub fn from(find: impl Fn() -> Result<Token, String> + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(find)))
    }

    /// Returns a token that the server takes. `len_max`: the first length that it does not take.
    pub(super) fn find(&self, places: &Places<'_>, len_max: usize) -> Result<Token, String> {
        let token = match &self.0 {
            Some(find) => find()?,
            None => places.find()?,
        };
        if token.as_str().len() >= len_max {
            return Err(format!("the token is longer than the {} bytes that the server takes", len_max - 1));
        }
        Ok(token)
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "TokenSource(own)" } else { "TokenSource(usual places)" })
    }
}

/// Where to look for a token.
pub(super) struct Places<'a> {
    variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The user's number.
    uid: u32,
    /// The directory in which any user can create files.
    shared: PathBuf,
}

impl Places<'static> {
    /// The environment and the files of this program's user.
    pub(super) fn usual() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        Self { variable: &|name| std::env::var_os(name), uid, shared: PathBuf::from("/tmp") }
    }
}

impl Places<'_> {
    /// Returns the first token found.
    ///
    /// # Errors
    /// There is none, or it must not be used.
    fn find(&self) -> Result<Token, String> {
        let given = |name| (self.variable)(name).filter(|value| !value.is_empty());
        if let Some(value) = given("BEARER_TOKEN") {
            let value = value.into_string().unwrap_or_default();
            if !value.trim().is_empty() {
                return Token::new(&value).map_err(|why| format!("BEARER_TOKEN: {why}"));
            }
        }
        let name = format!("bt_u{}", self.uid);
        let files = [
            given("BEARER_TOKEN_FILE").map(PathBuf::from),
            given("XDG_RUNTIME_DIR").map(|directory| Path::new(&directory).join(&name)),
            Some(self.shared.join(&name)),
        ];
        for path in files.into_iter().flatten() {
            if let Some(token) = self.read(&path)? {
                return Ok(token);
            }
        }
        let name = self.shared.join(&name);
        Err(format!(
            "no token was found: set BEARER_TOKEN or BEARER_TOKEN_FILE, or write it to {}, readable for its owner only",
            name.display()
        ))
    }

    /// Reads a token. `None`: the file does not exist, or is empty.
    fn read(&self, path: &Path) -> Result<Option<Token>, String> {
        let wrong = |why: &dyn fmt::Display| Err(format!("the token in {}: {why}", path.display()));
        let text = match self.contents(path) {
            Ok(Ok(text)) => text,
            Ok(Err(why)) => return wrong(&why),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return wrong(&error),
        };
        if text.trim().is_empty() {
            return Ok(None);
        }
        Token::new(&text).map(Some).or_else(|why| wrong(&why))
    }

    /// The inner error says why the file must not be used.
    fn contents(&self, path: &Path) -> io::Result<Result<String, String>> {
        // In a shared directory anybody can create the name, or make it a link to a file of this user.
        let is_shared = path.parent() == Some(self.shared.as_path());
        let link = if is_shared { OFlags::NOFOLLOW } else { OFlags::empty() };
        // A pipe must not be waited for.
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | link;
        let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let about = file.metadata()?;
        if !about.is_file() {
            return Ok(Err("it is no file".to_owned()));
        }
        if about.uid() != self.uid && about.uid() != 0 {
            return Ok(Err("it belongs to another user, who may know it".to_owned()));
        }
        if about.mode() & 0o077 != 0 {
            let mode = about.mode() & 0o7777;
            return Ok(Err(format!("others than its owner have access to it (mode {mode:04o}): chmod 600 it")));
        }
        let mut bytes = Vec::new();
        file.take(LEN_MAX as u64 + 1024).read_to_end(&mut bytes)?;
        Ok(String::from_utf8(bytes).map_err(|_| "it has characters that a token cannot have".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use std::collections::HashMap;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use tempfile::TempDir;

    use super::*;

    /// The files and the environment of a user.
    struct User {
        folder: TempDir,
        environment: HashMap<&'static str, OsString>,
    }

    impl User {
        fn new() -> Self {
            let folder = TempDir::new().unwrap();
            fs::create_dir(folder.path().join("run")).unwrap();
            fs::create_dir(folder.path().join("tmp")).unwrap();
            Self { folder, environment: HashMap::new() }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }

        fn uid() -> u32 {
            rustix::process::geteuid().as_raw()
        }

        /// Writes a file, in which `UID` stands for the user's number.
        fn write(&self, name: &str, text: &str, mode: u32) -> PathBuf {
            let path = self.path(&name.replace("UID", &Self::uid().to_string()));
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path
        }

        fn find_as(&self, uid: u32) -> Result<String, String> {
            let variable = |name: &str| self.environment.get(name).cloned();
            let places = Places { variable: &variable, uid, shared: self.path("tmp") };
            TokenSource::default().find(&places, 100).map(|token| token.as_str().to_owned())
        }

        fn find(&self) -> Result<String, String> {
            self.find_as(Self::uid())
        }
    }

    #[test]
    fn tokens_are_found_in_the_order_of_the_profile() {
        let mut user = User::new();
        assert!(user.find().unwrap_err().contains("BEARER_TOKEN_FILE"));
        user.write("tmp/bt_uUID", "of.tmp\n", 0o600);
        assert_eq!(user.find().unwrap(), "of.tmp");
        user.environment.insert("XDG_RUNTIME_DIR", user.path("run").into());
        assert_eq!(user.find().unwrap(), "of.tmp");
        user.write("run/bt_uUID", "  of.run  ", 0o400);
        assert_eq!(user.find().unwrap(), "of.run");
        user.environment.insert("BEARER_TOKEN_FILE", user.path("none").into());
        assert_eq!(user.find().unwrap(), "of.run");
        let path = user.write("file", "", 0o600);
        user.environment.insert("BEARER_TOKEN_FILE", path.into());
        assert_eq!(user.find().unwrap(), "of.run");
        user.write("file", "of.file", 0o600);
        assert_eq!(user.find().unwrap(), "of.file");
        // Each login reads it again.
        user.write("file", "renewed", 0o600);
        assert_eq!(user.find().unwrap(), "renewed");
        user.environment.insert("BEARER_TOKEN", " ".into());
        assert_eq!(user.find().unwrap(), "renewed");
        user.environment.insert("BEARER_TOKEN", "of.variable\n".into());
        assert_eq!(user.find().unwrap(), "of.variable");
    }

    #[test]
    fn files_of_others_and_open_files_are_not_used() {
        let mut user = User::new();
        let path = user.write("tmp/bt_uUID", "secret.token", 0o640);
        let why = user.find().unwrap_err();
        assert!(why.contains("mode 0640") && why.contains("bt_u") && !why.contains("secret"), "{why}");
        // A link in the shared directory could lead to any of the user's files.
        fs::remove_file(&path).unwrap();
        symlink(user.write("own", "secret.token", 0o600), &path).unwrap();
        assert!(!user.find().unwrap_err().contains("secret"));
        // Elsewhere it is the user's own.
        user.environment.insert("BEARER_TOKEN_FILE", path.into());
        fs::remove_file(user.path(&format!("tmp/bt_u{}", User::uid()))).unwrap();
        symlink(user.path("own"), user.path("link")).unwrap();
        user.environment.insert("BEARER_TOKEN_FILE", user.path("link").into());
        assert_eq!(user.find().unwrap(), "secret.token");
        user.environment.insert("BEARER_TOKEN_FILE", user.path("run").into());
        assert!(user.find().unwrap_err().contains("no file"));
        user.environment.insert("BEARER_TOKEN_FILE", user.path("own").into());
        if User::uid() == 0 {
            std::os::unix::fs::chown(user.path("own"), Some(12345), None).unwrap();
        }
        assert!(user.find_as(User::uid() + 1).unwrap_err().contains("another user"));
    }

    #[test]
    fn what_is_no_token_is_not_sent_and_not_shown() {
        let mut user = User::new();
        for bad in ["a b", "a\r\nb", "geh\u{e4}im", &"x".repeat(100), &"x".repeat(100_000)] {
            let path = user.write("file", bad, 0o600);
            user.environment.insert("BEARER_TOKEN_FILE", path.into());
            let why = user.find().unwrap_err();
            assert!(why.contains("file") || why.contains("longer"), "{why}");
            assert!(!why.contains(bad), "{why}");
        }
        user.write("file", &"x".repeat(99), 0o600);
        assert_eq!(user.find().unwrap().len(), 99);
        assert_eq!(format!("{:?}", Token::new("secret").unwrap()), "Token(..)");
        let own = TokenSource::from(|| Err("none today".to_owned()));
        assert_eq!(own.find(&Places::usual(), 100).unwrap_err(), "none today");
    }
}
