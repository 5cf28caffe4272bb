//! The keys that sign capabilities. Each disk server has its own, and gets a new one when it connects and every hour. So whoever steals a key can make
//! capabilities for one disk server, for two hours at most.
//!
//! A disk server accepts the newest key and the one before it. The manager signs with a new key a little later than it has sent it, and a capability
//! lives much shorter than a key. So no client meets a disk server that does not know its key.

use std::time::Duration;

use cluster::Time;
use node::{FromManager, Keys, SigningKey};
use types::NodeId;
use types::capability::CapabilityKey;

use super::Coordinator;
use super::servers::Server;

/// How long a key signs capabilities before the next one is made.
const KEY_TIME: Duration = Duration::from_secs(3600);
/// How long a disk server may take to receive a new key. Until then the one before signs.
const ARRIVES: Duration = Duration::from_secs(5);

/// The keys of one disk server. The default has none: no capability can be made.
#[derive(Clone, Default)]
pub(super) struct ServerKeys {
    /// Signs new capabilities, since this moment.
    signing: Option<(CapabilityKey, Time)>,
    /// The server has been sent this one at this moment.
    next: Option<(CapabilityKey, Time)>,
}

impl ServerKeys {
    /// The key that signs.
    pub(super) fn signing(&self) -> Option<&CapabilityKey> {
        self.signing.as_ref().map(|(key, _)| key)
    }

    /// The key of the active manager, in a standby.
    pub(super) fn followed(key: &SigningKey) -> Self {
        Self { signing: Some((CapabilityKey::from_secret(key.id, key.secret), Time::default())), next: None }
    }

    /// The highest number that a key of this server has; 0 if it has none.
    fn newest(&self) -> u32 {
        let numbers = [&self.signing, &self.next].into_iter().flatten().map(|(key, _)| key.id);
        numbers.max().unwrap_or(0)
    }

    /// Makes a key for a server that has just connected. It signs at once: a server that has started again has no other. Returns its number.
    ///
    /// `theirs` is the number of the newest key that the server has, `seconds` the time of day. No number may come twice, even if both sides have
    /// forgotten the earlier ones: a capability made with an old key must differ from a forged one.
    pub(super) fn begin(&mut self, now: Time, secret: &[u8; 32], theirs: u32, seconds: u32) -> u32 {
        let id = self.newest().max(theirs).saturating_add(1).max(seconds);
        *self = Self { signing: Some((CapabilityKey::new(id, secret), now)), next: None };
        id
    }

    /// Whether the server has the next key by now.
    fn has_arrived(&self, now: Time) -> bool {
        self.next.as_ref().is_some_and(|(_, sent)| now.since(*sent) >= ARRIVES)
    }

    /// Takes the next key into use, if the server has it by now.
    fn switch(&mut self, now: Time) {
        if self.has_arrived(now)
            && let Some((key, _)) = self.next.take()
        {
            self.signing = Some((key, now));
        }
    }

    /// Whether it is time to send the next key.
    fn wants_next(&self, now: Time) -> bool {
        self.next.is_none() && self.signing.as_ref().is_some_and(|(_, since)| now.since(*since) >= KEY_TIME)
    }

    /// Makes the next key, to be sent at once. Returns its number.
    fn draw_next(&mut self, now: Time, secret: &[u8; 32], seconds: u32) -> u32 {
        let id = self.newest().saturating_add(1).max(seconds);
        self.next = Some((CapabilityKey::new(id, secret), now));
        id
    }

    /// The next key could not be sent.
    fn withdraw(&mut self, id: u32) {
        self.next.take_if(|(key, _)| key.id == id);
    }
}

impl Coordinator {
    /// Sends new keys to servers whose keys are old, and takes those into use that were sent before.
    pub(super) fn rotate_keys(&self, now: Time) {
        let due: Vec<NodeId> = {
            let mut state = self.lock();
            // A server that is away gets its next key when it comes back.
            let wants = |server: &Server| server.is_connected && server.keys.wants_next(now);
            let is_due = |server: &Server| wants(server) || server.keys.has_arrived(now);
            if !state.servers.nodes.values().any(is_due) {
                return;
            }
            let servers = state.servers_mut();
            servers.nodes.values_mut().for_each(|server| server.keys.switch(now));
            servers.nodes.iter().filter(|(_, server)| wants(server)).map(|(node, _)| *node).collect()
        };
        for node in due {
            let Some(secret) = self.world.secret() else {
                return tracing::error!(%node, "the system has no random bytes for the next key of a disk server");
            };
            let seconds = u32::try_from(self.world.wall().secs()).unwrap_or(0);
            let id = {
                let mut state = self.lock();
                let Some(server) = state.servers_mut().nodes.get_mut(&node) else { continue };
                // It may have connected again meanwhile, and got a key for that.
                if !server.keys.wants_next(now) {
                    continue;
                }
                server.keys.draw_next(now, &secret, seconds)
            };
            if !self.send_key(node, id, secret)
                && let Some(server) = self.lock().servers_mut().nodes.get_mut(&node)
            {
                server.keys.withdraw(id);
            }
        }
    }

    /// Sends a key to its server. Returns whether it was sent.
    pub(super) fn send_key(&self, node: NodeId, id: u32, secret: [u8; 32]) -> bool {
        let (manager, incarnation) = (self.view().clients_at.clone(), self.names.incarnation());
        self.world.send(node, FromManager::Keys(Keys { id, secret, incarnation, manager }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Time {
        Time(Duration::from_secs(secs))
    }

    fn signing(keys: &ServerKeys) -> u32 {
        keys.signing().map_or(0, |key| key.id)
    }

    #[test]
    fn a_key_signs_for_an_hour_and_until_the_next_one_has_arrived() {
        let mut keys = ServerKeys::default();
        assert!(!keys.wants_next(at(99_999)), "a server that never connected needs no key");
        assert_eq!(keys.begin(at(10), &[1; 32], 0, 500), 500);
        assert!(!keys.wants_next(at(3609)));
        assert!(keys.wants_next(at(3610)));
        assert_eq!(keys.draw_next(at(3610), &[2; 32], 501), 501);
        assert!(!keys.wants_next(at(9999)), "one at a time");
        keys.switch(at(3614));
        assert_eq!(signing(&keys), 500);
        keys.switch(at(3615));
        assert_eq!(signing(&keys), 501);
        assert!(!keys.wants_next(at(3615 + 3599)));
        assert!(keys.wants_next(at(3615 + 3600)));
    }

    #[test]
    fn a_key_that_was_not_sent_never_signs() {
        let mut keys = ServerKeys::default();
        keys.begin(at(0), &[1; 32], 0, 500);
        let id = keys.draw_next(at(3600), &[2; 32], 501);
        keys.withdraw(id + 1);
        assert!(!keys.wants_next(at(3600)), "another one");
        keys.withdraw(id);
        assert!(keys.wants_next(at(3600)));
        keys.switch(at(9999));
        assert_eq!(signing(&keys), 500);
    }

    #[test]
    fn a_number_never_comes_twice() {
        let mut keys = ServerKeys::default();
        assert_eq!(keys.begin(at(0), &[1; 32], 900, 500), 901, "the server has seen a higher one");
        assert_eq!(keys.draw_next(at(3600), &[2; 32], 100), 902, "the clock was set back");
        assert_eq!(keys.begin(at(3601), &[3; 32], 0, 100), 903, "one that was sent and not used counts");
        assert_eq!(signing(&keys), 903);
        keys.switch(at(9999));
        assert_eq!(signing(&keys), 903, "the one before is forgotten");
    }
}
