//! Small text files that only their owner may read. Each is written completely under another name, synced, and then
//! renamed, so that always the old or the new file exists. The last line is the CRC32C of the lines before it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use types::Crc32c;

/// A longer file was not written by weir.
const FILE_BYTES_MAX: u64 = 64 << 10;

/// A file with a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It could not be read or written.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// The operation.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the kernel.
        source: io::Error,
    },
    /// A file exists already that somebody may need.
    #[error("{} is there already; it is not overwritten, because everything made with it would become invalid. If you do not need it any more, move it away", .0.display())]
    Exists(PathBuf),
    /// It does not exist.
    #[error("there is no {}; {hint}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// Advice.
        hint: &'static str,
    },
    /// Others may read it.
    #[error("{} may be read by others (its mode is {mode:03o}), so it is no secret; `chmod 600` it if nobody has read it, otherwise {hint}", path.display())]
    Readable {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Advice.
        hint: &'static str,
    },
    /// It has other contents.
    #[error("{} is damaged or not one of weir's files: {why}; {hint}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
        /// Advice.
        hint: &'static str,
    },
}

/// A kind of secret file: its first line, and advice for a lost one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SecretFile {
    pub(crate) first_line: &'static str,
    pub(crate) hint: &'static str,
}

/// Whether to replace an existing file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Existing {
    Keep,
    Replace,
}

impl SecretFile {
    /// The text of a file with `lines` (`key value`).
    pub(crate) fn text(self, lines: &[(&str, String)]) -> String {
        let mut text = format!("{}\n", self.first_line);
        for (key, value) in lines {
            text.push_str(&format!("{key} {value}\n"));
        }
        let sum = Crc32c::of(text.as_bytes()).0;
        text.push_str(&format!("crc32c {sum:08x}\n"));
        text
    }

