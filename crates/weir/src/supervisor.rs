//! Tells the service manager the state of the node: one datagram to the socket that `NOTIFY_SOCKET` names (sd_notify(3)). Without that
//! variable it does nothing.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

use monitor::health::Health;

/// What a node says while it opens its journals and indexes.
pub(crate) const OPENING: &str = "opens its journal and its index; after a crash, this takes a while";
/// How often the state is looked at for `systemctl status`.
const STATE_EVERY: Duration = Duration::from_secs(10);
/// `STATUS=` is one line; a longer one is of no use in a terminal.
const STATE_CHARS_MAX: usize = 200;

/// Sends `state`, such as `READY=1`. A failure does not matter to the node.
pub fn tell(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&socket),
    };
    let told = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = told {
        tracing::warn!("the service manager at {} cannot be told {state}: {error}", socket.display());
    }
}

/// Says what the node does while it is not ready: `systemctl status` shows it.
pub fn say(doing: &str) {
    tell(&format!("STATUS={doing}"));
}

/// Says that the node serves clients.
pub fn ready(url: &str) {
    tell("READY=1");
    say(url);
}

/// What `systemctl status` shows of a running node: where it serves, and how it is.
pub(crate) struct StateLine {
    url: String,
    said: String,
    next: Instant,
}

impl StateLine {
    /// For a node that serves at `url`.
    pub(crate) fn new(url: String) -> Self {
        Self { url, said: String::new(), next: Instant::now() }
    }

    /// Judges the node from time to time, and says it if it has changed. Call it about every second.
    pub(crate) fn look(&mut self, judge: impl FnOnce() -> Option<Health>) {
        if Instant::now() < self.next || std::env::var_os("NOTIFY_SOCKET").is_none() {
            return;
        }
        self.next = Instant::now() + STATE_EVERY;
        let Some(health) = judge() else { return };
        let words = state(&self.url, &health);
        if words != self.said {
            say(&words);
            self.said = words;
        }
    }
}

/// `root://HOST:PORT/: warning: 1 store is offline (and 2 more)`.
fn state(url: &str, health: &Health) -> String {
    let mut words = format!("{url}: {}", health.verdict.word());
    if let Some(first) = health.reasons.first() {
        words += &format!(": {}", first.text);
    }
    if health.reasons.len() > 1 {
        words += &format!(" (and {} more)", health.reasons.len() - 1);
    }
    words.chars().map(|c| if c.is_control() { ' ' } else { c }).take(STATE_CHARS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use monitor::health::{Finding, Reason, Verdict};

    #[test]
    fn the_state_is_one_line_with_the_first_reason() {
        let url = "root://10.0.0.2:1094/";
        assert_eq!(state(url, &Health::default()), "root://10.0.0.2:1094/: healthy");
        let finding = |text: &str| Finding { reason: Reason::ALL[0], severity: Verdict::Warning, text: text.into() };
        let mut health =
            Health { verdict: Verdict::Warning, reasons: vec![finding("a store\nis away")], ..Health::default() };
        assert_eq!(state(url, &health), "root://10.0.0.2:1094/: warning: a store is away");
        health.reasons.push(finding("more"));
        assert!(state(url, &health).ends_with("is away (and 1 more)"));
        health.reasons[0].text = "x".repeat(1000);
        assert_eq!(state(url, &health).chars().count(), STATE_CHARS_MAX);
    }
}
