//! Doing trials: in a folder of their own on the system, phase by phase, and cleaning up what they made and nothing else.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::Settings;

use crate::campaign::{Phase, Trial, Work};
use crate::content::Content;
use crate::load::Crew;
use crate::measure::{Progress, measure};
use crate::result::{Caches, PhaseRecord, TrialRecord};
use crate::target::{Failure, Place, RelName, Session, Target, TargetError};
use crate::workload::Access;

/// Why a trial was not done.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The system said no before anything was measured.
    #[error("{system}: {source}")]
    Target {
        /// The system's name.
        system: String,
        /// Why.
        source: TargetError,
    },
    /// Something is where the trial's folder was to be.
    #[error("{place}/{folder} is there already; nothing of it is touched. Remove it, or give another place")]
    NotEmpty {
        /// The directory.
        place: String,
        /// The folder in it.
        folder: RelName,
    },
    /// Too little room.
    #[error("{place} has room for {free}, and this takes {needed} at a time")]
    NoRoom {
        /// The directory.
        place: String,
        /// What there is.
        free: String,
        /// What it takes.
        needed: String,
    },
}

/// What a trial needs besides itself.
#[derive(Debug)]
pub struct Context<'a> {
    /// The system's name.
    pub system: &'a str,
    /// Where it is.
    pub place: &'a Place,
    /// For connections.
    pub settings: &'a Settings,
    /// Contents of all files.
    pub content: &'a Arc<Content>,
    /// How long one phase may take; what is left of it is not done.
    pub phase_limit: Option<Duration>,
}

/// Does a trial. `watch` is called each second with the name of the phase, and says whether to go on. Whatever happens after its folder was
/// made, what it made is removed; the record says why it ended early, if it did.
///
/// # Errors
/// [`RunError`]: nothing was measured, and nothing is left behind.
pub fn run_trial(
    context: &Context<'_>,
    trial: &Trial,
    work: &Work,
    watch: &mut dyn FnMut(&str, Progress) -> bool,
) -> Result<TrialRecord, RunError> {
    let folder = folder_of(trial);
    let target = context.place.target(&folder, context.settings);
    let failed = |source| RunError::Target { system: context.system.to_owned(), source };
    let mut session = target.session().map_err(failed)?;
    if let Some(room) = session.room().map_err(failed)?
        && room.free < work.room()
    {
        let show = types::units::show_size;
        return Err(RunError::NoRoom {
            place: context.place.to_string(),
            free: show(room.free),
            needed: show(work.room()),
        });
    }
    session.make_home().map_err(|source| match source.failure() {
        Failure::Exists => RunError::NotEmpty { place: context.place.to_string(), folder: folder.clone() },
        _ => failed(source),
    })?;
    let mut record = TrialRecord {
        trial: trial.clone(),
        system: context.system.to_owned(),
        work: work.name.clone(),
        parameters: work.parameters.clone(),
        phases: Vec::new(),
        ended: None,
    };
    let done = work.directories().iter().try_for_each(|name| session.make_directory(name));
    if let Err(error) = done {
        record.ended = Some(error.to_string());
    } else {
        run_phases(context, work, &target, &mut record, watch);
    }
    if let Err(error) = clean_up(&mut *session, work) {
        let left = format!("not all that it made could be removed: {error}");
        record.ended = Some(record.ended.map_or(left.clone(), |ended| format!("{ended}; {left}")));
    }
    Ok(record)
}

/// The folder of a trial on its system.
fn folder_of(trial: &Trial) -> RelName {
    let process = std::process::id();
    RelName::new(format!("weir-bench-{process}-{}-{}-{}", trial.system, trial.work, trial.repeat)).unwrap_or_default()
}

fn run_phases(
    context: &Context<'_>,
    work: &Work,
    target: &Arc<dyn Target>,
    record: &mut TrialRecord,
    watch: &mut dyn FnMut(&str, Progress) -> bool,
) {
    let mut went_on = true;
    for phase in &work.phases {
        let title = phase.title();
        let caches = caches_before(phase, context.place);
        let crew: Result<Crew, String> = match phase {
            Phase::Stream(spec) => spec.crew(target, context.content).map_err(|error| error.to_string()),
            Phase::Small(spec) => spec.crew(target, context.content).map_err(|error| error.to_string()),
        };
        let crew = match crew {
            Ok(crew) => crew,
            Err(why) => {
                record.ended = Some(why);
                return;
            }
        };
        let began = now_secs();
        let measured = measure(crew, context.phase_limit, |progress| {
            went_on &= watch(&title, progress);
            went_on
        });
        let whole = measured.idle_workers.is_empty();
        record.phases.push(PhaseRecord { phase: title.clone(), began, caches, measured });
        if !went_on {
            record.ended = Some("stopped".to_owned());
            return;
        }
        if !whole {
            record.ended = Some(format!("{title}: not all workers could begin"));
            return;
        }
    }
}

/// Empties this machine's page cache before what is to be read cold. What a server keeps in its memory is not ours to empty.
fn caches_before(phase: &Phase, place: &Place) -> Caches {
    let cold = match phase {
        Phase::Stream(spec) => matches!(spec.access, Access::Read) && !spec.manner.direct,
        Phase::Small(_) => false,
    };
    if !cold {
        return Caches::Kept;
    }
    match place {
        Place::Path(_) => {
            rustix::fs::sync();
            std::fs::write("/proc/sys/vm/drop_caches", "3").map_or(Caches::Unknown, |()| Caches::Dropped)
        }
        Place::Root(_) => Caches::Unknown,
    }
}

/// Removes what the work makes, by its names, and then the folders, which have to be empty: what somebody else has put there stays, and is
/// told of.
fn clean_up(session: &mut dyn Session, work: &Work) -> Result<(), TargetError> {
    let absent = |result: Result<(), TargetError>| match result {
        Err(error) if error.failure() != Failure::NotFound => Err(error),
        _ => Ok(()),
    };
    for name in work.files() {
        absent(session.remove(&name))?;
    }
    for name in work.directories() {
        absent(session.remove_directory(&name))?;
    }
    session.remove_home()
}

/// Seconds since 1970.
#[must_use]
pub fn now_secs() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}
