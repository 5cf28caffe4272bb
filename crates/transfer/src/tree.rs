//! Names on this machine and on servers, with the same operations for both.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use client::{Client, ClientError, FileState, Kind as ErrorKind, Settings, Url};
use serde::Serialize;
use wire::request::{DirlistOptions, QueryKind};
use wire::response::{StatFlags, StatReply};

use crate::error::TransferError;
use crate::place::CopyPath;

/// The kind of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link (on servers: one that they do not follow).
    Link,
    /// A device, a socket and the like.
    Other,
}

/// Attributes of a name. Times in seconds since 1970.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Info {
    /// Its kind.
    pub kind: Kind,
    /// Bytes.
    pub size: u64,
    /// Last change of its data.
    pub mtime: i64,
    /// Last change of its attributes, if the server gives it.
    pub ctime: Option<i64>,
    /// Permission bits, if the server gives them.
    pub mode: Option<u16>,
    /// Owner, if the server gives it.
    pub owner: Option<String>,
    /// Group, if the server gives it.
    pub group: Option<String>,
    /// Whether it is being written, interrupted, or not on disk.
    pub note: Option<&'static str>,
}

/// An entry of a directory.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its attributes.
    pub info: Info,
    /// Its checksum, if it was asked for.
    pub checksum: Option<String>,
}

/// Operations on names. It keeps the connections.
#[derive(Debug, Default)]
pub struct Tree {
    /// The client for servers.
    pub client: Client,
    /// Whether attributes say that a file is interrupted. Servers of weir let nobody read such a file. So this costs a request for each file
    /// that cannot be read.
    pub shows_interrupted: bool,
    /// For these requests. The client may be receiving a listing.
    asker: Option<Client>,
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Tree {
    /// Uses this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client, users: names_of("/etc/passwd"), groups: names_of("/etc/group"), ..Self::default() }
    }

    /// The attributes of a place; follows links.
    pub fn info(&mut self, place: &CopyPath) -> Result<Info, TransferError> {
        match place {
            CopyPath::Local(path) => {
                let found = path.metadata().map_err(TransferError::local("look at", path))?;
                Ok(self.local_info(&found))
            }
            CopyPath::Remote(url) => {
                let found = self.client.stat(url)?;
                Ok(self.asks_state().info(url, &found))
            }
            CopyPath::Standard => Err(no_name()),
        }
    }

