//! `weir sync`: makes one tree like another and transfers only the differences.

use std::collections::{BTreeMap, HashSet};

use client::Client;
use console::Exit;
use parking_lot::Mutex;
use types::Timestamp;

use crate::context::{Context, Options};
use crate::copy::{apart, goes_on, keep_directories};
use crate::error::TransferError;
use crate::filter::Filter;
use crate::local::KeptAttributes;
use crate::options::SyncOptions;
use crate::outcome::Outcome;
use crate::place::CopyPath;
use crate::plan::{self, CopyAction, Item, Queue, SearchSink};
use crate::tree::{Kind, Tree};

/// The contents of the target, by the path below it.
type TargetEntries = BTreeMap<String, TargetEntry>;

/// An entry of the target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TargetEntry {
    directory: bool,
    /// Length.
    size: u64,
    /// Modification time, in seconds since 1970.
    mtime: i64,
    /// Whether it holds something that the filter excludes.
    kept: bool,
}

/// Makes the target like the source and prints the result. A signal ends it soon.
///
/// # Errors
/// What keeps it from beginning. Errors of single files are printed, and the exit code reflects them.
pub fn sync(args: &SyncOptions) -> Result<Exit, TransferError> {
    let (from, to) = (CopyPath::parse(&args.source)?, CopyPath::parse(&args.target)?);
    if from == CopyPath::Standard || to == CopyPath::Standard {
        return Err(TransferError::SyncOfStandard);
    }
    for (one, other) in [(&from, &to), (&to, &from)] {
        apart(one, other)?;
    }
    let options = Options { preserve: args.how.preserve || args.mtime, ..args.how.of_each_file() };
    let context = Context::new(options, args.how.client.clone(), args.how.waits("sync"));
    let mut tree = Tree::new(Client::new(context.settings.clone()));
    if tree.info(&from)?.kind != Kind::Directory {
        return Err(TransferError::NotADirectory { path: from.to_string() });
    }
    let held = match tree.info(&to) {
        Ok(info) if info.kind == Kind::Directory => held_by(&mut tree, &to, &args.how.filter)?,
        Ok(_) => return Err(TransferError::NotADirectory { path: to.to_string() }),
        Err(error) if error.exit() == Exit::NotFound => TargetEntries::new(),
        Err(error) => return Err(error),
    };
    let mut outcome = Outcome::of("sync", &args.how);
    let seen = Mutex::new(HashSet::new());
    let mut directories = Vec::new();
    goes_on(&context, args.how.jobs, args.how.quiet || args.how.json, &mut outcome, |queue, outcome| {
        let maker = Client::new(context.settings.clone());
        let (context, seen, held, base, directories) = (&context, &seen, &held, &to, &mut directories);
        let mut finds = TreeComparison { context, queue, outcome, seen, held, args, base, maker, directories };
        plan::walk(&mut Client::new(context.settings.clone()), &from, &to, true, &args.how.filter, &mut finds);
    })?;
    // A seemingly missing source may only not have been found.
    if args.delete && !outcome.has_failed() && !outcome.incomplete && !context.stopping() {
        remove_others(&context, &mut tree, &to, &held, &seen.lock(), args, &mut outcome);
    }
    keep_directories(&context, directories, &mut outcome);
    if args.delete && (outcome.has_failed() || outcome.incomplete) {
        outcome.kept_all();
    }
    Ok(outcome.end(&context))
}

fn held_by(tree: &mut Tree, base: &CopyPath, filter: &Filter) -> Result<TargetEntries, TransferError> {
    let mut held = TargetEntries::new();
    let mut open = vec![(base.clone(), String::new())];
    while let Some((place, prefix)) = open.pop() {
        tree.list(&place, false, &mut |entry| {
            let path = format!("{prefix}{}", entry.name);
            let directory = entry.info.kind == Kind::Directory;
            let (takes, kept) = match entry.info.kind {
                Kind::Directory | Kind::File => (filter.takes(&path, directory), false),
                // At the source a link counts as its target; here it stays if either rule would keep it.
                Kind::Link | Kind::Other => {
                    let takes = [true, false].map(|directory| filter.takes(&path, directory));
                    (takes.contains(&true), takes.contains(&false))
                }
            };
            // Excluded entries stay, and so do the directories that they are in.
            if !takes || kept {
                let above = path.match_indices('/').map(|(at, _)| &path[..at]);
                above.for_each(|above| {
                    held.entry(above.to_owned()).and_modify(|holding: &mut TargetEntry| holding.kept = true);
                });
            }
            if !takes {
                return Ok(());
            }
            if directory {
                open.push((place.join(&entry.name), format!("{path}/")));
            }
            held.insert(path, TargetEntry { directory, size: entry.info.size, mtime: entry.info.mtime, kept });
            Ok(())
        })?;
    }
    Ok(held)
}

