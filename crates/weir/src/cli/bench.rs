//! The command line of the bench.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::machines::{AgentArgs, LaunchArgs, MachinesArgs};

/// Arguments of `weir bench`.
#[derive(Args, Debug)]
pub struct BenchArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// What `weir bench` does.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Measure systems side by side for three minutes, with parameters that reveal most about them.
    Quick(QuickArgs),
    /// Run a campaign: systems x work x parameters x repeats, from a TOML file.
    ///
    /// The order is random and the systems alternate. Each trial is recorded as it ends. Run an interrupted campaign
    /// again with the same file and folder, and it continues where it was.
    Run(RunArgs),
    /// Print the table of runs, and write `report.html`, its `figures`, `table.csv` and `summary.json` into their folders.
    Report(ReportArgs),
    /// Work for a run on another machine, or watch a server for it.
    ///
    /// It connects to `weir bench run --agents N --listen HOST:PORT`, does its share of the work here, and ends when
    /// the run ends. It listens on no port, and does only what a campaign can describe.
    Agent(AgentArgs),
    /// Print the few lines that start agents with a site's tools; run nothing.
    Launch(LaunchArgs),
    /// Create a token: a secret for the processes of a measurement on several machines, which keeps others out.
    ///
    /// Copy the file to all of them, so that only its owner may read it (`scp -p` keeps that).
    Token(TokenArgs),
    /// Be the server of a network test: the peer of a campaign's `[[network]]`, on the machine of the system.
    ///
    /// Serves until it is stopped. It reads nothing from a disk and writes nothing to one.
    Flows(FlowsArgs),
    /// Run one flow, for the process that started this one.
    #[command(hide = true)]
    FlowProcess,
    /// Compare two runs row by row, and the settings of the machines that they were made on.
    ///
    /// Rows match by work, parameters, phase and system. Ends with 1 if a figure of the second run is surely lower
    /// (at 95 %), with 0 if none is, and with 2 if the runs have no row in common.
    Compare(CompareArgs),
    /// Show where the data of a ROOT file's branches lies: what an analysis of it asks its storage for.
    RootFile(RootFileArgs),
    /// Repeat one of the five studies that weir was designed after, on your systems, and print the table that the
    /// study prints.
    Study(StudyArgs),
    /// Start storage systems that Debian packages, each in a network of its own on this machine, and take them down
    /// again.
    Testbed(TestbedArgs),
}

/// Arguments of `weir bench study`.
#[derive(Args, Debug)]
pub struct StudyArgs {
    /// The study.
    #[arg(ignore_case = true)]
    pub study: StudyName,
    /// The systems, by path or URL, each with a name of its own if you like: xrootd=root://host//data.
    #[arg(required_unless_present = "systems", value_name = "[NAME=]TARGET")]
    pub targets: Vec<String>,
    /// A file with the `[[system]]` tables of a campaign, as `weir bench testbed up` prints it: these systems come first.
    #[arg(long, value_name = "FILE")]
    pub systems: Option<PathBuf>,
    /// Repeat everything this many times. Six repeats give intervals of 95 % [default: as often as the study did,
    /// divided by the scale].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: Option<u32>,
    /// Divide sizes, counts and times by this: studies take days and hundreds of terabytes.
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub scale: f64,
    /// Also show which parameters reach this many bytes per second: 1250MB for a link of 10 Gb/s.
    #[arg(long, value_name = "RATE", value_parser = config::units::parse_size)]
    pub rate: Option<u64>,
    /// A ROOT file whose branches the jobs of study B read, instead of generated files.
    #[arg(long, value_name = "FILE")]
    pub root_file: Option<PathBuf>,
    /// Run jobs of this tool beside the bench's own in study B, on the same ROOT file. Without --root-file the tool makes one,
    /// beside the folder of the results.
    #[arg(long, value_name = "TOOL")]
    pub by: Option<JobToolName>,
    /// Open root:// addresses in uproot with this Python package [default: weir if it is installed, otherwise fsspec-xrootd].
    #[arg(long, value_name = "PACKAGE", requires = "by")]
    pub uproot_with: Option<UprootWithName>,
    /// Run uproot with this Python interpreter [default: python3].
    #[arg(long, value_name = "PROGRAM", requires = "by")]
    pub python: Option<PathBuf>,
    /// Delay the path to root:// systems by this round trip for a second set of the tool's jobs [default: 12ms].
    #[arg(long, value_name = "TIME", requires = "by", value_parser = config::units::parse_duration)]
    pub round_trip: Option<Duration>,
    /// Print what would be done, how much space it takes and about how long, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// The options of the measurement.
    #[command(flatten)]
    pub how: MeasureArgs,
}

/// A tool for analysis jobs.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobToolName {
    /// uproot, in Python.
    Uproot,
}

/// A Python package that opens root:// addresses.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum UprootWithName {
    /// weir's own.
    Weir,
    /// fsspec-xrootd, over XRootD's own client.
    FsspecXrootd,
}

