//! The files that the demo records: two small real ROOT files inside the binary, further ones that it finds, and generated streams.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use types::Adler32;

/// Real ROOT files from the open test collection of scikit-hep. `testdata/root/README.md` describes them.
const EMBEDDED: [(&str, &[u8]); 2] = [
    ("uproot-HZZ.root", include_bytes!("../../../../testdata/root/uproot-HZZ.root")),
    ("uproot-Zmumu.root", include_bytes!("../../../../testdata/root/uproot-Zmumu.root")),
];

/// Where to look for more files, from the working directory.
const NEIGHBOUR: &str = "../shared/data/root";

/// A local file with its checksum, which the demo computes itself.
#[derive(Clone, Debug)]
pub struct LocalFile {
    /// Its name alone.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Bytes.
    pub len: u64,
    /// The checksum of its bytes.
    pub adler32: Adler32,
}

impl LocalFile {
    /// Reads the file at `path`.
    pub fn at(path: &Path) -> io::Result<Self> {
        let bytes = fs::read(path)?;
        let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Ok(Self { name, path: path.to_owned(), len: bytes.len() as u64, adler32: Adler32::of(&bytes) })
    }
}

/// The ROOT files to record: the embedded ones, written into `place`, and those in `more` or in the usual folder.
pub fn root_files(place: &Path, more: Option<&Path>) -> io::Result<Vec<LocalFile>> {
    let mut files = Vec::new();
    for (name, bytes) in EMBEDDED {
        let path = place.join(name);
        fs::write(&path, bytes)?;
        files.push(LocalFile::at(&path)?);
    }
    let folder = more.unwrap_or(Path::new(NEIGHBOUR));
    let Ok(entries) = fs::read_dir(folder) else {
        return match more {
            Some(_) => Err(io::Error::new(io::ErrorKind::NotFound, format!("{} is no folder", folder.display()))),
            None => Ok(files),
        };
    };
    let mut paths: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let known = path.file_name().is_none_or(|name| files.iter().any(|file| name == file.name.as_str()));
        if !known && path.extension().is_some_and(|extension| extension == "root") {
            files.push(LocalFile::at(&path)?);
        }
    }
    Ok(files)
}

/// `len` bytes that do not compress and never repeat: what a detector's stream looks like to a storage system. The same `seed` gives the
/// same bytes.
#[must_use]
pub fn stream_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        // xorshift64*
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// Describes how `got` differs from `sent`.
#[must_use]
pub fn difference(sent: &[u8], got: &[u8]) -> Option<String> {
    if sent == got {
        return None;
    }
    let same = sent.iter().zip(got).take_while(|(sent, got)| sent == got).count();
    Some(format!("{} bytes were sent, {} came back, the first {same} are the same", sent.len(), got.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_files_are_root_files() {
        let place = tempfile::tempdir().unwrap();
        let empty = tempfile::tempdir().unwrap();
        let files = root_files(place.path(), Some(empty.path())).unwrap();
        assert_eq!(files.len(), 2);
        for file in files {
            assert!(fs::read(&file.path).unwrap().starts_with(b"root"), "{}", file.name);
        }
        assert!(root_files(place.path(), Some(&empty.path().join("missing"))).is_err());
    }

    #[test]
    fn a_short_long_or_changed_stream_is_noticed() {
        let sent = stream_bytes(1, 1001);
        assert_eq!(difference(&sent, &sent), None);
        let mut changed = sent.clone();
        changed[500] ^= 1;
        let mut longer = sent.clone();
        longer.push(0);
        for (got, same) in [(&sent[..1000], 1000), (&changed, 500), (&longer, 1001), (&[], 0)] {
            assert!(difference(&sent, got).unwrap().contains(&format!("the first {same} are the same")));
        }
    }

    #[test]
    fn streams_differ_by_seed_alone() {
        assert_eq!(stream_bytes(1, 1001), stream_bytes(1, 2000)[..1001]);
        assert_ne!(stream_bytes(1, 1000), stream_bytes(2, 1000));
        assert_eq!(stream_bytes(1, 1001).len(), 1001);
    }
}
