//! Tells the caller what the client waits for.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::Endpoint;

/// The client tells nobody of shorter waits.
pub(crate) const TOLD_AFTER: Duration = Duration::from_secs(2);
/// The bytes that are kept of a server's reason to wait.
pub(crate) const REASON_MAX: usize = 400;

/// Hears what the client waits for, once a wait has taken two seconds, and then several times a second until it
/// ends; by default nobody does.
#[derive(Clone, Default)]
pub struct Watch(Option<Arc<Hears>>);

type Hears = dyn Fn(&Wait<'_>) + Send + Sync;

impl Watch {
    /// Calls `hears`, from any thread. It must return soon.
    #[must_use]
    pub fn with(hears: impl Fn(&Wait<'_>) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hears)))
    }

    /// Tells of `wait`, if it has taken two seconds by now.
    pub fn tell(&self, wait: &Wait<'_>) {
        if let Some(hears) = self.0.as_deref().filter(|_| wait.waited >= TOLD_AFTER) {
            hears(wait);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Watch(somebody)" } else { "Watch(nobody)" })
    }
}

/// A wait. Its text says for whom, for how long already, and until when.
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    /// The server.
    pub server: &'a Endpoint,
    /// The request, in words; may be empty.
    pub what: &'a str,
    /// Why it waits.
    pub why: WaitReason<'a>,
    /// How long nothing has moved.
    pub waited: Duration,
    /// After this time the client gives up, unless something moves.
    pub left: Duration,
}

/// Why the client waits.
#[derive(Clone, Copy, Debug)]
pub enum WaitReason<'a> {
    /// The server has not accepted the connection.
    Connection,
    /// The server has not answered.
    Answer,
    /// The server does not take more data.
    Room,
    /// The server asks to wait. Its reason.
    Asked(&'a [u8]),
    /// The server copies a file, and shows no progress.
    Growth,
    /// The file is still being written, and its writer adds nothing.
    Writer,
    /// An attempt failed, and the next one follows. The error.
    Failed(&'a str),
}

impl fmt::Display for Wait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, what, why, waited, left } = self;
        match why {
            WaitReason::Connection => write!(f, "{server} does not accept the connection")?,
            WaitReason::Answer => write!(f, "{server} does not answer")?,
            WaitReason::Room => write!(f, "{server} takes no more data")?,
            WaitReason::Growth => write!(f, "{server} shows no progress")?,
            WaitReason::Writer => write!(f, "{server} has nothing new; the writer has not closed the file")?,
            WaitReason::Asked(text) => {
                let text: String =
                    String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).take(REASON_MAX).collect();
                write!(f, "{server} asks to wait: {text}")?;
            }
            WaitReason::Failed(error) => write!(f, "{error}; trying again")?,
        }
        if !what.is_empty() {
            write!(f, " ({what})")?;
        }
        write!(f, "; waiting for {} s, gives up in {} s", waited.as_secs(), left.as_secs())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use std::sync::Mutex;

    use super::*;

    #[test]
    fn only_waits_of_two_seconds_are_told() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&told);
        let watch = Watch::with(move |wait| hears.lock().unwrap().push(wait.to_string()));
        let server = Endpoint { host: "d1".into(), port: 1094 };
        let wait = |millis, why| Wait {
            server: &server,
            what: "write /f",
            why,
            waited: Duration::from_millis(millis),
            left: Duration::from_secs(13),
        };
        watch.tell(&wait(1999, WaitReason::Answer));
        watch.tell(&wait(2000, WaitReason::Answer));
        watch.tell(&wait(9000, WaitReason::Asked(b"a store\x1b[2J is away")));
        assert_eq!(
            *told.lock().unwrap(),
            [
                "d1:1094 does not answer (write /f); waiting for 2 s, gives up in 13 s",
                "d1:1094 asks to wait: a store[2J is away (write /f); waiting for 9 s, gives up in 13 s",
            ]
        );
        Watch::default().tell(&wait(9000, WaitReason::Room));
    }
}
