//! `weir stat`, `mkdir`, `mv`, `rm`, `ln`, `touch`, `xattr`, `df`, `cat`: commands that treat each name by itself.

use serde_json::json;
use transfer::tree::{Kind, Tree};
use transfer::{CopyPath, Removal, RemovalEvent, TransferError, read_all};
use types::units::show_size;

use super::errors::Errors;
use super::output::Output;
use super::show::{civil_time, mode_text, printable};
use crate::cli::{CatArgs, DfArgs, LnArgs, MkdirArgs, MvArgs, RmArgs, StatArgs, TouchArgs, XattrCommand};

/// Names in one round of requests.
const AT_ONCE: usize = 512;

pub(super) fn place(text: &str) -> Result<CopyPath, TransferError> {
    Ok(CopyPath::parse(text)?)
}

/// All places of a command line. A wrong one is an error before anything is done.
pub(super) fn places(texts: &[String]) -> Result<Vec<CopyPath>, TransferError> {
    texts.iter().map(|text| place(text)).collect()
}

/// Shows attributes.
pub fn stat(tree: &mut Tree, args: &StatArgs, out: &mut Output, errors: &mut Errors) -> Result<(), TransferError> {
    tree.shows_interrupted = true;
    let places = places(&args.places)?;
    // Print each page before asking for the next.
    let pages = places.chunks(AT_ONCE).flat_map(|page| page.iter().zip(tree.infos(page)).collect::<Vec<_>>());
    errors.each(pages, |_, (at, info)| {
        let info = info?;
        if args.json {
            return out.json(&json!({ "path": at.to_string(), "info": info }));
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
        Ok(())
    })
}

/// Makes directories.
pub fn mkdir(tree: &mut Tree, args: &MkdirArgs, out: &mut Output, errors: &mut Errors) -> Result<(), TransferError> {
    errors.each(places(&args.places)?, |errors, at| {
        tree.mkdir(&at, args.mode, args.parents)?;
        errors.has_changed();
        said(args.verbose, out, || format!("created {at}"))
    })
}

/// Prints what was done, if `verbose`.
fn said(verbose: bool, out: &mut Output, text: impl FnOnce() -> String) -> Result<(), TransferError> {
    if verbose { out.line(&printable(&text())) } else { Ok(()) }
}

/// Renames files, or moves them into a directory.
pub fn mv(tree: &mut Tree, args: &MvArgs, out: &mut Output, errors: &mut Errors) -> Result<(), TransferError> {
    let mut sources = places(&args.places)?;
    let to = sources.pop().ok_or(TransferError::NoSource)?;
    let into = match tree.info(&to) {
        _ if args.no_target_directory => false,
        Ok(info) => info.kind == Kind::Directory,
        Err(error) if error.exit() == console::Exit::NotFound => false,
        Err(error) => return Err(error),
    };
    if sources.len() > 1 && !into {
        return Err(TransferError::NotADirectory { path: to.to_string() });
    }
    errors.each(sources, |errors, from| {
        let to = if into { to.join(&from.name()) } else { to.clone() };
        if !args.force {
            match tree.info(&to) {
                Ok(_) => return Err(TransferError::Exists { path: to.to_string() }),
                Err(error) if error.exit() == console::Exit::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        tree.rename(&from, &to)?;
        errors.has_changed();
        said(args.verbose, out, || format!("{from} -> {to}"))
    })
}

/// Removes files and directories.
pub fn rm(tree: &mut Tree, args: &RmArgs, out: &mut Output, errors: &mut Errors) -> Result<(), TransferError> {
    let how = Removal { recursive: args.recursive, force: args.force, dry_run: args.dry_run };
    let verb = if args.dry_run { "remove" } else { "removed" };
    let mut printed = Ok(());
    transfer::remove(tree, &places(&args.places)?, how, &mut |event| match event {
        RemovalEvent::Failed(error) => errors.say(error),
        RemovalEvent::Removed(name) => {
            if !args.dry_run {
                errors.has_changed();
            }
            // What nobody reads any more does not end the removal.
            if printed.is_ok() {
                printed = said(args.verbose || args.dry_run, out, || format!("{verb} {name}"));
            }
        }
    });
    printed
}

/// Makes links.
pub fn ln(tree: &mut Tree, args: &LnArgs) -> Result<(), TransferError> {
    tree.link(&args.target, &place(&args.name)?, args.symbolic)
}

/// Makes empty files, or sets the modification time to now.
pub fn touch(tree: &mut Tree, args: &TouchArgs, errors: &mut Errors) -> Result<(), TransferError> {
    errors.each(places(&args.places)?, |errors, at| {
        tree.touch(&at)?;
        errors.has_changed();
        Ok(())
    })
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

/// Shows the free and used space at places.
pub fn df(tree: &mut Tree, args: &DfArgs, out: &mut Output, errors: &mut Errors) -> Result<(), TransferError> {
    let places = places(&args.places)?;
    if !args.json {
        out.line(&format!("{:>12} {:>12} {:>12} {:>5}  place", "total", "used", "free", "used"))?;
    }
    errors.each(places, |_, at| {
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
            return out.json(&json!({ "path": at.to_string(), "total": total, "used": used, "free": free }));
        }
        let percent =
            if total == 0 { 0 } else { u64::try_from(u128::from(used) * 100 / u128::from(total)).unwrap_or(100) };
        let show = |bytes| if args.human.human { show_size(bytes) } else { bytes.to_string() };
        let (total, used, free) = (show(total), show(used), show(free));
        out.line(&format!("{total:>12} {used:>12} {free:>12} {percent:>4}%  {}", printable(&at.to_string())))
    })
}

/// Prints the bytes of files.
pub fn cat(tree: &mut Tree, args: &CatArgs, out: &mut Output, errors: &mut Errors) -> Result<(), TransferError> {
    errors.each(places(&args.places)?, |_, at| read_all(&mut tree.client, &at, &mut |part| out.bytes(part)))
}
