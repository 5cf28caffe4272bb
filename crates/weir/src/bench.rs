//! `weir bench`: the command line for the crate `bench-run`.

use bench::study::Study;
use bench::workload::{JobTool, UprootWith};
use bench_run::options::{
    self, AgentOptions, BenchCommand as Command, CompareOptions, FlowsOptions, LaunchOptions, MachinesOptions,
    MeasureOptions, QuickOptions, ReportOptions, RootFileOptions, RunOptions, StudyOptions, TestbedOptions,
    TokenOptions,
};

use crate::Failure;
use crate::cli::{
    AgentArgs, BenchArgs, BenchCommand, CompareArgs, FlowsArgs, JobToolName, LaunchArgs, Launcher, MachinesArgs,
    MeasureArgs, Peer, QuickArgs, ReportArgs, RootFileArgs, RunArgs, StudyArgs, StudyName, TestbedArgs, TestbedCommand,
    TokenArgs, UprootWithName,
};
use crate::exit::Exit;

/// Runs the command.
pub fn run(args: &BenchArgs) -> Result<Exit, Failure> {
    bench_run::run(&match &args.command {
        BenchCommand::Quick(args) => Command::Quick(quick(args)),
        BenchCommand::Run(args) => Command::Run(run_of(args)),
        BenchCommand::Report(args) => Command::Report(report(args)),
        BenchCommand::Agent(args) => Command::Agent(agent(args)),
        BenchCommand::Launch(args) => Command::Launch(launch(args)),
        BenchCommand::Token(args) => Command::Token(token(args)),
        BenchCommand::Flows(args) => Command::Flows(flows(args)),
        BenchCommand::FlowProcess => Command::FlowProcess,
        BenchCommand::Compare(args) => Command::Compare(compare(args)),
        BenchCommand::RootFile(args) => Command::RootFile(root_file(args)),
        BenchCommand::Study(args) => Command::Study(study(args)),
        BenchCommand::Testbed(args) => Command::Testbed(testbed(args)),
    })
}

fn study(args: &StudyArgs) -> StudyOptions {
    StudyOptions {
        study: study_of(args.study),
        targets: args.targets.clone(),
        systems: args.systems.clone(),
        repeats: args.repeats,
        scale: args.scale,
        rate: args.rate,
        root_file: args.root_file.clone(),
        by: args.by.map(|JobToolName::Uproot| JobTool::Uproot),
        uproot_with: args.uproot_with.map(|with| match with {
            UprootWithName::Weir => UprootWith::Weir,
            UprootWithName::FsspecXrootd => UprootWith::FsspecXrootd,
        }),
        python: args.python.clone(),
        round_trip: args.round_trip,
        dry_run: args.dry_run,
        how: how(&args.how),
    }
}

fn testbed(args: &TestbedArgs) -> TestbedOptions {
    TestbedOptions { dir: args.dir.clone(), command: testbed_command(&args.command) }
}

fn quick(args: &QuickArgs) -> QuickOptions {
    QuickOptions { places: args.places.clone(), time: args.time, how: how(&args.how) }
}

fn run_of(args: &RunArgs) -> RunOptions {
    RunOptions { campaign: args.campaign.clone(), dry_run: args.dry_run, how: how(&args.how) }
}

fn how(args: &MeasureArgs) -> MeasureOptions {
    MeasureOptions {
        results: args.results.clone(),
        phase_limit: args.phase_limit,
        json: args.json,
        quiet: args.quiet,
        machines: machines(&args.machines),
    }
}

fn token(args: &TokenArgs) -> TokenOptions {
    TokenOptions { file: args.file.clone(), hours: args.hours }
}

fn flows(args: &FlowsArgs) -> FlowsOptions {
    FlowsOptions { listen: args.listen.clone(), token_file: args.token_file.clone() }
}

fn compare(args: &CompareArgs) -> CompareOptions {
    CompareOptions { first: args.first.clone(), second: args.second.clone(), json: args.json }
}

fn report(args: &ReportArgs) -> ReportOptions {
    ReportOptions { folders: args.folders.clone(), json: args.json }
}

fn root_file(args: &RootFileArgs) -> RootFileOptions {
    RootFileOptions { file: args.file.clone(), unpack: args.unpack, json: args.json }
}

fn machines(args: &MachinesArgs) -> MachinesOptions {
    MachinesOptions {
        agents: args.agents,
        watchers: args.watchers,
        listen: args.listen.clone(),
        token_file: args.token_file.clone(),
        web: args.web.clone(),
    }
}

fn agent(args: &AgentArgs) -> AgentOptions {
    AgentOptions {
        join: args.join.clone(),
        token_file: args.token_file.clone(),
        name: args.name.clone(),
        watch: args.watch,
        system: args.system.clone(),
        processes: args.processes.clone(),
        files: args.files.clone(),
        tools: args.tools,
    }
}

fn launch(args: &LaunchArgs) -> LaunchOptions {
    LaunchOptions {
        via: launcher(args.via),
        join: args.join.clone(),
        token_file: args.token_file.clone(),
        agents: args.agents,
        hosts: args.hosts.clone(),
    }
}

fn study_of(name: StudyName) -> Study {
    match name {
        StudyName::A => Study::A,
        StudyName::B => Study::B,
        StudyName::C => Study::C,
        StudyName::D => Study::D,
        StudyName::E => Study::E,
    }
}

fn launcher(via: Launcher) -> options::Launcher {
    match via {
        Launcher::Ssh => options::Launcher::Ssh,
        Launcher::Clush => options::Launcher::Clush,
        Launcher::Slurm => options::Launcher::Slurm,
        Launcher::Htcondor => options::Launcher::Htcondor,
        Launcher::Kubernetes => options::Launcher::Kubernetes,
    }
}

fn testbed_command(command: &TestbedCommand) -> options::TestbedCommand {
    let all = |peers: &[Peer]| peers.iter().map(|peer| peer_of(*peer)).collect();
    match command {
        TestbedCommand::Up { peers, link } => options::TestbedCommand::Up { peers: all(peers), link: *link },
        TestbedCommand::Down { peers } => options::TestbedCommand::Down { peers: all(peers) },
        TestbedCommand::Kill { peer } => options::TestbedCommand::Kill { peer: peer_of(*peer) },
        TestbedCommand::Start { peer } => options::TestbedCommand::Start { peer: peer_of(*peer) },
        TestbedCommand::List => options::TestbedCommand::List,
    }
}

fn peer_of(peer: Peer) -> options::Peer {
    match peer {
        Peer::Xrootd => options::Peer::Xrootd,
        Peer::Glusterfs => options::Peer::Glusterfs,
        Peer::Moosefs => options::Peer::Moosefs,
        Peer::Nfs => options::Peer::Nfs,
        Peer::Nginx => options::Peer::Nginx,
        Peer::Weir => options::Peer::Weir,
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;

    use super::*;

    /// The command line's names of peers are those that the testbed writes.
    #[test]
    fn peers_have_the_same_names_on_the_command_line() {
        let given = |peer: &Peer| peer.to_possible_value().map(|value| value.get_name().to_owned());
        let on_the_line: Vec<_> = Peer::value_variants().iter().filter_map(given).collect();
        let in_the_testbed: Vec<_> = options::Peer::ALL.iter().map(|peer| peer.name().to_owned()).collect();
        assert_eq!(on_the_line, in_the_testbed);
        assert!(Peer::value_variants().iter().map(|peer| peer_of(*peer)).eq(options::Peer::ALL));
    }
}
