//! The command line.

use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::exit::Exit;

const ABOUT: &str = "Storage for physics experiments: takes files from stock XRootD clients, keeps them through any \
crash, and gives them back with every page checked.";

/// What was asked for.
#[derive(Parser, Debug)]
#[command(name = "weir", version, about = ABOUT, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Serves a data directory over root://.
    ///
    /// Makes the data directory on the first start, if it is missing or empty. When ready, prints exactly one line to
    /// stdout, `weir: ready root://HOST:PORT/`; the log goes to stderr. SIGTERM or SIGINT ends it cleanly within 10 s;
    /// a second one at once.
    Serve(ServeArgs),
    /// Makes a data directory, and nothing else.
    ///
    /// For who starts the node with `--existing` only. Does nothing where there is one already.
    Init(InitArgs),
    /// Shows what weir promises, on a node of its own in a temporary place.
    ///
    /// Records real ROOT files with the installed `xrdcp`, follows one while it grows, kills the node and the recorder
    /// in the middle of a recording, starts again, and checks that nothing acknowledged was lost. Takes about a minute,
    /// needs no rights, and leaves nothing behind.
    Demo(DemoArgs),
    /// Checks a data directory: names against pieces against checksums.
    ///
    /// The node must not be running. Recovers from an unclean stop as a start would, then reads everything and says in
    /// plain words what it found. Repairs only what a flag names.
    Fsck(FsckArgs),
    /// Shows what a node does just now: requests by kind, bytes, times, connections, space.
    ///
    /// Reads the metrics of a node that was started with `--metrics`, again and again until Ctrl-C. Without a terminal it
    /// prints one block after the other.
    Top(TopArgs),
    /// Says what the scrub of a running node is at, or tells it what to do.
    ///
    /// A node reads all its contents from the disk in its spare time, compares them with their checksums, and marks the files that
    /// are damaged. `scrub.rate` and `scrub.period` in the configuration say how fast and how often.
    Scrub(ScrubArgs),
    /// Copies the namespace of a node, running or not, into a folder elsewhere.
    ///
    /// The first backup in the folder holds everything, later ones what changed since. Each is as of one moment, and read back before it
    /// counts. The contents of files are not in it. An interrupted backup leaves the ones before it as they are; run it again.
    Backup(BackupArgs),
    /// Gives a data directory the namespace that a backup holds, or lists the backups of a folder.
    ///
    /// The node must not be running. The contents stay as they are; the namespace that is there is moved aside. Where the log is there and
    /// has everything since the backup, nothing is lost, unless --until asks for an older state.
    Restore(RestoreArgs),
    /// Gives the contents of a stopped node back as plain files, each compared with its checksums.
    ///
    /// With the namespace: its tree, with modes, times, symbolic and hard links. Without it: every content in the store, under the path at
    /// which it was made. Never writes over anything; an interrupted export goes on when it is run again.
    Export(ExportArgs),
    /// Copies files between this machine and servers, and between servers.
    ///
    /// Takes local paths, `root://HOST[:PORT]//PATH` of any XRootD server, and `-` for standard input and output. Small files
    /// travel by the dozen, large ones in several requests at a time; what was copied is compared with the server's checksum;
    /// a lost connection is made again and the copy goes on. A local file gets its name when it is whole. What is there already
    /// is left alone unless `--force` or `--resume` says otherwise.
    Cp(CpArgs),
    /// Makes one directory like another, here or at servers, moving only what differs.
    ///
    /// A file is left alone if length and checksum are the same at both ends. What the source does not have stays, unless
    /// `--delete` says otherwise.
    Sync(SyncArgs),
    /// Writes the man pages and the completions for shells into a folder.
    #[command(hide = true)]
    Generate(GenerateArgs),
    /// Commands on names, here and at servers.
    #[command(flatten)]
    Files(FileCommand),
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
    /// Print what would be done, and do nothing.
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Files that are copied at a time.
    #[arg(short, long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Print a line of JSON for each file on stdout, and one with the sums at the end.
    #[arg(long)]
    pub json: bool,
    /// Show no progress, and nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
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
    pub kind: Option<crate::files::tree::Kind>,
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

fn kind(text: &str) -> Result<crate::files::tree::Kind, String> {
    match text {
        "f" => Ok(crate::files::tree::Kind::File),
        "d" => Ok(crate::files::tree::Kind::Directory),
        _ => Err("write f for files or d for directories".to_owned()),
    }
}

