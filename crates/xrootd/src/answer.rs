//! Builds answers. The length in the header is filled in when the body is complete.

use std::sync::Arc;

use service::{Answer, Error};
use wire::{ErrorNumber, RESPONSE_HEADER_LEN, ResponseHeader, ResponseStatus, StreamId, reply};

use crate::gather::Gather;
use crate::input::is_half_closed;
use crate::meter::{Began, Meter};
use crate::outgoing::Outgoing;
use crate::to_wire::RequestError;

/// Appends one frame, whose body `write` appends.
pub(crate) fn frame(out: &mut Vec<u8>, stream: StreamId, status: ResponseStatus, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; RESPONSE_HEADER_LEN]);
    write(out);
    let dlen = u32::try_from(out.len() - start - RESPONSE_HEADER_LEN).unwrap_or(u32::MAX);
    let header = ResponseHeader { stream, status, dlen }.to_bytes();
    if let Some(place) = out.get_mut(start..start + RESPONSE_HEADER_LEN) {
        place.copy_from_slice(&header);
    }
}

/// Appends a complete kXR_ok.
pub(crate) fn ok(out: &mut Vec<u8>, stream: StreamId, write: impl FnOnce(&mut Vec<u8>)) {
    frame(out, stream, ResponseStatus::Ok, write);
}

/// Appends an error, wait or redirect.
pub(crate) fn request_error(out: &mut Vec<u8>, stream: StreamId, request_error: &RequestError) {
    match request_error {
        RequestError::Error { number, text } => frame(out, stream, ResponseStatus::Error, |body| {
            body.extend_from_slice(&number.0.to_be_bytes());
            put_text(text, body);
        }),
        RequestError::Wait { seconds, text } => frame(out, stream, ResponseStatus::Wait, |body| {
            body.extend_from_slice(&seconds.to_be_bytes());
            put_text(text, body);
        }),
        // XProtocol.hh, ServerResponseBody_Redirect: the port, then host and opaque data without a terminator.
        RequestError::Redirect(to) => frame(out, stream, ResponseStatus::Redirect, |body| {
            body.extend_from_slice(&u32::from(to.port).to_be_bytes());
            body.extend_from_slice(to.host.as_bytes());
            if !to.words.is_empty() {
                body.push(b'?');
                body.extend_from_slice(to.words.as_bytes());
            }
        }),
    }
}

fn put_text(text: &str, body: &mut Vec<u8>) {
    body.extend(text.bytes().map(|b| if b == 0 { b'?' } else { b }));
    body.push(0);
}

/// The duty to answer a request on another thread. If it is dropped without an answer, it answers with an error, so
/// that no client waits for ever.
pub(crate) struct Reply {
    duty: Option<(To, StreamId)>,
    /// The client has been told that the answer comes later.
    put_off: bool,
    began: Option<Began>,
}

impl Reply {
    /// Answers a request that [`Outgoing::begin`] has counted.
    pub(crate) fn new(outgoing: Arc<Outgoing>, stream: StreamId, began: Option<Began>) -> Self {
        Self { duty: Some((To::Connection(outgoing), stream)), put_off: false, began }
    }

    /// Answers the entry of a batch with the number `stream`.
    pub(crate) fn of_entry(gather: Arc<Gather>, stream: StreamId) -> Self {
        Self { duty: Some((To::Batch(gather), stream)), put_off: false, began: None }
    }

    /// Tells the client (kXR_waitresp) that the answer comes later, within about `seconds`. Only the connection's own
    /// thread calls this.
    fn tell_to_wait(&mut self, seconds: u32) {
        if let Some((To::Connection(outgoing), stream)) = &self.duty
            && !self.put_off
        {
            outgoing.answer(|out| reply::waitresp(out, *stream, seconds));
            // The connection's thread may already be away.
            outgoing.flush();
            self.put_off = true;
        }
    }

    /// An answer for a result with a value; `write` appends the whole frame.
    pub(crate) fn framed<T, F>(self, write: F) -> Framed<F>
    where
        F: FnOnce(T, &mut Vec<u8>, StreamId) + Send + 'static,
    {
        Framed { reply: self, write }
    }

    /// The same; `write` appends the body.
    pub(crate) fn encoded<T, F>(self, write: F) -> Encoded<F>
    where
        F: FnOnce(T, &mut Vec<u8>) -> Result<(), RequestError> + Send + 'static,
    {
        Encoded { reply: self, write }
    }

    fn complete(&mut self, write: impl FnOnce(&mut Vec<u8>, StreamId)) {
        let late = self.put_off;
        match self.duty.take() {
            Some((To::Connection(outgoing), stream)) => {
                count(&outgoing, self.began.take());
                outgoing.complete(|out| {
                    if late { reply::late(out, stream, |out| write(out, stream)) } else { write(out, stream) }
                });
            }
            Some((To::Batch(gather), stream)) => gather.answer(|out| write(out, stream)),
            None => {}
        }
    }

    /// Answers with kXR_ok; `write` appends the body.
    pub(crate) fn ok(mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.complete(|out, stream| ok(out, stream, write));
    }

