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
    /// Measures systems side by side for three minutes, with parameters that say something of most.
    Quick(QuickArgs),
    /// Does a campaign: systems x work x parameters x repeats, from a TOML file.
    ///
    /// The order is random and the systems take turns. What was done is recorded trial by trial, and a run that was cut off goes on where it
    /// was when it is started again with the same campaign and folder.
    Run(RunArgs),
    /// Prints the table of runs, and writes `report.html`, `table.csv` and `summary.json` into their folders.
    Report(ReportArgs),
    /// Works for a run on another machine, or watches a server for it.
    ///
    /// It calls `weir bench run --agents N --listen HOST:PORT`, does the shares of work that it is given there, and ends when that ends. It
    /// listens to nobody, and does nothing but what a campaign can say.
    Agent(AgentArgs),
    /// Prints the few lines that start agents with what a site has; runs nothing.
    Launch(LaunchArgs),
    /// Makes a token: a secret for the processes of a measurement on several machines, so that nobody else takes part.
    ///
    /// Copy the file to all of them, so that only its owner may read it (`scp -p` keeps that).
    Token(TokenArgs),
    /// Is the far side of flows: what `[[network]]` of a campaign measures with, on the machine of the system.
    ///
    /// Serves until it is stopped. Nothing is read from or written to a disk.
    Flows(FlowsArgs),
    /// Does one flow, for the process that started this one.
    #[command(hide = true)]
    FlowProcess,
    /// Compares two runs row by row, and the settings of the machines that they were made from.
    ///
    /// Rows belong together by work, parameters, phase and system. Ends with 1 if a figure of the second run is surely lower (at 95 %), with 0
    /// if none is, and with 2 if the runs have no row in common.
    Compare(CompareArgs),
    /// Says where the data of a ROOT file's branches lies: what an analysis of it asks its storage for.
    RootFile(RootFileArgs),
    /// Does one of the five studies that weir was built after, on systems of yours, and prints the table that the study prints.
    Study(StudyArgs),
    /// Starts storage systems that Debian packages, each in a network of its own on this machine, and takes them down again.
    Testbed(TestbedArgs),
}

/// Arguments of `weir bench study`.
#[derive(Args, Debug)]
pub struct StudyArgs {
    /// Which.
    #[arg(ignore_case = true)]
    pub study: StudyName,
    /// The systems, by path or URL, each with a name of its own if you like: xrootd=root://host//data.
    #[arg(required_unless_present = "systems", value_name = "[NAME=]PLACE")]
    pub targets: Vec<String>,
    /// A file with the `[[system]]` tables of a campaign, as `weir bench testbed up` prints it: these systems come first.
    #[arg(long, value_name = "FILE")]
    pub systems: Option<PathBuf>,
    /// Do everything so many times. Six give intervals of 95 % [default: as often as the study did, divided by the scale].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: Option<u32>,
    /// Divide sizes, counts and times by this: studies take days and hundreds of terabytes.
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub scale: f64,
    /// Also say which parameters reach this many bytes a second: 1250MB for a link of 10 Gb/s.
    #[arg(long, value_name = "RATE", value_parser = crate::config::units::parse_size)]
    pub rate: Option<u64>,
    /// A ROOT file whose branches the jobs of study B read, in the place of files that are made up.
    #[arg(long, value_name = "FILE")]
    pub root_file: Option<PathBuf>,
    /// Say what would be done, how much space it takes and about how long, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// How to run.
    #[command(flatten)]
    pub how: HowArgs,
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
    /// Where the systems keep all that they have: data, logs, and what `down` needs to know.
    #[arg(long, global = true, value_name = "DIR", default_value = "/var/tmp/weir-testbed")]
    pub dir: PathBuf,
    /// What to do.
    #[command(subcommand)]
    pub command: TestbedCommand,
}

/// What `weir bench testbed` does.
#[derive(Subcommand, Debug)]
pub enum TestbedCommand {
    /// Starts systems, and prints how they are set up and the lines that a campaign needs.
    Up {
        /// Which.
        #[arg(required = true, value_name = "SYSTEM")]
        peers: Vec<Peer>,
        /// How fast the link between this machine and each of them is, each way: 100mbit, 1gbit [default: as fast as the machine].
        #[arg(long, value_name = "RATE", value_parser = bench_run::parse_link)]
        link: Option<u64>,
    },
    /// Takes systems down, all of them if none is named: processes, mounts, networks and all their files.
    Down {
        /// Which.
        #[arg(value_name = "SYSTEM")]
        peers: Vec<Peer>,
    },
    /// Kills a system's server: what the `fail` of a campaign does to it.
    Kill {
        /// Whose.
        #[arg(value_name = "SYSTEM")]
        peer: Peer,
    },
    /// Starts again what has ended of a system: what the `restore` of a campaign does to it.
    Start {
        /// Which.
        #[arg(value_name = "SYSTEM")]
        peer: Peer,
    },
    /// Says which are up.
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
    /// Directories to work in, by path or as `root://HOST[:PORT]//DIRECTORY`. In each a folder is made and removed again.
    #[arg(required = true, value_name = "PLACE")]
    pub places: Vec<String>,
    /// How long to go on beginning with new trials.
    #[arg(long, value_name = "TIME", default_value = "3min", value_parser = crate::config::units::parse_duration)]
    pub time: Duration,
    /// How to run.
    #[command(flatten)]
    pub how: HowArgs,
}

/// Arguments of `weir bench run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// The campaign.
    pub campaign: PathBuf,
    /// Say what would be done, how much space it takes and about how long, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// How to run.
    #[command(flatten)]
    pub how: HowArgs,
}

/// How a bench runs.
#[derive(Args, Clone, Debug)]
pub struct HowArgs {
    /// A folder for the results: a new one, or the one of a run to go on with [default: weir-bench-results/NAME].
    #[arg(long, value_name = "FOLDER")]
    pub results: Option<PathBuf>,
    /// End a phase after this long; its figure is then of what was done.
    #[arg(long, value_name = "TIME", value_parser = crate::config::units::parse_duration)]
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
    /// The new file.
    pub file: PathBuf,
    /// How long it is good for.
    #[arg(long, value_name = "N", default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=8760))]
    pub hours: u32,
}

/// Arguments of `weir bench flows`.
#[derive(Args, Debug)]
pub struct FlowsArgs {
    /// The address to listen on; port 0 picks a free one. Flows of UDP have ports of their own, which the kernel picks.
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: String,
    /// Who may ask for flows: those with the same token, made by `weir bench token`. Without one only loopback addresses can be listened on.
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
    /// Decompress all of it, too, and say how fast that goes.
    #[arg(long)]
    pub unpack: bool,
    /// Print all baskets and pages as JSON.
    #[arg(long)]
    pub json: bool,
}