/// Compares the found files with the contents of the target.
struct TreeComparison<'a, 'b> {
    context: &'a Context,
    queue: &'a Queue,
    outcome: &'a Mutex<&'b mut Outcome>,
    seen: &'a Mutex<HashSet<String>>,
    held: &'a TargetEntries,
    args: &'a SyncOptions,
    base: &'a CopyPath,
    maker: Client,
    /// The directories whose attributes are set when everything is in them.
    directories: &'a mut Vec<(CopyPath, KeptAttributes)>,
}

impl TreeComparison<'_, '_> {
    /// Returns the path below the target, and notes that it belongs there.
    fn note(&self, to: &CopyPath) -> String {
        let (base, path) = (self.base.to_string(), to.to_string());
        let path = path.strip_prefix(base.trim_end_matches('/')).unwrap_or(&path).trim_start_matches('/').to_owned();
        self.seen.lock().insert(path.clone());
        path
    }
}

impl SearchSink for TreeComparison<'_, '_> {
    fn file(&mut self, item: Item) {
        let path = self.note(&item.to);
        let how = match self.held.get(&path) {
            None => CopyAction::New,
            Some(there) if there.directory => {
                let error = TransferError::IsDirectory { path: item.to.to_string() };
                return self.outcome.lock().failed(&item.from, Some(&item.to), &error);
            }
            Some(there) if Some(there.size) != item.size => CopyAction::Replace,
            Some(_) if self.args.size_only => return,
            Some(there) if self.args.mtime && item.mtime.map(Timestamp::secs) == Some(there.mtime) => return,
            Some(_) => CopyAction::Compare,
        };
        if self.args.dry_run {
            let what = match how {
                CopyAction::New => "copy",
                CopyAction::Replace => "replace",
                CopyAction::Compare => "compare",
            };
            return self.outcome.lock().would(what, &item.to);
        }
        self.context.progress.found(item.size.unwrap_or(0));
        self.queue.put(Item { how, ..item });
    }

    fn directory(&mut self, to: &CopyPath, kept: KeptAttributes) -> Result<(), TransferError> {
        let path = self.note(to);
        // A file written through a linked directory lands elsewhere, and the next sync would not find it here.
        if self.held.get(&path).is_some_and(|there| !there.directory) {
            return Err(TransferError::InTheWay { path: to.to_string() });
        }
        if self.context.options.preserve && !self.args.dry_run {
            self.directories.push((to.clone(), kept));
        }
        match to {
            CopyPath::Local(path) if !self.args.dry_run => {
                std::fs::create_dir_all(path).map_err(TransferError::local("make", path))
            }
            _ => Ok(()),
        }
    }

    fn empty_directory(&mut self, to: &CopyPath) -> Result<(), TransferError> {
        match to {
            CopyPath::Remote(url) if !self.args.dry_run => Ok(self.maker.mkdir(url, 0o755, true)?),
            _ => Ok(()),
        }
    }

    fn problem(&mut self, from: &CopyPath, error: TransferError) {
        self.outcome.lock().failed(from, None, &error);
    }

    fn left_out(&mut self, from: &CopyPath, why: &'static str) {
        self.outcome.lock().say(&format!("left out: {from}: {why}"));
        // It exists, although it cannot be copied. So nothing may be removed afterwards.
        self.outcome.lock().incomplete = true;
    }

    fn stopping(&self) -> bool {
        self.context.stopping()
    }
}

/// Removes what the source does not have, contents before their directories.
fn remove_others(
    context: &Context,
    tree: &mut Tree,
    base: &CopyPath,
    held: &TargetEntries,
    seen: &HashSet<String>,
    args: &SyncOptions,
    outcome: &mut Outcome,
) {
    let others = held.iter().rev().filter(|(path, there)| !seen.contains(*path) && !there.kept);
    for (path, there) in others {
        if context.stopping() {
            return;
        }
        let place = path.split('/').fold(base.clone(), |place, name| place.join(name));
        if args.dry_run {
            outcome.would("remove", &place);
            continue;
        }
        match tree.remove(&place, there.directory) {
            Ok(()) => outcome.removed(&place),
            Err(error) => outcome.failed(&place, None, &error),
        }
    }
}
