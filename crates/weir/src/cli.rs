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
    /// How long a writer that lost its connection is waited for before its file is marked interrupted [default: 60].
    #[arg(long, value_name = "N")]
    pub grace_seconds: Option<u64>,
    /// What to log: error, warn, info, debug, trace, or a filter such as `info,server=debug` [default: info].
    #[arg(long, value_name = "LEVEL")]
    pub log: Option<String>,
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

/// Parses; help, version and usage errors are printed here, and the code to end with returned.
pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, Exit> {
    let mut command = Cli::command().after_help(Exit::table());
    for name in ["serve", "demo", "fsck"] {
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
