//! One share of a phase: prepares it, reports that, starts at the given time, reports each second, and reports the
//! result.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

use client::Settings;

use super::{Allowed, Line};
use crate::content::Content;
use crate::coordinate::message::{AgentMessage, IDLE_MAX, RoleDone, ServerAddress, Task, TrialFolder, short};
use crate::load::{Reading, WorkerPool};
use crate::measure::{Measured, measure_at};
use crate::network::{NetworkServer, Program};
use crate::peer::Token;
use crate::phases::empty_caches;
use crate::result::Caches;
use crate::run::FOLDER_BEGINS;
use crate::sampling::{Sample, machine_settings};
use crate::target::{RelName, Target, TargetDir};
use crate::workload::{KnownFiles, Site};

/// How often a prepared share checks whether it is called off.
const LOOK: Duration = Duration::from_millis(20);

/// The most directories of one system.
const PLACES_MAX: usize = 1024;

/// The parts of the agent that its work needs.
pub(super) struct AgentResources {
    pub(super) allowed: Allowed,
    /// The token with which the agent has joined.
    pub(super) token: Token,
    pub(super) program: Program,
}

/// Does `task`, and reports the result.
pub(super) fn work(
    task: &Task,
    here: &AgentResources,
    known: Arc<KnownFiles>,
    settings: &Settings,
    line: &Line,
    starts: &Receiver<Duration>,
    stop: &AtomicBool,
) {
    let is_stopped = || stop.load(Ordering::Relaxed) || line.ends.load(Ordering::Relaxed);
    let (worker_pool, site, caches) = match prepare(task, here, known, settings) {
        Ok(ready) => ready,
        Err(why) => {
            line.tell_or_end(&AgentMessage::Refused { run: task.run, why: short(&why) });
            return;
        }
    };
    worker_pool.prepare();
    let places = [&task.home, &task.copies].into_iter().flatten().flat_map(|home| &home.places);
    // The mounts of these directories may explain why this machine is slower than another. They may have changed
    // since the agent started.
    let settings = machine_settings(&places.map(|place| (place.as_str(), Path::new(place))).collect::<Vec<_>>());
    line.tell_or_end(&AgentMessage::Settings { settings });
    line.tell_or_end(&AgentMessage::Prepared { run: task.run, caches });
    let start = loop {
        match starts.recv_timeout(LOOK) {
            Ok(start) => break start,
            Err(RecvTimeoutError::Timeout) if !is_stopped() => {}
            Err(_) => {
                worker_pool.call_off();
                return;
            }
        }
    };
    let roles: Vec<&str> = worker_pool.roles().collect();
    let mut told = vec![Reading::default(); roles.len()];
    let mut number = 0;
    let limit = task.limit_s.and_then(|limit| Duration::try_from_secs_f64(limit).ok());
    let mut measured = measure_at(worker_pool, line.clock.instant_of(start), limit, &task.client_processes, |second| {
        let deltas = roles.iter().zip(second.roles).zip(&mut told).map(|((role, now), told)| {
            let delta = now.since(*told);
            *told = *now;
            ((*role).to_owned(), delta)
        });
        let tell =
            AgentMessage::Second { run: task.run, number, roles: deltas.collect(), sample: second.sample.clone() };
        number += 1;
        line.tell_or_end(&tell);
        !is_stopped()
    });
    if line.ends.load(Ordering::Relaxed) {
        // A half-done share is useless, so the coordinator must see that this agent is gone.
        return;
    }
    if let Some((_, first)) = measured.first_mut() {
        task.phase.workload().read_back(&site, &mut first.tally, &mut || !is_stopped());
    }
    line.tell_or_end(&done(task.run, measured, &told));
}

