//! An open for reading, from a view of the namespace and the store.

use std::sync::Arc;

use store::StoreError;
use types::{ErrorCode, NsPath, PieceId};

use super::Opened;
use crate::answer::Answer;
use crate::attributes::Stat;
use crate::error::Error;
use crate::open_file::{Access, Copying, OpenFile, Shown};
use crate::service::Service;
use crate::session::Session;

/// How often a reader looks again when the content that it found was replaced and deleted under its eyes.
const LOOKS_MAX: usize = 4;

/// An open for reading.
pub(super) struct Reading {
    pub(super) service: Arc<Service>,
    pub(super) session: Arc<Session>,
    pub(super) path: NsPath,
    pub(super) partial: bool,
    pub(super) with_stat: bool,
}

impl Reading {
    pub(super) fn open(self, copying: Copying) -> Result<Opened, Error> {
        let Self { service, session, path, partial, with_stat } = self;
        let caller = session.caller();
        let actor = caller.actor();
        let mut looks = 0;
        let (inode, body, reader) = loop {
            let inode = service
                .names
                .read(|read| namespace::open_read(read, &actor, &path, partial))
                .map_err(|error| Error::of_namespace(&"open", &error))?;
            let Some(body) = inode.content().map(|content| content.body) else {
                return Err(Error::new(ErrorCode::NotFile, format!("Cannot open {path}: not a file")));
            };
            let piece = PieceId::first(body);
            // What it has written itself, a client sees at once.
            let reader = match service.own_writer(&session, body) {
                Some(_) => service.stores.of_piece(piece).and_then(|store| store.open_read_of_writer(piece)),
                None => service.stores.of_piece(piece).and_then(|store| store.open_read(piece)),
            };
            match reader {
                Ok(reader) => break (inode, body, reader),
                Err(StoreError::NotFound { .. }) if looks < LOOKS_MAX => looks += 1,
                Err(error) => return Err(Error::of_store(&format_args!("open {path}"), &error)),
            }
        };
        let stat = with_stat.then(|| Stat { len: reader.len(), ..service.show(&caller, &inode) });
        let (ino, mode) = (inode.ino, inode.access.mode);
        let file = OpenFile { ino, body, path, mode, access: Access::Read(Shown::new(reader, None)), copying };
        let handle = session.handles.insert(move |_| Arc::new(file))?;
        Ok(Opened { handle, stat })
    }

    /// The same where the answer is somebody's duty.
    pub(super) fn answer(self, copying: Result<Copying, Error>, answer: impl Answer<Opened>) {
        answer.give(copying.and_then(|copying| self.open(copying)));
    }
}
