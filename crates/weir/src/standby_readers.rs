//! What a standby manager answers readers with, and how it stays current.

use std::sync::Arc;

use config::Config;
use manager::{ManagerSettings, StandbyManager, StandbyWorld};
use node::links::Links;
use node::registration;
use node::ticker::Clock;
use parking_lot::Mutex;
use types::{LocationRanges, NodeId};

use crate::cluster_role::manager_settings;

/// See the module.
pub(crate) struct Readers {
    pub(crate) standby: service::Standby,
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
    pub(crate) fn new(standby: service::Standby) -> Self {
        Self { standby, state: Mutex::default() }
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
    pub(crate) fn are_in_trouble(&self) -> bool {
        self.state.lock().trouble.is_some()
    }

    /// Fetches the state of the cluster from the active manager. Waits for its answer and for the database.
    pub(crate) fn follow(&self, links: &Links, active: NodeId) {
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
        manager.follow(&state, asked).map_err(|error| error.to_string())?;
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
