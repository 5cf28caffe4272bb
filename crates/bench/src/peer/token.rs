//! The token that all processes of a measurement share: a secret and its expiry, in a small text file that only its
//! owner can read.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rand::TryRngCore as _;

/// The bytes of a secret.
pub const SECRET_BYTES: usize = 32;
/// The largest token file. A longer file is not a token.
const FILE_BYTES_MAX: u64 = 4096;
const FIRST_LINE: &str = "weir bench token 1";

/// Random bytes that only the processes of a measurement know. They are never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret([u8; SECRET_BYTES]);

/// A secret with its expiry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    secret: Secret,
    expires: i64,
    is_open: bool,
}

/// Why a token could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file could not be read or created.
    #[error("cannot {what} the token file {}: {source}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Other users can read the file.
    #[error(
        "other users can read the token file {} (its mode is {mode:03o}); make a new one with `weir bench token FILE`, or `chmod 600` it if nobody has read it",
        path.display()
    )]
    Readable {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The path is not a file.
    #[error("{} is not a plain file; make a token with `weir bench token FILE`", .0.display())]
    NoFile(PathBuf),
    /// The file contains something else.
    #[error("{} is not a token: {why}; make one with `weir bench token FILE`", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
    /// The token has expired.
    #[error("the token {} expired {ago} ago by this machine's clock; make a new one with `weir bench token FILE`, and copy it to all machines", path.display())]
    Expired {
        /// The file.
        path: PathBuf,
        /// How long ago, as readable text.
        ago: String,
    },
}

impl Secret {
    /// Makes a secret from bytes that nobody else may know.
    #[must_use]
    pub fn new(bytes: [u8; SECRET_BYTES]) -> Self {
        Self(bytes)
    }

    /// Draws random bytes from the kernel.
    ///
    /// # Errors
    /// The kernel has no randomness.
    pub fn draw() -> io::Result<Self> {
        let mut bytes = [0; SECRET_BYTES];
        rand::rngs::OsRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
        Ok(Self(bytes))
    }

