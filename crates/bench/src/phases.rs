//! The phases of a trial, one after the other, done by this machine or by all agents.

use std::mem::discriminant;
use std::time::{Duration, Instant};

use crate::campaign::{Phase, Work};
use crate::coordinate::message::{ServerAddress, TrialFolder};
use crate::coordinate::{CoordinateError, Coordinator, Job, Outcome, View};
use crate::fault::{Faults, quiet_command};
use crate::load::{Reading, Tally};
use crate::measure::{Measured, Progress, measure_at};
use crate::network::NetworkServer;
use crate::result::{Caches, Machines, PhaseRecord, TrialRecord};
use crate::run::{Context, now_secs};
use crate::target::{Target, TargetDir, TargetError};
use crate::workload::{Refusal, Site};

/// How often a read-back checks whether to continue.
const LOOK: Duration = Duration::from_secs(1);
/// Between two phases: what a server still does for the one before must not fall into the next.
const PAUSE: Duration = Duration::from_millis(300);

/// The folders of a trial.
pub(crate) struct TrialFolders {
    /// For this machine.
    pub(crate) site: Site,
    /// For agents: the folder; `None`: without a system.
    pub(crate) home: Option<TrialFolder>,
    /// For agents: the folder for copies.
    pub(crate) copies: Option<TrialFolder>,
}

/// The result of a phase.
struct PhaseResult {
    roles: Vec<(String, Measured)>,
    caches: Caches,
    machines: Machines,
    ended: Option<String>,
}

type Watch<'a> = dyn FnMut(&str, Progress) -> bool + 'a;

/// Returns the indexes of the phases of a work that this driver supports.
pub(crate) fn suited(work: &Work, target: Option<&dyn Target>) -> Vec<usize> {
    let suits = |(_, phase): &(usize, &Phase)| target.is_none_or(|target| phase.workload().suits(target));
    work.phases.iter().enumerate().filter(suits).map(|(number, _)| number).collect()
}

/// Records the phases that a system does not support, without doing anything.
pub(crate) fn record_refusals(work: &Work, target: &dyn Target, record: &mut TrialRecord) {
    for (number, phase) in work.phases.iter().enumerate() {
        let Some(Refusal { what, by }) = phase.workload().refusal(target) else { continue };
        let mut tally = Tally::default();
        tally.add_failure(Duration::ZERO, &TargetError::Unsupported { what, by });
        record.phases.push(PhaseRecord {
            number,
            phase: phase.workload().title(),
            began: now_secs(),
            caches: Caches::Kept,
            faults: Vec::new(),
            measured: Measured::nothing(tally),
            machines: Machines::default(),
        });
    }
}

/// Does all phases of `work`, and records them. Returns why they ended early, if they did.
pub(crate) fn run_phases(
    context: &Context<'_>,
    work: &Work,
    homes: &TrialFolders,
    record: &mut TrialRecord,
    watch: &mut Watch<'_>,
) {
    let numbers = suited(work, homes.site.target.as_deref());
    if let Err((at, why)) = do_phases(context, work, &numbers, homes, record, watch) {
        record.ended = Some(why);
        record.not_done = numbers.into_iter().filter(|number| *number >= at).collect();
    }
}

/// The phase at which the work ended early, and the reason.
type EarlyEnd = (usize, String);

