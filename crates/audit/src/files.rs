//! The files of a log, and which of them there are.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use crate::AuditError;
use crate::sink::{FileSettings, Stopped, lines_in};

/// The beginning and the end of each name.
const NAME: (&str, &str) = ("audit-", ".jsonl");

/// The name of a file.
pub(crate) fn name_of(number: u64) -> String {
    format!("{}{number:010}{}", NAME.0, NAME.1)
}

/// The number in a name; `None`: it is no file of a log.
fn number_in(name: &str) -> Option<u64> {
    let digits = name.strip_prefix(NAME.0)?.strip_suffix(NAME.1)?;
    digits.parse().ok().filter(|number| name_of(*number) == name)
}

/// The numbers of the files in a directory, from the oldest on.
pub(crate) fn numbers_in(directory: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        numbers.extend(entry?.file_name().to_str().and_then(number_in));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// How many bytes of `lines`, whole lines, go into a file that has `len` bytes and may have `most`. 0: begin a new file. A
/// line that is longer than a file may be gets its own file.
fn that_fit(lines: &[u8], len: u64, most: u64) -> usize {
    let room = usize::try_from(most.saturating_sub(len)).unwrap_or(usize::MAX);
    if lines.len() <= room {
        return lines.len();
    }
    let last = lines.get(..room).and_then(|fits| fits.iter().rposition(|byte| *byte == b'\n'));
    match last {
        Some(end) => end + 1,
        None if len > 0 => 0,
        None => lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |end| end + 1),
    }
}

/// The files, with the newest one open.
pub(crate) struct Files {
    settings: FileSettings,
    /// Locked, so that no other node writes here: each would remove the files of the other.
    directory: File,
    file: File,
    number: u64,
    /// Bytes of the newest file, up to the end of its last whole line.
    len: u64,
    /// The file may end in a part of a line, which could not be taken back.
    is_torn: bool,
}

impl Files {
    /// Opens the newest file, or makes the first one.
    pub(crate) fn open(settings: FileSettings) -> Result<Self, AuditError> {
        let directory = settings.directory.clone();
        let failed = |what, path: &Path| {
            let path = path.to_owned();
            move |source| AuditError::File { what, path, source }
        };
        DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(failed("make", &directory))?;
        let held = File::open(&directory).map_err(failed("open", &directory))?;
        let mode = held.metadata().map_err(failed("read", &directory))?.permissions().mode();
        if mode & 0o022 != 0 {
            return Err(AuditError::Writable { path: directory });
        }
        match held.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(AuditError::InUse { path: directory }),
            Err(TryLockError::Error(error)) => return Err(failed("lock", &directory)(error)),
        }
        let numbers = numbers_in(&directory).map_err(failed("read", &directory))?;
        let number = numbers.last().copied().unwrap_or(1);
        let path = directory.join(name_of(number));
        let (file, len, is_torn) = open_file(&path, numbers.is_empty()).map_err(failed("open", &path))?;
        Ok(Self { settings, directory: held, file, number, len, is_torn })
    }

    fn path(&self) -> PathBuf {
        self.settings.directory.join(name_of(self.number))
    }

    /// Appends whole lines. What was not written of them leaves nothing behind.
    pub(crate) fn append(&mut self, mut lines: &[u8]) -> Result<(), Stopped> {
        let mut lines_written = 0;
        while !lines.is_empty() {
            let fit = that_fit(lines, self.len, self.settings.file_bytes);
            let (now, later) = lines.split_at(fit);
            let done = if now.is_empty() { self.rotate() } else { self.write(now) };
            if let Err(source) = done {
                let why = AuditError::File { what: "write", path: self.path(), source };
                return Err(Stopped { lines_written, why });
            }
            lines_written += lines_in(now);
            lines = later;
        }
        Ok(())
    }

    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.is_torn {
            // So that the next line begins on its own.
            self.file.write_all(b"\n")?;
            self.len += 1;
            self.is_torn = false;
        }
        if let Err(error) = self.file.write_all(lines) {
            self.is_torn = self.file.set_len(self.len).is_err();
            return Err(error);
        }
        self.len += lines.len() as u64;
        Ok(())
    }

    /// Begins the next file. First removes the oldest ones, which also makes room on a full disk.
    fn rotate(&mut self) -> io::Result<()> {
        let next = self.number + 1;
        for number in numbers_in(&self.settings.directory)? {
            if number + u64::from(self.settings.files_max.max(1)) <= next {
                fs::remove_file(self.settings.directory.join(name_of(number)))?;
            }
        }
        self.file.sync_data()?;
        let (file, len, is_torn) = open_file(&self.settings.directory.join(name_of(next)), true)?;
        (self.file, self.number, self.len, self.is_torn) = (file, next, len, is_torn);
        self.directory.sync_all()
    }

    /// Makes the newest file safe from a power failure.
    pub(crate) fn sync(&mut self) -> Result<(), AuditError> {
        self.file.sync_data().map_err(|source| AuditError::File { what: "sync", path: self.path(), source })
    }
}

