//! Requests to the manager about open writes that this server leads. Nothing waits for their answers: these come as completions.

use cluster::Time;
use node::{FromDisk, OpenWriteAction, OpenWriteAnswer, OpenWriteRequest, RequestError};
use types::{ErrorCode, RequestNumber, WriterToken};

use super::DiskServer;
use super::questions::{self, NotAsked};

/// The most requests that wait for the manager.
pub(super) const WAITING_MAX: usize = 4096;

/// Called once with the manager's answer.
type Then = questions::Then<Agreed>;

/// What the manager has agreed to.
pub(super) type Agreed = Result<Option<u64>, NotAgreed>;

/// Why the manager has not agreed to a request about an open write.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotAgreed {
    /// It refuses. Nothing was done.
    #[error(transparent)]
    Refused(RequestError),
    /// It did not answer in time. It may have done what was asked.
    #[error("the cluster's manager has not answered")]
    NoAnswer,
    /// Too many requests wait already. Nothing was asked.
    #[error("too many requests wait for the cluster's manager")]
    TooMany,
}

fn done(then: impl FnOnce(Result<(), NotAgreed>) + Send + 'static) -> Then {
    Box::new(|answer| then(answer.map(drop)))
}

impl DiskServer {
    /// Tells the manager that a client closes the open write in a request with this number. Calls `then` once, perhaps in another thread; it must not
    /// wait. After an error the close must not begin.
    pub fn announce_close(
        &self,
        writer: WriterToken,
        request: RequestNumber,
        then: impl FnOnce(Result<(), NotAgreed>) + Send + 'static,
    ) {
        self.ask_about(writer, OpenWriteAction::Close(request), done(then));
    }

    /// Has the manager record that a client has closed one of several handles in a request with this number. Calls `then` once, perhaps in another
    /// thread; it must not wait. After an error the handle must stay open.
    pub fn leave(
        &self,
        writer: WriterToken,
        request: RequestNumber,
        then: impl FnOnce(Result<(), NotAgreed>) + Send + 'static,
    ) {
        self.ask_about(writer, OpenWriteAction::Leave(request), done(then));
    }

    /// Has the manager discard the open write and everything that was written in it. The stores delete the bytes soon afterwards. Calls `then` once,
    /// perhaps in another thread; it must not wait.
    pub fn discard(&self, writer: WriterToken, then: impl FnOnce(Result<(), NotAgreed>) + Send + 'static) {
        self.ask_about(writer, OpenWriteAction::Discard, done(then));
    }

    /// Has the manager reserve what the open write needs to become `len` bytes long. Calls `then` once, perhaps in another thread, with the length that
    /// it may reach now (`None`: any length); it must not wait.
    pub fn reserve(
        &self,
        writer: WriterToken,
        len: u64,
        then: impl FnOnce(Result<Option<u64>, NotAgreed>) + Send + 'static,
    ) {
        self.ask_about(writer, OpenWriteAction::Reserve(len), Box::new(then));
    }

    fn ask_about(&self, writer: WriterToken, action: OpenWriteAction, then: Then) {
        let number = match self.open_write_requests.add(self.world.now(), then) {
            Ok(number) => number,
            Err((NotAsked::LetGo, then)) => return then(Err(NotAgreed::NoAnswer)),
            Err((NotAsked::TooMany, then)) => return then(Err(NotAgreed::TooMany)),
        };
        self.world.to_manager(FromDisk::OpenWrite(OpenWriteRequest { number, writer, action }));
    }

    /// The manager has answered a request.
    pub(super) fn open_write_answered(&self, answer: OpenWriteAnswer) {
        if let Some(then) = self.open_write_requests.answered(answer.number) {
            then(answer.result.map_err(NotAgreed::Refused));
        }
    }

    /// Gives up requests that the manager has not answered in time.
    pub(super) fn give_up_open_write_requests(&self, now: Time) {
        self.open_write_requests.late(now).into_iter().for_each(|then| then(Err(NotAgreed::NoAnswer)));
    }

    /// Fails all requests, now and later: the connection with the manager has ended.
    pub(super) fn let_go_of_open_write_requests(&self) {
        self.open_write_requests.let_go().into_iter().for_each(|then| then(Err(NotAgreed::NoAnswer)));
    }
}

impl NotAgreed {
    /// The error code for protocols. [`ErrorCode::Overloaded`] means that the request may succeed later.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Refused(refusal) => refusal.code,
            Self::NoAnswer | Self::TooMany => ErrorCode::Overloaded,
        }
    }
}