    fn asks_state(&mut self) -> AsksState<'_> {
        AsksState { asker: self.shows_interrupted.then_some(&mut self.asker), settings: self.client.settings() }
    }

    /// The attributes of several places, in order. After a server has failed to answer, its further places are not asked for. Neighbouring
    /// places at one server share requests.
    pub fn infos(&mut self, places: &[CopyPath]) -> Vec<Result<Info, TransferError>> {
        let mut found = Vec::with_capacity(places.len());
        let url = |place: &CopyPath| match place {
            CopyPath::Remote(url) => Some(url.clone()),
            CopyPath::Local(_) | CopyPath::Standard => None,
        };
        for run in places.chunk_by(|one, other| url(one).is_some() == url(other).is_some()) {
            let urls: Vec<Url> = run.iter().filter_map(url).collect();
            if urls.is_empty() {
                found.extend(run.iter().map(|place| self.info(place)));
                continue;
            }
            let stats = self.client.stats(&urls);
            let is_all = stats.len() == urls.len();
            let mut asks = self.asks_state();
            found.extend(stats.into_iter().zip(&urls).map(|(stat, url)| Ok(asks.info(url, &stat?))));
            if !is_all {
                break;
            }
        }
        found
    }

    /// The entries of a directory, each as soon as it is found; on this machine sorted by name.
    pub fn list(
        &mut self,
        place: &CopyPath,
        checksums: bool,
        each: &mut dyn FnMut(Entry) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        match place {
            CopyPath::Local(path) => {
                let read = fs::read_dir(path).map_err(TransferError::local("list", path))?;
                let mut entries: Vec<_> = read.filter_map(Result::ok).collect();
                entries.sort_by_key(fs::DirEntry::file_name);
                for entry in entries {
                    // An entry that is gone by now did not exist.
                    let Ok(found) = entry.metadata() else { continue };
                    let name = entry.file_name().to_string_lossy().into_owned();
                    each(Entry { name, info: self.local_info(&found), checksum: None })?;
                }
                Ok(())
            }
            CopyPath::Remote(url) => {
                let options = if checksums { DirlistOptions::DCKSM } else { DirlistOptions::NONE };
                let mut bare = Vec::new();
                let settings = self.client.settings().clone();
                let asker = self.shows_interrupted.then_some(&mut self.asker);
                let mut asks = AsksState { asker, settings: &settings };
                self.client.list::<TransferError>(url, options, |entry| match entry.stat {
                    Some(stat) => {
                        let info = asks.info(&url.join(&entry.name), &stat);
                        each(Entry { name: entry.name, info, checksum: entry.checksum })
                    }
                    None => {
                        bare.push(entry.name);
                        Ok(())
                    }
                })?;
                // Not every server lists attributes.
                for name in bare {
                    let info = self.info(&place.join(&name))?;
                    each(Entry { name, info, checksum: None })?;
                }
                Ok(())
            }
            CopyPath::Standard => Err(no_name()),
        }
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, place: &CopyPath, mode: u16, parents: bool) -> Result<(), TransferError> {
        match place {
            CopyPath::Local(path) => {
                let made = if parents { fs::create_dir_all(path) } else { fs::create_dir(path) };
                made.and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(u32::from(mode))))
                    .map_err(TransferError::local("make", path))
            }
            CopyPath::Remote(url) => Ok(self.client.mkdir(url, mode, parents)?),
            CopyPath::Standard => Err(no_name()),
        }
    }

    /// Removes a file, or an empty directory.
    pub fn remove(&mut self, place: &CopyPath, directory: bool) -> Result<(), TransferError> {
        match place {
            CopyPath::Local(path) => {
                let removed = if directory { fs::remove_dir(path) } else { fs::remove_file(path) };
                removed.map_err(TransferError::local("remove", path))
            }
            CopyPath::Remote(url) if directory => Ok(self.client.rmdir(url)?),
            CopyPath::Remote(url) => Ok(self.client.rm(url)?),
            CopyPath::Standard => Err(no_name()),
        }
    }

    /// Renames. Both places must be on this machine, or on one server.
    pub fn rename(&mut self, from: &CopyPath, to: &CopyPath) -> Result<(), TransferError> {
        match (from, to) {
            (CopyPath::Local(from), CopyPath::Local(to)) => {
                fs::rename(from, to).map_err(TransferError::local("rename", from))
            }
            (CopyPath::Remote(from), CopyPath::Remote(to)) if from.server == to.server => {
                Ok(self.client.mv(from, to)?)
            }
            _ => Err(TransferError::Elsewhere { from: from.to_string(), to: to.to_string() }),
        }
    }

    /// Makes a second name, or a symbolic link to `target`.
    pub fn link(&mut self, target: &str, name: &CopyPath, symbolic: bool) -> Result<(), TransferError> {
        match name {
            CopyPath::Local(path) => {
                let made =
                    if symbolic { std::os::unix::fs::symlink(target, path) } else { fs::hard_link(target, path) };
                made.map_err(TransferError::local("make the link", path))
            }
            CopyPath::Remote(url) => {
                let op = if symbolic { "symlink" } else { "link" };
                let target = match CopyPath::parse(target) {
                    Ok(CopyPath::Remote(to)) => to.path,
                    _ => target.to_owned(),
                };
                let args = format!("{}?weir.op={op}&weir.target={target}", url.path).into_bytes();
                self.client.query_once(url, op, QueryKind::OpaqueFile, args).map_err(only_weir)?;
                Ok(())
            }
            CopyPath::Standard => Err(no_name()),
        }
    }

    /// Sets the permission bits of a file or directory.
    pub fn chmod(&mut self, url: &Url, mode: u16) -> Result<(), TransferError> {
        self.client.chmod(url, mode)?;
        Ok(())
    }

    /// Sets the owner and the group of a file or directory at a weir server, by their names or numbers there.
    pub fn chown(&mut self, url: &Url, owner: Option<&str>, group: Option<&str>) -> Result<(), TransferError> {
        let mut args = format!("{}?weir.op=chown", url.path);
        for (key, name) in [("weir.owner", owner), ("weir.group", group)] {
            if let Some(name) = name {
                args.push_str(&format!("&{key}={name}"));
            }
        }
        self.client.query_once(url, "chown", QueryKind::OpaqueFile, args.into_bytes()).map_err(only_weir)?;
        Ok(())
    }

    /// The ACLs of a file or directory at a weir server, as text in the form of acl(5).
    pub fn acl(&mut self, url: &Url) -> Result<String, TransferError> {
        let args = format!("{}?weir.op=acl", url.path).into_bytes();
        let text = self.client.query(url, "show the ACL", QueryKind::OpaqueFile, args).map_err(only_weir)?;
        Ok(String::from_utf8_lossy(&text).trim_end_matches('\0').to_owned())
    }

    /// Changes the ACLs of a file or directory at a weir server. `edit` is `replace`, `modify`, `remove`, `clear` or
    /// `clear-default`, and `text` has the entries.
    pub fn set_acl(&mut self, url: &Url, edit: &str, text: &str) -> Result<(), TransferError> {
        let args = format!("{}?weir.op=setacl&weir.edit={edit}&weir.target={text}", url.path).into_bytes();
        self.client.query_once(url, "set the ACL", QueryKind::OpaqueFile, args).map_err(only_weir)?;
        Ok(())
    }

    /// Sets the modification time to now.
    pub fn touch(&mut self, place: &CopyPath) -> Result<(), TransferError> {
        match place {
            CopyPath::Local(path) => {
                let file = fs::OpenOptions::new().create(true).append(true).open(path);
                file.and_then(|file| file.set_modified(std::time::SystemTime::now()))
                    .map_err(TransferError::local("touch", path))
            }
            CopyPath::Remote(url) => {
                use wire::request::OpenOptions;
                match self.client.open(url, OpenOptions::NEW | OpenOptions::UPDATE, 0o644) {
                    Ok(file) => {
                        let session = file.close()?;
                        self.client.give_back(session, url);
                        Ok(())
                    }
                    Err(error) if error.kind() == ErrorKind::Exists => {
                        let args = format!("{}?weir.op=touch", url.path).into_bytes();
                        self.client.query(url, "touch", QueryKind::OpaqueFile, args).map_err(only_weir)?;
                        Ok(())
                    }
                    Err(error) => Err(error.into()),
                }
            }
            CopyPath::Standard => Err(no_name()),
        }
    }

    fn local_info(&self, found: &fs::Metadata) -> Info {
        let kind = match found.file_type() {
            kind if kind.is_file() => Kind::File,
            kind if kind.is_dir() => Kind::Directory,
            kind if kind.is_symlink() => Kind::Link,
            _ => Kind::Other,
        };
        let name = |names: &HashMap<u32, String>, id: u32| names.get(&id).cloned().unwrap_or_else(|| id.to_string());
        Info {
            kind,
            size: found.len(),
            mtime: found.mtime(),
            ctime: Some(found.ctime()),
            mode: u16::try_from(found.mode() & 0o7777).ok(),
            owner: Some(name(&self.users, found.uid())),
            group: Some(name(&self.groups, found.gid())),
            note: None,
        }
    }
}

