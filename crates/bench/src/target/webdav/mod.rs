//! The driver for `http://` and `https://`: any WebDAV server (RFC 4918).
//!
//! A file is written by one `PUT`, which the server answers when it has the file. HTTP does not say whether it is
//! durable then. A file is read by `GET`: block by block with a `Range` each, or as one download if the blocks are
//! adjacent. HTTP cannot change a file in place.

mod file;
mod multistatus;

use std::sync::{Mutex, PoisonError};

use client::Settings;

use super::http::{Agent, HttpError, HttpUrl, Request, Upload};
use super::{
    Durability, Entry, Failure, IoOptions, OpenFile, Purpose, RelName, Session, SystemSpace, Target, TargetError,
};
use file::{Download, UploadFile};
use multistatus::Member;

const BY: &str = "HTTP";

const ASK_MEMBERS: &str = concat!(
    r#"<?xml version="1.0" encoding="utf-8"?>"#,
    r#"<D:propfind xmlns:D="DAV:"><D:prop><D:resourcetype/><D:getcontentlength/></D:prop></D:propfind>"#
);
/// The request for the free space (RFC 4331).
const ASK_ROOM: &str = concat!(
    r#"<?xml version="1.0" encoding="utf-8"?>"#,
    r#"<D:propfind xmlns:D="DAV:"><D:prop><D:quota-available-bytes/><D:quota-used-bytes/></D:prop></D:propfind>"#
);

/// A directory on a server, and the run's own folder in it.
pub(super) struct WebdavTarget {
    place: HttpUrl,
    home: HttpUrl,
    settings: Settings,
    /// Shared by the sessions, once there is one, so that the token and the authorities are read once.
    first: Mutex<Option<Agent>>,
}

impl WebdavTarget {
    pub(super) fn new(place: HttpUrl, folder: &RelName, settings: Settings) -> Self {
        let home = place.join(folder.as_str());
        Self { place, home, settings, first: Mutex::default() }
    }
}

impl Target for WebdavTarget {
    fn location(&self) -> Option<String> {
        Some(self.home.to_string())
    }

    fn window_max(&self) -> usize {
        1
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
        let agent = match &*first {
            Some(agent) => agent.with_own_connections(),
            None => first.insert(Agent::new(&self.home, &self.settings)?).with_own_connections(),
        };
        Ok(Box::new(WebdavSession { place: self.place.clone(), home: self.home.clone(), agent }))
    }
}

struct WebdavSession {
    place: HttpUrl,
    home: HttpUrl,
    agent: Agent,
}

impl WebdavSession {
    fn at(&self, name: &RelName) -> HttpUrl {
        if *name == RelName::HOME { self.home.clone() } else { self.home.join(name.as_str()) }
    }

    /// Sends a request whose answer has no useful body.
    fn tell(&self, method: &'static str, url: &HttpUrl) -> Result<(), TargetError> {
        let mut reply = self.agent.ask(url, &Request { method, ..Request::default() })?;
        let status = reply.status();
        reply.drain();
        if status == 207 {
            // A part of the request failed (RFC 4918, 9.6.1). Requests for a file or an empty directory have no
            // parts that could fail.
            return Err(reply.odd("only a part of it was done").into());
        }
        Ok(())
    }

    fn upload(
        &self,
        name: &RelName,
        len: u64,
        replaces: bool,
        io_options: IoOptions,
    ) -> Result<Box<dyn OpenFile>, TargetError> {
        if io_options.durability == Durability::Write {
            return Err(TargetError::Unsupported { what: "making each write durable", by: BY });
        }
        let url = self.at(name);
        // Servers that support this header refuse to overwrite. Other servers get requests for new names only.
        let only_new: &[(&str, &str)] = if replaces { &[] } else { &[("If-None-Match", "*")] };
        if len == 0 {
            // Without bytes there is nothing that the server could agree to (RFC 9110, 10.1.1).
            let headers = [&[("Content-Length", "0")][..], only_new].concat();
            self.agent.ask(&url, &Request { method: "PUT", headers: &headers, body: "" })?.drain();
            return Ok(Box::new(UploadFile::new(None)));
        }
        Ok(Box::new(UploadFile::new(Some(Upload::begin(&self.agent, &url, len, only_new)?))))
    }

