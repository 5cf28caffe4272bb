//! `weir stat`, `mkdir`, `mv`, `rm`, `ln`, `touch`, `xattr`, `checksum`, `df`, `cat`: commands that treat each name by itself.

use client::Algorithm;
use serde_json::json;
use transfer::tree::{Kind, Tree};
use transfer::{CopyPath, TransferError, read_all};
use types::units::show_size;

use super::output::Output;
use super::show::{civil_time, mode_text, printable};
use crate::cli::{CatArgs, ChecksumArgs, DfArgs, LnArgs, MkdirArgs, MvArgs, StatArgs, TouchArgs, XattrCommand};

/// Names in one round of requests.
const AT_ONCE: usize = 512;

pub(super) fn place(text: &str) -> Result<CopyPath, TransferError> {
    Ok(CopyPath::parse(text).map_err(client::ClientError::from)?)
}

/// Shows attributes.
pub fn stat(tree: &mut Tree, args: &StatArgs, out: &mut Output) -> Result<(), TransferError> {
    let places = args.places.iter().map(|text| place(text)).collect::<Result<Vec<_>, _>>()?;
    // Print each page before asking for the next.
    let pages = places.chunks(AT_ONCE).flat_map(|page| page.iter().zip(tree.infos(page)).collect::<Vec<_>>());
    for (at, info) in pages {
        let info = info?;
        if args.json {
            out.json(&json!({ "path": at.to_string(), "info": info }))?;
            continue;
        }
        let kind = match info.kind {
            Kind::File => "file",
            Kind::Directory => "directory",
            Kind::Link => "symbolic link",
            Kind::Other => "other",
        };
        out.line(&format!("{}: {kind}", printable(&at.to_string())))?;
        out.line(&format!("  size      {} ({})", info.size, show_size(info.size)))?;
        out.line(&format!("  modified  {} UTC", civil_time(info.mtime)))?;
        if let Some(ctime) = info.ctime {
            out.line(&format!("  changed   {} UTC", civil_time(ctime)))?;
        }
        if let (Some(_), Some(owner), Some(group)) = (info.mode, &info.owner, &info.group) {
            out.line(&format!("  access    {} {owner} {group}", mode_text(&info)))?;
        }
        if let Some(note) = info.note {
            out.line(&format!("  note      {note}"))?;
        }
    }
    Ok(())
}

/// Makes directories.
pub fn mkdir(tree: &mut Tree, args: &MkdirArgs) -> Result<(), TransferError> {
    args.places.iter().try_for_each(|text| tree.mkdir(&place(text)?, args.mode, args.parents))
}

