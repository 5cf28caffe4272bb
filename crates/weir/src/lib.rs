//! The `weir` binary as a library: command line, and the wiring of a node. It is a library only so that tests can reach it; nothing else depends
//! on it.
//!
//! Promises: every way to end has a documented exit code. Stdout carries what a program reads (the ready line, `--json`), stderr what a
//! person reads. Commands that do more than ask and print have crates of their own (`transfer`, `maintenance`, `bench-run`, `monitor`, `local`);
//! this crate turns arguments into their options (`local` has its own arguments).

mod acting;
mod admin;
mod admin_api;
mod administration;
mod ask_reload;
mod audit_log;
mod authority;
mod bench;
pub mod cli;
mod client_security;
mod cluster_node;
mod cluster_role;
mod cluster_views;
mod context;
mod copy;
mod database_settings;
mod database_start;
mod db;
mod db_copy;
mod drop_caches;
mod end;
mod explain;
mod fetch;
pub mod files;
mod first_administrator;
mod free_addresses;
mod generate;
mod health;
mod health_watch;
mod identities;
mod init;
pub mod known_managers;
mod logging;
mod maintain;
mod man_page;
mod manager_addresses;
mod manager_answers;
mod manager_identity;
mod manager_join;
mod manager_process;
mod managers_file;
pub mod metrics;
mod node_services;
mod not_active;
mod open_connections;
mod other_managers;
pub mod people;
pub mod quotas;
mod recent_changes;
mod reload;
mod scrub;
pub mod serve;
mod serve_disk;
mod serve_manager;
mod served_stores;
mod space_watch;
mod standby;
mod standby_follower;
mod standby_readers;
mod store_add;
mod store_scrubs;
mod stores_file;
mod striping;
mod supervisor;
mod token;
mod top;
mod wrap;

pub use console::{Exit, Failure, exit};
use console::{signals, table, time_text};
use status_page::listen;

/// Runs the command line `args` (the program's name first) and returns the code that the process ends with. Only `weir status --check` has
/// codes of its own, those of Nagios.
pub fn main(args: impl IntoIterator<Item = std::ffi::OsString>) -> std::process::ExitCode {
    let args: Vec<std::ffi::OsString> = args.into_iter().collect();
    let is_check =
        args.iter().any(|argument| argument == "status") && args.iter().any(|argument| argument == "--check");
    match cli::parse(args) {
        Ok(cli::Cli { command: cli::Command::Status(args), .. }) if args.check => cluster_views::check(&args).into(),
        // A wrong command line says nothing about the node.
        Err(Exit::Usage) if is_check => monitor::health::UNKNOWN.into(),
        Ok(parsed) => carry_out(parsed).into(),
        Err(exit) => exit.into(),
    }
}

/// Runs the command line `args` (the program's name first), which does not say `--check`, and returns the exit code. Errors go to stderr.
pub fn run(args: impl IntoIterator<Item = std::ffi::OsString>) -> Exit {
    cli::parse(args).map_or_else(|exit| exit, carry_out)
}

fn carry_out(parsed: cli::Cli) -> Exit {
    use std::io::Write as _;
    let result = match parsed.command {
        cli::Command::Serve(args) => serve::run(&args),
        cli::Command::Token(args) => token::run(&args),
        cli::Command::Identity(args) => identities::run(&args),
        cli::Command::Explain(args) => explain::run(&args),
        cli::Command::Audit(args) => audit_log::run(&args),
        cli::Command::Tree(args) => quotas::run_tree(&args),
        cli::Command::Quota(args) => quotas::run_quota(&args),
        cli::Command::Admin(args) => admin::run(&args),
        cli::Command::Context(args) => context::run(&args),
        cli::Command::Db(args) => db::run(&args),
        cli::Command::Reload(args) => ask_reload::run(&args),
        cli::Command::DropCaches(args) => drop_caches::run(&args),
        cli::Command::Init(args) => init::run(&args),
        cli::Command::Demo(args) => local::demo::run(&args),
        cli::Command::Fsck(args) if args.cluster => cluster_views::fsck(&args),
        cli::Command::Fsck(args) => maintain::fsck(&args),
        cli::Command::Cp(args) => copy::copy(&args),
        cli::Command::Sync(args) => copy::sync(&args),
        cli::Command::Generate(args) => generate::run(&args.folder),
        cli::Command::Files(command) => files::run(&command),
        cli::Command::Scrub(args) => scrub::run(&args),
        cli::Command::Export(args) => maintain::export(&args),
        cli::Command::Backup(args) => maintain::backup(&args),
        cli::Command::Restore(args) => maintain::restore(&args),
        cli::Command::Restored(args) => cluster_views::restored(&args),
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
            // Stderr may be closed.
            let _ = writeln!(std::io::stderr(), "{}", logging::as_error(&format!("weir: {failure}")));
            failure.exit
        }
    }
}
