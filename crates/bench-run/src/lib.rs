//! `weir bench` without its command line: campaigns from files and in three minutes, their tables and pages, agents and how sites start them, flows,
//! comparisons, studies, and the testbed of other storage systems on this machine.
//!
//! The measuring itself is that of the crate `bench`; this one prints, waits, shows and asks the system. Options are plain data ([`options`]).
//! Promises: figures that must not be used end a command with its own exit code; what the testbed started, it can take down again, also after it
//! was killed.

mod agent;
mod flows;
mod launch;
mod live;
mod machines;
pub mod options;
mod peers;
mod quick;
mod root_file;
mod study;
mod testbed;
mod token;

use std::collections::BTreeSet;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bench::campaign::{Campaign, System, Trial, Work, estimate, order};
use bench::content::Content;
use bench::coordinate::Coordinator;
use bench::measure::Progress;
use bench::report::{Page, Summary, csv, difference, settings_of_run, summarise, text};
use bench::result::{Beside, MachineSettings, ResultFolder, RunHead, VERSION, known_settings, news, whole};
use bench::run::{Context, RunError, run_trial};
use bench::sampling::{Settings, machine_settings, memory_bytes};
use bench::target::{Failure as Refused, Place};
use console::{Exit, Failure};
use types::units::{show_duration, show_size};

use self::live::Screen;
use self::peers::Peers;
use crate::options::{BenchCommand, CompareOptions, HowOptions, ReportOptions, RunOptions};

pub use testbed::parse_link;

/// Rates that an estimate supposes, for people to compare with what they know of their systems.
const SUPPOSED_BYTE_RATE: u64 = 300_000_000;
const SUPPOSED_OPERATION_RATE: u64 = 1_000;

/// Runs the command.
///
/// # Errors
/// In words, with the exit code.
pub fn run(command: &BenchCommand) -> Result<Exit, Failure> {
    match command {
        BenchCommand::Quick(args) => quick::run(args),
        BenchCommand::Run(args) => campaign(args),
        BenchCommand::Report(args) => report(args),
        BenchCommand::Agent(args) => agent::run(args),
        BenchCommand::Launch(args) => launch::run(args),
        BenchCommand::Token(args) => token::make(args),
        BenchCommand::Flows(args) => flows::serve(args),
        BenchCommand::FlowProcess => flows::process(),
        BenchCommand::Compare(args) => compare(args),
        BenchCommand::RootFile(args) => root_file::run(args),
        BenchCommand::Study(args) => study::run(args),
        BenchCommand::Testbed(args) => testbed::run(args),
    }
}

fn usage(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::new(Exit::Usage, error)
}

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Failure {
    Failure::new(Exit::Failed, error)
}

fn campaign(args: &RunOptions) -> Result<Exit, Failure> {
    let path = &args.campaign;
    let source = text_of("campaign", path)?;
    let campaign = Campaign::parse(&source).map_err(|error| usage(error).while_doing(path.display().to_string()))?;
    if args.dry_run {
        return dry_run(&campaign);
    }
    do_campaign(&campaign, &source, &args.how, None)
}

/// The text of a file that somebody has named.
fn text_of(what: &str, path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| {
        Failure::message(Exit::NotFound, format!("cannot read the {what} {}: {error}", path.display()))
    })
}

/// Settings of this machine, and how the systems are mounted on it.
fn settings_here(campaign: &Campaign) -> Settings {
    let mut places: Vec<(String, PathBuf)> = Vec::new();
    for system in &campaign.systems {
        for (number, place) in system.places().unwrap_or_default().into_iter().enumerate() {
            let name = if number == 0 { system.name.clone() } else { format!("{} ({})", system.name, number + 1) };
            if let Place::Path(path) = place {
                places.push((name, path));
            }
        }
    }
    let places: Vec<(&str, &Path)> = places.iter().map(|(name, path)| (name.as_str(), path.as_path())).collect();
    machine_settings(&places)
}

fn dry_run(campaign: &Campaign) -> Result<Exit, Failure> {
    let works = campaign.works();
    works.iter().try_for_each(Work::prepare).map_err(usage)?;
    let found = estimate(campaign, SUPPOSED_BYTE_RATE, SUPPOSED_OPERATION_RATE);
    let mut out = std::io::stdout().lock();
    let mut say = || -> std::io::Result<()> {
        for trial in order(campaign) {
            let (system, work) = (&campaign.systems[trial.system], &works[trial.work]);
            let phases: Vec<String> = work.phases.iter().map(|phase| phase.workload().title()).collect();
            let place = where_of(work, system);
            writeln!(out, "{}. {} on {place}: {}", trial.repeat + 1, work.title(), phases.join(", "))?;
        }
        writeln!(
            out,
            "{} trials; {} moved in all, {} on a system at a time; about {} at {}/s and {SUPPOSED_OPERATION_RATE} small operations a second",
            found.trials,
            show_size(found.moved),
            show_size(found.room),
            show_duration(found.time),
            show_size(SUPPOSED_BYTE_RATE),
        )
    };
    say().map_err(failed)?;
    Ok(Exit::Done)
}