/// Renames files, or moves them into a directory.
pub fn mv(tree: &mut Tree, args: &MvArgs) -> Result<(), TransferError> {
    let (target, sources) = args.places.split_last().ok_or(TransferError::Stopped)?;
    let to = place(target)?;
    let into = match tree.info(&to) {
        Ok(info) => info.kind == Kind::Directory,
        Err(error) if error.exit() == console::Exit::NotFound => false,
        Err(error) => return Err(error),
    };
    if sources.len() > 1 && !into {
        return Err(TransferError::NotADirectory { path: to.to_string() });
    }
    for text in sources {
        let from = place(text)?;
        let to = if into { to.join(&from.name()) } else { to.clone() };
        if !args.force {
            match tree.info(&to) {
                Ok(_) => return Err(TransferError::Exists { path: to.to_string() }),
                Err(error) if error.exit() == console::Exit::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        tree.rename(&from, &to)?;
    }
    Ok(())
}

/// Makes links.
pub fn ln(tree: &mut Tree, args: &LnArgs) -> Result<(), TransferError> {
    tree.link(&args.target, &place(&args.name)?, args.symbolic)
}

/// Makes empty files, or sets the modification time to now.
pub fn touch(tree: &mut Tree, args: &TouchArgs) -> Result<(), TransferError> {
    args.places.iter().try_for_each(|text| tree.touch(&place(text)?))
}

/// Shows and changes extended attributes.
pub fn xattr(tree: &mut Tree, command: &XattrCommand, out: &mut Output) -> Result<(), TransferError> {
    use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
    let failed =
        |what, path: &std::path::Path, error: rustix::io::Errno| TransferError::local(what, path)(error.into());
    let user = |name: &str| format!("user.{name}");
    match command {
        XattrCommand::Ls { place: text } => match place(text)? {
            CopyPath::Remote(url) => {
                for (name, value) in tree.client.xattrs(&url)? {
                    out.line(&format!("{}={}", printable(&name), value.escape_ascii()))?;
                }
            }
            CopyPath::Local(path) => {
                let mut names = vec![0; 64 << 10];
                let len =
                    listxattr(&path, &mut names[..]).map_err(|error| failed("list attributes of", &path, error))?;
                for name in names[..len].split(|byte| *byte == 0) {
                    let Some(name) = std::str::from_utf8(name).ok().and_then(|name| name.strip_prefix("user.")) else {
                        continue;
                    };
                    let mut value = vec![0; 64 << 10];
                    let len = getxattr(&path, user(name), &mut value[..])
                        .map_err(|error| failed("read an attribute of", &path, error))?;
                    out.line(&format!("{}={}", printable(name), value[..len].escape_ascii()))?;
                }
            }
            CopyPath::Standard => {}
        },
        XattrCommand::Get { place: text, name } => {
            let value = match place(text)? {
                CopyPath::Remote(url) => tree.client.xattr(&url, name)?,
                CopyPath::Local(path) => {
                    let mut value = vec![0; 64 << 10];
                    let len = getxattr(&path, user(name), &mut value[..])
                        .map_err(|error| failed("read an attribute of", &path, error))?;
                    value.truncate(len);
                    value
                }
                CopyPath::Standard => Vec::new(),
            };
            out.bytes(&value)?;
            out.line("")?;
        }
        XattrCommand::Set { place: text, name, value } => match place(text)? {
            CopyPath::Remote(url) => tree.client.set_xattr(&url, name, value.as_bytes())?,
            CopyPath::Local(path) => setxattr(&path, user(name), value.as_bytes(), XattrFlags::empty())
                .map_err(|error| failed("set an attribute of", &path, error))?,
            CopyPath::Standard => {}
        },
        XattrCommand::Rm { place: text, name } => match place(text)? {
            CopyPath::Remote(url) => tree.client.remove_xattr(&url, name)?,
            CopyPath::Local(path) => {
                removexattr(&path, user(name)).map_err(|error| failed("remove an attribute of", &path, error))?
            }
            CopyPath::Standard => {}
        },
    }
    Ok(())
}

/// Shows checksums of whole files.
pub fn checksum(tree: &mut Tree, args: &ChecksumArgs, out: &mut Output) -> Result<(), TransferError> {
    for text in &args.places {
        let at = place(text)?;
        let (algorithm, value) = match &at {
            CopyPath::Remote(url) => tree.client.checksum(url, args.algorithm.as_deref())?,
            _ => {
                let name = args.algorithm.as_deref().unwrap_or("crc32c");
                let Some(algorithm) = Algorithm::parse(name) else {
                    return Err(TransferError::NoSuchChecksum { name: name.to_owned() });
                };
                let mut sum = algorithm.of_nothing();
                read_all(&mut tree.client, &at, &mut |part| {
                    sum = sum.combine(algorithm.of(part), part.len() as u64);
                    Ok(())
                })?;
                (name.to_owned(), format!("{:08x}", sum.value))
            }
        };
        if args.json {
            out.json(&json!({ "path": at.to_string(), "algorithm": algorithm, "value": value }))?;
        } else {
            out.line(&format!("{algorithm}:{value}  {}", printable(&at.to_string())))?;
        }
    }
    Ok(())
}

/// Shows the free and used space at places.
pub fn df(tree: &mut Tree, args: &DfArgs, out: &mut Output) -> Result<(), TransferError> {
    if !args.json {
        out.line(&format!("{:>12} {:>12} {:>12} {:>5}  place", "total", "used", "free", "used"))?;
    }
    for text in &args.places {
        let at = place(text)?;
        let (total, used, free) = match &at {
            CopyPath::Remote(url) => {
                let space = tree.client.space(url)?;
                (space.total, space.used, space.free)
            }
            CopyPath::Local(path) => {
                let found =
                    rustix::fs::statvfs(path).map_err(|error| TransferError::local("look at", path)(error.into()))?;
                let (total, free) = (found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize);
                (total, total.saturating_sub(found.f_bfree * found.f_frsize), free)
            }
            CopyPath::Standard => (0, 0, 0),
        };
        if args.json {
            out.json(&json!({ "path": at.to_string(), "total": total, "used": used, "free": free }))?;
            continue;
        }
        let percent =
            if total == 0 { 0 } else { u64::try_from(u128::from(used) * 100 / u128::from(total)).unwrap_or(100) };
        let show = |bytes| if args.human { show_size(bytes) } else { bytes.to_string() };
        let (total, used, free) = (show(total), show(used), show(free));
        out.line(&format!("{total:>12} {used:>12} {free:>12} {percent:>4}%  {}", printable(&at.to_string())))?;
    }
    Ok(())
}

/// Prints the bytes of files.
pub fn cat(tree: &mut Tree, args: &CatArgs, out: &mut Output) -> Result<(), TransferError> {
    args.places.iter().try_for_each(|text| {
        let at = place(text)?;
        read_all(&mut tree.client, &at, &mut |part| out.bytes(part))
    })
}
