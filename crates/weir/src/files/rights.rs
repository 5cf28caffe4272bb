//! `weir chmod`, `weir chown` and `weir acl`: who owns files at weir's servers, and who else may do what with them.

use transfer::tree::{Kind, Tree};
use transfer::{CopyPath, TransferError};

use super::errors::Errors;
use super::names::places;
use super::output::Output;
use super::show::printable;
use crate::cli::{AclCommand, AclEditArgs, AclSetArgs, ChmodArgs, ChownArgs};

/// Deepest level of directories to enter.
const DEPTH_MAX: usize = 256;

/// Changes permissions.
pub fn chmod(tree: &mut Tree, args: &ChmodArgs, errors: &mut Errors) -> Result<(), TransferError> {
    each(tree, &args.places, args.recursive, errors, &mut |tree, place, _| tree.chmod(at_server(place)?, args.mode))
}

/// Changes owners and groups.
pub fn chown(tree: &mut Tree, args: &ChownArgs, errors: &mut Errors) -> Result<(), TransferError> {
    let (owner, group) =
        args.to.split_once(':').map_or((args.to.as_str(), None), |(owner, group)| (owner, Some(group)));
    let given = |name: &str| (!name.is_empty()).then(|| name.to_owned());
    let (owner, group) = (given(owner), group.and_then(given));
    if owner.is_none() && group.is_none() {
        return Err(TransferError::NoOwner);
    }
    each(tree, &args.places, args.recursive, errors, &mut |tree, place, _| {
        tree.chown(at_server(place)?, owner.as_deref(), group.as_deref())
    })
}

/// Shows and changes ACLs.
pub fn acl(tree: &mut Tree, command: &AclCommand, out: &mut Output, errors: &mut Errors) -> Result<(), TransferError> {
    match command {
        AclCommand::Get { places: texts } => {
            let mut is_first = true;
            errors.each(texts.iter().zip(places(texts)?), |_, (text, place)| {
                let entries = tree.acl(at_server(&place)?)?;
                if texts.len() > 1 {
                    let gap = if std::mem::take(&mut is_first) { "" } else { "\n" };
                    out.line(&format!("{gap}# {}", printable(text)))?;
                }
                entries.split(',').try_for_each(|entry| out.line(&printable(entry)))
            })
        }
        AclCommand::Set(args) => {
            let (edit, text) = edit_of(args);
            // What is named is not asked for its kind: the server refuses a default ACL of a file.
            let for_files = if args.recursive { without_defaults(edit, text) } else { Some(text.to_owned()) };
            each(tree, &args.places, args.recursive, errors, &mut |tree, place, is_directory| {
                let text = if is_directory { Some(text) } else { for_files.as_deref() };
                text.map_or(Ok(()), |text| tree.set_acl(at_server(place)?, edit, text))
            })
        }
    }
}

fn edit_of(args: &AclSetArgs) -> (&'static str, &str) {
    let AclEditArgs { modify, remove, replace, clear, .. } = &args.edit;
    match (modify, remove, replace) {
        (Some(entries), _, _) => ("modify", entries),
        (_, Some(names), _) => ("remove", names),
        (_, _, Some(entries)) => ("replace", entries),
        _ if *clear => ("clear", ""),
        _ => ("clear-default", ""),
    }
}

/// The part of a change that is for files, which have no default ACL; `None`: nothing.
fn without_defaults(edit: &str, text: &str) -> Option<String> {
    if edit == "clear" {
        return Some(String::new());
    }
    let is_default = |entry: &&str| {
        let entry = entry.trim_start();
        entry.starts_with("default:") || entry.starts_with("d:")
    };
    let kept: Vec<&str> = text.split(',').filter(|entry| !is_default(entry) && !entry.trim().is_empty()).collect();
    (!kept.is_empty()).then(|| kept.join(","))
}

/// The URL of a place at a server.
fn at_server(place: &CopyPath) -> Result<&client::Url, TransferError> {
    match place {
        CopyPath::Remote(url) => Ok(url),
        CopyPath::Local(_) | CopyPath::Standard => Err(TransferError::NotAtServer { path: place.to_string() }),
    }
}

/// Does something with each place, and with all below it. It does not follow links that it finds there.
fn each(
    tree: &mut Tree,
    texts: &[String],
    recursive: bool,
    errors: &mut Errors,
    change: &mut dyn FnMut(&mut Tree, &CopyPath, bool) -> Result<(), TransferError>,
) -> Result<(), TransferError> {
    errors.each(places(texts)?, |errors, place| {
        // Only what has parts below can be entered.
        let is_directory = recursive && tree.info(&place)?.kind == Kind::Directory;
        let mut waiting = vec![(place, is_directory, 0)];
        while let Some((place, is_directory, depth)) = waiting.pop() {
            // The contents first: afterwards, the caller may have lost the right to list them.
            if is_directory && depth < DEPTH_MAX {
                let mut below = Vec::new();
                let listed = tree.list(&place, false, &mut |entry| {
                    if matches!(entry.info.kind, Kind::File | Kind::Directory) {
                        below.push((entry.name, entry.info.kind == Kind::Directory));
                    }
                    Ok(())
                });
                if let Err(error) = listed {
                    errors.say(&error);
                }
                waiting
                    .extend(below.into_iter().map(|(name, is_directory)| (place.join(&name), is_directory, depth + 1)));
            }
            match change(tree, &place, is_directory) {
                Ok(()) => errors.has_changed(),
                Err(TransferError::Stopped) => return Err(TransferError::Stopped),
                Err(error) => errors.say(&error),
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn files_get_no_default_entries() {
        let of = |text| without_defaults("modify", text);
        assert_eq!(of("user:ana:rw-,default:user:ana:rw-,d:g:x:r").unwrap(), "user:ana:rw-");
        assert_eq!(of("default:user:ana:rw-"), None);
        assert_eq!(without_defaults("clear-default", ""), None);
        assert_eq!(without_defaults("clear", "").unwrap(), "");
    }
}