    /// Answers with the frame that `write` appends for the request's stream.
    pub(crate) fn frame(mut self, write: impl FnOnce(&mut Vec<u8>, StreamId)) {
        self.complete(write);
    }

    /// Answers with an error, wait or redirect.
    pub(crate) fn refuse(mut self, reason: &RequestError) {
        if let Some((to, _)) = &self.duty {
            to.meter().refused(reason);
        }
        self.complete(|out, stream| request_error(out, stream, reason));
    }

    /// Whether the client is gone.
    pub(crate) fn is_dead(&self) -> bool {
        self.duty.as_ref().is_none_or(|(to, _)| matches!(to, To::Connection(outgoing) if outgoing.is_dead()))
    }
}

/// For results without a value.
impl Answer<()> for Reply {
    fn give(self, outcome: Result<(), Error>) {
        match outcome {
            Ok(()) => self.ok(|_| ()),
            Err(error) => self.refuse(&error.into()),
        }
    }

    fn is_unwanted(&self) -> bool {
        self.is_dead()
    }

    fn put_off(&mut self, seconds: u32) {
        self.tell_to_wait(seconds);
    }
}

/// An answer whose frame is built from the result.
pub(crate) struct Framed<F> {
    reply: Reply,
    write: F,
}

impl<T, F: FnOnce(T, &mut Vec<u8>, StreamId) + Send + 'static> Answer<T> for Framed<F> {
    fn give(self, outcome: Result<T, Error>) {
        let Self { reply, write } = self;
        match outcome {
            Ok(outcome) => reply.frame(|out, stream| write(outcome, out, stream)),
            Err(error) => reply.refuse(&error.into()),
        }
    }

    fn is_unwanted(&self) -> bool {
        self.reply.is_dead()
    }

    fn put_off(&mut self, seconds: u32) {
        self.reply.tell_to_wait(seconds);
    }
}

/// An answer whose body is built from the result. If it cannot be built, the answer is an error.
pub(crate) struct Encoded<F> {
    reply: Reply,
    write: F,
}

impl<T, F: FnOnce(T, &mut Vec<u8>) -> Result<(), RequestError> + Send + 'static> Answer<T> for Encoded<F> {
    fn give(self, outcome: Result<T, Error>) {
        let Self { reply, write } = self;
        let mut body = Vec::new();
        match outcome.map_err(RequestError::from).and_then(|outcome| write(outcome, &mut body)) {
            Ok(()) => reply.ok(|out| out.extend_from_slice(&body)),
            Err(why) => reply.refuse(&why),
        }
    }

    fn is_unwanted(&self) -> bool {
        self.reply.is_dead()
    }

    fn put_off(&mut self, seconds: u32) {
        self.reply.tell_to_wait(seconds);
    }
}

/// An answer that is unwanted as soon as the client has closed its sending side.
pub(crate) struct WhileListening<A> {
    pub(crate) answer: A,
    pub(crate) outgoing: Arc<Outgoing>,
}

impl<T, A: Answer<T>> Answer<T> for WhileListening<A> {
    fn give(self, outcome: Result<T, Error>) {
        self.answer.give(outcome);
    }

    fn is_unwanted(&self) -> bool {
        self.answer.is_unwanted() || is_half_closed(self.outgoing.socket()) || self.outgoing.is_dead()
    }

    fn put_off(&mut self, seconds: u32) {
        self.answer.put_off(seconds);
    }
}

/// The destination of an answer.
enum To {
    /// The client.
    Connection(Arc<Outgoing>),
    /// The answers to the other entries of its batch.
    Batch(Arc<Gather>),
}

impl To {
    fn meter(&self) -> &Meter {
        match self {
            To::Connection(outgoing) => outgoing.meter(),
            To::Batch(gather) => gather.meter(),
        }
    }
}

fn count(outgoing: &Outgoing, began: Option<Began>) {
    if let Some(began) = began {
        outgoing.meter().done(began);
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if self.duty.is_some() {
            let lost =
                RequestError::new(ErrorNumber::SERVER_ERROR, "The server lost track of this request; please report it");
            tracing::error!("a request was dropped without an answer");
            if let Some((to, _)) = &self.duty {
                to.meter().refused(&lost);
            }
            self.complete(|out, stream| request_error(out, stream, &lost));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;
    use crate::drainer::Drainer;

    #[test]
    fn an_answer_that_cannot_be_built_counts_as_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let drainer = Drainer::start(Duration::from_secs(1)).unwrap();
        let meter = Arc::new(Meter::new());
        let outgoing = Outgoing::new(socket, Arc::clone(&drainer), Arc::clone(&meter), 1, 1);
        let reply = || Reply::new(Arc::clone(&outgoing), StreamId::default(), None);
        let too_long = || RequestError::new(ErrorNumber::ARG_TOO_LONG, "it is too long");
        reply().encoded(|(), _: &mut Vec<u8>| Ok(())).give(Ok(()));
        assert_eq!(meter.errors(), []);
        reply().encoded(move |(), _: &mut Vec<u8>| Err(too_long())).give(Ok(()));
        assert_eq!(meter.errors(), [(ErrorNumber::ARG_TOO_LONG, 1)]);
        drainer.stop();
    }
}
