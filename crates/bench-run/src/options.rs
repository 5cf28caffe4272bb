//! The options of the bench's commands, as plain data.

use std::path::PathBuf;
use std::time::Duration;

use bench::study::Study;
use bench::workload::{JobTool, UprootWith};

/// A command of `weir bench`.
#[derive(Clone, Debug)]
pub enum BenchCommand {
    /// Measures systems side by side for three minutes, with parameters that are informative for most.
    Quick(QuickOptions),
    /// Runs a campaign: systems x work x parameters x repeats, from a TOML file.
    ///
    /// The order is random and the systems take turns. Each finished trial is recorded. Started again with the same campaign and folder, an
    /// interrupted run continues.
    Run(RunOptions),
    /// Prints the table of runs, and writes `report.html`, its `figures`, `table.csv` and `summary.json` into their folders.
    Report(ReportOptions),
    /// Works for a run on another machine, or watches a server for it.
    ///
    /// It connects to `weir bench run --agents N --listen HOST:PORT`, does its shares of the work, and ends with the run. It listens on no
    /// port, and does nothing beyond what a campaign can describe.
    Agent(AgentOptions),
    /// Prints the few lines that start agents with a site's tools; runs nothing.
    Launch(LaunchOptions),
    /// Makes a token: a secret for the processes of a measurement on several machines, which keeps others out.
    ///
    /// Copy the file to all of them, so that only its owner may read it (`scp -p` keeps that).
    Token(TokenOptions),
    /// Serves network tests: the `[[network]]` work of a campaign runs against it, on the system's machine.
    ///
    /// Serves until it is stopped. It neither reads nor writes a disk.
    Flows(FlowsOptions),
    /// Does one flow for the process that started this one.
    FlowProcess,
    /// Compares two runs row by row, and the settings of their machines.
    ///
    /// Rows match by work, parameters, phase and system. Ends with 1 if a figure of the second run is surely lower (at 95 %), with 0 if
    /// none is, and with 2 if the runs have no row in common.
    Compare(CompareOptions),
    /// Shows where the data of a ROOT file's branches lies, and so which reads an analysis makes.
    RootFile(RootFileOptions),
    /// Runs one of the five studies that shaped weir on given systems, and prints the study's table.
    Study(StudyOptions),
    /// Starts storage systems from Debian packages, each in a network of its own on this machine, and takes them down again.
    Testbed(TestbedOptions),
}

/// Options of `weir bench study`.
#[derive(Clone, Debug)]
pub struct StudyOptions {
    /// The study.
    pub study: Study,
    /// The systems, by path or URL, each optionally with a name: xrootd=root://host//data.
    pub targets: Vec<String>,
    /// A file with the `[[system]]` tables of a campaign, as `weir bench testbed up` prints it. These systems come first.
    pub systems: Option<PathBuf>,
    /// The number of repeats. Six give intervals of 95 % [default: as many as the study had, divided by the scale].
    pub repeats: Option<u32>,
    /// Divide sizes, counts and times by this: studies take days and hundreds of terabytes.
    pub scale: f64,
    /// Also show which parameters reach this many bytes a second: 1250MB for a link of 10 Gb/s.
    pub rate: Option<u64>,
    /// A ROOT file whose branches the jobs of study B read, instead of generated files.
    pub root_file: Option<PathBuf>,
    /// A tool that does the jobs of study B, too, on a ROOT file.
    pub by: Option<JobTool>,
    /// The Python package with which uproot opens `root://` addresses [default: weir if it is installed, otherwise fsspec-xrootd].
    pub uproot_with: Option<UprootWith>,
    /// The Python interpreter that has uproot [default: python3].
    pub python: Option<PathBuf>,
    /// The round trip of the delayed path on which uproot runs as well [default: 12ms].
    pub round_trip: Option<Duration>,
    /// Print the work, its space and its rough duration, without doing it.
    pub dry_run: bool,
    /// How to run.
    pub how: MeasureOptions,
}

/// Options of `weir bench testbed`.
#[derive(Clone, Debug)]
pub struct TestbedOptions {
    /// The folder for all files of the systems: data, logs, and the records for `down`.
    pub dir: PathBuf,
    /// The command.
    pub command: TestbedCommand,
}

/// What `weir bench testbed` does.
#[derive(Clone, Debug)]
pub enum TestbedCommand {
    /// Starts systems, and prints their settings and the lines for a campaign.
    Up {
        /// The systems.
        peers: Vec<Peer>,
        /// The speed of the link between this machine and each of them, each way: 100mbit, 1gbit [default: as fast as the machine].
        link: Option<u64>,
    },
    /// Takes systems down, all of them if none is named: processes, mounts, networks and all their files.
    Down {
        /// The systems.
        peers: Vec<Peer>,
    },
    /// Kills a system's server, as the `fail` of a campaign does.
    Kill {
        /// The system.
        peer: Peer,
    },
    /// Starts the ended servers of a system again, as the `restore` of a campaign does.
    Start {
        /// The system.
        peer: Peer,
    },
    /// Lists the systems that are up.
    List,
}

/// A system of the testbed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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

impl Peer {
    /// All of them.
    pub const ALL: [Peer; 6] = [Peer::Xrootd, Peer::Glusterfs, Peer::Moosefs, Peer::Nfs, Peer::Nginx, Peer::Weir];

