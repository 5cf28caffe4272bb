//! The insides of the `weir` binary: command line, configuration, data directory, wiring of a node, `fsck`, `demo`.
//! A library only so that tests can reach them; nothing else depends on it.
//!
//! Promises: a data directory that is not weir's, or is of a version that this one does not know, is refused before
//! anything in it is touched; every way to end has a documented exit code; stdout carries what a program reads
//! (the ready line, `--json`), stderr what a person reads.

mod admin_api;
pub mod backup;
mod bench;
mod care;
pub mod cli;
mod cluster_node;
mod cluster_role;
mod cluster_views;
pub mod config;
pub mod control;
mod damage_mark;
pub mod datadir;
mod demo;
pub mod exit;
pub mod export;
mod failure;
mod fetch;
pub mod files;
pub mod foundation;
pub mod fsck;
mod generate;
mod http;
pub mod listen;
mod local;
pub mod logging;
pub mod manager_foundation;
mod managers_file;
pub mod metrics;
mod new_log;
pub mod rebuild;
pub mod reload;
mod repair_index;
mod runs;
pub mod scrub;
pub mod serve;
mod serve_disk;
mod serve_manager;
pub mod signals;
mod space_watch;
mod startup_report;
pub mod store_foundation;
mod striping;
mod supervisor;
mod table;
mod time_text;
mod token;
mod top;
pub mod transfer;

pub use failure::Failure;

use exit::Exit;

/// Runs the command line `args` (the program's name first) and says how it ended. Errors go to stderr.
pub fn run(args: impl IntoIterator<Item = std::ffi::OsString>) -> Exit {
    use std::io::Write as _;
    let parsed = match cli::parse(args) {
        Ok(parsed) => parsed,
        Err(exit) => return exit,
    };
    let result = match parsed.command {
        cli::Command::Serve(args) => serve::run(&args),
        cli::Command::Token(args) => token::run(&args),
        cli::Command::Init(args) => datadir::init(&args.data),
        cli::Command::Demo(args) => demo::run(&args),
        cli::Command::Fsck(args) => fsck::run(&args),
        cli::Command::Cp(args) => transfer::run(&args),
        cli::Command::Sync(args) => transfer::sync::run(&args),
        cli::Command::Generate(args) => generate::run(&args.folder),
        cli::Command::Files(command) => files::run(&command),
        cli::Command::Scrub(args) => scrub::command::run(&args),
        cli::Command::Export(args) => export::run(&args),
        cli::Command::Backup(args) => backup::run(&args),
        cli::Command::Restore(args) => backup::restore::run(&args),
        cli::Command::Status(args) => cluster_views::status(&args),
        cli::Command::Stores(args) => cluster_views::stores(&args),
        cli::Command::File(args) => cluster_views::file(&args),
        cli::Command::Missing(args) => cluster_views::missing(&args),
        cli::Command::Policy(args) => cluster_views::policy(&args),
        cli::Command::Repair(args) => cluster_views::repair(&args),
        cli::Command::Drain(args) => cluster_views::drain(&args),
        cli::Command::Store(args) => cluster_views::store(&args),
        cli::Command::Node(args) => cluster_views::node(&args),
        cli::Command::Local(args) => local::run(&args),
        cli::Command::Bench(args) => bench::run(&args),
        cli::Command::Top(args) => top::run(&args),
    };
    match result {
        Ok(exit) => exit,
        Err(failure) => {
            // Nobody is left to tell when stderr is gone.
            let _ = writeln!(std::io::stderr(), "{}", logging::as_error(&format!("weir: {failure}")));
            failure.exit
        }
    }
}
