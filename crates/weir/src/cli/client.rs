//! The command line of the client: `cp`, `sync` and the commands on names.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::filter::FilterArgs;

/// Arguments of `weir cp`.
#[derive(Args, Debug, Clone)]
pub struct CpArgs {
    /// One source or more, and the target last.
    #[arg(required = true, num_args = 2.., value_name = "SOURCE... TARGET")]
    pub paths: Vec<String>,
    /// Copy directories with all that is in them.
    #[arg(short, long)]
    pub recursive: bool,
    /// Replace what is at the target. On a server the old content shows until the new one is complete.
    #[arg(short, long)]
    pub force: bool,
    /// Go on with what an earlier copy has left, and skip files that are there with the same length and checksum. What is
    /// left is compared with the source before anything is moved: both its ends where a server has a checksum of the whole,
    /// by which all is compared at the end; else all of it. What is something else is refused at a server (--force begins it
    /// anew), and begun anew here.
    #[arg(long)]
    pub resume: bool,
    /// Let the target's server fetch from the source's (third-party copy), so that the bytes do not pass through this
    /// machine. Both ends are on servers.
    #[arg(long, conflicts_with_all = ["resume"])]
    pub tpc: bool,
    /// How.
    #[command(flatten)]
    pub how: TransferArgs,
    /// What to log: error, warn, info, debug.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    pub log: String,
}

/// How `weir cp` and `weir sync` transfer.
#[derive(Args, Debug, Clone)]
pub struct TransferArgs {
    /// Keep the times of files and, on this machine, their permission bits.
    #[arg(short, long)]
    pub preserve: bool,
    /// Which names in trees.
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Do not compare checksums.
    #[arg(long)]
    pub no_verify: bool,
    /// Make local files durable before they get their names.
    #[arg(long)]
    pub sync: bool,
    /// Files that are copied at a time.
    #[arg(short, long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Connections for one large file that is read from a server.
    #[arg(short = 'S', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub streams: u16,
    /// Requests of 4 MiB under way on one connection at most; near servers need fewer, far ones more.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub window: u16,
    /// Past the page cache on this machine: where it pays, always for large files, or never.
    #[arg(long, value_enum, default_value = "auto")]
    pub direct: DirectArg,
    /// Give up on a server that says nothing for this long, or sends less than 32 KiB in it while more is due.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
    /// Try to reach a server again for this long after a connection was lost.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub retry_for: u64,
    /// Wait for this long in all, for one request, when a server asks to wait.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub wait_for: u64,
    /// Print a line of JSON for each file on stdout, and one with the sums at the end.
    #[arg(long)]
    pub json: bool,
    /// Show no progress, and nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
}

/// Whether to go past the page cache.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectArg {
    /// Where it pays: large files; for reading, those that are not in the page cache already.
    Auto,
    /// For all files that are large enough to be worth it.
    Always,
    /// Never.
    Never,
}

/// Commands on names. A place is a local path or `root://HOST[:PORT]//PATH`.
#[derive(Subcommand, Debug)]
pub enum FileCommand {
    /// Lists directories, entries as they come from the server.
    Ls(LsArgs),
    /// Shows attributes.
    Stat(StatArgs),
    /// Prints what files hold.
    Cat(CatArgs),
    /// Makes directories.
    Mkdir(MkdirArgs),
    /// Renames, or moves into a directory, within one server.
    Mv(MvArgs),
    /// Removes files, and directories with -r.
    Rm(RmArgs),
    /// Sums up what directories hold.
    Du(DuArgs),
    /// Shows the space of servers and file systems.
    Df(DfArgs),
    /// Finds names below directories.
    Find(FindArgs),
    /// Shows checksums of whole files: those that servers keep, or computed here.
    Checksum(ChecksumArgs),
    /// Makes empty files, or sets the time of the last change to now.
    Touch(TouchArgs),
    /// Makes a second name for a file, or a symbolic link.
    Ln(LnArgs),
    /// Shows and changes extended attributes.
    Xattr(XattrArgs),
}

/// Arguments of `weir sync`.
#[derive(Args, Debug, Clone)]
pub struct SyncArgs {
    /// The directory to be like.
    pub source: String,
    /// The directory to change; made if it is not there.
    pub target: String,
    /// Remove what the source does not have. Only if everything else went well.
    #[arg(long)]
    pub delete: bool,
    /// Compare lengths alone.
    #[arg(long)]
    pub size_only: bool,
    /// Compare lengths and times of the last change, in seconds, and read only what differs in them. Implies --preserve, so that what
    /// is alike looks alike the next time.
    #[arg(long, conflicts_with = "size_only")]
    pub mtime: bool,
    /// Print what would be done, and do nothing.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// How.
    #[command(flatten)]
    pub how: TransferArgs,
}

/// Arguments of `weir generate`.
#[derive(Args, Debug, Clone)]
pub struct GenerateArgs {
    /// Where to; gets the folders man and completions.
    pub folder: PathBuf,
}

