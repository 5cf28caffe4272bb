//! Reads the files of a log, also while a node writes them.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use crate::files::{name_of, numbers_in};
use crate::{AuditError, Filter, LINE_MAX, Record};

/// The files of a log, from the oldest on.
pub struct Reader {
    directory: PathBuf,
    /// The file that is read, and its number.
    open: Option<(u64, BufReader<File>)>,
    /// A line without its end so far: it is still being written.
    part: Vec<u8>,
    /// Lines that are none of a log.
    strange: u64,
}

impl Reader {
    /// Opens the log in a directory.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn open(directory: &Path) -> Result<Self, AuditError> {
        let mut reader = Self { directory: directory.to_owned(), open: None, part: Vec::new(), strange: 0 };
        // Whether it is there at all is told at once.
        reader.next_file(None)?;
        Ok(reader)
    }

    /// Hands the wanted lines that are there to `each`, as a record and as it stands in the file, until `each` returns false.
    /// The next call goes on behind them.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(&mut self, filter: &Filter, each: &mut dyn FnMut(Record, &[u8]) -> bool) -> Result<(), AuditError> {
        loop {
            let Some((number, file)) = &mut self.open else {
                if self.next_file(None)? {
                    continue;
                }
                return Ok(());
            };
            let number = *number;
            let path = self.directory.join(name_of(number));
            let failed = |source| AuditError::File { what: "read", path, source };
            match next_line(file, &mut self.part).map_err(failed)? {
                Line::Whole => {
                    let line = std::mem::take(&mut self.part);
                    match Record::parse(&line) {
                        Some(record) if filter.wants(&record) => {
                            if !each(record, &line) {
                                return Ok(());
                            }
                        }
                        Some(_) => {}
                        None => self.strange += u64::from(line != b"\n"),
                    }
                }
                Line::TooLong => self.strange += 1,
                Line::End => {
                    // What was written to this file between its end and the beginning of the next one comes first.
                    if self.next_file(Some(number))? {
                        continue;
                    }
                    return Ok(());
                }
            }
        }
    }

    /// How many lines were none of a log, such as a part of one that a crash has left.
    #[must_use]
    pub fn strange(&self) -> u64 {
        self.strange
    }

    /// Goes on with the file after `after`, once that is at its end. Whether there is one.
    fn next_file(&mut self, after: Option<u64>) -> Result<bool, AuditError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| AuditError::File { what: "read", path, source }
        };
        let numbers = numbers_in(&self.directory).map_err(failed(&self.directory))?;
        for number in numbers.into_iter().filter(|number| after.is_none_or(|after| *number > after)) {
            if let Some((_, file)) = &mut self.open {
                // A file gets no more lines once there is a next one. But it may have got some since it was at its end.
                if !file.fill_buf().map_err(failed(&self.directory))?.is_empty() {
                    return Ok(true);
                }
            }
            let path = self.directory.join(name_of(number));
            match File::open(&path) {
                Ok(file) => {
                    self.strange += u64::from(!self.part.is_empty());
                    self.part.clear();
                    self.open = Some((number, BufReader::new(file)));
                    return Ok(true);
                }
                // It was the oldest one, and is gone meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(failed(&path)(error)),
            }
        }
        Ok(false)
    }
}

/// What was found in a file.
enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads up to the end of a line, or of the file. `part` has what there is of the line.
fn next_line(file: &mut BufReader<File>, part: &mut Vec<u8>) -> io::Result<Line> {
    let room = (LINE_MAX + 1).saturating_sub(part.len()) as u64;
    file.take(room).read_until(b'\n', part)?;
    if part.ends_with(b"\n") {
        return Ok(Line::Whole);
    }
    if part.len() <= LINE_MAX {
        return Ok(Line::End);
    }
    // The rest of a longer one is read in the same way, as further lines that are none.
    part.clear();
    Ok(Line::TooLong)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;
    use types::Timestamp;

    fn line(path: &str) -> Vec<u8> {
        Record { operation: "mkdir".into(), path: Some(path.to_owned().into()), ..Record::default() }.line(Timestamp(0))
    }

    fn paths(reader: &mut Reader) -> Vec<String> {
        let mut found = Vec::new();
        let mut each = |record: Record, _: &[u8]| {
            found.extend(record.path.map(std::borrow::Cow::into_owned));
            true
        };
        reader.read(&Filter::default(), &mut each).unwrap();
        found
    }

    #[test]
    fn files_are_read_in_order_and_followed() {
        let temp = tempfile::tempdir().unwrap();
        assert!(Reader::open(&temp.path().join("none")).is_err());
        let mut reader = Reader::open(temp.path()).unwrap();
        assert!(paths(&mut reader).is_empty());
        let at = |number| temp.path().join(name_of(number));
        fs::write(at(10), line("/b")).unwrap();
        fs::write(at(9), line("/a")).unwrap();
        assert_eq!(paths(&mut reader), ["/a", "/b"]);
        // Half a line is not yet one.
        let (next, half) = (line("/c"), 20);
        let mut file = fs::OpenOptions::new().append(true).open(at(10)).unwrap();
        file.write_all(&next[..half]).unwrap();
        assert!(paths(&mut reader).is_empty());
        file.write_all(&next[half..]).unwrap();
        file.write_all(&line("/d")).unwrap();
        fs::write(at(11), line("/e")).unwrap();
        assert_eq!(paths(&mut reader), ["/c", "/d", "/e"]);
        assert_eq!(reader.strange(), 0);
    }

    #[test]
    fn strange_lines_are_counted_and_passed_over() {
        let temp = tempfile::tempdir().unwrap();
        let long = vec![b'x'; 3 * LINE_MAX];
        let bytes = [&line("/a")[..], b"{\"time\":\"half of a li\n", &long, b"\n\n\xff\xfe\n", &line("/b")].concat();
        fs::write(temp.path().join(name_of(1)), bytes).unwrap();
        let mut reader = Reader::open(temp.path()).unwrap();
        assert_eq!(paths(&mut reader), ["/a", "/b"]);
        assert!(reader.strange() >= 3, "{}", reader.strange());
    }
}