/// A study.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum StudyName {
    /// Write-intensive recording.
    A,
    /// Analysis reading.
    B,
    /// The simple shared volume.
    C,
    /// Federation.
    D,
    /// A storage element.
    E,
}

/// Arguments of `weir bench testbed`.
#[derive(Args, Debug)]
pub struct TestbedArgs {
    /// The directory for everything that the systems keep: data, logs, and the state that `down` needs.
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/tmp/weir-testbed")]
    pub dir: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub command: TestbedCommand,
}

/// What `weir bench testbed` does.
#[derive(Subcommand, Debug)]
pub enum TestbedCommand {
    /// Start systems, and print how they are set up and the lines that a campaign needs.
    Up {
        /// The systems to start.
        #[arg(required = true, value_name = "SYSTEM")]
        peers: Vec<Peer>,
        /// The speed of the link between this machine and each of them, each way: 100mbit, 1gbit [default: as fast as
        /// the machine].
        #[arg(long, value_name = "RATE", value_parser = bench_run::parse_link)]
        link: Option<u64>,
    },
    /// Take systems down, all of them if none is named: processes, mounts, networks and all their files.
    Down {
        /// The systems to take down.
        #[arg(value_name = "SYSTEM")]
        peers: Vec<Peer>,
    },
    /// Kill a system's server: what the `fail` of a campaign does to it.
    Kill {
        /// The system.
        #[arg(value_name = "SYSTEM")]
        peer: Peer,
    },
    /// Start the processes of a system that have ended: what the `restore` of a campaign does to it.
    Start {
        /// The system.
        #[arg(value_name = "SYSTEM")]
        peer: Peer,
    },
    /// List the systems that are up.
    List,
}

/// A system of the testbed.
#[derive(clap::ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Peer {
    /// XRootD, by its own protocol and by HTTP.
    Xrootd,
    /// GlusterFS, mounted by its client.
    Glusterfs,
    /// MooseFS, mounted by its client.
    Moosefs,
    /// NFS 4.2 (Ganesha), mounted by the kernel.
    Nfs,
    /// nginx with WebDAV.
    Nginx,
    /// weir, this program.
    Weir,
}

/// Arguments of `weir bench quick`.
#[derive(Args, Debug)]
pub struct QuickArgs {
    /// Directories to work in, by path or as `root://HOST[:PORT]//DIRECTORY`. A folder is created in each and removed
    /// again.
    #[arg(required = true, value_name = "DIRECTORY")]
    pub places: Vec<String>,
    /// How long to start new trials.
    #[arg(long, value_name = "TIME", default_value = "3min", value_parser = config::units::parse_duration)]
    pub time: Duration,
    /// The options of the measurement.
    #[command(flatten)]
    pub how: MeasureArgs,
}

/// Arguments of `weir bench run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The campaign file.
    pub campaign: PathBuf,
    /// Print what would be done, how much space it takes and about how long, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// The options of the measurement.
    #[command(flatten)]
    pub how: MeasureArgs,
}

/// How a bench runs.
#[derive(Args, Clone, Debug)]
pub struct MeasureArgs {
    /// A folder for the results: a new one, or that of a run to continue [default: weir-bench-results/NAME].
    #[arg(long, value_name = "FOLDER")]
    pub results: Option<PathBuf>,
    /// End a phase after this long; its figure then covers what was done.
    #[arg(long, value_name = "TIME", value_parser = config::units::parse_duration)]
    pub phase_limit: Option<Duration>,
    /// Print the summary as JSON on stdout instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Show no progress.
    #[arg(short, long)]
    pub quiet: bool,
    /// Other machines.
    #[command(flatten)]
    pub machines: MachinesArgs,
}

/// Arguments of `weir bench token`.
#[derive(Args, Debug)]
pub struct TokenArgs {
    /// The file to create.
    pub file: PathBuf,
    /// How many hours the token is valid.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=8760))]
    pub hours: u32,
}

/// Arguments of `weir bench flows`.
#[derive(Args, Debug)]
pub struct FlowsArgs {
    /// The address to listen on; port 0 picks a free one. UDP flows have ports of their own, which the kernel picks.
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: String,
    /// Serve only clients with the same token, made by `weir bench token`. Required for addresses other than
    /// loopback.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

/// Arguments of `weir bench compare`.
#[derive(Args, Debug)]
pub struct CompareArgs {
    /// The folder of the first run.
    #[arg(value_name = "A")]
    pub first: PathBuf,
    /// The folder of the second run.
    #[arg(value_name = "B")]
    pub second: PathBuf,
    /// Print the comparison as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir bench report`.
#[derive(Args, Debug)]
pub struct ReportArgs {
    /// Folders of runs.
    #[arg(required = true)]
    pub folders: Vec<PathBuf>,
    /// Print the summary as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `weir bench root-file`.
#[derive(Args, Debug)]
pub struct RootFileArgs {
    /// The file, on this machine.
    pub file: PathBuf,
    /// Also decompress all of it, and report how fast that goes.
    #[arg(long)]
    pub unpack: bool,
    /// Print all baskets and pages as JSON.
    #[arg(long)]
    pub json: bool,
}