    fn members(&self, url: &HttpUrl, depth: &str, body: &str, each: &mut dyn FnMut(Member)) -> Result<(), TargetError> {
        let headers = [("Depth", depth), ("Content-Type", "application/xml; charset=utf-8")];
        let mut reply = self.agent.ask(url, &Request { method: "PROPFIND", headers: &headers, body })?;
        if reply.status() != 207 {
            return Err(reply.odd(format!("{} instead of 207 Multi-Status", reply.status())).into());
        }
        let path = multistatus::path_of_reply(reply.url().path());
        if let Err(why) = multistatus::read(&mut reply, &path, each) {
            return Err(reply.odd(why).into());
        }
        reply.drain();
        Ok(())
    }

    /// In WebDAV, removing a directory also removes its contents. So it must be checked first.
    fn remove_empty(&self, url: &HttpUrl) -> Result<(), TargetError> {
        let mut first = None;
        self.members(url, "1", ASK_MEMBERS, &mut |member| {
            if !member.is_itself {
                first.get_or_insert(member.name);
            }
        })?;
        match first {
            Some(name) => Err(HttpError::Answer {
                method: "DELETE",
                url: url.to_string(),
                why: format!("not done, as the directory is not empty: it has `{name}`"),
            }
            .into()),
            None => self.tell("DELETE", url),
        }
    }
}

impl Session for WebdavSession {
    fn make_home(&mut self) -> Result<(), TargetError> {
        self.tell("MKCOL", &self.home.as_directory())
    }

    fn remove_home(&mut self) -> Result<(), TargetError> {
        self.remove_empty(&self.home.as_directory())
    }

    fn open(
        &mut self,
        name: &RelName,
        purpose: Purpose,
        io_options: IoOptions,
    ) -> Result<Box<dyn OpenFile>, TargetError> {
        match purpose {
            Purpose::Create { len } => self.upload(name, len, false, io_options),
            Purpose::Replace { len } => self.upload(name, len, true, io_options),
            Purpose::Read => Ok(Box::new(Download::new(self.agent.clone(), self.at(name)))),
            Purpose::Update => Err(TargetError::Unsupported { what: "changing a file in place", by: BY }),
        }
    }

    fn make_directory(&mut self, name: &RelName) -> Result<(), TargetError> {
        self.tell("MKCOL", &self.at(name).as_directory())
    }

    fn len_of(&mut self, name: &RelName) -> Result<Option<u64>, TargetError> {
        match self.agent.ask(&self.at(name), &Request { method: "HEAD", ..Request::default() }) {
            Ok(reply) => Ok(Some(reply.len().ok_or_else(|| reply.odd("an answer without Content-Length"))?)),
            Err(error) if error.failure() == Failure::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn list(&mut self, name: &RelName, each: &mut dyn FnMut(Entry)) -> Result<(), TargetError> {
        self.members(&self.at(name).as_directory(), "1", ASK_MEMBERS, &mut |member| {
            if !member.is_itself {
                each(Entry { name: member.name, len: member.len.filter(|_| !member.is_directory) });
            }
        })
    }

    fn remove(&mut self, name: &RelName) -> Result<(), TargetError> {
        self.tell("DELETE", &self.at(name))
    }

    fn remove_directory(&mut self, name: &RelName) -> Result<(), TargetError> {
        self.remove_empty(&self.at(name).as_directory())
    }

    fn room(&mut self) -> Result<Option<SystemSpace>, TargetError> {
        let mut room = None;
        self.members(&self.place.as_directory(), "0", ASK_ROOM, &mut |member| {
            if let (Some(free), Some(used)) = (member.quota_available, member.quota_used) {
                room = Some(SystemSpace { free, total: free.saturating_add(used) });
            }
        })?;
        Ok(room)
    }
}
