//! Keys of issuers on the disk, so that a node that restarts while an issuer is away still knows them.
//!
//! Each issuer has a file. Its first line is a JSON object with the issuer, the time of the fetch, and a SHA-256 over these
//! and the document; the rest is the document as the issuer sent it. Whoever can write these files can make tokens: the
//! directory belongs to the node alone.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use identity::{CLOCK_SKEW, IssuerUrl, JWKS_BYTES_MAX, KeySet};
use parking_lot::Mutex;
use ring::digest::{Context, SHA256, digest};
use serde::{Deserialize, Serialize};
use types::Timestamp;

/// The longest first line, in bytes.
const LINE_MAX: usize = 4 << 10;

/// Why keys cannot be kept in a directory.
#[derive(Debug, thiserror::Error)]
pub enum KeyFilesError {
    /// It cannot be made or looked at.
    #[error("cannot use the directory {} for keys of issuers: {source}", path.display())]
    Unusable {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others may write into it.
    #[error(
        "others than its owner may write into {} (mode {mode:04o}), and whoever puts keys there can make tokens: chmod 700 it",
        path.display()
    )]
    OpenToOthers {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
}

#[derive(Serialize, Deserialize)]
struct FirstLine {
    issuer: String,
    /// In seconds since 1970.
    fetched: i64,
    sha256: String,
}

/// The directory.
#[derive(Debug)]
pub(crate) struct KeyFiles {
    directory: PathBuf,
    /// Two fetches of one issuer must not write one temporary file, should the disk be that slow.
    writing: Mutex<()>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sum(issuer: &str, fetched: i64, document: &[u8]) -> String {
    let mut context = Context::new(&SHA256);
    context.update(format!("{issuer}\n{fetched}\n").as_bytes());
    context.update(document);
    hex(context.finish().as_ref())
}

impl KeyFiles {
    /// Makes the directory if it is not there, and checks that it belongs to the node alone.
    pub(crate) fn open(directory: &Path) -> Result<Self, KeyFilesError> {
        let unusable = |source| KeyFilesError::Unusable { path: directory.to_owned(), source };
        if let Err(error) = DirBuilder::new().mode(0o700).create(directory)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(unusable(error));
        }
        let about = fs::metadata(directory).map_err(unusable)?;
        if !about.is_dir() {
            return Err(unusable(io::ErrorKind::NotADirectory.into()));
        }
        let mode = about.mode() & 0o7777;
        if mode & 0o022 != 0 {
            return Err(KeyFilesError::OpenToOthers { path: directory.to_owned(), mode });
        }
        Ok(Self { directory: directory.to_owned(), writing: Mutex::new(()) })
    }

    /// The file of an issuer. URLs have characters that names of files cannot have.
    fn path(&self, issuer: &IssuerUrl) -> PathBuf {
        let name = hex(&digest(&SHA256, issuer.as_str().as_bytes()).as_ref()[..16]);
        self.directory.join(format!("{name}.keys"))
    }

