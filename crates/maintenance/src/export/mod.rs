//! `weir export`: writes the objects of a stopped node as plain files. It compares every page and the whole with their checksums on the way.
//!
//! With the namespace, it writes the tree with modes, times, symbolic and hard links ([`tree`]). Without the namespace, it writes every object of the
//! store under its path at creation, if the store knows that ([`contents`]). It never overwrites a file. It does not write finished files of an
//! interrupted export again.

mod contents;
mod copy;
mod names;
mod out;
mod report;
mod tree;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use console::Exit;
use copy::Copier;
use foundation::{DataDir, Foundation, OpenError, Purpose, Settings, refused};
use out::TargetFolder;
use report::Report;
use types::Timestamp;

use crate::Error;
use crate::{now, open_data_dir};

/// The source and the target of an export.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// The folder for the files; created if necessary.
    pub target: PathBuf,
    /// Export every object of the store, under the path at which it was created.
    pub without_namespace: bool,
    /// Set the numeric owners and groups of files and folders.
    pub owners: bool,
    /// What to do with files that have damaged pages.
    pub damaged: IfDamaged,
    /// Print the result as JSON.
    pub json: bool,
    /// List at most this many of each kind of trouble.
    pub list: usize,
}

/// What an export does with a damaged file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfDamaged {
    /// Append `.weir-damaged` to the name, and write zeros for the damaged pages.
    Suffix,
    /// Do not write it.
    LeaveOut,
}

/// Exports the stopped node in `directory`, and prints the result. `settings` are those of the node, `grace` is the grace period of its writers.
///
/// # Errors
///
/// The directory or the target was refused, or the export was interrupted. Run it again.
pub fn run(directory: &Path, settings: &Settings, grace: Duration, args: &ExportOptions) -> Result<Exit, Error> {
    let data = open_data_dir(directory)?;
    refuse_within(directory, &args.target)?;
    let out = TargetFolder::open(&args.target)
        .map_err(|source| Error::ExportTarget { target: args.target.clone(), source })?;
    let mut report = Report::new(args.list);
    if args.without_namespace {
        contents::export(&data, settings, &out, args, &mut report)?;
    } else {
        with_names(&data, settings, grace, &out, args, &mut report)?;
    }
    out.close().map_err(Error::ClearTarget)?;
    let mut stdout = std::io::stdout().lock();
    let printed =
        if args.json { writeln!(stdout, "{}", report.to_json()) } else { report.print(&mut stdout, &args.target) };
    printed.and_then(|()| stdout.flush()).map_err(Error::Print)?;
    Ok(if report.is_good() { Exit::Done } else { Exit::Wrong })
}

fn with_names(
    data: &DataDir,
    settings: &Settings,
    grace: Duration,
    out: &TargetFolder,
    args: &ExportOptions,
    report: &mut Report,
) -> Result<(), Error> {
    let foundation = Foundation::open(data, settings, Purpose::Check, now()).map_err(|error| {
        let of_namespace = matches!(
            error,
            OpenError::Index { which: "namespace", .. } | OpenError::OlderNamespace { .. } | OpenError::Journal(_)
        );
        let error = refused(data, error);
        if of_namespace { Error::ExportNames(error) } else { error.into() }
    })?;
    for words in foundation.startup_report(grace.as_secs()) {
        let _ = writeln!(std::io::stderr(), "{}", words.text);
    }
    let exported =
        tree::export(&foundation, &mut Copier::new(&foundation.objects.store, out, args.damaged), args.owners, report);
    let closed = foundation.close();
    exported?;
    closed.map_err(Error::Close)
}

/// A target inside the data directory would be taken for a part of it.
fn refuse_within(data: &Path, target: &Path) -> Result<(), Error> {
    let real = |path: &Path| path.canonicalize();
    let above = target.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = real(target).or_else(|_| real(above));
    match (real(data), place) {
        (Ok(data), Ok(place)) if place.starts_with(&data) => Err(Error::WithinData { target: target.to_owned() }),
        _ => Ok(()),
    }
}

/// Converts a time for the file system.
fn system_time(time: Timestamp) -> std::time::SystemTime {
    let nanos = u64::try_from(time.0).unwrap_or(0);
    std::time::UNIX_EPOCH + Duration::from_nanos(nanos)
}