/// Arguments of `weir serve`.
#[derive(Args, Debug, Default, Clone)]
pub struct ServeArgs {
    /// Where everything is kept.
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// The address to listen on; port 0 picks a free one [default: 127.0.0.1:1094].
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// A TOML file with settings; flags win over it. docs/configure.md lists all keys.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Serve addresses other than loopback although nobody has to say who they are: whoever reaches the port may read,
    /// write and delete everything.
    #[arg(long)]
    pub insecure: bool,
    /// Refuse to make a new data directory. For start scripts: a disk that is not mounted then stops the node instead
    /// of showing an empty one.
    #[arg(long)]
    pub existing: bool,
    /// Where to tell what the node does, for Prometheus and `weir top`: http://HOST:PORT/metrics; port 0 picks a free one [default: nowhere].
    #[arg(long, value_name = "HOST:PORT")]
    pub metrics: Option<String>,
    /// How long a writer that lost its connection is waited for before its file is marked interrupted [default: 60].
    #[arg(long, value_name = "N")]
    pub grace_seconds: Option<u64>,
    /// What to log: error, warn, info, debug, trace, or a filter such as `info,server=debug` [default: info].
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
}

/// Arguments of `weir init`.
#[derive(Args, Debug, Default, Clone)]
pub struct InitArgs {
    /// The data directory: empty, or not there in a folder that is.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
}

/// Arguments of `weir demo`.
#[derive(Args, Debug, Default, Clone)]
pub struct DemoArgs {
    /// Keep the node's data directory and logs, and say where they are.
    #[arg(long)]
    pub keep: bool,
    /// Record the .root files of this folder too [default: ../shared/data/root, if it is there].
    #[arg(long, value_name = "DIR")]
    pub files: Option<PathBuf>,
    /// Make the temporary place in this folder instead of the system's, to try out a certain disk.
    #[arg(long, value_name = "DIR")]
    pub within: Option<PathBuf>,
}

/// Arguments of `weir fsck`.
#[derive(Args, Debug, Default, Clone)]
pub struct FsckArgs {
    /// The data directory to check.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// A TOML file with settings, as `weir serve` takes it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Mark files whose bytes are gone or damaged with the extended attribute `weir.damaged`, and count directories anew
    /// whose totals are wrong. Never removes anything.
    #[arg(long)]
    pub repair: bool,
    /// Remove contents that no name, writer, upload or deletion refers to. After `--repair-journal`, `--rebuild-store`
    /// or `--begin-new-log` look at them first, in a run of their own: they may be files whose names were lost.
    #[arg(long, conflicts_with_all = ["repair_journal", "rebuild_store", "begin_new_log"])]
    pub remove_unreferenced: bool,
    /// Do not read the files' bytes: compare names, records and lengths alone.
    #[arg(long)]
    pub quick: bool,
    /// Give up what a damaged journal holds from the damage on (it is saved aside), so that the node starts again.
    /// Acknowledged changes after that place are lost; run it only when told to.
    #[arg(long)]
    pub repair_journal: bool,
    /// Make the store's index anew from the files of contents, where it and its checkpoints are lost. Changes nothing where they are
    /// not. Contents that were removed lately may come back; they are listed as without a name.
    #[arg(long, conflicts_with = "repair_journal")]
    pub rebuild_store: bool,
    /// Where the folder `journal` is lost for good: begin a new log with what the indexes hold. Lost is everything that was
    /// acknowledged after the indexes were last written to the disk (about the last minute before the node ended), the bytes of
    /// small files that lay in the log, and recordings in progress. Nothing is removed; what is left of the old log is moved aside.
    /// Refused where the log is there; put it back if there is any copy.
    #[arg(long, conflicts_with_all = ["repair_journal", "rebuild_store"])]
    pub begin_new_log: bool,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// List at most this many findings of each kind (all are counted).
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: usize,
}

/// Arguments of `weir top`.
#[derive(Args, Debug, Default, Clone)]
pub struct TopArgs {
    /// Where the node tells its metrics: what `weir serve --metrics` was given, or the URL that its log says.
    #[arg(value_name = "HOST:PORT")]
    pub node: String,
    /// Look twice, show what happened in between, and end.
    #[arg(long)]
    pub once: bool,
    /// Print one JSON object on a line for each look. Rates are per second, times in seconds, sizes in bytes.
    #[arg(long)]
    pub json: bool,
    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub interval: f64,
}

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
    /// Go on with what an earlier copy has left, and skip files that are there with the same length and checksum.
    #[arg(long)]
    pub resume: bool,
    /// Do not compare checksums.
    #[arg(long)]
    pub no_verify: bool,
    /// Make local files durable before they get their names.
    #[arg(long)]
    pub sync: bool,
    /// Files that are copied at a time.
    #[arg(short, long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub jobs: u16,
    /// Let the target's server fetch from the source's (third-party copy), so that the bytes do not pass through this
    /// machine. Both ends are on servers.
    #[arg(long, conflicts_with_all = ["resume"])]
    pub tpc: bool,
    /// Connections for one large file that is read from a server.
    #[arg(short = 'S', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub streams: u16,
    /// Requests of 2 MiB under way on one connection; more for far servers.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub window: u16,
    /// Past the page cache on this machine: where it pays, always for large files, or never.
    #[arg(long, value_enum, default_value = "auto")]
    pub direct: crate::transfer::Direct,
    /// Give up on a server that says nothing for this long.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: u64,
    /// Try to reach a server again for this long after a connection was lost.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub retry_for: u64,
    /// Print a line of JSON for each file on stdout, and one with the sums at the end.
    #[arg(long)]
    pub json: bool,
    /// Show no progress, and nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// What to log: error, warn, info, debug.
    #[arg(long, value_name = "LEVEL", default_value = "warn")]
    pub log: String,
}