fn do_phases(
    context: &Context<'_>,
    work: &Work,
    numbers: &[usize],
    homes: &TrialFolders,
    record: &mut TrialRecord,
    watch: &mut Watch<'_>,
) -> Result<(), EarlyEnd> {
    let (mut went_on, mut uncertain) = (true, false);
    let agents = context.coordinator.filter(|coordinator| coordinator.planned() > 0);
    let mut cut = Vec::new();
    for (number, phase) in work.phases.iter().enumerate().filter(|(number, _)| numbers.contains(number)) {
        let phase = &if uncertain { phase.of_uncertain(agents.is_some()) } else { phase.clone() };
        let title = phase.workload().title();
        if cut.contains(&discriminant(phase)) && phase.needs_whole_files(agents.is_some()) {
            let why = format!("{title}: not done, because the time limit ended the phase that writes its files");
            return Err((number, why));
        }
        if !record.phases.is_empty() {
            std::thread::sleep(PAUSE);
        }
        let servers_emptied = empty_servers(context, phase).map_err(|why| (number, format!("{title}: {why}")))?;
        let began = now_secs();
        let mut faults = Faults::new(context.faults);
        let mut watch = |progress: Progress| {
            faults.tick(progress.elapsed);
            went_on &= watch(&title, progress);
            went_on
        };
        let done = match agents {
            Some(coordinator) => by_all_agents(context, coordinator, phase, homes, &mut watch),
            None => by_this_machine(context, phase, &homes.site, &mut watch),
        };
        let mut faults = faults.end();
        let done = match done {
            Ok(done) => done,
            Err(why) => return Err((number, format!("{title}: {why}"))),
        };
        if phase.workload().writes() || phase.workload().makes_files() {
            let of_any = |count: fn(&Tally) -> u64| done.roles.iter().any(|(_, measured)| count(&measured.tally) > 0);
            let was_cut = of_any(|tally| tally.cut);
            uncertain |= was_cut || of_any(Tally::failed);
            cut.extend(was_cut.then(|| discriminant(phase)));
        }
        let idle = done.roles.iter().find_map(|(_, measured)| measured.idle_workers.first().cloned());
        let broken = faults.iter().find_map(|fault| Some((fault.command.join(" "), fault.error.clone()?)));
        let missing = done.machines.missing.clone();
        // A mount has a cache on this machine as well.
        let is_mount = context.places.iter().any(|place| matches!(place, TargetDir::Path(_)));
        let caches = if servers_emptied && !is_mount { Caches::Dropped } else { done.caches };
        let mut machines = Some(done.machines);
        for (role, measured) in done.roles {
            let phase = if role.is_empty() { title.clone() } else { role };
            // The machines are recorded once. The missing ones are recorded with each role.
            let machines =
                machines.take().unwrap_or_else(|| Machines { missing: missing.clone(), ..Machines::default() });
            let faults = std::mem::take(&mut faults);
            record.phases.push(PhaseRecord { number, phase, began, caches, faults, measured, machines });
        }
        if let Some((command, error)) = broken {
            return Err((number, format!("{title}: the command `{command}`: {error}")));
        }
        if !went_on {
            return Err((number, "stopped".to_owned()));
        }
        if let Some(ended) = done.ended {
            return Err((number, format!("{title}: {ended}")));
        }
        if let Some(why) = idle {
            return Err((number, format!("{title}: not all workers could start: {why}")));
        }
    }
    Ok(())
}

