//! `weir demo`: one node, stock clients, and everything that is promised, tried in front of the user's eyes. Each line
//! with a tick was checked at that moment against what this process computed or sent itself; the first thing that is
//! not as it should be ends the demo with [`Exit::Wrong`].

mod child;
mod clients;
mod files;
mod node;
mod play;
mod recorder;
mod screen;

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::Failure;
use crate::cli::DemoArgs;
use crate::exit::Exit;

use clients::Clients;
use node::Home;
use screen::Screen;

/// How long the demo's node waits for writers that have gone: short, so that nobody has to wait for it.
const GRACE: Duration = Duration::from_secs(2);

/// Why the demo ended early.
#[derive(Debug)]
enum Trouble {
    /// Something is not as it should be.
    Wrong(String),
    /// The demo itself could not go on.
    Failed(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}

/// Runs the demo.
pub fn run(args: &DemoArgs) -> Result<Exit, Failure> {
    let client = Clients::version().map_err(|error| {
        let text = match error.kind() {
            io::ErrorKind::NotFound => {
                "the demo needs the stock XRootD client `xrdcp`; on Debian and Ubuntu: apt-get install xrootd-client"
                    .to_owned()
            }
            _ => format!("`xrdcp --version` does not work: {error}"),
        };
        Failure::message(Exit::Failed, text)
    })?;
    let within = args.within.clone().unwrap_or_else(std::env::temp_dir);
    let place = tempfile::Builder::new().prefix("weir-demo-").tempdir_in(&within).map_err(|error| {
        Failure::message(Exit::Failed, format!("cannot make a place in {}: {error}", within.display()))
    })?;
    let home = Home { data: place.path().join("data"), log: place.path().join("node.log"), grace: GRACE };

    let mut screen = Screen::stdout();
    let version = env!("CARGO_PKG_VERSION");
    screen.title(&format!("weir {version} demo"), &format!("with xrdcp {client}, in {}", place.path().display()));
    if node::in_memory(place.path()) {
        screen.note("this place is kept in memory: rates say nothing about a disk; --within DIR picks another");
    }
    let result = play::play(&mut screen, &home, place.path(), args.files.as_deref());
    let exit = match result {
        Ok(()) => {
            screen.verdict(true, "Everything is as promised.");
            Exit::Done
        }
        Err(trouble) => {
            let reason = match trouble {
                Trouble::Wrong(reason) => reason,
                Trouble::Failed(error) => format!("the demo could not go on: {error}"),
            };
            screen.bad(&reason);
            screen.verdict(false, "Not as it should be. The node's log ends:");
            for line in home.log_end().lines() {
                screen.note(line);
            }
            Exit::Wrong
        }
    };
    if args.keep {
        let kept: PathBuf = place.keep();
        screen.note(&format!("kept in {}", kept.display()));
    }
    Ok(exit)
}
