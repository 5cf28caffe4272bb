//! The network servers of a campaign's systems.

use bench::campaign::{Campaign, Work};
use bench::network::NetworkServer;
use console::{Exit, Failure};

use super::{flows, token};
use crate::options::MachinesOptions;

/// Each system's network server, in the order of the systems.
pub(super) struct Peers(Vec<Option<NetworkServer>>);

impl Peers {
    /// Reads the tokens and greets all network servers that the campaign needs, so that errors appear before the run begins.
    pub(super) fn greet(campaign: &Campaign, machines: &MachinesOptions) -> Result<Self, Failure> {
        if !campaign.works().iter().any(Work::needs_peers) {
            return Ok(Self(Vec::new()));
        }
        let of_agents = (machines.agents > 0).then(|| token::read(machines.token_file.as_deref())).transpose()?;
        let server = |system: &bench::campaign::System| -> Result<Option<NetworkServer>, Failure> {
            let Some(address) = system.peer.clone() else { return Ok(None) };
            let doing = || format!("the network server of `{}`", system.name);
            let token = token::read(system.token_file.as_deref()).map_err(|error| error.while_doing(doing()))?;
            if of_agents.as_ref().is_some_and(|of_agents| *of_agents != token) {
                let text =
                    "it has another token than the agents, and they are to have flows with it; give both the same";
                return Err(Failure::message(Exit::Denied, text).while_doing(doing()));
            }
            let iperf3 = system.iperf3_server().unwrap_or_default();
            let server =
                NetworkServer { system: system.name.clone(), address, iperf3, token, program: flows::program() };
            // Agents greet the servers themselves: this machine may be unable to reach the servers that they can.
            if of_agents.is_some() {
                return Ok(Some(server));
            }
            server.greet().map_err(|error| Failure::new(flows::exit_of(&error), error).while_doing(doing()))?;
            Ok(Some(server))
        };
        campaign.systems.iter().map(server).collect::<Result<_, _>>().map(Self)
    }

    /// The network servers for the work, on the system of this number.
    pub(super) fn of(&self, work: &Work, system: usize) -> Vec<NetworkServer> {
        match (work.needs_peers(), work.needs_system()) {
            (false, _) => Vec::new(),
            (true, true) => self.0.get(system).cloned().flatten().into_iter().collect(),
            (true, false) => self.0.iter().flatten().cloned().collect(),
        }
    }
}