/// Does what of a campaign is not done yet; begins with nothing new after `time`.
fn do_campaign(campaign: &Campaign, source: &str, how: &HowOptions, time: Option<Duration>) -> Result<Exit, Failure> {
    let works = campaign.works();
    works.iter().try_for_each(Work::prepare).map_err(usage)?;
    let path = how.results.clone().unwrap_or_else(|| default_folder(&campaign.name));
    let head = RunHead {
        version: VERSION,
        name: campaign.name.clone(),
        campaign: source.to_owned(),
        began: bench::run::now_secs(),
        program: format!("weir {}", env!("CARGO_PKG_VERSION")),
        memory_bytes: memory_bytes(),
        machine: settings_here(campaign),
    };
    let here = MachineSettings::here(head.machine.clone());
    let mut results = ResultFolder::open(&path, head).map_err(usage)?;
    let mut known = known_settings(&results.head, &results.trials);
    for difference in known.get(&here.name).map_or_else(Vec::new, |last| differences(&last.settings, &here.settings)) {
        say(&format!("warning: other settings of this machine than were recorded last: {difference}"));
    }
    let done: BTreeSet<Trial> = whole(&results.trials);
    let stop = Arc::new(AtomicBool::new(false));
    console::signals::set_on_end(&stop).map_err(failed)?;
    let peers = Peers::greet(campaign, &how.machines)?;
    let machines = machines::Machines::start(campaign, &how.machines, how.quiet, &stop)?;
    let settings = settings(&stop);
    let content = Arc::new(Content::new(campaign.seed));
    let begun = Instant::now();
    let all = order(campaign);
    let mut screen = Screen::new(how.quiet, machines.sight(), &stop);
    for (number, trial) in all.iter().enumerate().filter(|(_, trial)| !done.contains(trial)) {
        if stop.load(Ordering::Relaxed) || time.is_some_and(|time| begun.elapsed() >= time) {
            break;
        }
        let (system, work) = (&campaign.systems[trial.system], &works[trial.work]);
        let places = system.places().map_err(usage)?;
        let places = &places[..work.targets.map_or(places.len(), |targets| places.len().min(targets as usize))];
        let faults = system.faults(work);
        let copies = work.copy_to.as_deref().map(Place::parse).transpose().map_err(usage)?;
        let context = Context {
            system: &system.name,
            client_processes: &system.client_processes,
            places,
            faults: &faults,
            copies: copies.as_ref(),
            peers: peers.of(work, trial.system),
            settings: &settings,
            content: &content,
            seed: campaign.seed,
            phase_limit: how.phase_limit,
            coordinator: machines.coordinator(),
        };
        let what = format!("{}/{} {} on {}", number + 1, all.len(), work.title(), where_of(work, system));
        let watch = &mut |phase: &str, progress: Progress| {
            screen.show(&what, phase, progress);
            !stop.load(Ordering::Relaxed)
        };
        let mut record =
            run_trial(&context, trial, work, watch).map_err(|error| Failure::new(exit_of(&error), error))?;
        screen.clear();
        if stop.load(Ordering::Relaxed) {
            // What was cut off is done again.
            break;
        }
        let told = machines.coordinator().map_or_else(Vec::new, Coordinator::settings);
        record.settings =
            news(&mut known, std::iter::once(MachineSettings::here(settings_here(campaign))).chain(told).collect());
        results.add(record).map_err(failed)?;
    }
    let summary = summarise(&results.trials, campaign, &results.head);
    print(&results, &summary, how.json)?;
    write_reports(&results, campaign, &summary)?;
    Ok(verdict(&summary))
}

/// Settings that are not what they were, in words.
fn differences(before: &Settings, now: &Settings) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let word = |settings: &Settings, name: &String| {
        settings.get(name).map_or("nothing".to_owned(), |value| format!("`{value}`"))
    };
    let all = names.into_iter().filter(|name| before.get(*name) != now.get(*name));
    all.map(|name| format!("{name}: {} then, {} now", word(before, name), word(now, name))).collect()
}