/// Arguments of `weir backup`.
#[derive(Args, Debug, Default, Clone)]
pub struct BackupArgs {
    /// The folder that the backups are kept in; made if it is not there. One for each node.
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// The data directory of the node.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// A TOML file with settings, as `weir serve` takes it; only used where the node is not running.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Everything, even if only what changed since the last backup would do.
    #[arg(long)]
    pub full: bool,
    /// Then keep only this many full backups and what follows them; older ones are removed.
    #[arg(long, value_name = "N")]
    pub keep: Option<u32>,
    /// Print what was made as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir restore`.
#[derive(Args, Debug, Default, Clone)]
pub struct RestoreArgs {
    /// The folder that the backups are in.
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// The data directory that gets the namespace: that of the node that the backup was made of, whatever is left of it, or a new one.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["list", "verify"])]
    pub data: Option<PathBuf>,
    /// The newest state not after this time (UTC, as in `2026-11-21 09:45`), or this record of the log.
    #[arg(long, value_name = "TIME|RECORD")]
    pub until: Option<String>,
    /// List the backups in the folder and do nothing else.
    #[arg(long)]
    pub list: bool,
    /// The same, after reading all of them through.
    #[arg(long)]
    pub verify: bool,
    /// A TOML file with settings, as `weir serve` takes it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// List at most this many findings of each kind (all are counted).
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list_max: usize,
}

/// Arguments of `weir export`.
#[derive(Args, Debug, Clone)]
pub struct ExportArgs {
    /// The folder that the files go to; made if it is not there.
    #[arg(value_name = "TARGET")]
    pub target: PathBuf,
    /// The data directory of the stopped node.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// A TOML file with settings, as `weir serve` takes it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// For a node whose namespace is lost: every content in the store, under the path at which it was made, where that is known.
    #[arg(long)]
    pub without_namespace: bool,
    /// What to do with files of which pages are damaged.
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = IfDamaged::Suffix)]
    pub damaged: IfDamaged,
    /// Print the result as JSON on stdout.
    #[arg(long)]
    pub json: bool,
    /// List at most this many of each kind of trouble (all are counted).
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub list: usize,
}

/// What an export does with a damaged file.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum IfDamaged {
    /// Write it with `.weir-damaged` behind its name, and zeros where its damaged pages are.
    Suffix,
    /// Do not write it.
    LeaveOut,
}

/// Arguments of `weir scrub`.
#[derive(Args, Debug, Default, Clone)]
pub struct ScrubArgs {
    /// The data directory of the running node.
    #[arg(long, value_name = "DIR")]
    pub data: PathBuf,
    /// Say what it is at. Done after every other flag too.
    #[arg(long)]
    pub status: bool,
    /// Begin a pass now, or go on with the one under way.
    #[arg(long)]
    pub now: bool,
    /// The same, at so many bytes a second (as in 100MiB) to the end of the pass, instead of what is configured.
    #[arg(long, value_name = "SIZE")]
    pub rate: Option<String>,
    /// End the pass under way. The next one begins when it is due.
    #[arg(long, conflicts_with_all = ["now", "rate"])]
    pub stop: bool,
    /// Print the answer as JSON on stdout.
    #[arg(long)]
    pub json: bool,
}

/// The whole command line, for help and what is made from it.
#[must_use]
pub fn command() -> clap::Command {
    Cli::command()
}

/// Parses; help, version and usage errors are printed here, and the code to end with returned.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Exit> {
    let mut command = Cli::command().after_help(Exit::table());
    for name in ["serve", "init", "demo", "fsck", "top", "scrub", "backup", "restore", "export", "cp", "sync"] {
        command = command.mut_subcommand(name, |sub| sub.after_help(Exit::table()));
    }
    command.try_get_matches_from(args).and_then(|matches| Cli::from_arg_matches(&matches)).map_err(|error| {
        let asked = !error.use_stderr();
        let text = error.render();
        // A reader that has gone away (`weir --help | head`) is no error.
        let _ = if asked { write!(std::io::stdout(), "{text}") } else { write!(std::io::stderr(), "{text}") };
        if asked { Exit::Done } else { Exit::Usage }
    })
}
