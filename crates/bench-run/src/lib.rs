//! `weir bench` without its command line: campaigns from files and in three minutes, tables and pages, agents and their launchers, flows,
//! comparisons, studies, and the testbed of other storage systems on this machine.
//!
//! The crate `bench` measures; this crate prints, waits, shows and asks the system. Options are plain data ([`options`]). Promises: figures
//! that must not be used end a command with an exit code of their own. The testbed can take down all that it started, even after it was
//! killed.

mod agent;
mod campaign;
mod flows;
mod launch;
mod live;
mod machines;
pub mod options;
mod peers;
mod quick;
mod results;
mod root_file;
mod study;
mod testbed;
mod token;

use std::io::{IsTerminal as _, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use console::{Exit, Failure};

use crate::options::BenchCommand;

pub use testbed::parse_link;

/// Runs the command.
///
/// # Errors
/// In words, with the exit code.
pub fn run(command: &BenchCommand) -> Result<Exit, Failure> {
    match command {
        BenchCommand::Quick(args) => quick::run(args),
        BenchCommand::Run(args) => campaign::run(args),
        BenchCommand::Report(args) => results::report(args),
        BenchCommand::Agent(args) => agent::run(args),
        BenchCommand::Launch(args) => launch::run(args),
        BenchCommand::Token(args) => token::make(args),
        BenchCommand::Flows(args) => flows::serve(args),
        BenchCommand::FlowProcess => flows::process(),
        BenchCommand::Compare(args) => results::compare(args),
        BenchCommand::RootFile(args) => root_file::run(args),
        BenchCommand::Study(args) => study::run(args),
        BenchCommand::Testbed(args) => testbed::run(args),
    }
}

fn usage(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::new(Exit::Usage, error)
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::new(Exit::Failed, error)
}

/// The result of printing. A closed reader (`| head`) is no error.
fn printed(result: std::io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(failed(error)),
        _ => Ok(()),
    }
}

/// Reads a file that the user named.
fn text_of(what: &str, path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::message(Exit::NotFound, format!("cannot read the {what} {}: {error}", path.display()))
    })
}

/// Prints a message on a line of its own, over any progress line.
fn say(text: &str) {
    // Stderr may be closed.
    let start = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    let _ = writeln!(std::io::stderr(), "{start}{text}");
}

fn settings(stop: &Arc<AtomicBool>) -> client::Settings {
    let stop = Arc::clone(stop);
    client::Settings {
        application: "weir-bench".to_owned(),
        // A lost connection is a finding, so the client must not hide it; it may wait for a short one.
        recovery_max: Duration::from_secs(5),
        silence_max: Duration::from_secs(60),
        stop: client::Stop::when(move || stop.load(Ordering::Relaxed)),
        ..client::Settings::default()
    }
}
