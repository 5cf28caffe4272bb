//! How a front end receives the result of a request: immediately, or later on another thread.

use crate::error::Error;

/// The duty to answer one request.
///
/// The service calls [`Answer::give`] once, on the caller's thread or on another one. An implementation must not wait
/// for the client in it: it queues the result for its connection. If it is dropped without a result, it should answer
/// with an error, so that no client waits for ever.
///
/// A closure `FnOnce(Result<T, Error>)` is also an answer.
pub trait Answer<T>: Send + 'static {
    /// Takes the result.
    fn give(self, outcome: Result<T, Error>)
    where
        Self: Sized;

    /// Whether the client is gone. Long work for it can then stop.
    fn is_unwanted(&self) -> bool {
        false
    }

    /// Announces that the result takes longer than a client normally waits. It comes within about `seconds`. Only the
    /// thread that made the request calls this.
    fn put_off(&mut self, seconds: u32) {
        let _ = seconds;
    }
}

impl<T, F: FnOnce(Result<T, Error>) + Send + 'static> Answer<T> for F {
    fn give(self, outcome: Result<T, Error>) {
        self(outcome);
    }
}

/// An answer as a trait object, for queues.
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
