//! `weir cp` and `weir sync`: the command line for the crate `transfer`.

use std::time::Duration;

use client::{RateLimit, Settings};
use transfer::{CopyOptions, Direct, SyncOptions, TransferError, TransferOptions};

use crate::cli::{CpArgs, DirectArg, SyncArgs, TransferArgs};
use crate::exit::Exit;
use crate::{Failure, logging};

/// Runs `weir cp`.
pub fn copy(args: &CpArgs) -> Result<Exit, Failure> {
    logging::start(&args.log)?;
    let options = CopyOptions {
        paths: args.paths.clone(),
        recursive: args.recursive || args.archive,
        force: args.force,
        resume: args.resume,
        no_target_directory: args.no_target_directory,
        third_party: args.tpc,
        delegate: args.delegate,
        follow: args.follow,
        dry_run: args.dry_run,
        how: TransferOptions { preserve: args.how.preserve || args.archive, ..how(&args.how) },
    };
    transfer::copy(&options).map_err(failed)
}

/// Runs `weir sync`.
pub fn sync(args: &SyncArgs) -> Result<Exit, Failure> {
    logging::start("warn")?;
    let options = SyncOptions {
        source: args.source.clone(),
        target: args.target.clone(),
        delete: args.delete,
        size_only: args.size_only,
        mtime: args.mtime,
        dry_run: args.dry_run,
        how: how(&args.how),
    };
    transfer::sync(&options).map_err(failed)
}

fn failed(error: TransferError) -> Failure {
    Failure::new(error.exit(), error)
}

fn how(args: &TransferArgs) -> TransferOptions {
    TransferOptions {
        partial: args.partial,
        preserve: args.preserve,
        filter: args.filter.0.clone(),
        verify: !args.no_verify,
        sync: args.sync,
        jobs: args.jobs,
        streams: args.streams,
        direct: match args.direct {
            DirectArg::Auto => Direct::Auto,
            DirectArg::Always => Direct::Always,
            DirectArg::Never => Direct::Never,
        },
        client: Settings {
            window: usize::from(args.window),
            silence_max: Duration::from_secs(args.timeout),
            recovery_max: Duration::from_secs(args.retry_for),
            wait_max: Duration::from_secs(args.wait_for),
            rate: args.bwlimit.map(RateLimit::of).unwrap_or_default(),
            ..Settings::default()
        },
        json: args.json,
        quiet: args.quiet,
        verbose: args.verbose,
    }
}
