//! Does trials: each in its own folder on the system, phase by phase. It removes what it made, and nothing else.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use client::Settings;

use crate::campaign::{Trial, Work};
use crate::content::Content;
use crate::coordinate::message;
use crate::coordinate::{CoordinateError, Coordinator};
use crate::fault::Fault;
use crate::measure::Progress;
use crate::network::{NetworkError, NetworkServer};
use crate::phases::{TrialFolders, record_refusals, run_phases, suited};
use crate::result::TrialRecord;
use crate::target::{Failure, RelName, Session, Target, TargetDir, TargetError};
use crate::workload::Site;

/// Why a trial was not done.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The system refused before anything was measured.
    #[error("{system}: {source}")]
    Target {
        /// The system's name.
        system: String,
        /// The reason.
        source: TargetError,
    },
    /// A directory in which the trial's folder must be made does not exist.
    #[error("{system}: {}", absent(places, Some(&source.to_string())))]
    NoPlace {
        /// The system's name.
        system: String,
        /// Its directories.
        places: Vec<TargetDir>,
        /// The error of the system.
        source: Box<TargetError>,
    },
    /// The network-test server is not there, or refuses us.
    #[error("{system}: {source}")]
    Peer {
        /// The system's name.
        system: String,
        /// The reason.
        source: Box<NetworkError>,
    },
    /// A file or directory exists where the trial's folder should be.
    #[error("{place}/{folder} exists and was not touched; remove it, or give another directory")]
    NotEmpty {
        /// The directory.
        place: String,
        /// The folder in it.
        folder: RelName,
    },
    /// There is not enough room.
    #[error("{place} has room for {free}, and this takes {needed} at a time")]
    NoRoom {
        /// The directory.
        place: String,
        /// The free space.
        free: String,
        /// The needed space.
        needed: String,
    },
    /// An error of a measurement with several machines.
    #[error(transparent)]
    Coordinate(#[from] CoordinateError),
}

/// Says that one of these directories does not exist, and how to make it.
#[must_use]
pub fn absent(places: &[TargetDir], why: Option<&str>) -> String {
    let all = places.iter().map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", ");
    let what = if places.len() == 1 { "the directory" } else { "one of the directories" };
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    let commands: Vec<String> = places.iter().filter_map(TargetDir::how_to_make).collect();
    let how = match &commands[..] {
        [] => "make it first".to_owned(),
        commands => format!("make it first: {}", commands.join("; ")),
    };
    format!("{what} {all} does not exist{why}; the bench makes only its own folder in it, so {how}")
}

/// The environment of a trial.
#[derive(Debug)]
pub struct Context<'a> {
    /// The system's name.
    pub system: &'a str,
    /// Its directories. Files are spread over several.
    pub places: &'a [TargetDir],
    /// The names of processes that do a part of each client's work, such as a FUSE mount.
    pub client_processes: &'a [String],
    /// The commands that break and restore something during the measurement.
    pub faults: &'a [Fault],
    /// The command that empties the caches of the system's servers, if there is one.
    pub empty_caches: &'a [String],
    /// The directory for copies, if the work makes any.
    pub copies: Option<&'a TargetDir>,
    /// The network-test servers, if the work needs any.
    pub peers: Vec<NetworkServer>,
    /// The settings of connections.
    pub settings: &'a Settings,
    /// The contents of all files.
    pub content: &'a Arc<Content>,
    /// The seed of the contents.
    pub seed: u64,
    /// The time limit of a phase. Work beyond it is not done.
    pub phase_limit: Option<Duration>,
    /// Other machines that work, or are watched.
    pub coordinator: Option<&'a Coordinator>,
}

/// The prefix of all trials' folders.
pub const FOLDER_BEGINS: &str = "weir-bench-";

/// Does a trial. Calls `watch` each second with the name of the phase, which returns whether to continue. After its
/// folder was made, everything that it made is removed in any case. The record says why it ended early, if it did.
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
        // Agents find out themselves: this machine may not be able to reach the same servers.
        let greeted = context.peers.iter().filter(|_| !by_agents).try_for_each(|server| {
            server.greet().map_err(|source| RunError::Peer { system: server.system.clone(), source: Box::new(source) })
        });
        greeted?;
        let (peers, content) = (context.peers.clone(), Arc::clone(context.content));
        let site = Site { peers, ..Site::alone(content) };
        run_phases(context, work, &TrialFolders { site, home: None, copies: None }, &mut record, watch);
        return Ok(record);
    }
    let folder = folder_of(trial);
    let target = TargetDir::targets(context.places, &folder, context.settings);
    if suited(work, Some(&*target)).is_empty() {
        record_refusals(work, &*target, &mut record);
        return Ok(record);
    }
    let mut home = TrialFolder::make(context, context.places, &folder, work.room())?;
    let mut copies = match context
        .copies
        .map(|place| TrialFolder::make(context, std::slice::from_ref(place), &folder.with("-copies"), work.room()))
    {
        None => None,
        Some(Ok(copies)) => Some(copies),
        Some(Err(error)) => {
            // The folder is still empty. The other error matters more.
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
        let homes = TrialFolders { site, home: Some(of_agents(context.places, &folder)), copies: of_copies };
        run_phases(context, work, &homes, &mut record, watch);
    }
    let cleaned = home.clean_up(work.files(), &directories);
    let copies_cleaned = copies.as_mut().map_or(Ok(()), |copies| copies.clean_up(work.copies(), &[]));
    for error in [cleaned, copies_cleaned].into_iter().filter_map(Result::err) {
        let left = format!("not all of its files could be removed: {error}");
        record.left = Some(record.left.map_or(left.clone(), |before| format!("{before}; {left}")));
    }
    Ok(record)
}

/// Returns the folder of a trial on its system.
fn folder_of(trial: &Trial) -> RelName {
    let process = std::process::id();
    let Trial { system, work, repeat } = trial;
    RelName::new(format!("{FOLDER_BEGINS}{process}-{system}-{work}-{repeat}")).unwrap_or_default()
}

/// Returns the message about a folder for agents. Paths are absolute, because agents may run in another directory.
fn of_agents(places: &[TargetDir], folder: &RelName) -> message::TrialFolder {
    let place = |place: &TargetDir| match place {
        TargetDir::Path(path) => std::path::absolute(path).unwrap_or_else(|_| path.clone()).display().to_string(),
        other @ (TargetDir::Root(_) | TargetDir::Http(_)) => other.to_string(),
    };
    message::TrialFolder { places: places.iter().map(place).collect(), folder: folder.as_str().to_owned() }
}

/// A trial's own folder on a system.
struct TrialFolder {
    target: Arc<dyn Target>,
    session: Box<dyn Session>,
}

impl TrialFolder {
    /// Makes it, if `room` bytes are free.
    fn make(context: &Context<'_>, places: &[TargetDir], folder: &RelName, room: u64) -> Result<Self, RunError> {
        let target = TargetDir::targets(places, folder, context.settings);
        let place = || places.iter().map(TargetDir::to_string).collect::<Vec<_>>().join(", ");
        let failed = |source: TargetError| match source.failure() {
            Failure::NotFound => RunError::NoPlace {
                system: context.system.to_owned(),
                places: places.to_vec(),
                source: Box::new(source),
            },
            _ => RunError::Target { system: context.system.to_owned(), source },
        };
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

    /// Removes `files` and `directories` by name, and then the folder, which must be empty. Foreign files stay, and
    /// are reported.
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

/// Returns the seconds since 1970.
#[must_use]
pub fn now_secs() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}