/// Opens a file to append to it: its length, and whether it ends in the middle of a line. Only its owner can read it.
fn open_file(path: &Path, is_new: bool) -> io::Result<(File, u64, bool)> {
    let mut file = OpenOptions::new().read(true).append(true).create_new(is_new).mode(0o600).open(path)?;
    let len = file.seek(SeekFrom::End(0))?;
    let mut last = [b'\n'];
    if len > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    Ok((file, len, last != [b'\n']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(directory: &Path, file_bytes: u64, files_max: u32) -> FileSettings {
        FileSettings { directory: directory.to_owned(), file_bytes, files_max }
    }

    #[test]
    fn whole_lines_fit_or_go_to_the_next_file() {
        for (lines, len, most, fit) in [
            ("aa\nbb\n", 0, 10, 6),
            ("aa\nbb\n", 0, 5, 3),
            ("aa\nbb\n", 4, 8, 3),
            ("aa\nbb\n", 6, 8, 0),
            ("aa\nbb\n", 9, 8, 0),
            ("aaaaaaaaaaaa\nbb\n", 0, 8, 13),
        ] {
            assert_eq!(that_fit(lines.as_bytes(), len, most), fit, "{lines:?} {len} {most}");
        }
    }

    #[test]
    fn names_have_numbers_and_nothing_else_is_taken_for_one() {
        assert_eq!(name_of(7), "audit-0000000007.jsonl");
        assert_eq!(number_in("audit-0000000007.jsonl"), Some(7));
        assert_eq!(number_in("audit-10000000007.jsonl"), Some(10_000_000_007));
        for other in ["audit-7.jsonl", "audit-0000000007.jsonl.gz", "audit-+000000007.jsonl", "notes", ""] {
            assert_eq!(number_in(other), None, "{other}");
        }
    }

    #[test]
    fn files_are_bounded_in_size_and_number_and_private() {
        use std::os::unix::fs::PermissionsExt as _;
        let temp = tempfile::tempdir().unwrap();
        let directory = temp.path().join("a/audit");
        let mut files = Files::open(settings(&directory, 20, 3)).unwrap();
        for number in 0..30 {
            files.append(format!("line {number:02}\n").as_bytes()).unwrap();
        }
        let numbers = numbers_in(&directory).unwrap();
        assert_eq!(numbers, [13, 14, 15]);
        let all: String = numbers.iter().map(|n| fs::read_to_string(directory.join(name_of(*n))).unwrap()).collect();
        assert_eq!(all, "line 24\nline 25\nline 26\nline 27\nline 28\nline 29\n");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&directory), mode(&files.path())), (0o700, 0o600));
        // Another run goes on where this one has ended.
        drop(files);
        let mut files = Files::open(settings(&directory, 20, 3)).unwrap();
        files.append(b"x\n").unwrap();
        assert_eq!(fs::read_to_string(directory.join(name_of(15))).unwrap(), "line 28\nline 29\nx\n");
    }

    #[test]
    fn one_node_writes_to_a_directory_and_nobody_else() {
        let temp = tempfile::tempdir().unwrap();
        let files = Files::open(settings(temp.path(), 20, 3)).unwrap();
        let again = || Files::open(settings(temp.path(), 20, 3)).map(drop).unwrap_err().to_string();
        assert!(again().contains("another node writes its audit log to"), "{}", again());
        drop(files);
        Files::open(settings(temp.path(), 20, 3)).unwrap();
        fs::set_permissions(temp.path(), fs::Permissions::from_mode(0o777)).unwrap();
        assert!(again().contains("chmod go-w"), "{}", again());
    }

    #[test]
    fn a_part_of_a_line_from_a_crash_does_not_spoil_the_next_line() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join(name_of(1)), "whole\npart").unwrap();
        let mut files = Files::open(settings(temp.path(), 100, 3)).unwrap();
        files.append(b"next\n").unwrap();
        assert_eq!(fs::read_to_string(temp.path().join(name_of(1))).unwrap(), "whole\npart\nnext\n");
    }

    #[test]
    fn what_a_full_disk_does_not_take_leaves_nothing_behind() {
        let temp = tempfile::tempdir().unwrap();
        let mut files = Files::open(settings(temp.path(), 1 << 20, 3)).unwrap();
        files.append(b"first\n").unwrap();
        // A descriptor that cannot be written stands in for the full disk.
        let path = files.path();
        let broken = std::mem::replace(&mut files.file, File::open(&path).unwrap());
        let stopped = files.append(b"lost 1\nlost 2\n").unwrap_err();
        assert_eq!(stopped.lines_written, 0);
        assert!(stopped.why.to_string().contains("cannot write the audit log"), "{}", stopped.why);
        files.file = broken;
        files.append(b"then\n").unwrap();
        let text = fs::read_to_string(path).unwrap();
        assert_eq!(text.lines().filter(|line| !line.is_empty()).collect::<Vec<_>>(), ["first", "then"]);
    }
}
