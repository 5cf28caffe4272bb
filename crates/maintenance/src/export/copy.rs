//! Copies one object from the store to a file.

use std::io::{self, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use store::{Reader, ReplicaState, ReplicaStatus, Store, StoreError};
use types::{Adler32, Crc32c, ErrorCode, PAGE_SIZE, ReplicaId};

use super::IfDamaged;
use super::names::{DAMAGED, INTERRUPTED, UNNAMED, candidates};
use super::out::{AttributeRefused, FileMetadata, Part, TargetFolder};
use super::report::{ExportProblem, Report};
use crate::Error;

/// Bytes read in one step.
const STEP: usize = 1 << 20;

/// Copies objects, one after the other.
pub struct Copier<'a> {
    store: &'a Store,
    out: &'a TargetFolder,
    damaged: IfDamaged,
    buffer: Vec<u8>,
}

/// The facts about a file, besides its bytes.
pub struct Facts<'a> {
    /// Its path, or its path at creation.
    pub path: &'a [u8],
    /// Its replica.
    pub replica: ReplicaId,
    /// Mode, time and so on.
    pub about: FileMetadata,
    /// Whether its writer left it unfinished, according to the namespace.
    pub interrupted: bool,
}

/// The result of reading an object.
struct Copied {
    len: u64,
    adler32: Adler32,
    crc32c: Crc32c,
    /// Pages that do not match their checksums, or cannot be read.
    bad: u64,
    first_bad: String,
}

impl<'a> Copier<'a> {
    /// A copier from `store` to `out`.
    pub fn new(store: &'a Store, out: &'a TargetFolder, damaged: IfDamaged) -> Self {
        Self { store, out, damaged, buffer: vec![0; STEP] }
    }

