//! Shares of a limited resource. A client machine gets at most half of what the others leave, so that one machine
//! cannot lock out the rest.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;

/// Counts by the address of the client's machine. For IPv6, the network (/64) counts as one machine.
pub struct Shares {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    most: usize,
    taken: usize,
    by_peer: HashMap<IpAddr, usize>,
}

impl Shares {
    /// A resource of `most` units.
    pub fn new(most: usize) -> Self {
        Self { state: Mutex::new(State { most, ..State::default() }) }
    }

    /// Sets the total to `most`. Units in use beyond it stay in use until they are returned.
    pub fn set_most(&self, most: usize) {
        self.state.lock().most = most;
    }

    /// Takes one unit for `peer`, if its share allows it. A machine that has none may take the last one.
    pub fn take(&self, peer: IpAddr) -> bool {
        self.take_some(peer, 1)
    }

    /// The same as [`Shares::take`], for `n` units at once.
    pub fn take_some(&self, peer: IpAddr, n: usize) -> bool {
        let mut state = self.state.lock();
        let free = state.most.saturating_sub(state.taken);
        let own = state.by_peer.get(&network(peer)).copied().unwrap_or(0);
        if free < n || (own > 0 && own.saturating_add(n) > free) {
            return false;
        }
        state.taken += n;
        *state.by_peer.entry(network(peer)).or_default() += n;
        true
    }

    /// Takes `n` units for `peer` even beyond the total, because it already uses them.
    pub fn take_regardless(&self, peer: IpAddr, n: usize) {
        let mut state = self.state.lock();
        state.taken += n;
        *state.by_peer.entry(network(peer)).or_default() += n;
    }

    /// Units in use.
    pub fn taken(&self) -> usize {
        self.state.lock().taken
    }

    /// The total.
    pub fn most(&self) -> usize {
        self.state.lock().most
    }

    /// Whether all units are in use.
    pub fn all_taken(&self) -> bool {
        let state = self.state.lock();
        state.taken >= state.most
    }

    /// Returns one unit.
    pub fn give_back(&self, peer: IpAddr) {
        self.give_some_back(peer, 1);
    }

    /// Returns `n` units.
    pub fn give_some_back(&self, peer: IpAddr, n: usize) {
        let mut state = self.state.lock();
        state.taken = state.taken.saturating_sub(n);
        if let Some(own) = state.by_peer.get_mut(&network(peer)) {
            *own = own.saturating_sub(n);
            if *own == 0 {
                state.by_peer.remove(&network(peer));
            }
        }
    }
}

/// The address that stands for a whole client machine.
pub fn network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(ip) => IpAddr::V4(ip),
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> 64 << 64).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_machine_leaves_room_for_others() {
        let shares = Shares::new(100);
        let peers: Vec<IpAddr> = (1..=3).map(|n| IpAddr::from([10, 0, 0, n])).collect();
        let all = |peer: IpAddr| (0..200).filter(|_| shares.take(peer)).count();
        assert_eq!(all(peers[0]), 50);
        assert_eq!(all(peers[1]), 25);
        assert!(shares.take(peers[2]));
        shares.give_back(peers[0]);
        assert!(!shares.take(peers[0]), "it has more than is left");
        shares.set_most(60);
        assert!(!shares.take(peers[2]), "more are taken than there are now");
        shares.set_most(200);
        assert!(shares.take(peers[2]));
        assert!(Shares::new(1).take(peers[0]));
        for n in [1u128, 2] {
            assert_eq!(network(IpAddr::V6((0xfd00 << 112 | n).into())), IpAddr::V6((0xfd00 << 112).into()));
        }
    }
}