    /// Returns the bytes, as the key of a hash.
    pub(super) fn key(&self) -> &[u8; SECRET_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

impl Token {
    /// Makes a token that is valid for `lifetime` from `now` (seconds since 1970).
    #[must_use]
    pub fn new(secret: Secret, now: i64, lifetime: Duration) -> Self {
        let lifetime = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
        Self { secret, expires: now.saturating_add(lifetime), is_open: false }
    }

    /// The token of processes that share none. Everybody knows it, so it is for one machine only: a process that
    /// listens with it must listen on loopback addresses only.
    #[must_use]
    pub fn open() -> Self {
        Self { secret: Secret([0; SECRET_BYTES]), expires: i64::MAX, is_open: true }
    }

    /// Whether it is [`Token::open`].
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether it has expired at `now`, in seconds since 1970.
    #[must_use]
    pub fn is_expired(&self, now: i64) -> bool {
        now >= self.expires
    }

    pub(super) fn secret(&self) -> &Secret {
        &self.secret
    }

    /// Writes it into a new file that only its owner can read.
    ///
    /// # Errors
    /// The file exists, or cannot be created.
    pub fn write(&self, path: &Path) -> Result<(), TokenError> {
        let failed = |source| TokenError::Io { what: "make", path: path.to_owned(), source };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
        file.write_all(self.text().as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
    }

    /// Reads it from a file; `now` is in seconds since 1970.
    ///
    /// # Errors
    /// Other users can read the file, it is not a token, or the token has expired.
    pub fn read(path: &Path, now: i64) -> Result<Self, TokenError> {
        let failed = |source| TokenError::Io { what: "read", path: path.to_owned(), source };
        // Opening a named pipe would wait.
        if !std::fs::metadata(path).map_err(failed)?.is_file() {
            return Err(TokenError::NoFile(path.to_owned()));
        }
        let file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(TokenError::Readable { path: path.to_owned(), mode });
        }
        let mut text = String::new();
        file.take(FILE_BYTES_MAX).read_to_string(&mut text).map_err(failed)?;
        let token = Self::parse(&text).map_err(|why| TokenError::Syntax { path: path.to_owned(), why })?;
        if token.is_expired(now) {
            let ago = Duration::from_secs(now.saturating_sub(token.expires).unsigned_abs());
            return Err(TokenError::Expired { path: path.to_owned(), ago: types::units::show_duration(ago) });
        }
        Ok(token)
    }

    fn text(&self) -> String {
        use fmt::Write as _;
        let mut secret = String::new();
        for byte in self.secret.0 {
            let _ = write!(secret, "{byte:02x}");
        }
        format!("{FIRST_LINE}\nsecret {secret}\nexpires {}\n", self.expires)
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err("its first line is not `weir bench token 1`");
        }
        let hex =
            lines.next().and_then(|line| line.strip_prefix("secret ")).ok_or("its second line is not a secret")?;
        let secret = secret_of(hex).ok_or("its secret is not 64 hexadecimal digits")?;
        let expires = lines
            .next()
            .and_then(|line| line.strip_prefix("expires "))
            .and_then(|seconds| seconds.parse().ok())
            .ok_or("its third line is not its expiry in seconds since 1970")?;
        if lines.next().is_some() {
            return Err("it has more than three lines");
        }
        // The secret of `Token::open` is public.
        if secret == [0; SECRET_BYTES] {
            return Err("its secret is all zeros");
        }
        Ok(Self { secret: Secret(secret), expires, is_open: false })
    }
}

fn secret_of(hex: &str) -> Option<[u8; SECRET_BYTES]> {
    if hex.len() != 2 * SECRET_BYTES || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut secret = [0; SECRET_BYTES];
    for (byte, digits) in secret.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn token() -> Token {
        Token::new(Secret::new([0xab; 32]), 1000, DAY)
    }

    #[test]
    fn a_token_can_be_read_from_its_file_until_it_expires() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        token().write(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(Token::read(&path, 1000).unwrap(), token());
        assert_eq!(Token::read(&path, 1000 + 86_399).unwrap(), token());
        let late = Token::read(&path, 1000 + 86_400 + 7200).unwrap_err().to_string();
        assert!(late.contains("expired 120 min 0 s ago") && late.contains("weir bench token"), "{late}");
        // An existing file is not overwritten, because it may be in use.
        assert!(token().write(&path).unwrap_err().to_string().contains("exists"));
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        token().write(&path).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o601] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            let refused = Token::read(&path, 1000).unwrap_err().to_string();
            assert!(refused.contains(&format!("{mode:03o}")) && refused.contains("chmod 600"), "{refused}");
        }
        assert!(matches!(Token::read(folder.path(), 1000), Err(TokenError::NoFile(_))));
        assert!(Token::read(&folder.path().join("none"), 1000).unwrap_err().to_string().contains("No such file"));
    }

    #[test]
    fn a_file_that_is_not_a_token_is_refused() {
        let right = token().text();
        assert_eq!(Token::parse(&right), Ok(token()));
        for (from, to) in [
            ("token 1", "token 2"),
            ("secret ab", "secret ax"),
            ("secret ab", "secret +b"),
            ("secret ab", "secret abab"),
            ("expires 87400", "expires soon"),
            ("expires 87400\n", "expires 87400\nmore\n"),
            ("ab", "00"),
            ("ab", "ä"),
        ] {
            assert!(Token::parse(&right.replace(from, to)).is_err(), "{to}");
        }
        for text in ["", "\n", "weir bench token 1", "weir bench token 1\nsecret "] {
            assert!(Token::parse(text).is_err());
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        for bytes in [vec![0xff; 10], vec![b'a'; 100_000]] {
            std::fs::write(&path, bytes).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
            assert!(Token::read(&path, 1000).is_err());
        }
    }

    #[test]
    fn the_secret_is_not_shown() {
        let shown = format!("{:?} {:?}", token(), Secret::new([0xab; 32]));
        assert!(shown.contains("not shown") && !shown.contains("ab,") && !shown.contains("171"), "{shown}");
    }
}
