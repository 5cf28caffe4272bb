//! `weir ls`, `weir find` and `weir du`: the contents of directories.

use serde_json::json;
use transfer::tree::{Entry, Info, Kind, Tree};
use transfer::{CopyPath, TransferError};
use types::units::show_size;

use super::errors::Errors;
use super::names::places;
use super::output::Output;
use super::show::{long_line, printable};
use crate::cli::{DuArgs, FindArgs, LsArgs};

/// Deepest level of directories to enter.
const DEPTH_MAX: usize = 256;

/// Lists places.
pub fn ls(tree: &mut Tree, args: &LsArgs, out: &mut Output, errors: &mut Errors) -> Result<(), TransferError> {
    let several = args.places.len() > 1 || args.recursive;
    tree.shows_interrupted = args.long || args.json;
    let mut first = true;
    let places = places(&args.places)?;
    errors.each(args.places.iter().zip(places), |_, (text, place)| {
        // Listing without asking for the kind first saves a request.
        let listed = if args.directory { None } else { list_one(tree, &place, args, several, &mut first, out, 0)? };
        if listed.is_none() {
            let info = tree.info(&place)?;
            print(args, text, &Entry { name: text.clone(), info, checksum: None }, out)?;
        }
        Ok(())
    })
}

/// Lists a directory; `None`: it is no directory.
fn list_one(
    tree: &mut Tree,
    place: &CopyPath,
    args: &LsArgs,
    heading: bool,
    first: &mut bool,
    out: &mut Output,
    depth: usize,
) -> Result<Option<()>, TransferError> {
    let mut below = Vec::new();
    let mut headed = !heading || args.json;
    let base = place.to_string();
    let mut head = |out: &mut Output| {
        let gap = if std::mem::take(first) { "" } else { "\n" };
        out.line(&format!("{gap}{}:", printable(&base)))
    };
    let listed = tree.list(place, args.checksums, &mut |entry| {
        if !std::mem::replace(&mut headed, true) {
            head(out)?;
        }
        print(args, &base, &entry, out)?;
        if args.recursive && entry.info.kind == Kind::Directory && depth < DEPTH_MAX {
            below.push(entry.name);
        }
        Ok(())
    });
    match listed {
        Ok(()) => {}
        Err(error) if depth == 0 && tree.info(place)?.kind != Kind::Directory => {
            drop(error);
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    if !headed {
        head(out)?;
    }
    for name in below {
        list_one(tree, &place.join(&name), args, heading, first, out, depth + 1)?;
    }
    Ok(Some(()))
}

fn print(args: &LsArgs, base: &str, entry: &Entry, out: &mut Output) -> Result<(), TransferError> {
    if args.json {
        return out
            .json(&json!({ "directory": base, "name": entry.name, "info": entry.info, "checksum": entry.checksum }));
    }
    let sum = match (&entry.checksum, args.checksums) {
        (Some(sum), true) => format!("  {}", printable(sum)),
        _ => String::new(),
    };
    if args.long {
        let mut line = long_line(&entry.name, &entry.info, args.human.human);
        line.push_str(&sum);
        out.line(&line)
    } else {
        let slash = if entry.info.kind == Kind::Directory { "/" } else { "" };
        out.line(&format!("{}{slash}{sum}", printable(&entry.name)))
    }
}

/// Walks a tree. `each` gets every place below `from` (but not `from`) with its attributes, directories before their contents.
fn through(
    tree: &mut Tree,
    from: &CopyPath,
    depth: usize,
    each: &mut dyn FnMut(&CopyPath, &Info, usize) -> Result<(), TransferError>,
) -> Result<(), TransferError> {
    let mut below = Vec::new();
    tree.list(from, false, &mut |entry| {
        let place = from.join(&entry.name);
        each(&place, &entry.info, depth)?;
        if entry.info.kind == Kind::Directory && depth < DEPTH_MAX {
            below.push(place);
        }
        Ok(())
    })?;
    below.iter().try_for_each(|place| through(tree, place, depth + 1, each))
}

/// Prints the places in a tree that match.
pub fn find(
    tree: &mut Tree,
    args: &FindArgs,
    now: i64,
    out: &mut Output,
    errors: &mut Errors,
) -> Result<(), TransferError> {
    errors.each(places(&args.places)?, |_, from| {
        through(tree, &from, 1, &mut |place, info, depth| {
            let name = place.name();
            let age = now.saturating_sub(info.mtime);
            let fits = args.name.as_ref().is_none_or(|pattern| pattern.matches(&name))
                && args.kind.is_none_or(|kind| kind == info.kind)
                && args.larger.is_none_or(|than| info.kind == Kind::File && info.size > than)
                && args.smaller.is_none_or(|than| info.kind == Kind::File && info.size < than)
                && args.newer.is_none_or(|than| age < i64::try_from(than.as_secs()).unwrap_or(i64::MAX))
                && args.older.is_none_or(|than| age > i64::try_from(than.as_secs()).unwrap_or(i64::MAX))
                && args.max_depth.is_none_or(|most| depth <= most);
            match (fits, args.json) {
                (false, _) => Ok(()),
                (true, true) => out.json(&json!({ "path": place.to_string(), "info": info })),
                (true, false) => out.line(&printable(&place.to_string())),
            }
        })
    })
}

/// Prints the bytes and files of trees.
pub fn du(tree: &mut Tree, args: &DuArgs, out: &mut Output, errors: &mut Errors) -> Result<(), TransferError> {
    errors.each(places(&args.places)?, |_, from| {
        let info = tree.info(&from)?;
        let sum = if info.kind == Kind::Directory {
            sum_up(tree, &from, args, 0, out)?
        } else {
            Sum { bytes: info.size, files: 1 }
        };
        print_sum(args, &from, &sum, out)
    })
}

#[derive(Clone, Copy, Default)]
struct Sum {
    bytes: u64,
    files: u64,
}

fn sum_up(tree: &mut Tree, at: &CopyPath, args: &DuArgs, depth: usize, out: &mut Output) -> Result<Sum, TransferError> {
    let mut sum = Sum::default();
    let mut below = Vec::new();
    tree.list(at, false, &mut |entry| {
        if entry.info.kind == Kind::Directory {
            below.push(entry.name);
        } else {
            sum.files += 1;
            sum.bytes = sum.bytes.saturating_add(entry.info.size);
        }
        Ok(())
    })?;
    if depth >= DEPTH_MAX {
        return Ok(sum);
    }
    for name in below {
        let place = at.join(&name);
        let inner = sum_up(tree, &place, args, depth + 1, out)?;
        sum.bytes = sum.bytes.saturating_add(inner.bytes);
        sum.files += inner.files;
        if args.max_depth.is_some_and(|most| depth < most) {
            print_sum(args, &place, &inner, out)?;
        }
    }
    Ok(sum)
}

fn print_sum(args: &DuArgs, place: &CopyPath, sum: &Sum, out: &mut Output) -> Result<(), TransferError> {
    if args.json {
        return out.json(&json!({ "path": place.to_string(), "bytes": sum.bytes, "files": sum.files }));
    }
    let size = if args.human.human { show_size(sum.bytes) } else { sum.bytes.to_string() };
    out.line(&format!("{size:>14} {:>10} files  {}", sum.files, printable(&place.to_string())))
}