/// Arguments of `weir ls`.
#[derive(Args, Debug, Clone)]
pub struct LsArgs {
    /// What to list.
    #[arg(required = true, value_name = "PLACE")]
    pub places: Vec<String>,
    /// With attributes.
    #[arg(short, long)]
    pub long: bool,
    /// What directories below hold, too.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Directories themselves, not what they hold.
    #[arg(short, long)]
    pub directory: bool,
    /// Sizes with units.
    #[arg(short = 'H', long)]
    pub human: bool,
    /// With the checksums that the server keeps.
    #[arg(short, long)]
    pub checksums: bool,
    /// A line of JSON for each entry.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir stat`.
#[derive(Args, Debug, Clone)]
pub struct StatArgs {
    /// Of what.
    #[arg(required = true, value_name = "PLACE")]
    pub places: Vec<String>,
    /// A line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir cat`.
#[derive(Args, Debug, Clone)]
pub struct CatArgs {
    /// What to print.
    #[arg(required = true, value_name = "PLACE")]
    pub places: Vec<String>,
}

/// Arguments of `weir mkdir`.
#[derive(Args, Debug, Clone)]
pub struct MkdirArgs {
    /// What to make.
    #[arg(required = true, value_name = "PLACE")]
    pub places: Vec<String>,
    /// With the directories above; no error if it is there.
    #[arg(short, long)]
    pub parents: bool,
    /// Permission bits, octal.
    #[arg(short, long, value_name = "MODE", default_value = "755", value_parser = octal)]
    pub mode: u16,
}

/// Arguments of `weir mv`.
#[derive(Args, Debug, Clone)]
pub struct MvArgs {
    /// What to rename, and the new name or the directory to move into.
    #[arg(required = true, num_args = 2.., value_name = "PLACE... TARGET")]
    pub places: Vec<String>,
    /// Replace a file that has the new name.
    #[arg(short, long)]
    pub force: bool,
}

/// Arguments of `weir rm`.
#[derive(Args, Debug, Clone)]
pub struct RmArgs {
    /// What to remove.
    #[arg(required = true, value_name = "PLACE")]
    pub places: Vec<String>,
    /// Directories with all that is in them.
    #[arg(short, long)]
    pub recursive: bool,
    /// No error for what is not there.
    #[arg(short, long)]
    pub force: bool,
}

/// Arguments of `weir du`.
#[derive(Args, Debug, Clone)]
pub struct DuArgs {
    /// Of what.
    #[arg(required = true, value_name = "PLACE")]
    pub places: Vec<String>,
    /// Sizes with units.
    #[arg(short = 'H', long)]
    pub human: bool,
    /// Also each directory down to this depth.
    #[arg(short = 'd', long, value_name = "N")]
    pub max_depth: Option<usize>,
    /// A line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir df`.
#[derive(Args, Debug, Clone)]
pub struct DfArgs {
    /// Of what.
    #[arg(required = true, value_name = "PLACE")]
    pub places: Vec<String>,
    /// Sizes with units.
    #[arg(short = 'H', long)]
    pub human: bool,
    /// A line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir find`.
#[derive(Args, Debug, Clone)]
pub struct FindArgs {
    /// Below what.
    #[arg(required = true, value_name = "PLACE")]
    pub places: Vec<String>,
    /// Names that this pattern fits: `*`, `?`, `[abc]`.
    #[arg(long, value_name = "PATTERN", value_parser = glob::Pattern::new)]
    pub name: Option<glob::Pattern>,
    /// Only such: f (files) or d (directories).
    #[arg(long = "type", value_name = "f|d", value_parser = kind)]
    pub kind: Option<transfer::tree::Kind>,
    /// Files larger than this, as in 10MiB.
    #[arg(long, value_name = "SIZE", value_parser = crate::config::units::parse_size)]
    pub larger: Option<u64>,
    /// Files smaller than this.
    #[arg(long, value_name = "SIZE", value_parser = crate::config::units::parse_size)]
    pub smaller: Option<u64>,
    /// Changed within this time, as in 2h.
    #[arg(long, value_name = "TIME", value_parser = crate::config::units::parse_duration)]
    pub newer: Option<std::time::Duration>,
    /// Not changed within this time.
    #[arg(long, value_name = "TIME", value_parser = crate::config::units::parse_duration)]
    pub older: Option<std::time::Duration>,
    /// Down to this depth only.
    #[arg(long, value_name = "N")]
    pub max_depth: Option<usize>,
    /// A line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir checksum`.
#[derive(Args, Debug, Clone)]
pub struct ChecksumArgs {
    /// Of what.
    #[arg(required = true, value_name = "PLACE")]
    pub places: Vec<String>,
    /// crc32c, adler32, or what else the server knows [default: crc32c here, at a server the one that it prefers].
    #[arg(short, long, value_name = "NAME")]
    pub algorithm: Option<String>,
    /// A line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir touch`.
#[derive(Args, Debug, Clone)]
pub struct TouchArgs {
    /// What.
    #[arg(required = true, value_name = "PLACE")]
    pub places: Vec<String>,
}

/// Arguments of `weir ln`.
#[derive(Args, Debug, Clone)]
pub struct LnArgs {
    /// What the new name stands for.
    pub target: String,
    /// The new name.
    pub name: String,
    /// A symbolic link.
    #[arg(short, long)]
    pub symbolic: bool,
}

/// Arguments of `weir xattr`.
#[derive(Args, Debug, Clone)]
pub struct XattrArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: XattrCommand,
}

/// What `weir xattr` does.
#[derive(Subcommand, Debug, Clone)]
pub enum XattrCommand {
    /// Lists names and values.
    Ls {
        /// Of what.
        place: String,
    },
    /// Prints a value.
    Get {
        /// Of what.
        place: String,
        /// Which.
        name: String,
    },
    /// Sets a value.
    Set {
        /// Of what.
        place: String,
        /// Which.
        name: String,
        /// To what.
        value: String,
    },
    /// Removes an attribute.
    Rm {
        /// Of what.
        place: String,
        /// Which.
        name: String,
    },
}

fn octal(text: &str) -> Result<u16, String> {
    let mode = u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o777);
    mode.ok_or_else(|| format!("`{text}` is no octal number up to 777"))
}

fn kind(text: &str) -> Result<transfer::tree::Kind, String> {
    match text {
        "f" => Ok(transfer::tree::Kind::File),
        "d" => Ok(transfer::tree::Kind::Directory),
        _ => Err("write f for files or d for directories".to_owned()),
    }
}
