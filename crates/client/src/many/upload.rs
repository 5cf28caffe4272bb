//! One small file that is written: which request is next, by what the server has answered. Decisions alone.

use wire::request::{Access, Close, Open, OpenOptions, Rm, Stat, StatOptions, Target};
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
    /// What the server calls the file that this open has made, where nothing was: who finds another one under the name later, finds
    /// somebody else's. `None`: it has made none, nobody knows whether it has, or the server does not tell.
    pub made: Option<u64>,
}

impl<T> SmallFile<T> {
    /// Nothing has become of it yet.
    #[must_use]
    pub fn new(path: String, mode: u16, data: Vec<u8>, tag: T) -> Self {
        Self { path, mode, data, replace: false, words: None, tag, opened: false, made: None }
    }
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    Open,
    Close,
    /// Whether what stands there, and must not stay, is what we have made.
    Look,
    /// It is.
    CleanUp,
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
    /// [`Upload::request`] goes out.
    Ask,
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
            Step::Look => "stat",
            Step::CleanUp => "remove",
        };
        format!("{step} {}", self.file.path)
    }

    /// What is to be asked.
    pub(super) fn request(&self) -> Request {
        let file = &self.file;
        let path = || PathArg::plain(file.path.as_bytes());
        match self.step {
            Step::Open => {
                let how = if file.replace { OpenOptions::DELETE } else { OpenOptions::NEW };
                let opaque = announced(file.data.len(), file.words.as_deref());
                let target = PathArg { path: file.path.clone().into_bytes(), opaque };
                let options = how | OpenOptions::UPDATE | OpenOptions::MKPATH | OpenOptions::RETSTAT;
                Request::Open(Open::plain(Access(file.mode), options, target))
            }
            Step::Close => Request::Close(Close { handle: self.handle }),
            Step::Look => Request::Stat(Stat { options: StatOptions::NONE, target: Target::Path(path()) }),
            Step::CleanUp => Request::Rm(Rm { target: path() }),
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
                    self.file.made = reply.stat.as_ref().and_then(StatReply::identity);
                }
                (self.handle, self.step) = (reply.handle, Step::Close);
                Ok(Next::Write(reply.handle))
            }
            (Step::Open, response) => Ok(Next::Done(Err(ClientError::refused(server, &self.what(), response)))),
            (Step::Close, Response::Ok(_)) if self.failed.is_none() => Ok(Next::Done(Ok(()))),
            (Step::Close, response) => {
                if self.failed.is_none() {
                    self.failed = Some(ClientError::refused(server, &self.what(), response));
                }
                // What is there is not what was sent: it must not stay. A replacement that was refused has left what was there as it was,
                // and that is not ours to remove.
                if self.file.made.is_none() {
                    return Ok(self.ended(server));
                }
                self.step = Step::Look;
                Ok(Next::Ask)
            }
            (Step::Look, Response::Ok(body)) => {
                let found = StatReply::decode(&body).ok().and_then(|found| found.identity());
                if found.is_none() || found != self.file.made {
                    return Ok(self.ended(server));
                }
                self.step = Step::CleanUp;
                Ok(Next::Ask)
            }
            (Step::Look | Step::CleanUp, _) => Ok(self.ended(server)),
        }
    }

    /// The server puts it off for longer than is waited: nobody knows whether what was asked is done.
    pub(super) fn given_up(&mut self, waited: ClientError) -> ClientError {
        self.failed.take().unwrap_or(waited)
    }

    /// Not as it should be, and nothing more can be done.
    fn ended(&mut self, server: &Endpoint) -> Next {
        Next::Done(Err(self.failed.take().unwrap_or_else(|| {
            let what = format!("{} failed for no reason", self.what());
            ClientError::Unexpected { server: server.clone(), what }
        })))
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

    fn found(id: u64) -> Response {
        let mut body = Vec::new();
        stat(id).encode(&mut body);
        Response::Ok(body)
    }

    fn refusal() -> Response {
        Response::Error { number: ErrorNumber::NO_SPACE, text: b"full".to_vec() }
    }

    fn answer(upload: &mut Upload<()>, response: Response) -> Next {
        upload.answered(&server(), response).unwrap()
    }

    /// The close was refused: what was made is looked at, and removed if it is there.
    fn refused_close(upload: &mut Upload<()>, id: Option<u64>) -> Next {
        assert!(matches!(answer(upload, opened(id)), Next::Write(FileHandle([7, 7, 7, 7]))));
        assert!(matches!(upload.request(), Request::Close(Close { handle: FileHandle([7, 7, 7, 7]) })));
        answer(upload, refusal())
    }

    fn is_the_refusal(next: &Next) -> bool {
        matches!(next, Next::Done(Err(ClientError::Refused { what, .. })) if what == "close /f")
    }

    #[test]
    fn a_file_is_opened_written_and_closed() {
        let mut file = upload(false);
        let Request::Open(open) = file.request() else { panic!("{:?}", file.request()) };
        assert!(open.options.has(OpenOptions::NEW) && open.options.has(OpenOptions::RETSTAT), "its id is wanted");
        assert!(matches!(answer(&mut file, opened(Some(5))), Next::Write(_)));
        assert_eq!((file.file.opened, file.file.made), (true, Some(5)));
        assert!(matches!(answer(&mut file, Response::Ok(vec![])), Next::Done(Ok(()))));
    }

    #[test]
    fn what_failed_is_removed_if_it_is_the_file_that_was_made() {
        let mut ours = upload(false);
        assert!(matches!(refused_close(&mut ours, Some(5)), Next::Ask));
        assert!(matches!(ours.request(), Request::Stat(_)));
        assert!(matches!(answer(&mut ours, found(5)), Next::Ask));
        assert!(matches!(ours.request(), Request::Rm(_)));
        assert!(is_the_refusal(&answer(&mut ours, Response::Ok(vec![]))));

        let mut other = upload(false);
        assert!(matches!(refused_close(&mut other, Some(5)), Next::Ask));
        assert!(is_the_refusal(&answer(&mut other, found(6))), "somebody else's stays");

        let mut gone = upload(false);
        assert!(matches!(refused_close(&mut gone, Some(5)), Next::Ask));
        assert!(is_the_refusal(&answer(&mut gone, refusal())));
    }

    #[test]
    fn nothing_is_removed_that_may_be_somebody_elses() {
        assert!(is_the_refusal(&refused_close(&mut upload(true), Some(5))), "it was to replace what is there");
        // A server that tells no ids, or calls every file 0.
        for id in [None, Some(0)] {
            let mut file = upload(false);
            assert!(is_the_refusal(&refused_close(&mut file, id)));
            assert_eq!((file.file.opened, file.file.made), (true, None));
        }
    }

    #[test]
    fn a_damaged_write_is_no_success_whatever_the_close_says() {
        let mut file = upload(false);
        assert!(matches!(answer(&mut file, opened(Some(5))), Next::Write(_)));
        file.failed = write_failed(&server(), refusal());
        assert!(matches!(answer(&mut file, Response::Ok(vec![])), Next::Ask), "what is there is not what was sent");
        assert!(write_failed(&server(), Response::Ok(vec![])).is_none());
    }

    #[test]
    fn an_answer_that_makes_no_sense_leaves_the_file_unfinished() {
        let mut file = upload(false);
        assert!(file.answered(&server(), Response::Ok(vec![1])).is_err());
        assert_eq!((file.file.opened, file.file.made), (true, None), "it may be there, and nobody knows which it is");
        let mut late = upload(false);
        assert!(matches!(answer(&mut late, Response::Wait { seconds: 3, text: vec![] }), Next::Later(3, _)));
        assert!(matches!(late.request(), Request::Open(_)));
    }
}