/// Tells people something on a line of its own, whatever stands on the line now.
fn say(text: &str) {
    // Nobody is left to tell when stderr is gone.
    let start = if std::io::stderr().is_terminal() { "\r\x1b[K" } else { "" };
    let _ = writeln!(std::io::stderr(), "{start}{text}");
}

/// Where work is done, in words.
fn where_of<'a>(work: &Work, system: &'a System) -> &'a str {
    work.system_name(&system.name)
}

fn exit_of(error: &RunError) -> Exit {
    match error {
        RunError::NotEmpty { .. } => Exit::Exists,
        RunError::NoRoom { .. } => Exit::NoSpace,
        RunError::Peer { source, .. } => flows::exit_of(source),
        RunError::Coordinate(error) => machines::exit_of(error),
        RunError::Target { source, .. } => match source.failure() {
            Refused::NotFound => Exit::NotFound,
            Refused::Exists => Exit::Exists,
            Refused::Denied => Exit::Denied,
            Refused::NoSpace => Exit::NoSpace,
            Refused::Unreachable => Exit::Unreachable,
            Refused::Unsupported | Refused::Damaged | Refused::Other => Exit::Failed,
        },
    }
}

/// What a run of which figures are wrong, or missing, ends with.
fn verdict(summary: &Summary) -> Exit {
    if summary.is_whole() { Exit::Done } else { Exit::Wrong }
}

fn settings(stop: &Arc<AtomicBool>) -> client::Settings {
    let stop = Arc::clone(stop);
    client::Settings {
        application: "weir-bench".to_owned(),
        // A lost connection is a finding, not something to be smoothed over; a short one may be waited for.
        recovery_max: Duration::from_secs(5),
        silence_max: Duration::from_secs(60),
        stop: client::Stop::when(move || stop.load(Ordering::Relaxed)),
        ..client::Settings::default()
    }
}

fn default_folder(name: &str) -> PathBuf {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    Path::new("weir-bench-results").join(name)
}

fn print(results: &ResultFolder, summary: &Summary, json: bool) -> Result<(), Failure> {
    let text = if json { serde_json::to_string_pretty(summary).map_err(failed)? + "\n" } else { text(summary) };
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).map_err(failed)?;
    if !json {
        writeln!(out, "\n{} trials in {}", whole(&results.trials).len(), results.path().display()).map_err(failed)?;
    }
    Ok(())
}

/// The page, the table and the summary beside the trials.
fn write_reports(results: &ResultFolder, campaign: &Campaign, summary: &Summary) -> Result<(), Failure> {
    let page = Page { head: &results.head, campaign, trials: &results.trials, summary };
    let json = serde_json::to_string_pretty(summary).map_err(failed)? + "\n";
    for (file, text) in [(Beside::Page, page.html()), (Beside::Table, csv(summary)), (Beside::Summary, json)] {
        results.write_beside(file, &text).map_err(failed)?;
    }
    Ok(())
}

/// A folder of results, its campaign, and its summary.
fn read(folder: &Path) -> Result<(ResultFolder, Campaign, Summary), Failure> {
    let results = ResultFolder::read(folder).map_err(usage)?;
    let campaign = Campaign::parse(&results.head.campaign)
        .map_err(|error| usage(error).while_doing(format!("the campaign in {}", folder.display())))?;
    let summary = summarise(&results.trials, &campaign, &results.head);
    Ok((results, campaign, summary))
}

/// 0: nothing is surely slower in the second run; 1: something is.
fn compare(args: &CompareOptions) -> Result<Exit, Failure> {
    let ((first, _, before), (second, _, after)) = (read(&args.first)?, read(&args.second)?);
    let found = difference(
        (&before, &settings_of_run(&first.head, &first.trials)),
        (&after, &settings_of_run(&second.head, &second.trials)),
    );
    let text = if args.json { serde_json::to_string_pretty(&found).map_err(failed)? + "\n" } else { found.text() };
    std::io::stdout().lock().write_all(text.as_bytes()).map_err(failed)?;
    if found.rows.is_empty() {
        return Err(Failure::message(Exit::Usage, "there is nothing to compare: the two runs have no row in common"));
    }
    Ok(if found.is_slower() { Exit::Wrong } else { Exit::Done })
}

fn report(args: &ReportOptions) -> Result<Exit, Failure> {
    for folder in &args.folders {
        let (results, campaign, summary) = read(folder)?;
        print(&results, &summary, args.json)?;
        write_reports(&results, &campaign, &summary)?;
    }
    Ok(Exit::Done)
}
