//! What is to be copied: sources in order, directories with all that is in them, found while the copying goes on.

use std::collections::VecDeque;
use std::fs;

use client::{Client, ClientError};
use parking_lot::{Condvar, Mutex};
use wire::request::DirlistOptions;
use wire::response::StatFlags;

use super::error::TransferError;
use super::place::Place;

/// Items that may wait.
const WAITING_MAX: usize = 4096;
/// Depth of directories that is followed; deeper ones are somebody's loop.
const DEPTH_MAX: usize = 256;

/// A file to be copied.
#[derive(Clone, Debug)]
pub struct Item {
    /// From where.
    pub from: Place,
    /// To where, its own name included.
    pub to: Place,
    /// Its length when it was found, if that is known.
    pub size: Option<u64>,
    /// What to do if something is there.
    pub how: How,
}

/// What to do with a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum How {
    /// Copy it, as the options say.
    #[default]
    New,
    /// Replace what is there.
    Replace,
    /// Replace what is there, unless its checksum is the same.
    Compare,
}

/// The list between who finds and who copies.
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
    /// Puts one at the end; waits while the list is long.
    pub fn put(&self, item: Item) {
        let mut state = self.state.lock();
        while state.items.len() >= WAITING_MAX && !state.ended {
            self.changed.wait(&mut state);
        }
        state.items.push_back(item);
        self.changed.notify_one();
    }

    /// Nothing more will come.
    pub fn end(&self) {
        self.state.lock().ended = true;
        self.changed.notify_all();
    }

    /// The next one for which `fits` holds; waits for one, `None` at the end, or if the next one does not fit.
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

    /// The next one if it is there and fits, without waiting.
    pub fn try_take(&self, fits: impl Fn(&Item) -> bool) -> Option<Item> {
        let mut state = self.state.lock();
        let item = if fits(state.items.front()?) { state.items.pop_front() } else { None };
        self.changed.notify_all();
        item
    }
}

