//! One small file that is written: which request follows an answer of the server. This module only decides.

use wire::request::{Access, Close, Open, OpenOptions};
use wire::response::{OpenReply, StatReply, Status};
use wire::{FileHandle, PathArg, Request, Response};

use crate::pace::WaitLimit;
use crate::{ClientError, Endpoint};

/// A small file to write, and its state.
#[derive(Debug)]
pub struct SmallFile<T> {
    /// The path at the server.
    pub path: String,
    /// Its permission bits.
    pub mode: u16,
    /// Its bytes, at most a few MiB.
    pub data: Vec<u8>,
    /// Whether it may replace an existing file.
    pub replace: bool,
    /// More words for the path of the open, such as `key=value&other=value`.
    pub words: Option<String>,
    /// The caller's tag.
    pub tag: T,
    /// Whether the server has opened it for this client.
    pub opened: bool,
    /// The file that this open created, where none existed. A file with another id under the same name later
    /// belongs to another client. `None`: the open created no file, it is unknown whether it did, or the server has
    /// no ids.
    pub made: Option<StatReply>,
}

impl<T> SmallFile<T> {
    /// A file that has not been started.
    #[must_use]
    pub fn new(path: String, mode: u16, data: Vec<u8>, tag: T) -> Self {
        Self { path, mode, data, replace: false, words: None, tag, opened: false, made: None }
    }
}

/// The purpose of a request.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open,
    Close,
}

/// A file under way.
#[derive(Debug)]
pub(super) struct Upload<T> {
    pub(super) file: SmallFile<T>,
    pub(super) waits: WaitLimit,
    /// Why the file is incomplete, once that is known.
    pub(super) failed: Option<ClientError>,
    handle: FileHandle,
    step: Step,
}

/// What follows an answer.
#[derive(Debug)]
pub(super) enum Next {
    /// The real answer is still to come.
    Await,
    /// Send the file's bytes, and behind them [`Upload::request`], which closes it.
    Write(FileHandle),
    /// Send the same request after this number of seconds. The text is the server's reason.
    Later(u32, Vec<u8>),
    /// The file has its result.
    Done(Result<(), ClientError>),
}

impl<T> Upload<T> {
    pub(super) fn new(file: SmallFile<T>) -> Self {
        Self { file, waits: WaitLimit::default(), failed: None, handle: FileHandle::default(), step: Step::Open }
    }

    /// Describes the present request in words.
    pub(super) fn what(&self) -> String {
        let step = match self.step {
            Step::Open => "open",
            Step::Close => "close",
        };
        format!("{step} {}", self.file.path)
    }

    /// Returns the present request.
    pub(super) fn request(&self) -> Request {
        let file = &self.file;
        match self.step {
            Step::Open => {
                let how = if file.replace { OpenOptions::DELETE } else { OpenOptions::NEW };
                let opaque = announced(file.data.len(), file.words.as_deref());
                let target = PathArg { path: file.path.clone().into_bytes(), opaque };
                let options = how | OpenOptions::UPDATE | OpenOptions::MKPATH | OpenOptions::RETSTAT;
                Request::Open(Open::plain(Access(file.mode), options, target))
            }
            Step::Close => Request::Close(Close { handle: self.handle }),
        }
    }

    /// Takes the answer to [`Upload::request`].
    ///
    /// # Errors
    /// The answer is invalid. The connection can no longer be used, and the file is unchanged.
    pub(super) fn answered(&mut self, server: &Endpoint, response: Response) -> Result<Next, ClientError> {
        match (self.step, response) {
            (_, Response::WaitResp { .. }) => Ok(Next::Await),
            (_, Response::Wait { seconds, text }) => Ok(Next::Later(seconds, text)),
            (Step::Open, Response::Ok(body)) => {
                self.file.opened = true;
                let reply = OpenReply::decode(&body);
                let reply = reply.map_err(|source| ClientError::Protocol { server: server.clone(), source })?;
                if !self.file.replace {
                    self.file.made = reply.stat.filter(|stat| stat.identity().is_some());
                }
                (self.handle, self.step) = (reply.handle, Step::Close);
                Ok(Next::Write(reply.handle))
            }
            (Step::Open, response) => Ok(Next::Done(Err(ClientError::refused(server, &self.what(), response)))),
            // If a write was refused before, its error says more than that of the close.
            (Step::Close, response) => Ok(Next::Done(match (self.failed.take(), response) {
                (Some(failed), _) => Err(failed),
                (None, Response::Ok(_)) => Ok(()),
                (None, response) => Err(ClientError::refused(server, &self.what(), response)),
            })),
        }
    }

    /// The server defers the request for longer than the client waits. It is unknown whether the request was done.
    pub(super) fn given_up(&mut self, waited: ClientError) -> ClientError {
        self.failed.take().unwrap_or(waited)
    }
}

