//! The command line of the bench on several machines.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// Which other machines take part in a run.
#[derive(Args, Clone, Debug, Default)]
pub struct MachinesArgs {
    /// Have the work done by this many agents (`weir bench agent`), and begin when all are connected. Without it this
    /// machine does the work.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=4000), requires = "listen")]
    pub agents: u16,
    /// Also wait for this many watchers of servers before the run begins.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=4000), requires = "listen")]
    pub watchers: u16,
    /// The address to which agents and watchers connect; port 0 picks a free one.
    #[arg(long, value_name = "HOST:PORT", requires = "token_file")]
    pub listen: Option<String>,
    /// The token that agents and watchers must have: a file from `weir bench token`.
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
    /// Show the run on a web page at this address; the address with its key is printed. Without a token file only on
    /// loopback.
    #[arg(long, value_name = "HOST:PORT")]
    pub web: Option<String>,
}

/// Arguments of `weir bench agent`.
#[derive(Args, Debug)]
pub struct AgentArgs {
    /// The run to work for: the address that it was given as --listen, as this machine reaches it.
    #[arg(long, value_name = "HOST:PORT")]
    pub join: String,
    /// The run's token file, or a copy.
    #[arg(long, value_name = "FILE")]
    pub token_file: PathBuf,
    /// The name of this machine in results [default: its host name].
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Do no work, but report what this machine does: it is a server of a system.
    #[arg(long, requires = "system")]
    pub watch: bool,
    /// The name in the campaign of the system that this machine is a server of.
    #[arg(long = "as", value_name = "SYSTEM", requires = "watch")]
    pub system: Option<String>,
    /// Count only the CPU time of processes with this name as the server's, not all of the machine's; can be given
    /// several times.
    #[arg(long = "process", value_name = "NAME", requires = "watch")]
    pub processes: Vec<String>,
    /// A directory in which campaigns may name files of this machine: ROOT files and recordings to read, scratch
    /// space for copies. Without it they may use only the folders that they create in a system's directory; can be
    /// given several times.
    #[arg(long = "files", value_name = "DIRECTORY", conflicts_with = "watch")]
    pub files: Vec<PathBuf>,
    /// Let campaigns run fio, xrdcp, iperf3 and uproot here, on the same work as weir's own.
    #[arg(long, conflicts_with = "watch")]
    pub tools: bool,
}

/// What a site starts programs with.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
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

/// Arguments of `weir bench launch`.
#[derive(Args, Debug)]
pub struct LaunchArgs {
    /// How the site starts programs.
    #[arg(long, value_enum)]
    pub via: Launcher,
    /// The run that the agents work for: the address that it is given as --listen, as they reach it.
    #[arg(long, value_name = "HOST:PORT")]
    pub join: String,
    /// The run's token file, here.
    #[arg(long, value_name = "FILE")]
    pub token_file: PathBuf,
    /// The number of agents, if the site chooses the hosts (slurm, htcondor, kubernetes).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4000))]
    pub agents: Option<u16>,
    /// The hosts (ssh, clush; for slurm a number is enough).
    #[arg(value_name = "HOST")]
    pub hosts: Vec<String>,
}
