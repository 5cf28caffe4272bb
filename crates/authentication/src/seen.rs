//! The credentials of one mechanism that were seen: in memory, and in a file for the next start. A reload of the configuration does not forget them.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;
use sss::{Before, Now};
use types::Timestamp;

use crate::Clock;
use crate::seen_file::SeenFile;

/// How often the log says that the file cannot be used.
const COMPLAIN_EVERY: Duration = Duration::from_secs(60);

/// The present time.
pub(crate) fn now(clock: &dyn Clock) -> Now {
    Now { wall: clock.wall(), steady: clock.steady() }
}

/// The memory of a mechanism.
pub(crate) trait Replays {
    /// Why a credential does not count.
    type Refusal;
    /// The refusal if nobody can write down what was seen.
    const NOT_NOTED: Self::Refusal;
    /// The clients that are refused then, for the log.
    const CLIENTS: &'static str;

    /// The latest time at which a credential that was admitted was made.
    fn newest(&self) -> Option<Timestamp>;
}

impl Replays for sss::Replays {
    type Refusal = sss::Refusal;
    const NOT_NOTED: sss::Refusal = sss::Refusal::NotNoted;
    const CLIENTS: &'static str = "clients with shared secrets";

    fn newest(&self) -> Option<Timestamp> {
        self.newest()
    }
}

impl Replays for krb5::Replays {
    type Refusal = krb5::Refusal;
    const NOT_NOTED: krb5::Refusal = krb5::Refusal::NotNoted;
    const CLIENTS: &'static str = "clients with Kerberos tickets";

    fn newest(&self) -> Option<Timestamp> {
        self.newest()
    }
}

/// What was seen.
pub(crate) struct Seen<R> {
    file: Option<SeenFile>,
    /// `None`: the file was not read yet.
    replays: Mutex<Option<R>>,
    written: Mutex<Written>,
}

/// What is known of the file.
#[derive(Default)]
struct Written {
    /// The time that it has.
    newest: Option<Timestamp>,
    /// When the log has said last that it cannot be used.
    complained: Option<Duration>,
}

impl<R: Replays> Seen<R> {
    /// `path`: the file that says after a restart what was seen before.
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { file: path.map(SeenFile::new), replays: Mutex::new(None), written: Mutex::default() }
    }

    /// Lets a credential count, once: `admit` notes it. `begin` makes the memory of a node that has just started.
    ///
    /// Call it when the client would be let in. The credential of a client that no rule knows would take room from those of others, and its clock
    /// would say what counts after a restart.
    pub(crate) fn note(
        &self,
        begin: impl FnOnce(Before) -> R,
        admit: impl FnOnce(&mut R) -> Result<(), R::Refusal>,
        now: Now,
    ) -> Result<(), R::Refusal> {
        let newest = {
            let mut replays = self.replays.lock();
            // Not at the start: then the node of before may not have ended yet.
            let replays = match &mut *replays {
                Some(replays) => replays,
                none => {
                    let before = self.file.as_ref().map_or(Ok(Before::Unknown(None)), SeenFile::read);
                    none.insert(begin(before.map_err(|error| self.not_noted(&mut self.written.lock(), &error, now))?))
                }
            };
            admit(replays)?;
            replays.newest()
        };
        // Others may be noted meanwhile, and one of them writes for all who wait.
        if let (Some(file), Some(newest)) = (&self.file, newest) {
            let mut written = self.written.lock();
            if written.newest < Some(newest) {
                file.write(newest).map_err(|error| self.not_noted(&mut written, &error, now))?;
                written.newest = Some(newest);
            }
        }
        Ok(())
    }

    fn not_noted(&self, written: &mut Written, error: &io::Error, now: Now) -> R::Refusal {
        let is_silent = |since: Duration| now.steady.saturating_sub(since) < COMPLAIN_EVERY;
        if !written.complained.is_some_and(is_silent) {
            written.complained = Some(now.steady);
            tracing::error!(%error, "{} are refused: cannot use the file that says which were seen", R::CLIENTS);
        }
        R::NOT_NOTED
    }
}
