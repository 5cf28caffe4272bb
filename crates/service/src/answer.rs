//! How a front end learns what came of a request: at once, or later from another thread.

use crate::error::Error;

/// The duty to answer one request.
///
/// The service calls [`Answer::give`] once, on the caller's thread or on another one, and never waits in it for the client:
/// an implementation puts the outcome where its connection sends it from. An implementation should answer with an error if it is
/// dropped unanswered, so that no client waits for ever.
///
/// A closure `FnOnce(Result<T, Error>)` is an answer too.
pub trait Answer<T>: Send + 'static {
    /// Takes the outcome.
    fn give(self, outcome: Result<T, Error>)
    where
        Self: Sized;

    /// Whether nobody would read the answer: long work for it can stop.
    fn is_unwanted(&self) -> bool {
        false
    }

    /// The outcome takes longer than a client may wait for an answer; it comes within about `seconds`. Called on the thread that made the request only.
    fn put_off(&mut self, seconds: u32) {
        let _ = seconds;
    }
}

impl<T, F: FnOnce(Result<T, Error>) + Send + 'static> Answer<T> for F {
    fn give(self, outcome: Result<T, Error>) {
        self(outcome);
    }
}

/// An answer of any kind, for queues.
pub(crate) trait AnyAnswer<T>: Send {
    /// See [`Answer::give`].
    fn give_boxed(self: Box<Self>, outcome: Result<T, Error>);
    /// See [`Answer::is_unwanted`].
    fn is_unwanted(&self) -> bool;
}

impl<T, A: Answer<T>> AnyAnswer<T> for A {
    fn give_boxed(self: Box<Self>, outcome: Result<T, Error>) {
        self.give(outcome);
    }

    fn is_unwanted(&self) -> bool {
        Answer::is_unwanted(self)
    }
}