/// Returns why a write with this answer has failed, if it has.
pub(super) fn write_failed(server: &Endpoint, response: Response) -> Option<ClientError> {
    match response {
        Response::Ok(_) | Response::Status(Status { data_len: 0, .. }) => None,
        Response::Status(_) => {
            let what = "pages arrived damaged".to_owned();
            Some(ClientError::Unexpected { server: server.clone(), what })
        }
        other => Some(ClientError::refused(server, "write", other)),
    }
}

/// Returns words that announce the length, and more words. With the length, the server can treat a file as complete
/// although its connection is lost.
fn announced(len: usize, more: Option<&str>) -> Option<wire::Opaque> {
    let words = match more {
        Some(more) => format!("oss.asize={len}&{more}"),
        None => format!("oss.asize={len}"),
    };
    wire::Opaque::parse(words.as_bytes()).ok()
}

#[cfg(test)]
mod tests {
    use wire::ErrorNumber;
    use wire::response::StatFlags;

    use super::*;

    fn server() -> Endpoint {
        Endpoint { host: "server".into(), port: 1094 }
    }

    fn upload(replace: bool) -> Upload<()> {
        Upload::new(SmallFile { replace, ..SmallFile::new("/f".into(), 0o644, vec![1; 10], ()) })
    }

    fn stat(id: u64) -> StatReply {
        StatReply { id, size: 0, flags: StatFlags::NONE, mtime: 0, extra: None }
    }

    fn opened(id: Option<u64>) -> Response {
        let mut body = Vec::new();
        OpenReply { handle: FileHandle([7; 4]), compression: None, stat: id.map(stat), beginning: Vec::new() }
            .encode(&mut body);
        Response::Ok(body)
    }

    fn refusal() -> Response {
        Response::Error { number: ErrorNumber::NO_SPACE, text: b"full".to_vec() }
    }

    fn answer(upload: &mut Upload<()>, response: Response) -> Next {
        upload.answered(&server(), response).unwrap()
    }

    fn made(upload: &Upload<()>) -> Option<u64> {
        upload.file.made.as_ref().map(|made| made.id)
    }

    #[test]
    fn a_file_is_opened_written_and_closed() {
        let mut file = upload(false);
        let Request::Open(open) = file.request() else { panic!("{:?}", file.request()) };
        assert!(open.options.has(OpenOptions::NEW) && open.options.has(OpenOptions::RETSTAT), "its id is wanted");
        assert!(matches!(answer(&mut file, opened(Some(5))), Next::Write(FileHandle([7, 7, 7, 7]))));
        assert_eq!((file.file.opened, made(&file)), (true, Some(5)));
        assert!(matches!(file.request(), Request::Close(Close { handle: FileHandle([7, 7, 7, 7]) })));
        assert!(matches!(answer(&mut file, Response::Ok(vec![])), Next::Done(Ok(()))));
    }

    #[test]
    fn after_a_refused_close_the_created_file_is_known() {
        let mut file = upload(false);
        assert!(matches!(answer(&mut file, opened(Some(5))), Next::Write(_)));
        let Next::Done(Err(ClientError::Refused { what, .. })) = answer(&mut file, refusal()) else { panic!() };
        assert_eq!((what.as_str(), made(&file)), ("close /f", Some(5)));
    }

    #[test]
    fn a_file_that_may_belong_to_another_client_does_not_count_as_created() {
        let mut file = upload(true);
        assert!(matches!(answer(&mut file, opened(Some(5))), Next::Write(_)));
        assert_eq!(made(&file), None, "it was to replace what is there");
        // A server without ids, and one that gives every file the id 0.
        for id in [None, Some(0)] {
            let mut file = upload(false);
            assert!(matches!(answer(&mut file, opened(id)), Next::Write(_)));
            assert_eq!((file.file.opened, made(&file)), (true, None));
        }
    }

    #[test]
    fn a_damaged_write_fails_even_if_the_close_succeeds() {
        for closed in [Response::Ok(vec![]), refusal()] {
            let mut file = upload(false);
            assert!(matches!(answer(&mut file, opened(Some(5))), Next::Write(_)));
            file.failed = write_failed(&server(), refusal());
            let Next::Done(Err(ClientError::Refused { what, .. })) = answer(&mut file, closed) else { panic!() };
            assert_eq!(what, "write");
        }
        assert!(write_failed(&server(), Response::Ok(vec![])).is_none());
    }

    #[test]
    fn an_invalid_answer_leaves_the_file_unfinished() {
        let mut file = upload(false);
        assert!(file.answered(&server(), Response::Ok(vec![1])).is_err());
        assert_eq!((file.file.opened, made(&file)), (true, None), "a file may be there, and it is not known which");
        let mut late = upload(false);
        assert!(matches!(answer(&mut late, Response::Wait { seconds: 3, text: vec![] }), Next::Later(3, _)));
        assert!(matches!(late.request(), Request::Open(_)));
    }
}
