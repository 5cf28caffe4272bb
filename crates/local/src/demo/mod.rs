//! `weir demo` starts a cluster on this machine, records streams into it and kills a disk server. It tries every promise in front of the
//! user's eyes. With several managers, it kills the active one too. For each line with a tick, the demo has just compared with what this process computed or sent, or asked the manager. The
//! first failure ends the demo with [`Exit::Wrong`].

mod child;
mod clients;
mod cluster;
mod copies;
mod files;
mod follower;
mod pause;
mod play;
mod recorder;
mod screen;
mod takeover;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use console::{Exit, Failure};

use crate::args::DemoArgs;

use child::Stop;
use clients::Client;
use cluster::Cluster;
use screen::Screen;

/// Why the demo ended early.
#[derive(Debug)]
enum DemoError {
    /// A promise was broken.
    Wrong(String),
    /// The demo itself could not go on.
    Failed(io::Error),
}

impl From<io::Error> for DemoError {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Runs the demo.
pub fn run(args: &DemoArgs) -> Result<Exit, Failure> {
    let stop =
        Stop::by_signals().map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot catch signals"))?;
    let within = args.within.clone().unwrap_or_else(std::env::temp_dir);
    let place = tempfile::Builder::new().prefix("weir-demo-").tempdir_in(&within).map_err(|error| {
        Failure::message(Exit::Failed, format!("cannot create a folder in {}: {error}", within.display()))
    })?;
    if args.managers.is_some() && rustix::process::geteuid().is_root() {
        // The database runs as another account, which must reach its data.
        let opened = std::fs::set_permissions(place.path(), Permissions::from_mode(0o711));
        opened.map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot let others enter the folder"))?;
    }
    let mut screen = Screen::stdout();
    screen.title(&format!("weir {} demo", env!("CARGO_PKG_VERSION")), &format!("in {}", place.path().display()));
    if cluster::in_memory(place.path()) {
        screen.note("this folder is in memory: rates say nothing about a disk; --within DIR picks another");
    }
    let client = match clients::stock_version(&stop) {
        Some(version) => {
            screen.note(&format!("the stock client is here: xrdcp {version}"));
            Client::Stock
        }
        None => {
            screen.note(
                "the stock client xrdcp is not installed (apt-get install xrootd-client): its steps are left out, and weir cp copies the ROOT files",
            );
            Client::Ours
        }
    };
    let exit = match play::play(&mut screen, place.path(), args, client, &stop) {
        Ok(()) => {
            screen.verdict(true, "Everything is as promised.");
            Exit::Done
        }
        // Unfinished work has failed because the demo was stopped.
        Err(_) if stop.is_asked() => {
            screen.verdict(false, "Stopped before the end; nothing is left running.");
            Exit::Failed
        }
        Err(trouble) => {
            let reason = match trouble {
                DemoError::Wrong(reason) => reason,
                DemoError::Failed(error) => format!("the demo could not go on: {error}"),
            };
            screen.bad(&reason);
            screen.verdict(false, "Something is wrong. The manager's log ends:");
            for line in Cluster::log_end(&place.path().join("cluster")).lines() {
                screen.note(line);
            }
            Exit::Wrong
        }
    };
    if args.keep {
        let kept: PathBuf = place.keep();
        screen.note(&format!("kept in {}; `weir local up --dir {}/cluster` starts it", kept.display(), kept.display()));
    }
    Ok(exit)
}