/// Finds out whether files are interrupted, if that is wanted.
struct AsksState<'a> {
    asker: Option<&'a mut Option<Client>>,
    settings: &'a Settings,
}

impl AsksState<'_> {
    /// The attributes of a file or a directory, of which a server has told this.
    fn info(&mut self, url: &Url, stat: &StatReply) -> Info {
        let mut info = remote_info(stat);
        if info.kind == Kind::File
            && info.note.is_none()
            && !stat.flags.has(StatFlags::READABLE)
            && let Some(asker) = &mut self.asker
        {
            let client = asker.get_or_insert_with(|| Client::new(self.settings.clone()));
            match FileState::of(client, url) {
                Ok(FileState::Interrupted) => info.note = Some("interrupted"),
                // Other servers do not know this attribute, and their files are never interrupted.
                Ok(_) | Err(ClientError::Refused { .. }) => {}
                // Do not wait for this once for each file: the server of the listing may not wait as long.
                Err(_) => self.asker = None,
            }
        }
        info
    }
}

fn remote_info(stat: &StatReply) -> Info {
    let kind = if stat.flags.has(StatFlags::IS_DIR) {
        Kind::Directory
    } else if stat.flags.has(StatFlags::OTHER) {
        Kind::Other
    } else {
        Kind::File
    };
    let note = if stat.flags.has(StatFlags::OFFLINE) {
        Some("offline")
    } else if stat.flags.has(StatFlags::POSC_PENDING) {
        Some("being written")
    } else {
        None
    };
    let extra = stat.extra.as_ref();
    Info {
        kind,
        size: stat.size,
        mtime: stat.mtime,
        ctime: extra.map(|extra| extra.ctime),
        mode: extra.map(|extra| extra.mode),
        owner: extra.map(|extra| extra.owner.clone()),
        group: extra.map(|extra| extra.group.clone()),
        note,
    }
}

fn no_name() -> TransferError {
    let source = io::Error::from(io::ErrorKind::InvalidInput);
    TransferError::Local { what: "name", path: "-".to_owned(), source }
}

/// The protocol has no request for this; weir has an extension.
fn only_weir(error: ClientError) -> TransferError {
    match error.kind() {
        ErrorKind::Unsupported => TransferError::OnlyWeir(error),
        _ => error.into(),
    }
}

fn names_of(path: &str) -> HashMap<u32, String> {
    let text = fs::read_to_string(Path::new(path)).unwrap_or_default();
    let name = |line: &str| {
        let mut fields = line.split(':');
        let (name, id) = (fields.next()?, fields.nth(1)?);
        Some((id.parse().ok()?, name.to_owned()))
    };
    text.lines().filter_map(name).collect()
}
