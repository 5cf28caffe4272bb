//! `weir-sim`: simulations by seed, until one finds something.

#![allow(clippy::print_stdout, clippy::print_stderr)] // a program's own words

use std::process::ExitCode;
use std::time::{Duration, Instant};

use sim::{Counts, Faults, Settings, run};

const HELP: &str = "weir-sim: simulates a cluster and looks for what must not be\n\n  \
                    --seeds FROM..TO   seeds, one run each (default 0..100)\n  \
                    --seed N           this one alone\n  \
                    --tell             prints all that happens\n  \
                    --seconds N        how long each run is, in simulated seconds (default 60)\n  \
                    --without WHAT     no disk, power, manager, server, partition or message faults; can be given several times";

fn main() -> ExitCode {
    let mut seeds = 0..100;
    let (mut is_told, mut seconds, mut without) = (false, None, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().unwrap_or_default();
        let parsed = match argument.as_str() {
            "--seed" => number().parse().ok().map(|seed: u64| seeds = seed..seed + 1),
            "--seeds" => {
                number().split_once("..").and_then(|(from, to)| Some(seeds = from.parse().ok()?..to.parse().ok()?))
            }
            "--seconds" => number().parse().ok().map(|number| seconds = Some(Duration::from_secs(number))),
            "--without" => Some(number()).filter(|what| is_fault(what)).map(|what| without.push(what)),
            "--tell" => Some(is_told = true),
            _ => None,
        };
        if parsed.is_none() {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    }
    let begun = Instant::now();
    let mut all = Counts::default();
    for seed in seeds.clone() {
        let mut settings = Settings { is_told, ..Settings::of_seed(seed) };
        settings.duration = seconds.unwrap_or(settings.duration);
        without.iter().for_each(|what| leave_out(&mut settings.faults, what));
        match run(&settings) {
            Ok(counts) => all = all.plus(counts),
            Err(violation) => {
                eprintln!("{violation}");
                return ExitCode::FAILURE;
            }
        }
    }
    let took = begun.elapsed().as_secs_f64();
    println!("seeds {seeds:?}: {all}");
    println!("{:.1} s, {:.0} delivered messages a second", took, all.delivered as f64 / took);
    ExitCode::SUCCESS
}

fn is_fault(what: &str) -> bool {
    let mut faults = Faults::all();
    leave_out(&mut faults, what);
    faults != Faults::all()
}

fn leave_out(faults: &mut Faults, what: &str) {
    match what {
        "disk" => faults.disk_error_every = None,
        "power" => faults.power_percent = 0,
        "manager" => faults.manager_every = None,
        "server" => faults.server_every = None,
        "partition" => faults.partition_every = None,
        "message" => (faults.repeats_permille, faults.late_permille) = (0, 0),
        _ => {}
    }
}