    /// Its name on the testbed and the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Peer::Xrootd => "xrootd",
            Peer::Glusterfs => "glusterfs",
            Peer::Moosefs => "moosefs",
            Peer::Nfs => "nfs",
            Peer::Nginx => "nginx",
            Peer::Weir => "weir",
        }
    }
}

/// Options of `weir bench quick`.
#[derive(Clone, Debug)]
pub struct QuickOptions {
    /// Directories to work in, by path or as `root://HOST[:PORT]//DIRECTORY`. The run makes a folder in each, and removes it afterwards.
    pub places: Vec<String>,
    /// How long to start new trials.
    pub time: Duration,
    /// How to run.
    pub how: MeasureOptions,
}

/// Options of `weir bench run`.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The campaign.
    pub campaign: PathBuf,
    /// Print the work, its space and its rough duration, without doing it.
    pub dry_run: bool,
    /// How to run.
    pub how: MeasureOptions,
}

/// How a bench runs.
#[derive(Clone, Debug)]
pub struct MeasureOptions {
    /// The folder for the results: a new one, or that of an interrupted run [default: weir-bench-results/NAME].
    pub results: Option<PathBuf>,
    /// End a phase after this long; its figure then covers the work done so far.
    pub phase_limit: Option<Duration>,
    /// Print the summary as JSON on stdout instead of the table.
    pub json: bool,
    /// Show no progress.
    pub quiet: bool,
    /// Other machines.
    pub machines: MachinesOptions,
}

/// Options of `weir bench token`.
#[derive(Clone, Debug)]
pub struct TokenOptions {
    /// The new file.
    pub file: PathBuf,
    /// How long it is valid.
    pub hours: u32,
}

/// Options of `weir bench flows`.
#[derive(Clone, Debug)]
pub struct FlowsOptions {
    /// The address to listen on; port 0 picks a free one. UDP flows have ports of their own, which the kernel picks.
    pub listen: String,
    /// The token of those who may ask for flows, made by `weir bench token`. Without one the server listens only on loopback.
    pub token_file: Option<PathBuf>,
}

/// Options of `weir bench compare`.
#[derive(Clone, Debug)]
pub struct CompareOptions {
    /// The folder of the first run.
    pub first: PathBuf,
    /// The folder of the second run.
    pub second: PathBuf,
    /// Print the comparison as JSON.
    pub json: bool,
}

/// Options of `weir bench report`.
#[derive(Clone, Debug)]
pub struct ReportOptions {
    /// Folders of runs.
    pub folders: Vec<PathBuf>,
    /// Print the summary as JSON.
    pub json: bool,
}

/// Options of `weir bench root-file`.
#[derive(Clone, Debug)]
pub struct RootFileOptions {
    /// The file, on this machine.
    pub file: PathBuf,
    /// Also decompress all of it, and show how fast that goes.
    pub unpack: bool,
    /// Print all baskets and pages as JSON.
    pub json: bool,
}

/// The other machines of a run.
#[derive(Clone, Debug)]
pub struct MachinesOptions {
    /// Have this many agents (`weir bench agent`) do the work; begin when all are there. Without it this machine works alone.
    pub agents: u16,
    /// Also wait for this many watchers of servers before the beginning.
    pub watchers: u16,
    /// The address that agents and watchers connect to; port 0 picks a free one.
    pub listen: Option<String>,
    /// The token file that they must have, made by `weir bench token`.
    pub token_file: Option<PathBuf>,
    /// Show the run on a web page at this address; prints the URL with its key. Only on loopback, unless there is a token file.
    pub web: Option<String>,
}

/// Options of `weir bench agent`.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The run to work for: its --listen address, as this machine reaches it.
    pub join: String,
    /// The run's token file, or a copy.
    pub token_file: PathBuf,
    /// The name of this machine in results [default: its host name].
    pub name: Option<String>,
    /// Do no work, but report the load of this machine, which is a server of a system.
    pub watch: bool,
    /// The system that it is a server of, by its name in the campaign.
    pub system: Option<String>,
    /// Count only the CPU time of processes with this name, instead of the whole machine's; can be given several times.
    pub processes: Vec<String>,
    /// A directory in which campaigns may name files of this machine: ROOT files and recordings to read, scratch space for copies. Without
    /// it campaigns may only use the folders that they make in a system's directory. Can be given several times.
    pub files: Vec<PathBuf>,
    /// Let campaigns run fio, xrdcp, iperf3 and uproot here, on the same work as weir's own.
    pub tools: bool,
}

/// The tool with which a site starts programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Launcher {
    /// One `ssh` for each host.
    Ssh,
    /// `ClusterShell`.
    Clush,
    /// A batch job of Slurm.
    Slurm,
    /// A cluster of `HTCondor` jobs.
    Htcondor,
    /// An indexed job of Kubernetes.
    Kubernetes,
}

/// Options of `weir bench launch`.
#[derive(Clone, Debug)]
pub struct LaunchOptions {
    /// The site's tool.
    pub via: Launcher,
    /// The run that the agents work for: its --listen address, as they reach it.
    pub join: String,
    /// The run's token file on this machine.
    pub token_file: PathBuf,
    /// The number of agents, if the site chooses the hosts (slurm, htcondor, kubernetes).
    pub agents: Option<u16>,
    /// The hosts (ssh, clush; slurm can do with a number).
    pub hosts: Vec<String>,
}
