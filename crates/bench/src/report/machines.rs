//! The machines of a result: servers' CPU time, and agents that differ from the others.

use std::collections::BTreeMap;

use super::summary::Outlier;
use crate::result::PhaseRecord;
use crate::statistics::{median, outliers as places};
use crate::workload::Unit;

/// The least distance of an outlier from the median, as a share of the median.
const AWAY_MIN: f64 = 0.1;

/// Returns the CPU time of the servers in all repeats; `None` if a part of it is unknown.
pub(super) fn server_cpu_s(records: &[&PhaseRecord]) -> Option<f64> {
    let mut sum = 0.0;
    for record in records {
        if record.machines.servers.is_empty() {
            return None;
        }
        for server in &record.machines.servers {
            sum += server.cpu_s()?;
        }
    }
    Some(sum)
}

/// Returns the agents whose rate, in the median of the repeats, is far from that of the others with as many parts.
pub(super) fn outliers(records: &[&PhaseRecord], unit: Unit) -> Vec<Outlier> {
    let mut alike: BTreeMap<u32, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
    for record in records {
        for agent in &record.machines.agents {
            // The record belongs to the first role.
            let Some(role) = agent.roles.first().filter(|role| role.wall_s > 0.0) else { continue };
            #[allow(clippy::cast_precision_loss)] // a rate
            let done = match unit {
                Unit::Bytes | Unit::Efficiency => role.bytes as f64,
                Unit::Operations => role.operations as f64,
            };
            alike.entry(agent.parts).or_default().entry(&agent.name).or_default().push(done / role.wall_s);
        }
    }
    alike.into_values().flat_map(among).collect()
}

/// Returns the outliers among agents with as many parts.
fn among(rates: BTreeMap<&str, Vec<f64>>) -> Vec<Outlier> {
    let (names, rates): (Vec<&str>, Vec<f64>) =
        rates.into_iter().filter_map(|(name, rates)| Some((name, median(&rates)?))).unzip();
    let Some(middle) = median(&rates).filter(|middle| *middle > 0.0) else { return Vec::new() };
    let outlier = |place: usize| {
        let (agent, ratio) = ((*names.get(place)?).to_owned(), rates.get(place)? / middle);
        Some(Outlier { agent, ratio, apart: Vec::new() })
    };
    places(&rates, AWAY_MIN).into_iter().filter_map(outlier).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::Tally;
    use crate::measure::Measured;
    use crate::result::{AgentRecord, AgentRole, Caches, Machines, ServerRecord};
    use crate::sampling::{CpuShares, Sample};

    fn record(machines: Machines) -> PhaseRecord {
        let measured = Measured {
            wall_s: 1.0,
            tally: Tally::default(),
            seconds: vec![],
            second_s: 1,
            client_cpu_s: 0.0,
            client_system_s: 0.0,
            client: Vec::new(),
            idle_workers: Vec::new(),
        };
        let (phase, faults) = ("write".to_owned(), Vec::new());
        PhaseRecord { number: 0, phase, began: 0, caches: Caches::Kept, faults, measured, machines }
    }

    fn with_agents(rates: &[u64]) -> PhaseRecord {
        let agent = |(number, rate): (usize, &u64)| AgentRecord {
            name: format!("n{number}"),
            parts: 1,
            roles: vec![AgentRole { role: String::new(), wall_s: 2.0, operations: 1, bytes: 2 * rate, failures: 0 }],
            samples: Vec::new(),
            ahead_us: 0,
            round_trip_us: 0,
        };
        record(Machines { agents: rates.iter().enumerate().map(agent).collect(), ..Machines::default() })
    }

    fn with_servers(servers: &[(f64, bool)]) -> PhaseRecord {
        let server = |(user, is_whole): &(f64, bool)| {
            let cpu = CpuShares { user: *user, ..CpuShares::default() };
            let sample = Sample { seconds: 2.0, processors: 4, cpu, ..Sample::default() };
            let (system, name) = ("s".to_owned(), "m".to_owned());
            ServerRecord { system, name, processes: Vec::new(), is_whole: *is_whole, samples: vec![sample] }
        };
        record(Machines { servers: servers.iter().map(server).collect(), ..Machines::default() })
    }

    #[test]
    fn a_slow_machine_is_named() {
        let usual = [100, 101, 99, 100, 102, 98];
        let slow = [100, 101, 99, 50, 102, 98];
        let records = [with_agents(&slow), with_agents(&slow), with_agents(&usual)];
        let found = outliers(&records.iter().collect::<Vec<_>>(), Unit::Bytes);
        assert_eq!(found, [Outlier { agent: "n3".into(), ratio: 50.0 / 99.5, apart: vec![] }]);
        let once = [with_agents(&slow), with_agents(&usual), with_agents(&usual)];
        assert_eq!(outliers(&once.iter().collect::<Vec<_>>(), Unit::Bytes), []);
        assert_eq!(outliers(&[&with_agents(&[])], Unit::Bytes), []);
        // An agent with twice the work is not an outlier for that.
        let mut more = with_agents(&[100, 100, 100, 100, 100, 200]);
        more.machines.agents[5].parts = 2;
        assert_eq!(outliers(&[&more], Unit::Bytes), []);
    }

    #[test]
    fn server_cpu_is_reported_only_if_all_of_it_is_known() {
        let of = |records: &[PhaseRecord]| server_cpu_s(&records.iter().collect::<Vec<_>>());
        assert_eq!(of(&[with_servers(&[(0.25, true), (0.5, true)]), with_servers(&[(0.25, true)])]), Some(8.0));
        assert_eq!(of(&[with_servers(&[(0.25, true)]), with_servers(&[])]), None);
        assert_eq!(of(&[with_servers(&[(0.25, true), (0.25, false)])]), None);
    }

    #[test]
    fn the_cpu_time_of_missing_processes_is_unknown() {
        let mut record = with_servers(&[(0.25, true)]);
        let server = &mut record.machines.servers[0];
        server.processes = vec!["weir".into()];
        assert_eq!(server.cpu_s(), None);
        server.samples[0].processes = [(7, 0.5)].into();
        assert_eq!(server.cpu_s(), Some(1.0));
    }
}
