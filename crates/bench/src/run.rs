//! Doing trials: in a folder of their own on the system, phase by phase, and cleaning up what they made and nothing else.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::Settings;

use crate::campaign::{Trial, Work};
use crate::content::Content;
use crate::coordinate::message;
use crate::coordinate::{CoordinateError, Coordinator};
use crate::fault::Fault;
use crate::measure::Progress;
use crate::network::{Far, NetworkError};
use crate::phases::{Homes, run_phases, suited};
use crate::result::TrialRecord;
use crate::target::{Failure, Place, RelName, Session, Target, TargetError};
use crate::workload::Site;

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
    /// The far side of flows is not there, or does not want us.
    #[error("{system}: {source}")]
    Peer {
        /// The system's name.
        system: String,
        /// Why.
        source: Box<NetworkError>,
    },
    /// Something is where the trial's folder was to be.
    #[error("{place}/{folder} exists already; it is not touched. Remove it, or give another directory")]
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
    /// Of several machines.
    #[error(transparent)]
    Coordinate(#[from] CoordinateError),
}

/// What a trial needs besides itself.
#[derive(Debug)]
pub struct Context<'a> {
    /// The system's name.
    pub system: &'a str,
    /// Where it is; files are spread over several places.
    pub places: &'a [Place],
    /// Names of processes that do a part of each client's work, as that of a FUSE mount does.
    pub client_processes: &'a [String],
    /// What is broken and mended while it is measured.
    pub faults: &'a [Fault],
    /// Where copies go, if the work makes some.
    pub copies: Option<&'a Place>,
    /// The far sides of flows, if the work is about some.
    pub peers: Vec<Far>,
    /// For connections.
    pub settings: &'a Settings,
    /// Contents of all files.
    pub content: &'a Arc<Content>,
    /// Seed of the contents.
    pub seed: u64,
    /// How long one phase may take; what is left of it is not done.
    pub phase_limit: Option<Duration>,
    /// Other machines that work, or are watched.
    pub coordinator: Option<&'a Coordinator>,
}

/// What the names of all trials' folders begin with.
pub const FOLDER_BEGINS: &str = "weir-bench-";

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
    let system = work.system_name(context.system);
    let mut record = TrialRecord {
        trial: trial.clone(),
        system: system.to_owned(),
        work: work.name.clone(),
        parameters: work.parameters.clone(),
        phases: Vec::new(),
        ended: None,
        not_done: Vec::new(),
        left: None,
        settings: Vec::new(),
    };
    if let Some(coordinator) = context.coordinator.filter(|coordinator| coordinator.planned() > 0) {
        coordinator.muster()?;
    }
    if !work.needs_place() {
        let by_agents = context.coordinator.is_some_and(|coordinator| coordinator.planned() > 0);
        // Agents find out for themselves: this machine may not even be able to reach what they can.
        let greeted = context.peers.iter().filter(|_| !by_agents).try_for_each(|far| {
            far.greet().map_err(|source| RunError::Peer { system: far.system.clone(), source: Box::new(source) })
        });
        greeted?;
        let (peers, content) = (context.peers.clone(), Arc::clone(context.content));
        let site = Site { peers, ..Site::alone(content) };
        run_phases(context, work, &Homes { site, home: None, copies: None }, &mut record, watch);
        return Ok(record);
    }
    let folder = folder_of(trial);
    let mut home = Home::make(context, context.places, &folder, work.room())?;
    let mut copies = match context
        .copies
        .map(|place| Home::make(context, std::slice::from_ref(place), &folder.with("-copies"), work.room()))
    {
        None => None,
        Some(Ok(copies)) => Some(copies),
        Some(Err(error)) => {
            // Nothing is in it yet; what matters is the other error.
            let _ = home.session.remove_home();
            return Err(error);
        }
    };
    let directories = work.directories();
    if let Err(error) = directories.iter().try_for_each(|name| home.session.make_directory(name)) {
        record.ended = Some(error.to_string());
        record.not_done = suited(work, Some(&*home.target));
    } else {
        let site = Site {
            copies: copies.as_ref().map(|copies| Arc::clone(&copies.target)),
            ..Site::on(Arc::clone(&home.target), Arc::clone(context.content))
        };
        let of_copies = context.copies.map(|place| of_agents(std::slice::from_ref(place), &folder.with("-copies")));
        let homes = Homes { site, home: Some(of_agents(context.places, &folder)), copies: of_copies };
        run_phases(context, work, &homes, &mut record, watch);
    }
    let cleaned = home.clean_up(work.files(), &directories);
    let copies_cleaned = copies.as_mut().map_or(Ok(()), |copies| copies.clean_up(work.copies(), &[]));
    for error in [cleaned, copies_cleaned].into_iter().filter_map(Result::err) {
        let left = format!("not all that it made could be removed: {error}");
        record.left = Some(record.left.map_or(left.clone(), |before| format!("{before}; {left}")));
    }
    Ok(record)
}

/// The folder of a trial on its system.
fn folder_of(trial: &Trial) -> RelName {
    let process = std::process::id();
    let Trial { system, work, repeat } = trial;
    RelName::new(format!("{FOLDER_BEGINS}{process}-{system}-{work}-{repeat}")).unwrap_or_default()
}

/// What agents are told of a folder: they may be in another directory, so paths are told from the root on.
fn of_agents(places: &[Place], folder: &RelName) -> message::Home {
    let place = |place: &Place| match place {
        Place::Path(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string(),
        other @ (Place::Root(_) | Place::Http(_)) => other.to_string(),
    };
    message::Home { places: places.iter().map(place).collect(), folder: folder.as_str().to_owned() }
}

/// A trial's own folder on a system.
struct Home {
    target: Arc<dyn Target>,
    session: Box<dyn Session>,
}

impl Home {
    /// Makes it, if there is `room` for so many bytes.
    fn make(context: &Context<'_>, places: &[Place], folder: &RelName, room: u64) -> Result<Self, RunError> {
        let target = Place::targets(places, folder, context.settings);
        let place = || places.iter().map(Place::to_string).collect::<Vec<_>>().join(", ");
        let failed = |source| RunError::Target { system: context.system.to_owned(), source };
        let mut session = target.session().map_err(failed)?;
        if let Some(found) = session.room().map_err(failed)?
            && found.free < room
        {
            let show = types::units::show_size;
            let (free, needed) = (show(found.free), show(room));
            return Err(RunError::NoRoom { place: place(), free, needed });
        }
        session.make_home().map_err(|source| match source.failure() {
            Failure::Exists => RunError::NotEmpty { place: place(), folder: folder.clone() },
            _ => failed(source),
        })?;
        Ok(Self { target, session })
    }

    /// Removes `files` and `directories` by their names, and then the folder, which has to be empty: what somebody else has put there stays,
    /// and is told of.
    fn clean_up(&mut self, files: impl Iterator<Item = RelName>, directories: &[RelName]) -> Result<(), TargetError> {
        let absent = |result: Result<(), TargetError>| match result {
            Err(error) if error.failure() != Failure::NotFound => Err(error),
            _ => Ok(()),
        };
        for name in files {
            absent(self.session.remove(&name))?;
        }
        for name in directories {
            absent(self.session.remove_directory(name))?;
        }
        self.session.remove_home()
    }
}

/// Seconds since 1970.
#[must_use]
pub fn now_secs() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}
