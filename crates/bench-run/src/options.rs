//! What a command of the bench is told, as plain data.

use std::path::PathBuf;
use std::time::Duration;

use bench::study::Study;

/// What `weir bench` does.
#[derive(Clone, Debug)]
pub enum BenchCommand {
    /// Measures systems side by side for three minutes, with parameters that say something of most.
    Quick(QuickOptions),
    /// Does a campaign: systems x work x parameters x repeats, from a TOML file.
    ///
    /// The order is random and the systems take turns. What was done is recorded trial by trial, and a run that was cut off goes on where it
    /// was when it is started again with the same campaign and folder.
    Run(RunOptions),
    /// Prints the table of runs, and writes `report.html`, `table.csv` and `summary.json` into their folders.
    Report(ReportOptions),
    /// Works for a run on another machine, or watches a server for it.
    ///
    /// It calls `weir bench run --agents N --listen HOST:PORT`, does the shares of work that it is given there, and ends when that ends. It
    /// listens to nobody, and does nothing but what a campaign can say.
    Agent(AgentOptions),
    /// Prints the few lines that start agents with what a site has; runs nothing.
    Launch(LaunchOptions),
    /// Makes a token: a secret for the processes of a measurement on several machines, so that nobody else takes part.
    ///
    /// Copy the file to all of them, so that only its owner may read it (`scp -p` keeps that).
    Token(TokenOptions),
    /// Is the far side of flows: what `[[network]]` of a campaign measures with, on the machine of the system.
    ///
    /// Serves until it is stopped. Nothing is read from or written to a disk.
    Flows(FlowsOptions),
    /// Does one flow, for the process that started this one.
    FlowProcess,
    /// Compares two runs row by row, and the settings of the machines that they were made from.
    ///
    /// Rows belong together by work, parameters, phase and system. Ends with 1 if a figure of the second run is surely lower (at 95 %), with 0
    /// if none is, and with 2 if the runs have no row in common.
    Compare(CompareOptions),
    /// Says where the data of a ROOT file's branches lies: what an analysis of it asks its storage for.
    RootFile(RootFileOptions),
    /// Does one of the five studies that weir was built after, on systems of yours, and prints the table that the study prints.
    Study(StudyOptions),
    /// Starts storage systems that Debian packages, each in a network of its own on this machine, and takes them down again.
    Testbed(TestbedOptions),
}

/// Options of `weir bench study`.
#[derive(Clone, Debug)]
pub struct StudyOptions {
    /// Which.
    pub study: Study,
    /// The systems, by path or URL, each with a name of its own if you like: xrootd=root://host//data.
    pub targets: Vec<String>,
    /// A file with the `[[system]]` tables of a campaign, as `weir bench testbed up` prints it: these systems come first.
    pub systems: Option<PathBuf>,
    /// Do everything so many times. Six give intervals of 95 % [default: as often as the study did, divided by the scale].
    pub repeats: Option<u32>,
    /// Divide sizes, counts and times by this: studies take days and hundreds of terabytes.
    pub scale: f64,
    /// Also say which parameters reach this many bytes a second: 1250MB for a link of 10 Gb/s.
    pub rate: Option<u64>,
    /// A ROOT file whose branches the jobs of study B read, in the place of files that are made up.
    pub root_file: Option<PathBuf>,
    /// Say what would be done, how much space it takes and about how long, and do nothing.
    pub dry_run: bool,
    /// How to run.
    pub how: HowOptions,
}

/// Options of `weir bench testbed`.
#[derive(Clone, Debug)]
pub struct TestbedOptions {
    /// Where the systems keep all that they have: data, logs, and what `down` needs to know.
    pub dir: PathBuf,
    /// What to do.
    pub command: TestbedCommand,
}

