//! A directory of authorities, as OpenSSL and grid software use it.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};

use crate::TrustError;

/// A directory of authorities has at most so many files. (The grid's has about 600.)
const FILES_MAX: usize = 20_000;
/// The longest of these files. (Revocation lists of large authorities have some MB.)
const FILE_BYTES_MAX: u64 = 64 << 20;

/// What is in a file, as its name says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// `HASH.N`: certificates.
    Certificates,
    /// `HASH.rN`: a revocation list.
    RevocationList,
    /// `NAME.signing_policy`: for whom an authority may issue.
    SigningPolicy,
}

/// A file of the directory.
pub(crate) struct AuthorityFile {
    pub path: PathBuf,
    /// Its names without their endings: old and new hashes, and names of authorities, are links to one file.
    pub stems: Vec<String>,
    pub kind: Kind,
    pub bytes: Vec<u8>,
}

/// Reads the files of these kinds. Those that cannot be read are told of in the log. A revocation list or signing policy among them is empty then, which
/// is none that can be used: without it, what its authority has revoked would count, or the authority could issue for anybody. One that is gone is not
/// there.
///
/// # Errors
/// The directory cannot be read.
pub(crate) fn read_directory(directory: &Path, kinds: &[Kind]) -> Result<Vec<AuthorityFile>, TrustError> {
    let unreadable = |source| TrustError::Unreadable { path: directory.to_owned(), source };
    let mut stems: HashMap<PathBuf, (Kind, Vec<String>)> = HashMap::new();
    let mut order = Vec::new();
    for (number, entry) in fs::read_dir(directory).map_err(unreadable)?.enumerate() {
        if number == FILES_MAX {
            // What is left out may be a revocation list.
            return Err(TrustError::TooMany { path: directory.to_owned() });
        }
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name();
        let Some((stem, ending)) = name.to_str().and_then(|name| name.rsplit_once('.')) else { continue };
        let Some(kind) = kind(ending).filter(|kind| kinds.contains(kind)) else { continue };
        // A link to a file that is gone is no authority, and does not make others unusable.
        let file = match entry.path().canonicalize() {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            // It shows below what the file's kind makes of this.
            Err(_) => entry.path(),
        };
        let (_, names) = stems.entry(file.clone()).or_insert_with(|| {
            order.push(file);
            (kind, Vec::new())
        });
        names.push(stem.to_owned());
    }
    let mut files = Vec::new();
    for path in order {
        let Some((kind, stems)) = stems.remove(&path) else { continue };
        match read_bounded(&path) {
            Ok(bytes) => files.push(AuthorityFile { path, stems, kind, bytes }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(file = %path.display(), %error, "an authority's file cannot be read");
                if kind != Kind::Certificates {
                    files.push(AuthorityFile { path, stems, kind, bytes: Vec::new() });
                }
            }
        }
    }
    Ok(files)
}

fn kind(ending: &str) -> Option<Kind> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match ending.strip_prefix('r') {
        Some(number) if is_number(number) => Some(Kind::RevocationList),
        _ if is_number(ending) => Some(Kind::Certificates),
        _ => (ending == "signing_policy").then_some(Kind::SigningPolicy),
    }
}

/// The certificates in a file in PEM form, up to the first that is malformed.
pub(crate) fn certificates(pem: &[u8]) -> impl Iterator<Item = CertificateDer<'static>> + '_ {
    CertificateDer::pem_slice_iter(pem).map_while(Result::ok)
}

/// The revocation list in a file, in PEM form or in DER.
pub(crate) fn revocation_list(bytes: &[u8]) -> CertificateRevocationListDer<'static> {
    match CertificateRevocationListDer::from_pem_slice(bytes) {
        Ok(list) => list,
        Err(_) => CertificateRevocationListDer::from(bytes.to_vec()),
    }
}

pub(crate) fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "it is too long"));
    }
    fs::read(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    const KINDS: [Kind; 3] = [Kind::Certificates, Kind::RevocationList, Kind::SigningPolicy];

    /// A directory cannot be read as a file, not even by root.
    #[test]
    fn what_cannot_be_read_does_not_make_anybody_trusted() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("a.0"), "certificates").unwrap();
        fs::create_dir(path("a.signing_policy")).unwrap();
        fs::create_dir(path("b.0")).unwrap();
        std::os::unix::fs::symlink(path("gone"), path("c.r0")).unwrap();
        std::os::unix::fs::symlink(path("gone"), path("c.signing_policy")).unwrap();
        let files = read_directory(folder.path(), &KINDS).unwrap();
        let mut found: Vec<_> = files
            .iter()
            .map(|file| (file.kind == Kind::SigningPolicy, file.stems.join(","), file.bytes.len()))
            .collect();
        found.sort();
        assert_eq!(found, [(false, "a".to_owned(), 12), (true, "a".to_owned(), 0)]);
        fs::create_dir(path("a.r0")).unwrap();
        let files = read_directory(folder.path(), &KINDS).unwrap();
        let lists: Vec<_> = files.iter().filter(|file| file.kind == Kind::RevocationList).collect();
        assert!(matches!(lists[..], [list] if list.stems == ["a"] && list.bytes.is_empty()));
    }
}
