//! Creates many small files at once, with the data of all in one buffer. Batches of requests use this. Each file is
//! checked separately and has its own result.
//!
//! The files of a batch have no request numbers. A client that lost the answers repeats the batch: a file that exists
//! by then is reported as existing, and it compares what is there with what it has sent.
//!
//! In a cluster the manager opens a new file ([`Service::open_at_once`]), and the disk server of the redirect creates
//! it.

use std::ops::Range;
use std::sync::Arc;

use disk_server::{DiskServer, VerifiedCapability, WriteGrant};
use manager::OpenRequest;
use namespace::{OpenWrite, WriteMode};
use types::{Crc32c, ErrorCode, NsPath, Timestamp};

use crate::answer::Answer;
use crate::audit::{About, Audited};
use crate::caller::Caller;
use crate::creates::{Create, Creates, ReplicatedCreate};
use crate::error::Error;
use crate::opening::{Hints, mode_asked, to_manager};
use crate::service::{Role, Service};
use crate::session::Session;
use crate::writer_memory::Room;

/// A new file.
pub struct NewFile {
    /// The name.
    pub path: NsPath,
    /// Replaces an existing file.
    pub replace: bool,
    /// The permission bits. If none of the lowest nine is set, the file gets the default.
    pub mode: u16,
    /// The modification time; by default it is the time of the close.
    pub mtime: Option<Timestamp>,
    /// The position of the data in the buffer.
    pub data: Range<usize>,
    /// The checksum of the data.
    pub crc32c: Crc32c,
    /// The capability from the manager, in a cluster.
    pub capability: Option<Vec<u8>>,
}

/// New files that are created together. Nothing happens before [`NewFiles::begin`].
pub struct NewFiles<A> {
    service: Arc<Service>,
    creates: Arc<Creates<Audited<A, ()>>>,
    wanted: Vec<Create<Audited<A, ()>>>,
    replicated: Vec<ReplicatedCreate<Audited<A, ()>>>,
}

/// A new file whose data the client sends to another server.
pub struct OpenAtOnce {
    /// The name.
    pub path: NsPath,
    /// Replaces an existing file.
    pub replace: bool,
    /// The permission bits. If none of the lowest nine is set, the file gets the default.
    pub mode: u16,
    /// The length in bytes.
    pub len: u64,
    /// What the client says about itself and its earlier attempts.
    pub hints: Hints,
}

impl Service {
    /// Maximum memory of all open writes, in bytes.
    #[must_use]
    pub fn writers_memory_max(&self) -> usize {
        self.writer_memory.bytes().most
    }

    /// Reserves memory for `bytes` of a batch, until the [`Room`] is dropped. One machine gets no more than it leaves
    /// for the others.
    ///
    /// # Errors
    /// There is not enough memory at the moment.
    pub fn room_for(&self, caller: &Caller, bytes: u64) -> Result<Room, Error> {
        self.writer_memory.take_bytes(caller.peer.ip(), bytes).ok_or_else(|| {
            let text = "Cannot take a batch now: the memory for open writes is used up".to_owned();
            Error::Wait { seconds: 1, text }
        })
    }

    /// Prepares new files of `session`, whose data is in `buffer`.
    #[must_use]
    pub fn new_files<A: Answer<()>>(self: &Arc<Self>, session: &Session, buffer: Vec<u8>) -> NewFiles<A> {
        let creates = Creates::new(self, session, buffer);
        NewFiles { service: Arc::clone(self), creates, wanted: Vec::new(), replicated: Vec::new() }
    }

    /// Opens a new file on a manager. The client then sends all the data to the server of the redirect, which is the
    /// answer.
    pub fn open_at_once(&self, caller: &Caller, open: OpenAtOnce, answer: impl Answer<()>) {
        let OpenAtOnce { path, replace, mode, len, hints } = open;
        let Role::Manager(manager) = &self.role else {
            let error = self
                .names_elsewhere()
                .unwrap_or_else(|| Error::unsupported("An open in a batch, without the file's data,"));
            return answer.give(Err(error));
        };
        let answer = self.audited(caller, || About::creation(&path, replace, len), answer);
        if let Err(error) = caller.may_change(&format_args!("make {path}")) {
            return answer.give(Err(error));
        }
        if self.stores.floor_reached() {
            return answer.give(Err(no_space(&path)));
        }
        let op = OpenWrite {
            mkpath: true,
            mode: mode_asked(mode),
            expected_len: Some(len),
            ..OpenWrite::new(path, how(replace), caller.client.clone(), self.settings.config.boot)
        };
        let open_request = OpenRequest { announced: Some(len), at_once: true, ..hints.open_request(caller, &op.path) };
        let path = op.path.clone();
        Arc::clone(manager).open_write(open_request, op, move |result| {
            answer.give(Err(match result {
                Ok(to) => Error::redirect(to),
                Err(error) => Error::of_opening(&path, &error),
            }));
        });
    }