fn by_this_machine(
    context: &Context<'_>,
    phase: &Phase,
    site: &Site,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> Result<PhaseResult, String> {
    let text = |error: &dyn std::error::Error| error.to_string();
    let workload = phase.workload();
    let caches = if workload.is_cold() { empty_caches(context.places) } else { Caches::Kept };
    let worker_pool = workload.worker_pool(site, 0..workload.parts()).map_err(|error| text(&error))?;
    worker_pool.prepare();
    let asked = context.coordinator.map(Coordinator::gather).transpose();
    let mut last = Reading::default();
    let (mut progress, mut went_on) = (Progress::default(), true);
    let begun = Instant::now();
    let mut roles = measure_at(worker_pool, begun, context.phase_limit, helpers(context, phase), |second| {
        if let Some(coordinator) = context.coordinator {
            let now: Reading = second.roles.iter().copied().sum();
            coordinator.show(now, now.since(last), second.progress.elapsed, second.sample);
            last = now;
        }
        progress = second.progress;
        went_on = watch(progress);
        went_on
    });
    let servers = match context.coordinator {
        Some(coordinator) => asked.and_then(|_| coordinator.gathered()).map_err(|error| text(&error))?,
        None => Vec::new(),
    };
    // This time does not count, because all measured values have been read.
    let mut looked = Instant::now();
    let mut go_on = || {
        if looked.elapsed() >= LOOK {
            (looked, went_on) = (Instant::now(), watch(progress));
        }
        went_on && context.phase_limit.is_none_or(|limit| begun.elapsed() < limit)
    };
    if let Some((_, measured)) = roles.first_mut() {
        workload.read_back(site, &mut measured.tally, &mut go_on);
    }
    let roles = roles.into_iter().map(|(role, measured)| (role.to_owned(), measured)).collect();
    let mut machines = Machines { servers, ..Machines::default() };
    keep_own_servers(&mut machines, context, phase);
    Ok(PhaseResult { roles, caches, machines, ended: None })
}

fn by_all_agents(
    context: &Context<'_>,
    coordinator: &Coordinator,
    phase: &Phase,
    homes: &TrialFolders,
    watch: &mut dyn FnMut(Progress) -> bool,
) -> Result<PhaseResult, String> {
    let job = Job {
        phase: phase.clone(),
        home: homes.home.clone(),
        copies: homes.copies.clone(),
        peers: homes.site.peers.iter().map(server_address).collect(),
        client_processes: helpers(context, phase).to_vec(),
        seed: context.seed,
        limit: context.phase_limit,
    };
    let mut watch = |view: &View| {
        let elapsed = Duration::try_from_secs_f64(view.elapsed_s).unwrap_or_default();
        watch(Progress { elapsed, done: view.done, last: view.total() })
    };
    let found: Result<Outcome, CoordinateError> = coordinator.run(job, &mut watch);
    let outcome = found.map_err(|error| error.to_string())?;
    if let Some(why) = outcome.refused {
        return Err(why);
    }
    let machines = Machines { agents: outcome.agents, missing: outcome.missing, servers: outcome.servers };
    let nobody = || format!("no agent is left: {}", machines.missing.join("; "));
    let ended = outcome.roles.is_empty().then(nobody);
    let mut done = PhaseResult { roles: outcome.roles, caches: outcome.caches, machines, ended };
    keep_own_servers(&mut done.machines, context, phase);
    Ok(done)
}

/// The address of a network-test server, for agents.
fn server_address(server: &NetworkServer) -> ServerAddress {
    ServerAddress { system: server.system.clone(), address: server.address.clone(), iperf3: server.iperf3.clone() }
}

/// The processes that do a part of the client's work in this phase.
fn helpers<'a>(context: &Context<'a>, phase: &Phase) -> &'a [String] {
    if phase.workload().needs_system() { context.client_processes } else { &[] }
}

/// Of all watched servers, keeps those of the present system.
fn keep_own_servers(machines: &mut Machines, context: &Context<'_>, phase: &Phase) {
    let is_own = |system: &str| phase.workload().needs_system() && system == context.system;
    machines.servers.retain(|server| is_own(&server.system));
}

/// Has the system's own command empty the caches of its servers before a cold read. Returns whether it has one.
fn empty_servers(context: &Context<'_>, phase: &Phase) -> Result<bool, String> {
    let Some(mut ran) = quiet_command(context.empty_caches).filter(|_| phase.workload().is_cold()) else {
        return Ok(false);
    };
    let command = context.empty_caches.join(" ");
    match ran.status() {
        Ok(status) if status.success() => Ok(true),
        Ok(status) => Err(format!("the command `{command}` of `empty_caches` failed: {status}")),
        Err(error) => Err(format!("cannot run the command `{command}` of `empty_caches`: {error}")),
    }
}

/// Empties this machine's page cache before a cold read. A server's cache cannot be emptied from here.
pub(crate) fn empty_caches(places: &[TargetDir]) -> Caches {
    if !places.iter().all(|place| matches!(place, TargetDir::Path(_))) {
        return Caches::Unknown;
    }
    rustix::fs::sync();
    std::fs::write("/proc/sys/vm/drop_caches", "3").map_or(Caches::Unknown, |()| Caches::Dropped)
}
