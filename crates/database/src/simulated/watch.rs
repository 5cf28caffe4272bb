//! A process that wants the place, as [`crate::PlaceWatch`].

use std::time::Instant;

use super::server::{Answer, Ask, Request, Said};
use crate::own_place::Process;
use crate::place_lease::{Judged, Silence, Terms, Vacancy};

/// What a look has found.
#[derive(Clone, Debug)]
pub enum Looked {
    /// A process has the place, or may have it, or the database does not answer.
    Held,
    /// Nobody has it: it may be asked for with this request.
    Free(Request),
    /// The database has lost changes that an earlier look has seen, and must be closed with this request.
    Lost(Request),
    /// The database is closed to managers.
    Closed,
}

/// Looks at the place.
pub struct SimWatch {
    process: Process,
    silence: Silence,
    server: Option<u64>,
}

impl SimWatch {
    /// `process`: the number under which this process takes the place.
    #[must_use]
    pub fn new(process: [u8; 16]) -> Self {
        Self { process, silence: Silence::new(Terms::DEFAULT), server: None }
    }

    /// The next look.
    #[must_use]
    pub fn look(&self) -> Request {
        Request(Ask::Look)
    }

    /// The answer to a look has not come.
    pub fn unanswered(&mut self) {
        self.silence.unanswered();
        self.server = None;
    }

    /// The answer to a look arrived at `now`.
    pub fn answered(&mut self, now: Instant, answer: Answer) -> Looked {
        // As for a new connection, which may lead to another server.
        if self.server != Some(answer.server) {
            self.silence.unanswered();
            self.server = Some(answer.server);
        }
        match answer.said {
            Said::Row { closed: Some(_), .. } => {
                self.silence.closed();
                Looked::Closed
            }
            Said::Row { row, closed: None } => match self.silence.answered(now, row) {
                Judged::Held { .. } => Looked::Held,
                Judged::Free(seen) => Looked::Free(self.take(seen)),
                Judged::Lost(batches) => {
                    Looked::Lost(Request(Ask::Close { reason: format!("lost {batches} batches") }))
                }
            },
            _ => {
                self.unanswered();
                Looked::Held
            }
        }
    }

    fn take(&self, seen: Vacancy) -> Request {
        Request(Ask::Take { process: self.process, seen })
    }
}