    /// Writes `lines` (`key value`) to `path`, durably. Makes the directory if needed.
    pub(crate) fn write(self, path: &Path, lines: &[(&str, String)], existing: Existing) -> Result<(), FileError> {
        let text = self.text(lines);
        let failed = |what| move |source| FileError::Io { what, path: path.to_owned(), source };
        // The file that is there is of more use than one that cannot be read.
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(failed("write")(io::Error::other("it would be longer than weir reads")));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed("make the folder of"))?;
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".new-{}", std::process::id()));
        let unfinished = folder.join(name);
        // A leftover of an earlier process with this process id.
        let _ = fs::remove_file(&unfinished);
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            match existing {
                Existing::Replace => fs::rename(&unfinished, path)?,
                // Unlike a rename, a link does not replace a file that another process has made meanwhile.
                Existing::Keep => fs::hard_link(&unfinished, path)?,
            }
            File::open(folder)?.sync_all()
        })();
        let _ = fs::remove_file(&unfinished);
        match written {
            Err(error) if existing == Existing::Keep && error.kind() == io::ErrorKind::AlreadyExists => {
                Err(FileError::Exists(path.to_owned()))
            }
            other => other.map_err(failed("write")),
        }
    }

    /// Whether the file at `path` begins as one of this kind. It may still be damaged.
    pub(crate) fn is_kind(self, path: &Path) -> bool {
        let is_file = fs::metadata(path).is_ok_and(|about| about.is_file());
        let mut begins = Vec::new();
        let read = |file: File| file.take(self.first_line.len() as u64 + 1).read_to_end(&mut begins);
        is_file && File::open(path).and_then(read).is_ok() && self.begins(&begins)
    }

    /// Whether `bytes` begin as a file of this kind. They may still be damaged.
    pub(crate) fn begins(self, bytes: &[u8]) -> bool {
        bytes.strip_prefix(self.first_line.as_bytes()).is_some_and(|rest| rest.starts_with(b"\n"))
    }

    /// The values of `keys`. The file must have exactly these keys in this order.
    pub(crate) fn read<const N: usize>(self, path: &Path, keys: [&str; N]) -> Result<[String; N], FileError> {
        self.parse(path, self.read_bytes(path)?, keys)
    }

    /// The bytes of the file at `path`, which nobody else may read. What they mean is for [`SecretFile::parse`].
    pub(crate) fn read_bytes(self, path: &Path) -> Result<Vec<u8>, FileError> {
        let failed = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => FileError::Missing { path: path.to_owned(), hint: self.hint },
            _ => FileError::Io { what: "read", path: path.to_owned(), source },
        };
        let damaged = |why| self.damaged(path, why);
        // Opening a named pipe would block.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(damaged("it is no plain file"));
        }
        let file = File::open(path).map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(FileError::Readable { path: path.to_owned(), mode, hint: self.hint });
        }
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        Ok(bytes)
    }

    /// The values of `keys` in `bytes`, which are those of the file at `path` or came for it.
    pub(crate) fn parse<const N: usize>(
        self,
        path: &Path,
        bytes: Vec<u8>,
        keys: [&str; N],
    ) -> Result<[String; N], FileError> {
        let damaged = |why| self.damaged(path, why);
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(damaged("it is too long"));
        }
        let text = String::from_utf8(bytes).map_err(|_| damaged("it is no text"))?;
        let rest = text.strip_prefix(self.first_line).and_then(|rest| rest.strip_prefix('\n'));
        let rest = rest.ok_or(damaged("its first line is not that of such a file"))?;
        let sum_at = text.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
        let sum = Crc32c::of(&text.as_bytes()[..sum_at]).0;
        if text[sum_at..] != format!("crc32c {sum:08x}\n") {
            return Err(damaged("its checksum is wrong"));
        }
        let mut lines = rest.lines();
        let mut values = [const { String::new() }; N];
        for (value, key) in values.iter_mut().zip(keys) {
            let line = lines.next().and_then(|line| line.strip_prefix(key)).and_then(|line| line.strip_prefix(' '));
            line.ok_or(damaged("a line is missing"))?.clone_into(value);
        }
        if lines.count() != 1 {
            return Err(damaged("there are more lines than there should be"));
        }
        Ok(values)
    }

    pub(crate) fn damaged(self, path: &Path, why: &'static str) -> FileError {
        FileError::Damaged { path: path.to_owned(), why, hint: self.hint }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const KIND: SecretFile = SecretFile { first_line: "weir sample 1", hint: "make a new one" };

    fn lines() -> [(&'static str, String); 2] {
        [("key", "of gold".into()), ("number", "12".into())]
    }

    fn read(path: &Path) -> Result<[String; 2], FileError> {
        KIND.read(path, ["key", "number"])
    }

    #[test]
    fn a_file_is_read_back_only_if_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deeper/sample");
        KIND.write(&path, &lines(), Existing::Keep).unwrap();
        assert_eq!(read(&path).unwrap(), ["of gold", "12"]);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert_eq!(fs::metadata(path.parent().unwrap()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left there");
        for mode in [0o640, 0o604, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let refused = read(&path).unwrap_err().to_string();
            assert!(refused.contains(&format!("{mode:03o}")) && refused.contains("chmod 600"), "{refused}");
        }
    }

    #[test]
    fn an_existing_file_is_replaced_only_on_request() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sample");
        KIND.write(&path, &lines(), Existing::Keep).unwrap();
        let other = [("key", "of iron".to_owned()), ("number", "13".to_owned())];
        assert!(matches!(KIND.write(&path, &other, Existing::Keep), Err(FileError::Exists(_))));
        assert_eq!(read(&path).unwrap(), ["of gold", "12"]);
        KIND.write(&path, &other, Existing::Replace).unwrap();
        assert_eq!(read(&path).unwrap(), ["of iron", "13"]);
    }

    #[test]
    fn nothing_is_written_that_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sample");
        let of = |length: usize| [("key", "x".repeat(length)), ("number", "12".to_owned())];
        let longest =
            usize::try_from(FILE_BYTES_MAX).unwrap() - "weir sample 1\nkey \nnumber 12\ncrc32c 00000000\n".len();
        KIND.write(&path, &of(longest), Existing::Keep).unwrap();
        assert!(KIND.write(&path, &of(longest + 1), Existing::Replace).unwrap_err().to_string().contains("longer"));
        assert_eq!(read(&path).unwrap()[0].len(), longest);
    }

    #[test]
    fn damage_is_reported_with_advice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sample");
        assert!(read(&path).unwrap_err().to_string().contains("make a new one"));
        assert!(matches!(read(folder.path()), Err(FileError::Damaged { .. })));
        KIND.write(&path, &lines(), Existing::Keep).unwrap();
        let whole = fs::read(&path).unwrap();
        let spoilt = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            let error = read(&path).unwrap_err();
            assert!(matches!(error, FileError::Damaged { .. }) && error.to_string().contains("make a new one"));
        };
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            spoilt(&bytes);
            spoilt(&whole[..at]);
        }
        spoilt(&[&whole[..], b"\n"].concat());
        spoilt(&vec![b'x'; 100_000]);
        let more = [("key", "of gold".into()), ("number", "12".into()), ("more", "x".into())];
        KIND.write(&path, &more, Existing::Replace).unwrap();
        assert!(matches!(read(&path), Err(FileError::Damaged { .. })));
    }
}
