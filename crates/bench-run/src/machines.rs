//! The other machines of a run, and the messages about them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bench::campaign::{Campaign, order};
use bench::coordinate::{CoordinateError, Coordinator, CoordinatorEvent, Event, Setting};
use bench::peer::Token;
use bench::run::now_secs;
use console::{Exit, Failure};

use super::live::{DisplayState, Web};
use super::{say, token};
use crate::options::MachinesOptions;

/// The coordinator, if the run needs one.
pub(super) struct Machines {
    coordinator: Option<Coordinator>,
    sight: DisplayState,
    _web: Option<Web>,
}

impl Machines {
    /// Listens, and waits for all agents or until `stop` is set.
    pub(super) fn start(
        campaign: &Campaign,
        args: &MachinesOptions,
        quiet: bool,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let systems: Vec<(String, Vec<String>)> =
            campaign.systems.iter().map(|system| (system.name.clone(), system.processes.clone())).collect();
        let is_watched = systems.iter().any(|(_, processes)| !processes.is_empty());
        if args.listen.is_none() && !is_watched && args.web.is_none() {
            return Ok(Self { coordinator: None, sight: DisplayState::default(), _web: None });
        }
        let token = args.token_file.as_ref().map(|file| Token::read(file, now_secs())).transpose();
        let token = token.map_err(|error| Failure::new(token::exit_of(&error), error))?;
        let listen = args.listen.clone().zip(token);
        let planned = usize::from(args.agents);
        let works = campaign.works();
        let phases = order(campaign).iter().filter_map(|trial| Some(works.get(trial.work)?.phases.len())).sum();
        let setting = Setting { listen, systems, agents: planned, phases, watchers: usize::from(args.watchers) };
        let hear = move |news: &CoordinatorEvent| {
            if !quiet {
                tell(news, planned);
            }
        };
        let coordinator = Coordinator::start(setting, hear).map_err(|error| Failure::new(exit_of(&error), error))?;
        if let Some(address) = coordinator.address() {
            say(&format!("agents and watchers join at {address}"));
        }
        let sight = DisplayState::new(Some(coordinator.view()));
        let web = args.web.as_ref().map(|given| Web::start(given, args.token_file.is_some(), sight.clone(), stop));
        let web = web.transpose()?;
        if let Some(web) = &web {
            say(&format!("the run is shown at {}", web.url()));
        }
        if !coordinator.wait(&mut || !stop.load(Ordering::Relaxed)) {
            return Err(Failure::message(Exit::Unreachable, "stopped before all were there; nothing was done"));
        }
        Ok(Self { coordinator: Some(coordinator), sight, _web: web })
    }

    /// The state that displays show.
    pub(super) fn sight(&self) -> DisplayState {
        self.sight.clone()
    }

    pub(super) fn coordinator(&self) -> Option<&Coordinator> {
        self.coordinator.as_ref()
    }
}

pub(super) fn exit_of(error: &CoordinateError) -> Exit {
    match error {
        CoordinateError::Listen { .. } | CoordinateError::Open(_) => Exit::Listen,
        CoordinateError::NobodyLeft => Exit::Unreachable,
        CoordinateError::Thread(_) | CoordinateError::Ended => Exit::Failed,
    }
}

fn tell(news: &CoordinatorEvent, planned: usize) {
    match news {
        CoordinatorEvent::Event(Event::Joined { name, is_agent: true, agents }) => {
            say(&format!("{name} has joined: {agents} of {planned}"))
        }
        CoordinatorEvent::Event(Event::Joined { name, .. }) => say(&format!("{name} is watched: its load is recorded")),
        CoordinatorEvent::Event(Event::Lost { name, why }) => say(&format!("{name} is lost: {why}")),
        CoordinatorEvent::Event(_) => {}
        CoordinatorEvent::Refused(why) => say(why),
    }
}