    /// Verifies the permission to create the file on this disk server.
    fn grant_of(&self, disk: &Arc<DiskServer>, path: &NsPath, capability: Option<&[u8]>) -> Result<WriteGrant, Error> {
        let Some(capability) = capability else { return Err(to_manager(disk)) };
        match disk.verify(capability, path, None) {
            Ok(VerifiedCapability::Write(grant)) if grant.is_new() => Ok(grant),
            Ok(VerifiedCapability::Striped(_)) => Err(Error::unsupported("To make a striped file in a batch")),
            Ok(_) => {
                let text = format!("Cannot make {path}: the capability is for an existing file");
                Err(Error::new(ErrorCode::Denied, text))
            }
            Err(error) => Err(Error::of_disk_server(&format_args!("make {path}"), &error)),
        }
    }

    /// Checks the free space and the checksum of the data.
    fn refused_content(&self, file: &NewFile, content: &[u8]) -> Result<(), Error> {
        // On a disk server the store itself refuses. Then the manager learns at once that it is full, and the client, which asks the manager
        // again, is not sent back here.
        if self.stores.floor_reached() && !matches!(self.role, Role::Disk(_)) {
            return Err(no_space(&file.path));
        }
        if Crc32c::of(content) != file.crc32c {
            let text = format!("Cannot make {}: its content came damaged; send it again", file.path);
            return Err(Error::new(ErrorCode::Checksum, text));
        }
        Ok(())
    }
}

impl<A: Answer<()>> NewFiles<A> {
    /// The buffer with the data.
    #[must_use]
    pub fn buffer(&self) -> &[u8] {
        self.creates.behind()
    }

    /// Adds a file. `answer` receives the result of its close: on success its object and its name are on the disk.
    pub fn add(&mut self, file: NewFile, answer: A) {
        let (service, caller) = (Arc::clone(&self.service), self.creates.caller());
        let (path, len) = (file.path.clone(), file.data.len() as u64);
        let about = || About::creation(&path, file.replace, len);
        let grant = match &service.role {
            Role::Disk(disk) => match service.grant_of(disk, &path, file.capability.as_deref()) {
                Ok(grant) => Some(grant),
                Err(error) => return service.audited(caller, about, answer).give(Err(error)),
            },
            Role::Alone { .. } | Role::Manager(_) => None,
            Role::Standby(standby) => {
                let elsewhere = standby.active.elsewhere();
                return service.audited(caller, about, answer).give(Err(elsewhere));
            }
        };
        let answer = match &grant {
            // Only the capability says who the caller is.
            Some(grant) => service.audited(&caller.with_capability_of(grant.principal()), about, answer),
            None => service.audited(caller, about, answer),
        };
        if let Err((error, answer)) = self.take(file, grant, answer) {
            answer.give(Err(error));
        }
    }

    fn take(
        &mut self,
        file: NewFile,
        grant: Option<WriteGrant>,
        answer: Audited<A, ()>,
    ) -> Result<(), (Error, Audited<A, ()>)> {
        let service = Arc::clone(&self.service);
        let caller = self.creates.caller();
        let content = self.creates.behind().get(file.data.clone()).unwrap_or_default();
        let may = caller.may_change(&format_args!("make {}", file.path));
        if let Err(error) = may.and_then(|()| service.refused_content(&file, content)) {
            return Err((error, answer));
        }
        let NewFile { path, replace, mode, mtime, data, .. } = file;
        match (&service.role, grant) {
            (_, Some(grant)) => self.replicated.push(ReplicatedCreate { path, grant, mtime, data, answer }),
            (Role::Alone { .. }, None) => {
                let op = OpenWrite {
                    mkpath: true,
                    mode: mode_asked(mode),
                    expected_len: Some(data.len() as u64),
                    ..OpenWrite::new(path, how(replace), caller.client.clone(), service.settings.config.boot)
                };
                self.wanted.push(Create { op, mtime, data, answer, has_settled: false });
            }
            (Role::Manager(_) | Role::Disk(_) | Role::Standby(_), None) => {
                let text = format!("Cannot make {path} here: open it, and send its data where the answer says");
                return Err((Error::new(ErrorCode::Unsupported, text), answer));
            }
        }
        Ok(())
    }

    /// Creates the files concurrently.
    pub fn begin(self) {
        self.creates.begin(self.wanted);
        self.creates.begin_replicated(self.replicated);
    }
}

fn how(replace: bool) -> WriteMode {
    if replace { WriteMode::Replace } else { WriteMode::NewOnly }
}

fn no_space(path: &NsPath) -> Error {
    let text = format!("Cannot make {path}: no space left for new data; remove files or add space");
    Error::new(ErrorCode::NoSpace, text)
}
