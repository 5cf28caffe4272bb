//! An export with the namespace: the tree as it is.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use foundation::Foundation;
use kv::Read;
use namespace::{FileState, Inode, Kind, ListEntry, NsError};
use store::ReplicaState;
use types::{FileName, GroupId, Ino, ReplicaId};

use super::copy::{Copier, Facts, of_this_file, report_refused, stop};
use super::names::below_target;
use super::out::FileMetadata;
use super::report::{ExportProblem, Report};
use super::system_time;
use crate::Error;

/// Entries read at a time.
const PAGE: usize = 1024;

/// A directory that is being exported.
struct Level {
    ino: Ino,
    path: Vec<u8>,
    below: PathBuf,
    about: FileMetadata,
    /// Listed entries, the next one last.
    waiting: Vec<ListEntry>,
    /// The last listed entry; `None`: nothing is listed yet.
    after: Option<FileName>,
    more: bool,
}

impl Level {
    fn of(inode: &Inode, about: FileMetadata, path: Vec<u8>, below: PathBuf) -> Self {
        Self { ino: inode.ino, path, below, about, waiting: Vec::new(), after: None, more: true }
    }

    fn next(&mut self, read: &dyn Read) -> Result<Option<ListEntry>, NsError> {
        if self.waiting.is_empty() && self.more {
            let page = namespace::list(read, self.ino, self.after.as_ref(), PAGE)?;
            self.more = page.more;
            self.after = page.entries.last().map(|last| last.name.clone());
            self.waiting = page.entries;
            self.waiting.reverse();
        }
        Ok(self.waiting.pop())
    }
}

/// Exports every file with a name. With `owners`, files get their numeric owners.
pub fn export(
    foundation: &Foundation,
    copier: &mut Copier<'_>,
    owners: bool,
    report: &mut Report,
) -> Result<(), Error> {
    let failed = Error::ReadNames;
    let read = kv::Kv::snapshot(&*foundation.names.embedded);
    let root = namespace::stat_ino(&*read, Ino::ROOT).map_err(failed)?;
    let about = |inode: &Inode| about_of(&*read, inode, owners).map_err(failed);
    let mut levels = vec![Level::of(&root, about(&root)?, Vec::new(), PathBuf::new())];
    // The paths of files with several names.
    let mut linked: HashMap<Ino, PathBuf> = HashMap::new();
    while let Some(level) = levels.last_mut() {
        let Some(entry) = level.next(&*read).map_err(failed)? else {
            if !level.path.is_empty() {
                let refused =
                    copier.out().finish_dir(&level.below, &level.about).map_err(|error| stop("a folder", error))?;
                report_refused(&level.path.escape_ascii().to_string(), &refused, report);
            }
            levels.pop();
            continue;
        };
        let path = [level.path.as_slice(), b"/", entry.name.as_bytes()].concat();
        let shown = path.escape_ascii().to_string();
        match &entry.inode.kind {
            Kind::Directory(_) => {
                let below = level.below.join(OsStr::from_bytes(entry.name.as_bytes()));
                match copier.out().make_dir(&below) {
                    Ok(()) => {
                        report.counts.directories += 1;
                        levels.push(Level::of(&entry.inode, about(&entry.inode)?, path, below));
                    }
                    Err(error) if of_this_file(&error) => {
                        report.trouble(
                            ExportProblem::Failed,
                            &shown,
                            &format!("the folder, and all in it, cannot be written: {error}"),
                        );
                    }
                    Err(error) => return Err(stop(&shown, error)),
                }
            }
            Kind::Symlink(target) => symlink(copier, &path, target, report)?,
            Kind::File(_) => file(copier, &entry.inode, about(&entry.inode)?, &path, &mut linked, report)?,
        }
    }
    report.counts.without_a_name = nameless(&*read, copier).map_err(failed)?;
    Ok(())
}

/// The metadata of an inode.
fn about_of(read: &dyn Read, inode: &Inode, owners: bool) -> Result<FileMetadata, NsError> {
    let owner = owners.then_some((inode.access.owner.0, inode.access.group.0));
    let mut xattrs = if inode.xattrs == 0 { Vec::new() } else { namespace::xattrs_of(read, inode.ino)? };
    xattrs.retain(|(name, _)| !name.starts_with(namespace::DIGEST_ATTRIBUTE));
    // A plain file has no ACL. Its group must not get what only the mask has.
    let mode = u32::from(inode.access.mode_without_acl());
    Ok(FileMetadata { mode, time: system_time(inode.mtime), owner, xattrs })
}

fn symlink(copier: &Copier<'_>, path: &[u8], target: &[u8], report: &mut Report) -> Result<(), Error> {
    let shown = path.escape_ascii().to_string();
    let target = Path::new(OsStr::from_bytes(target));
    let made = match below_target(path, "") {
        None => Err(std::io::Error::from(std::io::ErrorKind::InvalidFilename)),
        Some(below) if copier.out().read_link(&below).is_ok_and(|there| there == target) => {
            report.counts.already_there += 1;
            return Ok(());
        }
        Some(below) => copier.out().symlink(target, &below),
    };
    match made {
        Ok(()) => report.counts.symlinks += 1,
        Err(error) if of_this_file(&error) => {
            report.trouble(ExportProblem::Failed, &shown, &format!("cannot be written: {error}"))
        }
        Err(error) => return Err(stop(&shown, error)),
    }
    Ok(())
}

fn file(
    copier: &mut Copier<'_>,
    inode: &Inode,
    about: FileMetadata,
    path: &[u8],
    linked: &mut HashMap<Ino, PathBuf>,
    report: &mut Report,
) -> Result<(), Error> {
    let Some(content) = inode.content() else { return Ok(()) };
    if let Some(first) = linked.get(&inode.ino)
        && let Some(below) = below_target(path, "")
    {
        match copier.out().hard_link(first, &below) {
            Ok(()) => {
                report.counts.hard_links += 1;
                return Ok(());
            }
            // An earlier run may have made it, or the file system has no hard links. Then a copy is written.
            Err(error) => tracing::debug!("{} cannot be linked: {error}", below.display()),
        }
    }
    let facts = Facts {
        path,
        replica: ReplicaId::first(content.object),
        about,
        interrupted: matches!(content.state, FileState::Open(_) | FileState::Interrupted(_)),
    };
    let below = copier.file(&facts, report)?;
    if inode.nlink > 1
        && let Some(below) = below
    {
        linked.entry(inode.ino).or_insert(below);
    }
    Ok(())
}

/// Counts the objects without a name.
fn nameless(read: &dyn Read, copier: &Copier<'_>) -> Result<u64, NsError> {
    let (mut after, mut nameless) = (None, 0);
    loop {
        let page =
            copier.store().replicas(after, PAGE).map_err(|error| NsError::Kv(kv::KvError::Io(error.to_string())))?;
        let Some((last, _)) = page.last() else { return Ok(nameless) };
        after = Some(*last);
        for (replica, status) in &page {
            let named = namespace::object_record(read, GroupId::DEFAULT, replica.object)?.is_some();
            nameless += u64::from(!named && !matches!(status.state, ReplicaState::BeingWritten { .. }));
        }
    }
}