    /// The target.
    pub fn out(&self) -> &'a TargetFolder {
        self.out
    }

    /// The source.
    pub fn store(&self) -> &'a Store {
        self.store
    }

    /// Exports one file. Returns its path; `None`: the file was not written, and the report says why.
    pub fn file(&mut self, facts: &Facts<'_>, report: &mut Report) -> Result<Option<PathBuf>, Error> {
        let shown = match facts.path {
            b"" => format!("object {}", facts.replica),
            path => path.escape_ascii().to_string(),
        };
        let failed = Error::ReadStore;
        let status = self.store.status(facts.replica).map_err(failed)?;
        let reader = match self.store.open_read(facts.replica) {
            Ok(reader) => reader,
            Err(error) if concerns_the_replica(&error) => {
                report.trouble(ExportProblem::Missing, &shown, &format!("its bytes cannot be read: {error}"));
                return Ok(None);
            }
            Err(error) => return Err(failed(error)),
        };
        let unfinished = facts.interrupted
            || status.as_ref().is_some_and(|status| {
                matches!(status.state, ReplicaState::Interrupted | ReplicaState::BeingWritten { .. })
            });
        let suffix = if unfinished { INTERRUPTED } else { "" };
        if let Some(there) = self.there_already(facts, suffix, &reader).map_err(|error| stop(&shown, error))? {
            report.counts.already_there += 1;
            self.give_again(&there, facts, &shown, report)?;
            return Ok(Some(there));
        }
        if let Some(there) = self.damaged_already(facts, suffix, &reader).map_err(|error| stop(&shown, error))? {
            report.counts.already_there += 1;
            let what = format!("it was damaged when it was exported before; {} stays as it is", there.display());
            report.trouble(ExportProblem::Damaged, &shown, &what);
            self.give_again(&there, facts, &shown, report)?;
            return Ok(Some(there));
        }
        let part = self.out.begin().map_err(|error| stop(&shown, error))?;
        let copied = self.copy(&reader, &part)?;
        let what = wrong(&copied, status.as_ref());
        let mut suffix = suffix.to_owned();
        if let Some(what) = &what {
            report.trouble(ExportProblem::Damaged, &shown, what);
            if self.damaged == IfDamaged::LeaveOut {
                report.counts.left_out += 1;
                return Ok(None);
            }
            suffix += DAMAGED;
        }
        let name = self.give_name(&part, facts, &suffix);
        match name {
            Ok((below, first, refused)) => {
                report_refused(&shown, &refused, report);
                report.counts.files += u64::from(what.is_none());
                report.counts.bytes += copied.len;
                report.counts.interrupted += u64::from(unfinished);
                if below.starts_with(UNNAMED) {
                    report.counts.unnamed += 1;
                } else if !first {
                    report.trouble(
                        ExportProblem::Renamed,
                        &shown,
                        &format!("its name was taken; it is now {}", below.display()),
                    );
                }
                Ok(Some(below))
            }
            Err(error) if of_this_file(&error) => {
                report.trouble(ExportProblem::Failed, &shown, &format!("cannot be written: {error}"));
                Ok(None)
            }
            Err(error) => Err(stop(&shown, error)),
        }
    }

    /// Gives the file the first free name. Returns whether that is the best name, and the rejected attributes.
    fn give_name(
        &self,
        part: &Part,
        facts: &Facts<'_>,
        suffix: &str,
    ) -> io::Result<(PathBuf, bool, Vec<AttributeRefused>)> {
        let mut last = None;
        for (place, below) in candidates(facts.path, suffix, facts.replica).into_iter().enumerate() {
            match self.out.finish(part, &below, &facts.about) {
                Ok(refused) => return Ok((below, place == 0, refused)),
                Err(error) if of_this_file(&error) => last = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename)))
    }

    /// Completes a file from an earlier run. It may lack attributes or an owner that the earlier run could not set, or was not asked to set.
    fn give_again(&self, below: &Path, facts: &Facts<'_>, shown: &str, report: &mut Report) -> Result<(), Error> {
        match self.out.finish_again(below, &facts.about) {
            Ok(refused) => report_refused(shown, &refused, report),
            // The file's mode or owner denies access. Other files may still work.
            Err(error) if of_this_file(&error) || error.kind() == io::ErrorKind::PermissionDenied => {
                let what = format!("it is there, but its times, mode or owner cannot be set: {error}");
                report.trouble(ExportProblem::Failed, shown, &what);
            }
            Err(error) => return Err(stop(shown, error)),
        }
        Ok(())
    }

    /// The path under which an earlier run exported the object: a file of its name, length and time. If another object can have the same three,
    /// compares the bytes.
    fn there_already(&mut self, facts: &Facts<'_>, suffix: &str, reader: &Reader) -> io::Result<Option<PathBuf>> {
        let len = reader.len();
        for below in self.alike(facts, suffix, len)? {
            if len > STEP as u64 || self.same(&below, reader)? {
                return Ok(Some(below));
            }
        }
        Ok(None)
    }

    /// The same for a file that was damaged then, if damaged files are requested.
    fn damaged_already(&self, facts: &Facts<'_>, suffix: &str, reader: &Reader) -> io::Result<Option<PathBuf>> {
        if self.damaged == IfDamaged::LeaveOut {
            return Ok(None);
        }
        Ok(self.alike(facts, &format!("{suffix}{DAMAGED}"), reader.len())?.into_iter().next())
    }

    /// Existing files with one of its names, its length and its time.
    fn alike(&self, facts: &Facts<'_>, suffix: &str, len: u64) -> io::Result<Vec<PathBuf>> {
        let mut alike = Vec::new();
        for below in candidates(facts.path, suffix, facts.replica) {
            if let Some(there) = self.out.look(&below)?
                && there.is_file()
                && there.len() == len
                && there.modified()? == facts.about.time
            {
                alike.push(below);
            }
        }
        Ok(alike)
    }

    fn same(&mut self, below: &Path, reader: &Reader) -> io::Result<bool> {
        let mut there = Vec::new();
        self.out.read(below)?.take(STEP as u64 + 1).read_to_end(&mut there)?;
        let got = reader.read(0, &mut self.buffer);
        Ok(got.is_ok_and(|got| self.buffer.get(..got) == Some(there.as_slice())))
    }

    fn copy(&mut self, reader: &Reader, part: &Part) -> Result<Copied, Error> {
        let len = reader.len();
        let mut copied =
            Copied { len: 0, adler32: Adler32::EMPTY, crc32c: Crc32c::EMPTY, bad: 0, first_bad: String::new() };
        let written = |error| stop("an unfinished file", error);
        part.file.set_len(len).map_err(written)?;
        while copied.len < len {
            let want = usize::try_from(len - copied.len).map_or(STEP, |left| left.min(STEP));
            let buffer = &mut self.buffer[..want];
            match reader.read(copied.len, buffer) {
                Ok(got) if got == want => {}
                Ok(_) => read_pages(reader, &mut copied, buffer),
                Err(error) if concerns_the_replica(&error) => read_pages(reader, &mut copied, buffer),
                Err(error) => return Err(Error::ReadStore(error)),
            }
            // Zeros are there already, as a hole.
            if buffer.iter().any(|byte| *byte != 0) {
                part.file.write_all_at(buffer, copied.len).map_err(written)?;
            }
            copied.adler32 = copied.adler32.combine(Adler32::of(buffer), want as u64);
            copied.crc32c = copied.crc32c.combine(Crc32c::of(buffer), want as u64);
            copied.len += want as u64;
        }
        Ok(copied)
    }
}