/// Told of what is found.
pub trait Finds {
    /// A file.
    fn file(&mut self, item: Item);
    /// A directory, before what it holds.
    fn directory(&mut self, to: &Place) -> Result<(), TransferError>;
    /// A directory that holds nothing, so that no file's copy makes it.
    fn empty_directory(&mut self, to: &Place) -> Result<(), TransferError>;
    /// Something that cannot be copied.
    fn problem(&mut self, from: &Place, error: TransferError);
    /// Something that is left out, and why.
    fn left_out(&mut self, from: &Place, why: &'static str);
}

/// Finds what `from` holds, for the place `to`. With `recursive` directories are gone into.
pub fn walk(client: &mut Client, from: &Place, to: &Place, recursive: bool, finds: &mut dyn Finds) {
    let found = match from {
        Place::Standard => Ok(Some(Item { from: from.clone(), to: to.clone(), size: None, how: How::New })),
        Place::Local(path) => match path.metadata() {
            Ok(found) if found.is_dir() && recursive => walk_local(path, to, finds, 0).map(|()| None),
            Ok(found) if found.is_dir() => Err(TransferError::IsDirectory { path: from.to_string() }),
            Ok(found) if !found.is_file() => Err(TransferError::NotAFile { path: from.to_string() }),
            Ok(found) => Ok(Some(Item { from: from.clone(), to: to.clone(), size: Some(found.len()), how: How::New })),
            Err(error) => Err(TransferError::local("find", path)(error)),
        },
        Place::Remote(url) => match client.stat(url) {
            Ok(stat) if stat.flags.has(StatFlags::IS_DIR) && recursive => {
                walk_remote(client, from, to, finds, 0).map(|()| None)
            }
            Ok(stat) if stat.flags.has(StatFlags::IS_DIR) => Err(TransferError::IsDirectory { path: from.to_string() }),
            Ok(stat) => Ok(Some(Item { from: from.clone(), to: to.clone(), size: Some(stat.size), how: How::New })),
            Err(error) => Err(error.into()),
        },
    };
    match found {
        Ok(Some(item)) => finds.file(item),
        Ok(None) => {}
        Err(error) => finds.problem(from, error),
    }
}

fn walk_local(path: &std::path::Path, to: &Place, finds: &mut dyn Finds, depth: usize) -> Result<(), TransferError> {
    let entries = fs::read_dir(path).map_err(TransferError::local("list", path))?;
    finds.directory(to)?;
    let mut empty = true;
    for entry in entries {
        empty = false;
        let entry = entry.map_err(TransferError::local("list", path))?;
        let (name, path) = (entry.file_name(), entry.path());
        let from = Place::Local(path.clone());
        let Some(name) = name.to_str() else {
            finds.left_out(&from, "its name is not UTF-8");
            continue;
        };
        let to = to.join(name);
        // What a link leads to is copied, unless that is a directory: it may lead back.
        let kind = entry.file_type().map_err(TransferError::local("stat", &path))?;
        match path.metadata() {
            Err(error) => finds.problem(&from, TransferError::local("find", &path)(error)),
            Ok(found) if found.is_dir() && kind.is_symlink() => {
                finds.left_out(&from, "a symbolic link to a directory");
            }
            Ok(found) if found.is_dir() => {
                if depth >= DEPTH_MAX {
                    finds.left_out(&from, "directories are nested too deeply");
                } else if let Err(error) = walk_local(&path, &to, finds, depth + 1) {
                    finds.problem(&from, error);
                }
            }
            Ok(found) if found.is_file() => finds.file(Item { from, to, size: Some(found.len()), how: How::New }),
            Ok(_) => finds.left_out(&from, "neither a file nor a directory"),
        }
    }
    if empty { finds.empty_directory(to) } else { Ok(()) }
}

fn walk_remote(
    client: &mut Client,
    from: &Place,
    to: &Place,
    finds: &mut dyn Finds,
    depth: usize,
) -> Result<(), TransferError> {
    let Place::Remote(url) = from else { return Ok(()) };
    finds.directory(to)?;
    let mut directories = Vec::new();
    let mut entries = Vec::new();
    // Whoever copies may be slow, and a server does not wait for ever with its listing.
    client.list::<ClientError>(url, DirlistOptions::NONE, |entry| {
        entries.push((entry.name, entry.stat.map(|stat| (stat.flags, stat.size))));
        Ok(())
    })?;
    let empty = entries.is_empty();
    for (name, stat) in entries {
        // Not every server gives attributes with a listing.
        let (flags, size) = match stat {
            Some(found) => found,
            None => match client.stat(&url.join(&name)) {
                Ok(stat) => (stat.flags, stat.size),
                Err(error) => {
                    finds.problem(&from.join(&name), error.into());
                    continue;
                }
            },
        };
        // A name from a server must not lead out of the directory that it is in.
        if name.contains('/') || name.contains('\0') {
            finds.left_out(from, "it holds an entry whose name is a path");
        } else if flags.has(StatFlags::IS_DIR) {
            directories.push(name);
        } else if flags.has(StatFlags::OTHER) {
            finds.left_out(&from.join(&name), "neither a file nor a directory");
        } else {
            let (from, to) = (from.join(&name), to.join(&name));
            finds.file(Item { from, to, size: Some(size), how: How::New });
        }
    }
    if empty {
        finds.empty_directory(to)?;
    }
    for name in directories {
        let (from, to) = (from.join(&name), to.join(&name));
        if depth >= DEPTH_MAX {
            finds.left_out(&from, "directories are nested too deeply");
        } else if let Err(error) = walk_remote(client, &from, &to, finds, depth + 1) {
            finds.problem(&from, error);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[derive(Default)]
    struct Found(Vec<String>);

    impl Finds for Found {
        fn file(&mut self, item: Item) {
            self.0.push(format!("{} {}", item.to, item.size.unwrap()));
        }
        fn directory(&mut self, _: &Place) -> Result<(), TransferError> {
            Ok(())
        }
        fn empty_directory(&mut self, to: &Place) -> Result<(), TransferError> {
            self.0.push(format!("{to}/"));
            Ok(())
        }
        fn problem(&mut self, from: &Place, _: TransferError) {
            self.0.push(format!("! {}", from.name()));
        }
        fn left_out(&mut self, from: &Place, _: &'static str) {
            self.0.push(format!("- {}", from.name()));
        }
    }

    #[test]
    fn a_tree_is_found_with_its_oddities() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        fs::create_dir_all(at("a/empty")).unwrap();
        fs::write(at("a/file"), "123").unwrap();
        fs::write(at("top"), "").unwrap();
        for (to, link) in [("a/file", "to-file"), ("a", "to-dir"), ("nowhere", "broken")] {
            std::os::unix::fs::symlink(at(to), at(link)).unwrap();
        }
        let mut found = Found::default();
        let from = Place::Local(temp.path().to_owned());
        walk(&mut Client::default(), &from, &Place::Local("/t".into()), true, &mut found);
        found.0.sort();
        assert_eq!(found.0, ["! broken", "- to-dir", "/t/a/empty/", "/t/a/file 3", "/t/to-file 3", "/t/top 0"]);
        let mut found = Found::default();
        walk(&mut Client::default(), &from, &Place::Local("/t".into()), false, &mut found);
        assert_eq!(found.0.len(), 1);
        assert!(found.0[0].starts_with("! "));
    }
}
