//! `weir-sim`: simulations by seed, until one finds something.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program's own words

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use sim::{Counts, Faults, Settings, run};

/// Simulates a cluster, seed by seed, and looks for what must not be.
#[derive(Parser, Debug)]
#[command(name = "weir-sim")]
struct Arguments {
    /// This seed alone.
    #[arg(long, conflicts_with_all = ["from", "to"])]
    seed: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The one after the last.
    #[arg(long, default_value_t = 1000)]
    to: u64,
    /// Print all that happens.
    #[arg(long)]
    tell: bool,
    /// How long each run is before all is mended, in simulated seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Faults that are left out; can be given several times.
    #[arg(long, value_enum)]
    without: Vec<Fault>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Fault {
    /// Errors of a server's disk.
    Disk,
    /// Power failures: processes end as by a kill.
    Power,
    /// Ends of the manager.
    Manager,
    /// Ends of servers.
    Server,
    /// Nodes that do not reach each other.
    Partition,
    /// Messages between nodes that come late or twice.
    Message,
}

impl Fault {
    fn leave_out(self, faults: &mut Faults) {
        match self {
            Self::Disk => faults.disk_error_every = None,
            Self::Power => faults.power_percent = 0,
            Self::Manager => faults.manager_every = None,
            Self::Server => faults.server_every = None,
            Self::Partition => faults.partition_every = None,
            Self::Message => (faults.repeats_permille, faults.late_permille) = (0, 0),
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = arguments.seed.map_or(arguments.from..arguments.to, |seed| seed..seed + 1);
    let begun = Instant::now();
    let mut all = Counts::default();
    for seed in seeds.clone() {
        let duration = Duration::from_secs(arguments.seconds);
        let mut settings = Settings { is_told: arguments.tell, duration, ..Settings::of_seed(seed) };
        arguments.without.iter().for_each(|fault| fault.leave_out(&mut settings.faults));
        match run(&settings) {
            Ok(counts) => all = all.plus(counts),
            Err(violation) => {
                eprintln!("{violation}");
                return ExitCode::FAILURE;
            }
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!("seeds {} to {}: {all}", seeds.start, seeds.end.saturating_sub(1));
    #[allow(clippy::cast_precision_loss)] // rates
    let (events, messages) = (all.events as f64 / took, all.delivered as f64 / took);
    println!("{took:.1} s: {events:.0} events a second, {messages:.0} of them messages");
    ExitCode::SUCCESS
}