/// Reports attributes that the target's file system rejected.
pub fn report_refused(shown: &str, refused: &[AttributeRefused], report: &mut Report) {
    for AttributeRefused { name, error } in refused {
        let what = format!("its attribute {} cannot be written: {error}", name.escape_ascii());
        report.trouble(ExportProblem::Attribute, shown, &what);
    }
}

/// Reads page by page, with zeros for unreadable pages.
fn read_pages(reader: &Reader, copied: &mut Copied, buffer: &mut [u8]) {
    for (place, page) in (0u64..).zip(buffer.chunks_mut(PAGE_SIZE)) {
        let trouble = match reader.read(copied.len + place * PAGE_SIZE as u64, page) {
            Ok(got) if got == page.len() => continue,
            Ok(_) => "it is shorter than its record says".to_owned(),
            Err(error) => error.to_string(),
        };
        page.fill(0);
        copied.bad += 1;
        if copied.bad == 1 {
            copied.first_bad = trouble;
        }
    }
}

/// What is wrong with the bytes that were read.
fn wrong(copied: &Copied, status: Option<&ReplicaStatus>) -> Option<String> {
    if copied.bad > 0 {
        return Some(format!(
            "{} pages of 4096 bytes are damaged and left as zeros; the first: {}",
            copied.bad, copied.first_bad
        ));
    }
    match status.map(|status| &status.state) {
        Some(ReplicaState::Complete { adler32, crc32c }) if (*adler32, *crc32c) != (copied.adler32, copied.crc32c) => {
            Some("every page matches its checksum, the whole does not".to_owned())
        }
        _ => None,
    }
}

fn concerns_the_replica(error: &StoreError) -> bool {
    !matches!(error, StoreError::Index(_))
        && matches!(error.code(), ErrorCode::Checksum | ErrorCode::Damaged | ErrorCode::Io | ErrorCode::NotFound)
}

/// Whether the error concerns only this file, so that the export can go on.
pub fn of_this_file(error: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, InvalidFilename, InvalidInput, IsADirectory, NotADirectory};
    matches!(error.kind(), AlreadyExists | InvalidFilename | InvalidInput | IsADirectory | NotADirectory)
}

/// The error that ends the export.
pub fn stop(what: &str, source: io::Error) -> Error {
    Error::WriteTarget { what: what.to_owned(), source }
}
