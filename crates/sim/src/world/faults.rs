//! Faults, and the decisions of an administrator while they last.

use std::time::Duration;

use disk::DiskOp;
use rand::Rng;

use super::World;
use crate::events::{Event, Fault, Mend};
use crate::manager::{Decision, store_of};
use crate::message::Addr;

impl World {
    pub(super) fn fault(&mut self, fault: Fault) {
        let server = self.rng.random_range(0..self.servers.len());
        let power = self.rng.random_ratio(self.settings.faults.power_percent.min(100), 100);
        match fault {
            Fault::Server => self.stop(Addr::Server(server), power),
            Fault::Manager if self.turns.has_lost() => {}
            Fault::Manager => {
                let at = self.any_manager();
                // What a manager has in a database, no failure of its own power can undo.
                self.stop(Addr::Manager(at), power && !self.settings.database);
            }
            Fault::Database => self.database_fails(),
            Fault::Stall => self.manager_stalls(),
            Fault::Partition => self.partition(),
            Fault::Disk if self.is_up(Addr::Server(server)) => {
                let op = [DiskOp::Write, DiskOp::Sync, DiskOp::Read][self.rng.random_range(0..3)];
                let nth = self.rng.random_range(0..20);
                self.tell(|| format!("the disk of server {server} is going to fail: {op:?}"));
                self.servers[server].disk.fail_next(op, nth, std::io::ErrorKind::Other);
                self.is_failing[server] = true;
                self.counts.disk_errors += 1;
                self.model.losses += 1;
                // An operator repairs it.
                let wait = Duration::from_secs_f64(self.rng.random_range(2.0..6.0));
                self.events.plan(self.now + wait, Event::Mend(Mend::Renew(Addr::Server(server))));
            }
            Fault::Disk => {}
            Fault::Damage => self.damage(server),
            Fault::Decision => self.decide(server),
            Fault::Access => self.change_access(),
            Fault::Absence => {
                let client = self.rng.random_range(0..self.clients.len());
                self.with(Addr::Client(client), |world, env| {
                    let Some(process) = &mut world.clients[client].process else { return };
                    if process.lose_connection(env) {
                        world.tell(|| format!("client {client} loses its connection"));
                    }
                });
            }
        }
    }

    /// An administrator decides about a store. Enough usable stores always remain for the replicas of a file.
    fn decide(&mut self, server: usize) {
        let count = |wanted: Decision| self.decided.iter().filter(|decided| **decided == wanted).count();
        let decision = match (self.decided[server], self.rng.random_range(0..4)) {
            (Decision::GiveUp, _) => return,
            (Decision::Use, 0) if count(Decision::OnlyRead) == 0 => Decision::OnlyRead,
            (Decision::Use, 1) if count(Decision::GiveUp) == 0 => Decision::GiveUp,
            (Decision::Use, _) if count(Decision::Drain) == 0 => Decision::Drain,
            (Decision::Use, _) => return,
            (Decision::Drain | Decision::OnlyRead, _) => Decision::Use,
        };
        let Some(at) = self.active() else { return };
        self.with(Addr::Manager(at), |world, env| {
            let Some(manager) = &mut world.managers[at].process else { return };
            if manager.decide(store_of(server), decision, env) {
                world.tell(|| format!("store {} becomes {decision:?}", store_of(server)));
                world.decided[server] = decision;
                world.has_drained[server] |= decision == Decision::Drain;
                env.counts.drained += u64::from(decision == Decision::Drain);
                env.counts.lost_stores += u64::from(decision == Decision::GiveUp);
            }
        });
    }

    fn partition(&mut self) {
        let managers = self.managers.len();
        let all: Vec<Addr> = (0..managers)
            .map(Addr::Manager)
            .chain((0..self.servers.len()).map(Addr::Server))
            .chain((0..self.clients.len()).map(Addr::Client))
            .collect();
        let one = all[self.rng.random_range(0..managers + self.servers.len())];
        let whole = self.rng.random_ratio(1, 2);
        let length = Duration::from_secs_f64(self.rng.random_range(0.1..12.0));
        let mut ways = Vec::new();
        for other in all.into_iter().filter(|other| *other != one) {
            // All other nodes or some of them, in one direction or in both.
            if whole || self.rng.random_ratio(1, 3) {
                match self.rng.random_range(0..3) {
                    0 => ways.push((one, other)),
                    1 => ways.push((other, one)),
                    _ => ways.extend([(one, other), (other, one)]),
                }
            }
        }
        self.counts.partitions += 1;
        for (from, to) in ways {
            self.tell(|| format!("{from:?} does not reach {to:?}"));
            self.cut.insert((from, to));
            if matches!((from, to), (Addr::Server(_), Addr::Server(_))) && self.rng.random_ratio(1, 2) {
                self.links.hold_from_now_on(from, to);
            }
            self.events.plan(self.now + length, Event::Mend(Mend::Path(from, to)));
        }
    }
}
