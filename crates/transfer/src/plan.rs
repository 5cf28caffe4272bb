//! Finds the files to copy: sources in order, directories with everything in them, while the copying goes on.

use std::collections::VecDeque;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use client::{Client, ClientError};
use parking_lot::{Condvar, Mutex};
use types::Timestamp;
use wire::request::DirlistOptions;
use wire::response::{StatFlags, StatReply};

use crate::error::TransferError;
use crate::filter::Filter;
use crate::local::{KeptAttributes, permission_bits};
use crate::place::CopyPath;
use crate::times;

/// Longest list of waiting items.
const WAITING_MAX: usize = 4096;
/// Deepest directory that is followed; a deeper one is probably a loop.
const DEPTH_MAX: usize = 256;

/// A file to copy.
#[derive(Clone, Debug)]
pub struct Item {
    /// The source.
    pub from: CopyPath,
    /// The target, including its own name.
    pub to: CopyPath,
    /// Its length when it was found, if known.
    pub size: Option<u64>,
    /// Its modification time when it was found, if known.
    pub mtime: Option<Timestamp>,
    /// What to do if the target exists.
    pub how: CopyAction,
}

/// What to do with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CopyAction {
    /// Copy it according to the options.
    #[default]
    New,
    /// Replace an existing target.
    Replace,
    /// Replace an existing target, unless its checksum is the same.
    Compare,
}

/// The list between the search and the workers.
#[derive(Debug, Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<Item>,
    ended: bool,
}

impl Queue {
    /// Adds an item at the end; waits while the list is full.
    pub fn put(&self, item: Item) {
        let mut state = self.state.lock();
        while state.items.len() >= WAITING_MAX && !state.ended {
            self.changed.wait(&mut state);
        }
        state.items.push_back(item);
        self.changed.notify_one();
    }

