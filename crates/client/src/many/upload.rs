//! One small file that is written: which request is next, by what the server has answered. Decisions alone.

use wire::request::{Access, Close, Open, OpenOptions};
use wire::response::{OpenReply, StatReply, Status};
use wire::{FileHandle, PathArg, Request, Response};

use crate::pace::Waits;
use crate::{ClientError, Endpoint};

/// A small file to be written, and what has become of it.
#[derive(Debug)]
pub struct SmallFile<T> {
    /// The path at the server.
    pub path: String,
    /// Its permission bits.
    pub mode: u16,
    /// What it holds; at most a few MiB.
    pub data: Vec<u8>,
    /// May it replace what is there?
    pub replace: bool,
    /// More words behind the path of the open, as in `key=value&other=value`.
    pub words: Option<String>,
    /// The caller's name for it.
    pub tag: T,
    /// Whether the server has opened it for us.
    pub opened: bool,
    /// The file that this open has made, where nothing was: who finds one with another id under the name later, finds somebody else's.
    /// `None`: it has made none, nobody knows whether it has, or the server gives its files no ids.
    pub made: Option<StatReply>,
}

impl<T> SmallFile<T> {
    /// Nothing has become of it yet.
    #[must_use]
    pub fn new(path: String, mode: u16, data: Vec<u8>, tag: T) -> Self {
        Self { path, mode, data, replace: false, words: None, tag, opened: false, made: None }
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug)]
enum Step {
    Open,
    Close,
}

/// A file under way.
#[derive(Debug)]
pub(super) struct Upload<T> {
    pub(super) file: SmallFile<T>,
    pub(super) waits: Waits,
    /// Why it is not there as it should be, once that is known.
    pub(super) failed: Option<ClientError>,
    handle: FileHandle,
    step: Step,
}

/// What an answer leads to.
#[derive(Debug)]
pub(super) enum Next {
    /// The answer itself is to come.
    Await,
    /// Its bytes go out, and behind them [`Upload::request`], which closes it.
    Write(FileHandle),
    /// The same, after so many seconds; the server says why.
    Later(u32, Vec<u8>),
    /// It is done with.
    Done(Result<(), ClientError>),
}

impl<T> Upload<T> {
    pub(super) fn new(file: SmallFile<T>) -> Self {
        Self { file, waits: Waits::default(), failed: None, handle: FileHandle::default(), step: Step::Open }
    }

    /// What is being asked, in words.
    pub(super) fn what(&self) -> String {
        let step = match self.step {
            Step::Open => "open",
            Step::Close => "close",
        };
        format!("{step} {}", self.file.path)
    }

    /// What is to be asked.
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

    /// The answer to [`Upload::request`] is here.
    ///
    /// # Errors
    /// The answer makes no sense; the connection is of no use any more, and the file is as it was.
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
            // A write that was refused before says more than what the close has to say.
            (Step::Close, response) => Ok(Next::Done(match (self.failed.take(), response) {
                (Some(failed), _) => Err(failed),
                (None, Response::Ok(_)) => Ok(()),
                (None, response) => Err(ClientError::refused(server, &self.what(), response)),
            })),
        }
    }

    /// The server puts it off for longer than is waited: nobody knows whether what was asked is done.
    pub(super) fn given_up(&mut self, waited: ClientError) -> ClientError {
        self.failed.take().unwrap_or(waited)
    }
}

/// Why a write that was answered in this way has failed, if it has.
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

/// A length, announced so that the server can take a file whose connection is lost for complete, and more words.
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
        OpenReply { handle: FileHandle([7; 4]), compression: None, stat: id.map(stat) }.encode(&mut body);
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
    fn a_close_that_is_refused_leaves_what_was_made() {
        let mut file = upload(false);
        assert!(matches!(answer(&mut file, opened(Some(5))), Next::Write(_)));
        let Next::Done(Err(ClientError::Refused { what, .. })) = answer(&mut file, refusal()) else { panic!() };
        assert_eq!((what.as_str(), made(&file)), ("close /f", Some(5)));
    }

    #[test]
    fn what_may_be_somebody_elses_was_not_made() {
        let mut file = upload(true);
        assert!(matches!(answer(&mut file, opened(Some(5))), Next::Write(_)));
        assert_eq!(made(&file), None, "it was to replace what is there");
        // A server that tells no ids, or calls every file 0.
        for id in [None, Some(0)] {
            let mut file = upload(false);
            assert!(matches!(answer(&mut file, opened(id)), Next::Write(_)));
            assert_eq!((file.file.opened, made(&file)), (true, None));
        }
    }

    #[test]
    fn a_damaged_write_is_no_success_whatever_the_close_says() {
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
    fn an_answer_that_makes_no_sense_leaves_the_file_unfinished() {
        let mut file = upload(false);
        assert!(file.answered(&server(), Response::Ok(vec![1])).is_err());
        assert_eq!((file.file.opened, made(&file)), (true, None), "a file may be there, and it is not known which");
        let mut late = upload(false);
        assert!(matches!(answer(&mut late, Response::Wait { seconds: 3, text: vec![] }), Next::Later(3, _)));
        assert!(matches!(late.request(), Request::Open(_)));
    }
}
