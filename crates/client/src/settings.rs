//! How patient the client is, and who it says it is.

use std::time::Duration;

/// Settings of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long a server may say nothing while an answer is waited for.
    pub silence_max: Duration,
    /// How long a lost connection is tried to be made again, for what can be repeated.
    pub recovery_max: Duration,
    /// How long a server's requests to wait are followed, in all, for one request of ours.
    pub wait_max: Duration,
    /// Redirects that one request follows.
    pub redirects_max: u32,
    /// Requests with data under way at a time on one connection.
    pub window: usize,
    /// What the server is told that this program is.
    pub application: String,
    /// Who to log in as, if the address does not say.
    pub user: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(10),
            silence_max: Duration::from_secs(300),
            recovery_max: Duration::from_secs(60),
            wait_max: Duration::from_secs(600),
            redirects_max: 16,
            window: 4,
            application: "weir".to_owned(),
            user: std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_default(),
        }
    }
}
