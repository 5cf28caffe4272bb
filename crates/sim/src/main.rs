//! `weir-sim`: simulations by seed, until one finds a violation.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program's own words

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use sim::{Bug, Counts, Fault, Scenario, Settings, run};

/// Simulate a cluster, seed by seed, and look for violated rules.
#[derive(Parser, Debug)]
#[command(name = "weir-sim")]
struct Arguments {
    /// Run only this seed.
    #[arg(long, conflicts_with_all = ["from", "to"])]
    seed: Option<u64>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// The seed after the last.
    #[arg(long, default_value_t = 1000)]
    to: u64,
    /// Print every event.
    #[arg(long)]
    tell: bool,
    /// What the runs are about: everything, quiet, cut-off, sessions, damage, sharing or database.
    #[arg(long, default_value = "everything", value_parser = |said: &str| one_of(&Scenario::ALL, said))]
    scenario: Scenario,
    /// The length of each run before all faults end, in simulated seconds [default: the scenario's].
    #[arg(long)]
    seconds: Option<u64>,
    /// The number of managers, in the scenario `database` [default: 1 to 3, by the seed].
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=5))]
    managers: Option<u8>,
    /// Leave this fault out; can be given several times: disk, damage, power, manager, server, partition, message, decision, database, loss, stall.
    #[arg(long, value_parser = |said: &str| one_of(&Fault::ALL, said))]
    without: Vec<Fault>,
    /// Plant this bug on purpose; an unknown name lists all of them.
    #[arg(long, value_parser = |said: &str| one_of(&Bug::ALL, said))]
    plant: Option<Bug>,
}

/// Finds the entry with this name.
fn one_of<T: Copy>(all: &[(T, &'static str)], said: &str) -> Result<T, String> {
    let names: Vec<&str> = all.iter().map(|(_, name)| *name).collect();
    let found = all.iter().find(|(_, name)| *name == said).map(|(one, _)| *one);
    found.ok_or_else(|| format!("it is one of {}", names.join(", ")))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = arguments.seed.map_or(arguments.from..arguments.to, |seed| seed..seed + 1);
    let begun = Instant::now();
    let mut all = Counts::default();
    for seed in seeds.clone() {
        let base = Settings::new(arguments.scenario, seed);
        let duration = arguments.seconds.map_or(base.duration, Duration::from_secs);
        let mut settings = Settings { is_told: arguments.tell, planted: arguments.plant, duration, ..base };
        if let Some(managers) = arguments.managers.filter(|_| settings.database) {
            settings.managers = usize::from(managers);
        }
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
