//! An open for reading, from a view of the namespace and the store.

use std::sync::Arc;

use store::{Reader, StoreError};
use types::{NsPath, ReplicaId};
use wire::ErrorNumber;
use wire::response::{OpenReply, StatReply};

use super::no_handle;
use crate::answer::Reply;
use crate::node::Node;
use crate::open_file::{Access, Copying, OpenFile, Shown};
use crate::refusal::Refusal;
use crate::session::Session;

/// How often a reader looks again when the content that it found was replaced and deleted under its eyes.
const LOOKS_MAX: usize = 4;

/// An open for reading.
pub(super) struct Reading {
    pub(super) node: Arc<Node>,
    pub(super) session: Arc<Session>,
    pub(super) path: NsPath,
    pub(super) partial: bool,
    pub(super) with_stat: bool,
}

impl Reading {
    pub(super) fn open(self, copying: Copying) -> Result<OpenReply, Refusal> {
        let Self { node, session, path, partial, with_stat } = self;
        let actor = &node.config.actor;
        let mut looks = 0;
        let (inode, object, reader) = loop {
            let inode = node
                .read_names(|read| namespace::open_read(read, actor, &path, partial))
                .map_err(|error| Refusal::of_namespace(&"open", &error))?;
            let Some(object) = inode.content().map(|content| content.object) else {
                return Err(Refusal::new(ErrorNumber::NOT_FILE, format!("Cannot open {path}: not a file")));
            };
            let replica = ReplicaId::first(object);
            // What it has written itself, a client sees at once.
            let reader = match node.own_writer(&session, object) {
                Some(_) => node.store_of(replica).and_then(|store| store.open_read_of_writer(replica)),
                None => node.store_of(replica).and_then(|store| store.open_read(replica)),
            };
            match reader {
                Ok(reader) => break (inode, object, reader),
                Err(StoreError::NotFound { .. }) if looks < LOOKS_MAX => looks += 1,
                Err(error) => return Err(Refusal::of_store(&format_args!("open {path}"), &error)),
            }
        };
        let stat = with_stat.then(|| reader_stat(&node, &inode, &reader));
        let (ino, mode) = (inode.ino, inode.access.mode);
        let file = OpenFile { ino, object, path, mode, access: Access::Read(Shown::new(reader, None)), copying };
        let handle = session.handles.insert(move |_| Arc::new(file)).map_err(no_handle)?;
        Ok(OpenReply { handle, compression: None, stat })
    }

    /// The same where the answer is somebody's duty.
    pub(super) fn answer(self, copying: Result<Copying, Refusal>, reply: Reply) {
        match copying.and_then(|copying| self.open(copying)) {
            Ok(opened) => reply.ok(|out| opened.encode(out)),
            Err(refusal) => reply.refuse(&refusal),
        }
    }
}

fn reader_stat(node: &Node, inode: &namespace::Inode, reader: &Reader) -> StatReply {
    StatReply { size: reader.len(), ..node.show(inode) }
}
