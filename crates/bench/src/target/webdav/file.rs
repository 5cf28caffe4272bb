//! Open files: uploads and downloads.

use std::collections::VecDeque;
use std::time::Instant;

use super::BY;
use crate::memory::Memory;
use crate::target::http::{Agent, HttpError, HttpUrl, Reply, Request, Upload};
use crate::target::{Done, OpenFile, TargetError};

/// A new file. Its bytes are written in order, in one request.
pub(super) struct UploadFile {
    /// `None`: the file is empty, and the server has it.
    upload: Option<Upload>,
    at: u64,
    done: VecDeque<Done>,
}

impl UploadFile {
    pub(super) fn new(upload: Option<Upload>) -> Self {
        Self { upload, at: 0, done: VecDeque::new() }
    }
}

impl OpenFile for UploadFile {
    fn write(&mut self, offset: u64, memory: Memory) -> Result<(), TargetError> {
        if offset != self.at {
            return Err(TargetError::Unsupported { what: "writing a new file out of order", by: BY });
        }
        let begun = Instant::now();
        let too_many = TargetError::Unsupported { what: "writing into a file that was to be empty", by: BY };
        self.upload.as_mut().ok_or(too_many)?.send(&memory)?;
        self.at += memory.len() as u64;
        self.done.push_back(Done { offset, memory, took: begun.elapsed() });
        Ok(())
    }

    fn read(&mut self, _: u64, _: Memory) -> Result<(), TargetError> {
        Err(TargetError::Unsupported { what: "reading from an unfinished file", by: BY })
    }

    fn done(&mut self) -> Result<Option<Done>, TargetError> {
        Ok(self.done.pop_front())
    }

    fn server(&self) -> Option<String> {
        self.upload.as_ref().map(|upload| upload.url().server().to_string())
    }

    /// A server keeps nothing if it gets fewer bytes than announced.
    fn keeps_part(&self) -> bool {
        false
    }

    fn sync(&mut self) -> Result<(), TargetError> {
        Err(TargetError::Unsupported { what: "making an unfinished file durable", by: BY })
    }

    fn close(self: Box<Self>) -> Result<(), TargetError> {
        Ok(self.upload.map_or(Ok(()), Upload::finish)?)
    }
}

/// A file that is read. No request is sent before the first read.
pub(super) struct Download {
    agent: Agent,
    url: HttpUrl,
    /// The redirect target for this file. The next request goes there directly.
    led_to: Option<HttpUrl>,
    /// A download that has reached `end`.
    flowing: Option<Reply>,
    /// The end of the last read.
    end: Option<u64>,
    /// The length of the file, if the server has sent it.
    len: Option<u64>,
    done: VecDeque<Done>,
}

impl Download {
    pub(super) fn new(agent: Agent, url: HttpUrl) -> Self {
        Self { agent, url, led_to: None, flowing: None, end: None, len: None, done: VecDeque::new() }
    }

    /// Requests the bytes from `offset`; `None`: the file has none there.
    fn ask(&mut self, offset: u64, len: usize) -> Result<Option<Reply>, TargetError> {
        let follows = self.end == Some(offset) && offset > 0;
        let block = offset.saturating_add(len as u64);
        // A block that follows the previous one starts a download of the rest. Its length must be given, because
        // XRootD 5 returns nothing for `bytes=N-`.
        let rest = self.len.filter(|len| follows && *len > block);
        let range = format!("bytes={offset}-{}", rest.unwrap_or(block).saturating_sub(1));
        let headers = [("Range", range.as_str())];
        let request = Request { method: "GET", headers: &headers, body: "" };
        let mut asked = match self.led_to.take() {
            // If the target was valid for one request only, the redirecting server is asked again.
            Some(url) => match self.agent.ask(&url, &request) {
                Err(HttpError::Status { status, .. }) if status != 416 => self.agent.ask(&self.url, &request),
                asked => asked,
            },
            None => self.agent.ask(&self.url, &request),
        };
        if let Err(HttpError::Status { status: 416, .. }) = &asked {
            return Ok(None);
        }
        let reply = match &mut asked {
            Ok(reply) if reply.status() == 206 && reply.range_start() == Some(offset) => asked?,
            Ok(reply) if reply.status() == 206 => return Err(reply.odd("another part than was asked for").into()),
            Ok(reply) if reply.status() == 200 && offset == 0 => asked?,
            Ok(reply) if reply.status() == 200 => {
                return Err(TargetError::Unsupported { what: "reading a part of a file", by: "this server" });
            }
            Ok(reply) => return Err(reply.odd(format!("the answer {}", reply.status())).into()),
            Err(_) => asked?,
        };
        self.len = reply.range_total();
        self.led_to = (*reply.url() != self.url).then(|| reply.url().clone());
        Ok(Some(reply))
    }
}

impl OpenFile for Download {
    fn write(&mut self, _: u64, _: Memory) -> Result<(), TargetError> {
        Err(TargetError::Unsupported { what: "writing into a file that is open for reading", by: BY })
    }

    fn read(&mut self, offset: u64, mut memory: Memory) -> Result<(), TargetError> {
        let begun = Instant::now();
        let flowing = self.flowing.take().filter(|_| self.end == Some(offset));
        let reply = match flowing {
            Some(reply) => Some(reply),
            None => self.ask(offset, memory.len())?,
        };
        let mut got = 0;
        if let Some(mut reply) = reply {
            got = reply.read_full(&mut memory)?;
            self.flowing = Some(reply).filter(|reply| !reply.is_done());
        }
        memory.cut(got);
        self.end = Some(offset + got as u64);
        self.done.push_back(Done { offset, memory, took: begun.elapsed() });
        Ok(())
    }

    fn done(&mut self) -> Result<Option<Done>, TargetError> {
        Ok(self.done.pop_front())
    }

    fn server(&self) -> Option<String> {
        Some(self.led_to.as_ref().unwrap_or(&self.url).server().to_string())
    }

    fn sync(&mut self) -> Result<(), TargetError> {
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<(), TargetError> {
        Ok(())
    }
}