/// What `weir bench testbed` does.
#[derive(Clone, Debug)]
pub enum TestbedCommand {
    /// Starts systems, and prints how they are set up and the lines that a campaign needs.
    Up {
        /// Which.
        peers: Vec<Peer>,
        /// How fast the link between this machine and each of them is, each way: 100mbit, 1gbit [default: as fast as the machine].
        link: Option<u64>,
    },
    /// Takes systems down, all of them if none is named: processes, mounts, networks and all their files.
    Down {
        /// Which.
        peers: Vec<Peer>,
    },
    /// Kills a system's server: what the `fail` of a campaign does to it.
    Kill {
        /// Whose.
        peer: Peer,
    },
    /// Starts again what has ended of a system: what the `restore` of a campaign does to it.
    Start {
        /// Which.
        peer: Peer,
    },
    /// Says which are up.
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

    /// What the testbed and the command line call it.
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
    /// Directories to work in, by path or as `root://HOST[:PORT]//DIRECTORY`. In each a folder is made and removed again.
    pub places: Vec<String>,
    /// How long to go on beginning with new trials.
    pub time: Duration,
    /// How to run.
    pub how: HowOptions,
}

/// Options of `weir bench run`.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The campaign.
    pub campaign: PathBuf,
    /// Say what would be done, how much space it takes and about how long, and do nothing.
    pub dry_run: bool,
    /// How to run.
    pub how: HowOptions,
}

/// How a bench runs.
#[derive(Clone, Debug)]
pub struct HowOptions {
    /// A folder for the results: a new one, or the one of a run to go on with [default: weir-bench-results/NAME].
    pub results: Option<PathBuf>,
    /// End a phase after this long; its figure is then of what was done.
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
    /// How long it is good for.
    pub hours: u32,
}

/// Options of `weir bench flows`.
#[derive(Clone, Debug)]
pub struct FlowsOptions {
    /// The address to listen on; port 0 picks a free one. Flows of UDP have ports of their own, which the kernel picks.
    pub listen: String,
    /// Who may ask for flows: those with the same token, made by `weir bench token`. Without one only loopback addresses can be listened on.
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
    /// Decompress all of it, too, and say how fast that goes.
    pub unpack: bool,
    /// Print all baskets and pages as JSON.
    pub json: bool,
}

/// Which other machines take part in a run.
#[derive(Clone, Debug)]
pub struct MachinesOptions {
    /// Have the work done by so many agents (`weir bench agent`), and begin when all are there. Without it this machine works by itself.
    pub agents: u16,
    /// Begin when so many watchers of servers are there, too.
    pub watchers: u16,
    /// Where agents, and those who watch servers, call; port 0 takes a free one.
    pub listen: Option<String>,
    /// What they have to have: a file from `weir bench token`.
    pub token_file: Option<PathBuf>,
    /// Show the run on a web page there; the address with its key is printed. Only on loopback, unless there is a token file.
    pub web: Option<String>,
}

/// Options of `weir bench agent`.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    /// The run to work for: what it was given as --listen, as this machine reaches it.
    pub join: String,
    /// The run's token file, or a copy.
    pub token_file: PathBuf,
    /// What results call this machine [default: its host name].
    pub name: Option<String>,
    /// Do no work, but tell what this machine does: it is a server of a system.
    pub watch: bool,
    /// The system that it is a server of, by its name in the campaign.
    pub system: Option<String>,
    /// Count the CPU time of processes of this name alone as the server's, not all of the machine; can be given several times.
    pub processes: Vec<String>,
    /// A directory in which campaigns may name files of this machine: ROOT files and recordings to be read, scratch for copies. Without
    /// it they may use nothing but the folders that they make in a system's place; can be given several times.
    pub files: Vec<PathBuf>,
    /// Let campaigns run fio, xrdcp and iperf3 here, on the same work as weir's own.
    pub tools: bool,
}

/// What a site starts programs with.
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
    /// What the site has.
    pub via: Launcher,
    /// The run that they work for: what it is given as --listen, as they reach it.
    pub join: String,
    /// The run's token file, here.
    pub token_file: PathBuf,
    /// How many agents, where the site chooses the hosts (slurm, htcondor, kubernetes).
    pub agents: Option<u16>,
    /// The hosts (ssh, clush; slurm may do with a number).
    pub hosts: Vec<String>,
}