/// Returns the prepared workers, where they work, and what may come from a cache.
fn prepare(
    task: &Task,
    here: &AgentResources,
    known: Arc<KnownFiles>,
    settings: &Settings,
) -> Result<(WorkerPool, Site, Caches), String> {
    let phase = task.phase.workload();
    here.allowed.check(phase)?;
    phase.check().map_err(|error| error.to_string())?;
    if task.parts.is_empty() || task.parts.end > phase.parts() {
        return Err(format!(
            "parts {} to {} are not among the {} of this phase",
            task.parts.start,
            task.parts.end,
            phase.title()
        ));
    }
    let home = task.home.as_ref().map(|home| system(home, settings)).transpose()?;
    let copies = task.copies.as_ref().map(|copies| system(copies, settings)).transpose()?;
    let caches = match &home {
        Some((places, _)) if phase.is_cold() => empty_caches(places),
        _ => Caches::Kept,
    };
    let content = Arc::new(Content::new(task.seed));
    let target = |system: Option<(Vec<TargetDir>, Arc<dyn Target>)>| system.map(|(_, target)| target);
    for (what, count) in [("network-test servers", task.peers.len()), ("client_processes", task.client_processes.len())]
    {
        if count > PLACES_MAX {
            return Err(format!("{count} {what}; give at most {PLACES_MAX}"));
        }
    }
    let server = |ServerAddress { system, address, iperf3 }: &ServerAddress| NetworkServer {
        system: system.clone(),
        address: address.clone(),
        iperf3: iperf3.clone(),
        token: here.token.clone(),
        program: here.program.clone(),
    };
    let peers = task.peers.iter().map(server).collect();
    let site = Site { target: target(home), copies: target(copies), peers, content, known };
    let worker_pool = phase.worker_pool(&site, task.parts.clone()).map_err(|error| error.to_string())?;
    Ok((worker_pool, site, caches))
}

/// Opens a system with the trial's folder. The agent works in no other folder, whatever the coordinator asks.
fn system(home: &TrialFolder, settings: &Settings) -> Result<(Vec<TargetDir>, Arc<dyn Target>), String> {
    if home.places.is_empty() || home.places.len() > PLACES_MAX {
        return Err(format!("{} places; give 1 to {PLACES_MAX}", home.places.len()));
    }
    let places: Result<Vec<TargetDir>, _> = home.places.iter().map(|place| TargetDir::parse(place)).collect();
    let places = places.map_err(|error| error.to_string())?;
    let folder = RelName::new(home.folder.clone())
        .filter(|folder| folder.as_str().starts_with(FOLDER_BEGINS) && !folder.as_str().contains('/'))
        .ok_or_else(|| format!("`{:.100}` is not the name of a trial's folder", home.folder.escape_debug()))?;
    let target = TargetDir::targets(&places, &folder, settings);
    Ok((places, target))
}

fn done(run: u64, measured: Vec<(&'static str, Measured)>, told: &[Reading]) -> AgentMessage {
    let (mut cpu_s, mut system_s, mut sample) = (0.0, 0.0, None);
    let role = |((role, measured), told): ((&'static str, Measured), &Reading)| {
        cpu_s += measured.client_cpu_s;
        system_s += measured.client_system_s;
        sample = sample.take().or_else(|| measured.client.last().cloned());
        let mut idle_workers: Vec<String> = measured.idle_workers.iter().take(IDLE_MAX).map(|why| short(why)).collect();
        let more = measured.idle_workers.len().saturating_sub(IDLE_MAX);
        if more > 0 {
            idle_workers.truncate(IDLE_MAX - 1);
            idle_workers.push(format!("and {} more", more + 1));
        }
        let mut tally = measured.tally;
        tally.complaints.iter_mut().for_each(|complaint| complaint.text = short(&complaint.text));
        RoleDone {
            role: role.to_owned(),
            wall_s: measured.wall_s,
            tally,
            rest: measured.seconds.last().copied().unwrap_or_default().since(*told),
            idle_workers,
        }
    };
    let roles = measured.into_iter().zip(told).map(role).collect();
    AgentMessage::Done { run, roles, cpu_s, system_s, sample: sample.unwrap_or_else(Sample::default) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_works_only_in_a_trial_folder() {
        let system = |place: &str, folder: &str| {
            let home = TrialFolder { places: vec![place.to_owned()], folder: folder.to_owned() };
            super::system(&home, &Settings::default()).map(|(places, _)| places[0].to_string())
        };
        assert_eq!(system("/mnt", "weir-bench-17-0-0-0"), Ok("/mnt".to_owned()));
        for folder in ["", ".", "home", "../weir-bench-1", "weir-bench-1/../..", "weir-bench-1/x", "/weir-bench-1"] {
            assert!(system("/mnt", folder).unwrap_err().contains("not the name of a trial's folder"), "{folder}");
        }
        assert!(system("gopher://x", "weir-bench-1").unwrap_err().contains("gopher"));
    }
}
