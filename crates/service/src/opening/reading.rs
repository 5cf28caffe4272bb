//! An open for reading, from a view of the namespace and the store.

use std::sync::Arc;

use namespace::FileState;
use store::StoreError;
use types::{ErrorCode, NsPath, ReplicaId};

use super::Opened;
use crate::answer::Answer;
use crate::attributes::Stat;
use crate::error::Error;
use crate::open_file::{Access, Copying, OpenFile, Shown};
use crate::service::Service;
use crate::session::Session;

/// How often a reader looks up the file again if its object has been replaced and deleted in the meantime.
const LOOKS_MAX: usize = 4;

/// An open for reading.
pub(super) struct Reading {
    pub(super) service: Arc<Service>,
    pub(super) session: Arc<Session>,
    pub(super) path: NsPath,
    pub(super) partial: bool,
    /// It may see a file that is being written.
    pub(super) follows: bool,
    pub(super) with_stat: bool,
}

impl Reading {
    pub(super) fn open(self, copying: Copying) -> Result<Opened, Error> {
        let Self { service, session, path, partial, follows, with_stat } = self;
        let caller = session.caller();
        let actor = caller.actor();
        let mut looks = 0;
        let (inode, object, reader) = loop {
            let inode = service
                .names
                .read(|read| namespace::open_read(read, &actor, &path, partial))
                .map_err(|error| Error::of_namespace(&"open", &error))?;
            let Some(content) = inode.content() else {
                return Err(Error::new(ErrorCode::NotFile, format!("Cannot open {path}: not a file")));
            };
            let object = content.object;
            if matches!(content.state, FileState::Open(_)) && !follows {
                // Its close may have ended since it was looked up.
                if looks < LOOKS_MAX && !service.is_being_written(object) {
                    looks += 1;
                    continue;
                }
                service.must_be_finished(&session, &path, object)?;
            }
            let replica = ReplicaId::first(object);
            // A client immediately sees the data that it has written itself.
            let reader = match service.own_writer(&session, object) {
                Some(_) => service.stores.of_replica(replica).and_then(|store| store.open_read_of_writer(replica)),
                None => service.stores.of_replica(replica).and_then(|store| store.open_read(replica)),
            };
            match reader {
                Ok(reader) => break (inode, object, reader),
                Err(StoreError::NotFound { .. }) if looks < LOOKS_MAX => looks += 1,
                Err(error) => return Err(Error::of_store(&format_args!("open {path}"), &error)),
            }
        };
        let stat = with_stat.then(|| Stat { len: reader.len(), is_unfinished: false, ..service.show(&caller, &inode) });
        let (ino, mode) = (inode.ino, inode.access.mode);
        let access = Access::Read(Shown::new(reader, None, &service.read_ahead));
        let file = OpenFile { ino, object, path, mode, access, copying };
        let handle = session.handles.insert(move |_| Arc::new(file))?;
        Ok(Opened { handle, stat })
    }

    /// The same as [`Reading::open`], with an answer.
    pub(super) fn answer(self, copying: Result<Copying, Error>, answer: impl Answer<Opened>) {
        answer.give(copying.and_then(|copying| self.open(copying)));
    }
}
