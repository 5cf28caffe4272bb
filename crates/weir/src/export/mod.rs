//! `weir export`: the contents of a stopped node as plain files, every page and the whole compared with their checksums on the way.
//!
//! With the namespace: its tree, with modes and times, symbolic and hard links ([`tree`]). Without: every content that the store has, under
//! the path at which it was made, as far as the store remembers it ([`contents`]). Nothing is ever written over; what an interrupted export has
//! finished is not written again.

mod contents;
mod copy;
mod names;
mod out;
mod report;
mod tree;

use std::io::Write as _;
use std::path::Path;

use types::Timestamp;

use crate::Failure;
use crate::cli::ExportArgs;
use crate::config::Config;
use crate::datadir::{DataDir, IfNew};
use crate::exit::Exit;
use crate::foundation::{Foundation, OpenError, Purpose};
use crate::serve::{now, open_data_dir, refused};
use crate::{logging, startup_report};

use copy::Copier;
use out::Out;
use report::Report;

/// Runs the command.
pub fn run(args: &ExportArgs) -> Result<Exit, Failure> {
    let config = Config::load(args.config.as_deref()).map_err(|error| Failure::new(Exit::Usage, error))?;
    logging::start("warn")?;
    let data = open_data_dir(Some(&args.data), IfNew::Refuse)?;
    refuse_within(&args.data, &args.target)?;
    let out = Out::open(&args.target).map_err(|error| {
        Failure::new(Exit::Failed, error).while_doing(format!("cannot export to {}", args.target.display()))
    })?;
    let mut report = Report::new(args.list);
    if args.without_namespace {
        contents::export(&data, &config, &out, args, &mut report)?;
    } else {
        with_names(&data, &config, &out, args, &mut report)?;
    }
    out.close().map_err(|error| {
        Failure::new(Exit::Failed, error).while_doing("the temporary files of the export cannot be removed")
    })?;
    let mut stdout = std::io::stdout().lock();
    let printed =
        if args.json { writeln!(stdout, "{}", report.to_json()) } else { report.print(&mut stdout, &args.target) };
    printed.and_then(|()| stdout.flush()).map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(if report.is_good() { Exit::Done } else { Exit::Wrong })
}

fn with_names(
    data: &DataDir,
    config: &Config,
    out: &Out,
    args: &ExportArgs,
    report: &mut Report,
) -> Result<(), Failure> {
    let foundation = Foundation::open(data, config, Purpose::Check, now()).map_err(|error| {
        let of_namespace = matches!(error, OpenError::Index { which: "namespace", .. } | OpenError::OlderNamespace { .. } | OpenError::Journal(_));
        let failure = refused(data, error);
        if of_namespace {
            failure.while_doing(
                "the namespace cannot be opened: `weir restore` puts a backup back. To export the objects without it, under the paths at which they were created, use --without-namespace",
            )
        } else {
            failure
        }
    })?;
    for words in startup_report::in_words(&foundation.found, config.grace.as_secs()) {
        let _ = writeln!(std::io::stderr(), "{}", words.text);
    }
    let exported =
        tree::export(&foundation, &mut Copier::new(&foundation.store, out, args.damaged), args.owners, report);
    let closed = foundation.close();
    exported?;
    closed.map_err(|error| Failure::new(error.exit(), error).while_doing("cannot close the data directory"))
}

/// A target in the data directory would be taken for a part of it.
fn refuse_within(data: &Path, target: &Path) -> Result<(), Failure> {
    let real = |path: &Path| path.canonicalize();
    let above = target.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let place = real(target).or_else(|_| real(above));
    match (real(data), place) {
        (Ok(data), Ok(place)) if place.starts_with(&data) => Err(Failure::message(
            Exit::Usage,
            format!("{} lies in the data directory; export to another place", target.display()),
        )),
        _ => Ok(()),
    }
}

/// A time as a file system takes it.
fn system_time(time: Timestamp) -> std::time::SystemTime {
    let nanos = u64::try_from(time.0).unwrap_or(0);
    std::time::UNIX_EPOCH + std::time::Duration::from_nanos(nanos)
}