    /// Ends the list: no more items follow.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// Takes the next item if `fits` accepts it, waiting for one. `None`: the list has ended, or the next item does not fit.
    pub fn take(&self, fits: impl Fn(&Item) -> bool) -> Option<Item> {
        let mut state = self.state.lock();
        loop {
            if let Some(first) = state.items.front() {
                let item = if fits(first) { state.items.pop_front() } else { None };
                self.changed.notify_all();
                return item;
            }
            if state.ended {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Takes the next item if it exists and fits, without waiting.
    pub fn try_take(&self, fits: impl Fn(&Item) -> bool) -> Option<Item> {
        let mut state = self.state.lock();
        let item = if fits(state.items.front()?) { state.items.pop_front() } else { None };
        self.changed.notify_all();
        item
    }
}

/// Receives what the search finds.
pub trait SearchSink {
    /// A file.
    fn file(&mut self, item: Item);
    /// A directory, before its contents, with the attributes of the source.
    fn directory(&mut self, to: &CopyPath, kept: KeptAttributes) -> Result<(), TransferError>;
    /// An empty directory, which no file's copy would create.
    fn empty_directory(&mut self, to: &CopyPath) -> Result<(), TransferError>;
    /// Something that cannot be copied.
    fn problem(&mut self, from: &CopyPath, error: TransferError);
    /// Something that the search skips, and why.
    fn left_out(&mut self, from: &CopyPath, why: &'static str);
    /// Whether the search must end.
    fn stopping(&self) -> bool;
}

/// Finds the contents of `from`, for the target `to`. With `recursive` it enters directories and skips what `filter` rejects in them. It
/// follows symbolic links, but not back to a directory that they are in.
pub fn walk(
    client: &mut Client,
    from: &CopyPath,
    to: &CopyPath,
    recursive: bool,
    filter: &Filter,
    finds: &mut dyn SearchSink,
) {
    let file = |size, mtime| Ok(Some(Item { from: from.clone(), to: to.clone(), size, mtime, how: CopyAction::New }));
    if let Some(place) = [from, to].into_iter().find(|place| place.has_mark()) {
        return finds.problem(from, TransferError::NameWithMark { path: place.to_string() });
    }
    let mut walk = Walk { client, filter, finds, above: Vec::new() };
    let found = match from {
        CopyPath::Standard => file(None, None),
        CopyPath::Local(path) => match path.metadata() {
            Ok(found) if found.is_dir() && recursive => {
                walk.local(path, to, "", Folder::of_local(&found)).map(|()| None)
            }
            Ok(found) if found.is_dir() => Err(TransferError::IsDirectory { path: from.to_string() }),
            Ok(found) if !found.is_file() => Err(TransferError::NotAFile { path: from.to_string() }),
            Ok(found) => file(Some(found.len()), Some(times::of_local(&found))),
            Err(error) => Err(TransferError::local("find", path)(error)),
        },
        CopyPath::Remote(url) => match walk.client.stat(url) {
            Ok(stat) if stat.flags.has(StatFlags::IS_DIR) && recursive => {
                walk.remote(from, to, "", Folder::of_server(&stat)).map(|()| None)
            }
            Ok(stat) if stat.flags.has(StatFlags::IS_DIR) => Err(TransferError::IsDirectory { path: from.to_string() }),
            Ok(stat) => file(Some(stat.size), Some(times::of_server(&stat))),
            Err(error) => Err(error.into()),
        },
    };
    match found {
        Ok(Some(item)) => finds.file(item),
        Ok(None) => {}
        Err(error) => finds.problem(from, error),
    }
}

/// Identifies a directory. At a server this is its number, which another server of a cluster may also use, with attributes that will hardly
/// be the same there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Id(u64, u64, i64);

impl Id {
    fn of_local(found: &fs::Metadata) -> Self {
        Self(found.dev(), found.ino(), 0)
    }

    fn of_server(stat: &StatReply) -> Self {
        Self(stat.id, stat.size, stat.mtime)
    }
}

/// A directory of the source.
#[derive(Clone, Copy, Debug)]
struct Folder {
    id: Id,
    kept: KeptAttributes,
}

impl Folder {
    fn of_local(found: &fs::Metadata) -> Self {
        let kept = KeptAttributes { mtime: times::of_local(found), mode: permission_bits(found.mode()) };
        Self { id: Id::of_local(found), kept }
    }

    fn of_server(stat: &StatReply) -> Self {
        let mode = stat.extra.as_ref().map_or(0o755, |extra| extra.mode & 0o777);
        Self { id: Id::of_server(stat), kept: KeptAttributes { mtime: times::of_server(stat), mode } }
    }
}

/// The walk through one tree.
struct Walk<'a> {
    client: &'a mut Client,
    filter: &'a Filter,
    finds: &'a mut dyn SearchSink,
    /// The chain of directories from the top to the present one.
    above: Vec<Id>,
}

/// The kind of a directory's entry, with links followed.
enum Found {
    File { size: u64, mtime: Timestamp },
    Directory(Folder),
    Other,
}

impl Walk<'_> {
    /// Enters a directory with `list`, unless that is one of its own parents.
    fn into(
        &mut self,
        from: &CopyPath,
        id: Id,
        list: impl FnOnce(&mut Self) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        if self.above.contains(&id) {
            self.finds.left_out(from, "it leads back to a directory that it is in");
        } else if self.above.len() > DEPTH_MAX {
            self.finds.left_out(from, "directories are nested too deeply");
        } else {
            self.above.push(id);
            let listed = list(self);
            self.above.pop();
            return listed;
        }
        Ok(())
    }

    /// Handles an entry that is no directory; for a directory, returns how to enter it.
    fn entry(&mut self, from: CopyPath, to: CopyPath, found: Found) -> Option<(CopyPath, CopyPath, Folder)> {
        match found {
            Found::File { size, mtime } => {
                self.finds.file(Item { from, to, size: Some(size), mtime: Some(mtime), how: CopyAction::New });
            }
            Found::Directory(folder) => return Some((from, to, folder)),
            Found::Other => self.finds.left_out(&from, "neither a file nor a directory"),
        }
        None
    }

    fn local(&mut self, path: &Path, to: &CopyPath, below: &str, folder: Folder) -> Result<(), TransferError> {
        self.into(&CopyPath::Local(path.to_owned()), folder.id, |walk| {
            let entries = fs::read_dir(path).map_err(TransferError::local("list", path))?;
            walk.finds.directory(to, folder.kept)?;
            let mut empty = true;
            for entry in entries {
                if walk.finds.stopping() {
                    return Ok(());
                }
                let entry = entry.map_err(TransferError::local("list", path))?;
                let (name, path) = (entry.file_name(), entry.path());
                let from = CopyPath::Local(path.clone());
                let Some(name) = name.to_str() else {
                    empty = false;
                    walk.finds.left_out(&from, "its name is not UTF-8");
                    continue;
                };
                let at = format!("{below}{name}");
                // If the target of an excluded link is missing, that does not matter.
                let is_dir = path.metadata().is_ok_and(|found| found.is_dir());
                if !walk.filter.takes(&at, is_dir) {
                    continue;
                }
                empty = false;
                let to = to.join(name);
                if to.has_mark() {
                    walk.finds.problem(&from, TransferError::NameWithMark { path: from.to_string() });
                    continue;
                }
                let found = match path.metadata() {
                    Err(error) => {
                        walk.finds.problem(&from, TransferError::local("find", &path)(error));
                        continue;
                    }
                    Ok(found) if found.is_dir() => Found::Directory(Folder::of_local(&found)),
                    Ok(found) if found.is_file() => Found::File { size: found.len(), mtime: times::of_local(&found) },
                    Ok(_) => Found::Other,
                };
                if let Some((from, to, folder)) = walk.entry(from, to, found)
                    && let Err(error) = walk.local(&path, &to, &format!("{at}/"), folder)
                {
                    walk.finds.problem(&from, error);
                }
            }
            if empty { walk.finds.empty_directory(to) } else { Ok(()) }
        })
    }

    fn remote(&mut self, from: &CopyPath, to: &CopyPath, below: &str, folder: Folder) -> Result<(), TransferError> {
        let CopyPath::Remote(url) = from else { return Ok(()) };
        self.into(from, folder.id, |walk| {
            walk.finds.directory(to, folder.kept)?;
            let (mut directories, mut entries) = (Vec::new(), Vec::new());
            // Copying may be slow, and a server does not wait for ever with its listing. So read the whole listing first.
            walk.client.list::<ClientError>(url, DirlistOptions::NONE, |entry| {
                entries.push((entry.name, entry.stat));
                Ok(())
            })?;
            let mut empty = true;
            for (name, stat) in entries {
                if walk.finds.stopping() {
                    return Ok(());
                }
                // A name from a server must not lead out of its directory.
                if name.contains('/') || name.contains('\0') {
                    empty = false;
                    walk.finds.left_out(from, "it holds an entry whose name is a path");
                    continue;
                }
                // A request for it would be one for another file.
                if from.join(&name).has_mark() {
                    empty = false;
                    let path = from.join(&name).to_string();
                    walk.finds.problem(from, TransferError::NameWithMark { path });
                    continue;
                }
                // Not every server lists attributes, and weir's servers list a link as a link.
                let looked = match stat {
                    Some(stat) if !stat.flags.has(StatFlags::OTHER) => Ok(stat),
                    _ => walk.client.stat(&url.join(&name)),
                };
                let is_dir = looked.as_ref().is_ok_and(|stat| stat.flags.has(StatFlags::IS_DIR));
                let at = format!("{below}{name}");
                if !walk.filter.takes(&at, is_dir) {
                    continue;
                }
                empty = false;
                let found = match looked {
                    Err(error) => {
                        walk.finds.problem(&from.join(&name), error.into());
                        continue;
                    }
                    Ok(stat) if is_dir => Found::Directory(Folder::of_server(&stat)),
                    Ok(stat) if stat.flags.has(StatFlags::OTHER) => Found::Other,
                    Ok(stat) => Found::File { size: stat.size, mtime: times::of_server(&stat) },
                };
                directories.extend(walk.entry(from.join(&name), to.join(&name), found).map(|found| (found, at)));
            }
            if empty {
                walk.finds.empty_directory(to)?;
            }
            for ((from, to, folder), at) in directories {
                if walk.finds.stopping() {
                    return Ok(());
                }
                if let Err(error) = walk.remote(&from, &to, &format!("{at}/"), folder) {
                    walk.finds.problem(&from, error);
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    /// The names that were found, and the number after which to stop.
    #[derive(Default)]
    struct Found(Vec<String>, Option<usize>);

    impl SearchSink for Found {
        fn file(&mut self, item: Item) {
            self.0.push(format!("{} {}", item.to, item.size.unwrap()));
        }
        fn directory(&mut self, _: &CopyPath, _: KeptAttributes) -> Result<(), TransferError> {
            Ok(())
        }
        fn empty_directory(&mut self, to: &CopyPath) -> Result<(), TransferError> {
            self.0.push(format!("{to}/"));
            Ok(())
        }
        fn problem(&mut self, from: &CopyPath, _: TransferError) {
            self.0.push(format!("! {}", from.name()));
        }
        fn left_out(&mut self, from: &CopyPath, _: &'static str) {
            self.0.push(format!("- {}", from.name()));
        }
        fn stopping(&self) -> bool {
            self.1.is_some_and(|most| self.0.len() >= most)
        }
    }

    fn found(from: &Path, recursive: bool, filter: &Filter) -> Vec<String> {
        let mut found = Found::default();
        let from = CopyPath::Local(from.to_owned());
        walk(&mut Client::default(), &from, &CopyPath::Local("/t".into()), recursive, filter, &mut found);
        found.0.sort();
        found.0
    }

    #[test]
    fn a_stopped_search_finds_nothing_more() {
        let temp = tempfile::tempdir().unwrap();
        for number in 0..20 {
            fs::create_dir(temp.path().join(format!("d{number}"))).unwrap();
            fs::write(temp.path().join(format!("d{number}/f")), "").unwrap();
        }
        let mut found = Found(Vec::new(), Some(5));
        let (from, to) = (CopyPath::Local(temp.path().to_owned()), CopyPath::Local("/t".into()));
        walk(&mut Client::default(), &from, &to, true, &Filter::default(), &mut found);
        assert_eq!(found.0.len(), 5, "{:?}", found.0);
    }

    #[test]
    fn a_tree_is_found_with_its_oddities() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::create_dir_all(at("a/empty")).unwrap();
        fs::write(at("a/file"), "123").unwrap();
        fs::write(at("top"), "").unwrap();
        for (to, link) in [("a/file", "to-file"), ("a", "to-dir"), ("nowhere", "broken"), ("", "a/back")] {
            std::os::unix::fs::symlink(at(to), at(link)).unwrap();
        }
        let all = found(temp.path(), true, &Filter::default());
        let links = ["/t/to-dir/empty/", "/t/to-dir/file 3", "/t/to-file 3", "/t/top 0"];
        assert_eq!(all, [&["! broken", "- back", "- back", "/t/a/empty/", "/t/a/file 3"][..], &links[..]].concat());
        let some = found(temp.path(), true, &Filter::excluding(&["to-*", "broken", "a/back", "a/empty"]));
        assert_eq!(some, ["/t/a/file 3", "/t/top 0"]);
        let none = found(temp.path(), false, &Filter::default());
        assert!(none.len() == 1 && none[0].starts_with("! "));
    }
}
