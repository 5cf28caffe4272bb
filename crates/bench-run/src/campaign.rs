//! `weir bench run`: runs a campaign trial by trial, and continues an interrupted one.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bench::campaign::{Campaign, System, Trial, Work, estimate, order};
use bench::content::Content;
use bench::coordinate::Coordinator;
use bench::measure::Progress;
use bench::report::{Summary, summarise};
use bench::result::{MachineSettings, ResultFolder, RunHead, VERSION, known_settings, news, whole};
use bench::run::{Context, RunError, absent, run_trial};
use bench::sampling::{Settings, machine_settings, memory_bytes};
use bench::target::{Failure as Refused, TargetDir};
use bench::units::{counted, show_estimate, show_rate, show_sum};
use bench::workload::LocalFile;
use client::Client;
use console::{Exit, Failure};

use crate::live::Screen;
use crate::options::{MeasureOptions, RunOptions};
use crate::peers::Peers;
use crate::results::{print, write_reports};
use crate::{failed, flows, machines, printed, say, settings, text_of, usage};

/// Assumed rates of an estimate. Users compare them with what they know of their systems.
pub(crate) const SUPPOSED_BYTE_RATE: u64 = 300_000_000;
pub(crate) const SUPPOSED_OPERATION_RATE: u64 = 1_000;

pub(crate) fn run(args: &RunOptions) -> Result<Exit, Failure> {
    let path = &args.campaign;
    let source = text_of("campaign", path)?;
    let campaign = Campaign::parse(&source).map_err(|error| usage(error).while_doing(path.display().to_string()))?;
    if args.dry_run {
        dry_run(&campaign, None)?;
        check_places(&campaign)?;
        return Ok(Exit::Done);
    }
    do_campaign(&campaign, &source, &args.how, None)
}

/// Settings of this machine, and how the systems are mounted on it.
fn settings_here(campaign: &Campaign) -> Settings {
    let mut places: Vec<(String, PathBuf)> = Vec::new();
    for system in &campaign.systems {
        for (number, place) in system.places().unwrap_or_default().into_iter().enumerate() {
            let name = if number == 0 { system.name.clone() } else { format!("{} ({})", system.name, number + 1) };
            if let TargetDir::Path(path) = place {
                places.push((name, path));
            }
        }
    }
    let places: Vec<(&str, &Path)> = places.iter().map(|(name, path)| (name.as_str(), path.as_path())).collect();
    machine_settings(&places)
}

/// Prints the trials of a campaign. Works that read `to_make`, a file that the run makes first, are not prepared.
pub(crate) fn dry_run(campaign: &Campaign, to_make: Option<&Path>) -> Result<(), Failure> {
    let works = campaign.works();
    let needs_it = |work: &Work| {
        let files = work.phases.iter().flat_map(|phase| phase.workload().local_files());
        to_make.is_some_and(|path| files.into_iter().any(|file| file == LocalFile::Read(path.to_owned())))
    };
    let prepare = |work: &Work| if needs_it(work) { work.try_tools() } else { work.prepare() };
    works.iter().try_for_each(prepare).map_err(usage)?;
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
            "{}; {} moved in all, {} on a system at a time; about {} at {} and {SUPPOSED_OPERATION_RATE} small operations a second",
            counted(found.trials as u64, "trial", "trials"),
            show_sum(found.moved, campaign.size_family()),
            show_sum(found.room, campaign.size_family()),
            show_estimate(found.time),
            show_rate(SUPPOSED_BYTE_RATE),
        )
    };
    printed(say())
}

/// How long a check may wait for a connection to a server.
const CHECK_MAX: Duration = Duration::from_secs(3);

/// Checks that the directories of the systems exist, and changes nothing. It only warns of a server that it cannot ask.
///
/// # Errors
/// A directory is missing.
pub(crate) fn check_places(campaign: &Campaign) -> Result<(), Failure> {
    let works: Vec<Work> = campaign.works().into_iter().filter(Work::needs_place).collect();
    let all: Vec<usize> = (0..campaign.systems.len()).collect();
    let used: BTreeSet<usize> = works.iter().flat_map(|work| campaign.systems_of(work, &all)).collect();
    let mut places: Vec<(String, TargetDir)> = Vec::new();
    for system in used.into_iter().filter_map(|number| campaign.systems.get(number)) {
        let of_system = system.places().map_err(usage)?;
        places.extend(of_system.into_iter().map(|place| (system.name.clone(), place)));
    }
    for copies in works.iter().filter_map(|work| work.copy_to.as_deref()).collect::<BTreeSet<_>>() {
        places.push(("`copy_to`".to_owned(), TargetDir::parse(copies).map_err(usage)?));
    }
    let settings = client::Settings {
        connect_timeout: CHECK_MAX,
        silence_max: CHECK_MAX,
        recovery_max: Duration::ZERO,
        wait_max: CHECK_MAX,
        ..settings(&Arc::default())
    };
    for (name, place) in places {
        let is_there = match &place {
            TargetDir::Path(path) => path.is_dir(),
            TargetDir::Root(url) => match Client::new(settings.clone()).look(url) {
                Ok(found) => found.is_some(),
                Err(error) => {
                    say(&format!("warning: {name}: cannot check whether {place} exists: {error}"));
                    true
                }
            },
            // Servers differ in how they answer for a collection, so nothing is certain before the first folder.
            TargetDir::Http(_) => true,
        };
        if !is_there {
            return Err(Failure::message(Exit::NotFound, format!("{name}: {}", absent(&[place], None))));
        }
    }
    Ok(())
}

/// Runs the trials of a campaign that are not done yet; starts none after `time`.
pub(crate) fn do_campaign(
    campaign: &Campaign,
    source: &str,
    how: &MeasureOptions,
    time: Option<Duration>,
) -> Result<Exit, Failure> {
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
        let copies = work.copy_to.as_deref().map(TargetDir::parse).transpose().map_err(usage)?;
        let context = Context {
            system: &system.name,
            client_processes: &system.client_processes,
            places,
            faults: &faults,
            empty_caches: &system.empty_caches,
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
            // The interrupted trial is not recorded, so the next run repeats it.
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

/// Describes how settings differ from those of the earlier run.
fn differences(before: &Settings, now: &Settings) -> Vec<String> {
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let word = |settings: &Settings, name: &String| {
        settings.get(name).map_or("nothing".to_owned(), |value| format!("`{value}`"))
    };
    let all = names.into_iter().filter(|name| before.get(*name) != now.get(*name));
    all.map(|name| format!("{name}: {} then, {} now", word(before, name), word(now, name))).collect()
}

/// Describes where work is done.
fn where_of<'a>(work: &Work, system: &'a System) -> &'a str {
    work.system_name(&system.name)
}

fn exit_of(error: &RunError) -> Exit {
    match error {
        RunError::NotEmpty { .. } => Exit::Exists,
        RunError::NoPlace { .. } => Exit::NotFound,
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

/// The exit code for a run, which tells of wrong or missing figures.
fn verdict(summary: &Summary) -> Exit {
    if summary.is_whole() { Exit::Done } else { Exit::Wrong }
}

pub(crate) fn default_folder(name: &str) -> PathBuf {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    Path::new("weir-bench-results").join(name)
}
