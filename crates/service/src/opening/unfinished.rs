//! Readers of files that are being written. A reader that does not know that the file grows would take its present
//! length for the whole, so it must wait or is refused. A reader that says that it follows gets what is durable so far.

use std::time::{Duration, Instant};

use manager::Manager;
use node::ClientPresence;
use types::{ErrorCode, NsPath, ObjectId};

use super::Open;
use crate::answer::Answer;
use crate::caller::Caller;
use crate::config::Unfinished;
use crate::conflicts::described;
use crate::error::{Error, Redirect};
use crate::names::wall_clock;
use crate::service::Service;
use crate::session::Session;
use crate::third_party::Part;
use crate::writers::WriterPresence;

/// How long a reader waits for a writer that is there before it asks again.
const WRITER_IS_THERE: u32 = 3;
/// The longest time that it waits for a writer that has lost its connection before it asks again.
const WRITER_IS_GONE_MAX: u32 = 5;

impl Service {
    /// Whether this reader gets the part that is durable so far of a file that is being written. A third-party copy does
    /// not: it must bring the whole file.
    pub(super) fn follows(&self, open: &Open) -> bool {
        let follows = || open.follows || self.settings.config.unfinished.of(&open.path) == Unfinished::Follow;
        open.partial || open.copy == Part::None && follows()
    }

    /// Redirects a reader to where the manager has found the file. If the file is new and being written, the reader must be
    /// one that follows, or be told by the file's primary to wait. The manager asks for that about a striped file.
    pub(super) fn redirect_by_policy<T>(
        &self,
        manager: &Manager,
        caller: &Caller,
        (open, to): (Open, manager::Redirect),
        answer: impl Answer<T>,
    ) {
        let Some(unfinished) = to.unfinished else { return answer.give(Err(Error::redirect(to))) };
        let mut to = Redirect::from(to);
        if self.follows(&open) {
            to.follows = true;
            return answer.give(Err(Error::redirect(to)));
        }
        let path = open.path;
        // A client sees what it writes itself.
        if self.writes.writes(&self.names, caller, &path) {
            return answer.give(Err(Error::redirect(to)));
        }
        let policy = self.settings.config.unfinished.of(&path);
        match unfinished {
            manager::Unfinished::AtPrimary if policy == Unfinished::Wait => {
                let text = format!("Cannot open {path} now: it is being written; try again when that has ended");
                answer.give(Err(Error::Wait { seconds: WRITER_IS_THERE, text }));
            }
            manager::Unfinished::AtPrimary => answer.give(Err(Error::redirect(to))),
            manager::Unfinished::Striped(writer) => {
                // A reader that waits in any case need not know exactly.
                let which = (writer, policy != Unfinished::Wait);
                manager.who_writes_striped(which, move |found| {
                    answer.give(Err(unfinished_striped(&path, policy, found)));
                });
            }
        }
    }

    /// Whether `object` has an open write here.
    pub(super) fn is_being_written(&self, object: ObjectId) -> bool {
        self.writes.lock().lease(object).is_some()
    }

    /// Fails if `object` is a new file that is being written here: a reader would take its present length for the whole.
    /// Its own writer sees everything that it has written.
    pub(super) fn must_be_finished(&self, session: &Session, path: &NsPath, object: ObjectId) -> Result<(), Error> {
        if self.own_writer(session, object).is_some() {
            return Ok(());
        }
        let Some((lease, presence)) = self.writes.lock().open_write(object) else {
            let text = format!("Cannot open {path} now: it is being written, and its writer has not come back yet");
            return Err(Error::Wait { seconds: 1, text });
        };
        // A change in place: the file was complete before.
        if !lease.fresh {
            return Ok(());
        }
        let now = Instant::now();
        let why = described(&lease, presence, now, wall_clock());
        let seconds = match presence {
            WriterPresence::Attached if self.settings.config.unfinished.of(path) == Unfinished::Wait => WRITER_IS_THERE,
            WriterPresence::Attached => return Err(unfinished_error(path, &why)),
            WriterPresence::Detached { until, .. } => seconds_to(until.saturating_duration_since(now)),
            WriterPresence::Ending => 1,
        };
        Err(Error::Wait { seconds, text: format!("Cannot open {path} now: {why}") })
    }
}

/// The error for a reader of a striped file, by what the manager has `found` about its writer. `None`: it has found out
/// nothing at this moment.
fn unfinished_striped(path: &NsPath, policy: Unfinished, found: Option<(String, ClientPresence)>) -> Error {
    let (seconds, why) = match found {
        Some((why, ClientPresence::There)) if policy == Unfinished::Wait => (WRITER_IS_THERE, why),
        Some((why, ClientPresence::There)) => return unfinished_error(path, &why),
        Some((why, ClientPresence::Gone { left_ms, .. })) => (seconds_to(Duration::from_millis(left_ms)), why),
        Some((why, ClientPresence::Ending | ClientPresence::Unknown)) => (1, why),
        None => (1, "it is being written, and its servers do not say whether its writer is there".to_owned()),
    };
    Error::Wait { seconds, text: format!("Cannot open {path} now: {why}") }
}

/// The error for a reader of a file whose writer is there.
fn unfinished_error(path: &NsPath, why: &str) -> Error {
    let text = format!("Cannot open {path}: {why}, or copy it to its end with weir cp --follow");
    Error::new(ErrorCode::Busy, text)
}

fn seconds_to(left: Duration) -> u32 {
    u32::try_from(left.as_secs()).unwrap_or(u32::MAX).clamp(1, WRITER_IS_GONE_MAX)
}
