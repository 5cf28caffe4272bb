//! What a standby manager answers readers with, and how it stays current.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::Duration;

use config::Config;
use database::PostgresReader;
use manager::{ManagerSettings, StandbyManager, StandbyWorld};
use namespace::Namespace;
use node::links::Links;
use node::registration;
use node::ticker::Clock;
use parking_lot::Mutex;
use service::ActiveManager;
use types::{LocationRanges, NodeId};

use crate::cluster_role::manager_settings;
use crate::exit::Exit;
use crate::standby::Known;
use crate::{Failure, recent_changes};

/// How often it asks the active manager for the state of the cluster, and after it was refused.
const ASK_EVERY: Duration = Duration::from_millis(250);
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The thread. It ends when this is dropped.
pub(crate) struct Following {
    _stop: Sender<()>,
}

/// See the module.
pub(crate) struct Readers {
    pub(crate) standby: service::Standby,
    database: Arc<PostgresReader>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    settings: ManagerSettings,
    locations: LocationRanges,
    manager: Option<Arc<StandbyManager>>,
    /// Why readers are sent to the active manager, if that is so.
    trouble: Option<String>,
}

impl Readers {
    pub(crate) fn new(active: ActiveManager, database: Arc<PostgresReader>) -> Self {
        let namespace = Namespace::for_reading(Arc::clone(&database) as Arc<_>);
        Self { standby: service::Standby::new(active, namespace), database, state: Mutex::default() }
    }

    /// Applies the settings.
    pub(crate) fn adjust(&self, config: &Config, own: NodeId) {
        let mut state = self.state.lock();
        (state.settings, state.locations) = (manager_settings(config, own), config.client_locations.clone());
        if let Some(manager) = &state.manager {
            manager.set_client_locations(state.locations.clone());
        }
    }

    /// Whether the last attempt to fetch the state of the cluster has failed.
    fn are_in_trouble(&self) -> bool {
        self.state.lock().trouble.is_some()
    }

    /// Starts a thread that keeps this current, as long as the result lives. Nobody waits for its end: it may just wait for a database that is away, and
    /// what it does then reaches nobody.
    pub(crate) fn start(self: Arc<Self>, known: &Arc<Known>, links: &Arc<Links>) -> Result<Following, Failure> {
        let (stop, stopped) = channel::<()>();
        self.database.ask_with(recent_changes::asking(known, links));
        let (known, links) = (Arc::clone(known), Arc::clone(links));
        let follow = move || {
            let mut waited = ASK_EVERY;
            while stopped.recv_timeout(waited) == Err(RecvTimeoutError::Timeout) {
                // The active manager logs each refusal.
                waited = if self.are_in_trouble() { ASK_AGAIN } else { ASK_EVERY };
                let active = known.holder().map(|holder| NodeId(holder.node));
                if let Some(active) = active.filter(|active| links.is_up(*active)) {
                    self.follow(&links, active);
                }
            }
        };
        let thread = std::thread::Builder::new().name("readers".into()).spawn(follow);
        thread.map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot follow the active manager"))?;
        Ok(Following { _stop: stop })
    }

    /// Fetches the state of the cluster from the active manager. Waits for its answer and for the database.
    fn follow(&self, links: &Links, active: NodeId) {
        let trouble = self.fetch(links, active).err();
        let mut state = self.state.lock();
        if let Some(why) = trouble.as_ref().filter(|_| state.trouble.is_none()) {
            tracing::warn!("this manager sends readers to the active one: {why}");
        }
        if trouble.is_none() && state.trouble.is_some() {
            tracing::info!("this manager answers readers again");
        }
        state.trouble = trouble;
    }

    fn fetch(&self, links: &Links, active: NodeId) -> Result<(), String> {
        let manager = self.manager()?;
        let asked = manager.now();
        let state = registration::cluster_state(links, active).map_err(|error| error.to_string())?;
        // First: what is read now must be at least as new as the fences in the state.
        self.database.note(state.committed.fence, state.committed.batch);
        manager.follow(&state, asked).map_err(|error| error.to_string())?;
        self.database.follow_changes();
        // Only now it can answer.
        self.standby.begin_to_read(manager);
        Ok(())
    }

    /// What answers readers. The first call reads the namespace.
    fn manager(&self) -> Result<Arc<StandbyManager>, String> {
        let (known, settings) = {
            let state = self.state.lock();
            (state.manager.clone(), state.settings)
        };
        if let Some(manager) = known {
            return Ok(manager);
        }
        let clock = Clock::start();
        let outside = StandbyWorld { now: Box::new(move || clock.now()), random: Box::new(rand::random) };
        let started = StandbyManager::start(Arc::clone(self.standby.namespace()), settings, outside);
        let manager = started.map_err(|error| error.to_string())?;
        let mut state = self.state.lock();
        manager.set_client_locations(state.locations.clone());
        state.manager = Some(Arc::clone(&manager));
        Ok(manager)
    }
}