    /// Keeps a document that was fetched at `now`. A reader sees the file of before, or this one.
    pub(crate) fn store(&self, issuer: &IssuerUrl, document: &[u8], now: Timestamp) -> io::Result<()> {
        let _writing = self.writing.lock();
        let fetched = now.secs();
        let line =
            FirstLine { issuer: issuer.as_str().to_owned(), fetched, sha256: sum(issuer.as_str(), fetched, document) };
        let path = self.path(issuer);
        let temporary = path.with_extension("tmp");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        bytes.extend_from_slice(document);
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&temporary, &path)?;
        File::open(&self.directory)?.sync_all()
    }

    /// The keys of an issuer and their age, unless they are `keep` old. `None`: there are none, or the file is damaged.
    pub(crate) fn load(&self, issuer: &IssuerUrl, now: Timestamp, keep: Duration) -> Option<(KeySet, Duration)> {
        let path = self.path(issuer);
        let file = path.display();
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(%issuer, %file, %error, "the kept keys of an issuer cannot be read; they are fetched");
                return None;
            }
        };
        let Some((fetched, keys)) = parse(&bytes, issuer) else {
            tracing::warn!(%issuer, %file, "the kept keys of an issuer are damaged, and are not used; they are fetched");
            return None;
        };
        if fetched > now.plus(CLOCK_SKEW) {
            // Their age cannot be known.
            tracing::warn!(%issuer, %file, "the kept keys of an issuer are from the future, and are not used: is the clock right?");
            return None;
        }
        let nanos = now.0.saturating_sub(fetched.0);
        let age = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
        (age < keep).then_some((keys, age))
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take((LINE_MAX + JWKS_BYTES_MAX + 1) as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The time of the fetch, and the keys; `None` if this is not what was written for `issuer`.
fn parse(bytes: &[u8], issuer: &IssuerUrl) -> Option<(Timestamp, KeySet)> {
    let end = bytes.iter().take(LINE_MAX).position(|&byte| byte == b'\n')?;
    let line: FirstLine = serde_json::from_slice(&bytes[..end]).ok()?;
    let document = &bytes[end + 1..];
    if line.issuer != issuer.as_str() || line.sha256 != sum(&line.issuer, line.fetched, document) {
        return None;
    }
    Some((Timestamp::from_secs(line.fetched), KeySet::parse(document, issuer).ok()?))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const DOCUMENT: &[u8] = br#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn issuer(url: &str) -> IssuerUrl {
        IssuerUrl::parse(url).unwrap()
    }

    #[test]
    fn kept_keys_come_back_until_they_are_too_old() {
        let folder = tempfile::tempdir().unwrap();
        let files = KeyFiles::open(&folder.path().join("keys")).unwrap();
        let (a, b) = (issuer("https://a.example"), issuer("https://a.example/"));
        let at = |seconds: i64| Timestamp::from_secs(1_800_000_000 + seconds);
        let keep = Duration::from_secs(100);
        assert!(files.load(&a, at(0), keep).is_none());
        files.store(&a, b"{}", at(-50)).unwrap();
        assert!(files.load(&a, at(0), keep).is_none(), "this is no set of keys");
        files.store(&a, DOCUMENT, at(0)).unwrap();
        assert!(files.load(&b, at(0), keep).is_none(), "another issuer");
        let (keys, age) = files.load(&a, at(99), keep).unwrap();
        assert!(keys.contains("a"));
        assert_eq!(age, Duration::from_secs(99));
        assert!(files.load(&a, at(100), keep).is_none(), "too old");
        // A clock that is a little wrong is not a reason to lose them, and one that is very wrong is.
        assert_eq!(files.load(&a, at(-60), keep).unwrap().1, Duration::ZERO);
        assert!(files.load(&a, at(-61), keep).is_none());
    }

    #[test]
    fn each_damaged_byte_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let files = KeyFiles::open(folder.path()).unwrap();
        let (issuer, now) = (issuer("https://a.example"), Timestamp::from_secs(1_800_000_000));
        files.store(&issuer, DOCUMENT, now).unwrap();
        let path = files.path(&issuer);
        let good = fs::read(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing temporary is left");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        for place in 0..good.len() {
            let mut bad = good.clone();
            bad[place] ^= 1;
            assert!(parse(&bad, &issuer).is_none(), "{place}: {:?}", char::from(good[place]));
            assert!(parse(&good[..place], &issuer).is_none());
        }
        assert!(parse(&[&good[..], b"x"].concat(), &issuer).is_none());
        fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
        assert!(files.load(&issuer, now, Duration::from_secs(100)).is_none());
    }

    #[test]
    fn a_directory_that_others_can_write_into_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        fs::create_dir(&path).unwrap();
        for (mode, fits) in [(0o700, true), (0o755, true), (0o770, false), (0o707, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let opened = KeyFiles::open(&path);
            assert_eq!(opened.is_ok(), fits, "{mode:o}");
            if let Err(error) = opened {
                assert!(error.to_string().contains(&format!("mode {mode:04o}")), "{error}");
            }
        }
        assert!(KeyFiles::open(&path.join("a/b")).unwrap_err().to_string().contains("a/b"));
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(KeyFiles::open(&folder.path().join("file")).is_err());
    }
}
