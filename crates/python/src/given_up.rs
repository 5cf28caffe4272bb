//! The files that writers of this process gave up a short time ago.
//!
//! A writer gives a file up by ending its connection, without waiting for the server. Until the server has noticed that, it
//! refuses another writer: the file is still being written. So who opens the file again right after that must try again.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A server notices the end of a connection within this time, even one with much to do.
const NOTICED_WITHIN: Duration = Duration::from_secs(10);

/// Addresses, with the times at which their writers gave them up.
#[derive(Default)]
pub struct GivenUp(Mutex<Vec<(String, Instant)>>);

impl GivenUp {
    /// A writer gives the file at `url` up now.
    pub fn add(&self, url: &str) {
        let mut all = self.0.lock();
        all.retain(|(other, at)| other != name(url) && at.elapsed() < NOTICED_WITHIN);
        all.push((name(url).to_owned(), Instant::now()));
    }

    /// Whether the server may not have noticed yet that the writer of the file at `url` gave it up.
    pub fn may_be_open(&self, url: &str) -> bool {
        self.0.lock().iter().any(|(other, at)| other == name(url) && at.elapsed() < NOTICED_WITHIN)
    }
}

/// The address without the words behind it.
fn name(url: &str) -> &str {
    url.split('?').next().unwrap_or(url)
}
