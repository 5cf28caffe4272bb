//! Extended attributes of files that clients have open at disk servers. The attributes are in the namespace, so the disk servers ask for them.

use std::sync::Arc;

use namespace::{Actor, Durability, NsError, Read, RemoveXattr, SetXattr, XattrMode, XattrOf};
use node::{
    AttributeAction, AttributeAnswer, AttributeRequest, AttributeResult, CLIENT_ATTRIBUTE, FromManager, OpenedFile,
};
use types::{ErrorCode, NodeId, WriterToken};

use crate::World;
use crate::coordinator::PublishedView;
use crate::names::Names;

/// See the module.
#[derive(Clone)]
pub(crate) struct Attributes {
    names: Names,
    view: PublishedView,
    world: Arc<dyn World>,
}

impl Attributes {
    pub(crate) fn new(names: Names, view: PublishedView, world: Arc<dyn World>) -> Self {
        Self { names, view, world }
    }

    /// Answers a disk server's request about an attribute. The open has checked the client's permission, and the disk server its handle.
    pub(crate) fn answer(&self, node: NodeId, request: AttributeRequest) {
        let AttributeRequest { number, file, action } = request;
        let of = match self.names.read(|read| self.owner_of_attributes(read, node, file)) {
            Ok(of) => of,
            Err(error) => return self.tell_attribute(node, number, Err(code(&error))),
        };
        let reading = Actor::admin();
        match action {
            AttributeAction::List => {
                let listed = self.names.read(|read| namespace::list_xattrs(read, &reading, &of));
                let names = listed.map(|listed| {
                    let names = listed.into_iter().map(|(name, _)| name);
                    AttributeResult::Names(names.filter(|name| name.starts_with(CLIENT_ATTRIBUTE)).collect())
                });
                self.tell_attribute(node, number, names.map_err(|error| code(&error)));
            }
            AttributeAction::Get(name) => {
                let found = self.names.read(|read| {
                    own_name(&name)?;
                    namespace::get_xattr(read, &reading, &of, &name)
                });
                self.tell_attribute(node, number, found.map(AttributeResult::Value).map_err(|error| code(&error)));
            }
            AttributeAction::Set { .. } | AttributeAction::Remove(_) if file.writer.is_none() => {
                self.tell_attribute(node, number, Err(ErrorCode::NotAllowedNow));
            }
            AttributeAction::Set { name, .. } | AttributeAction::Remove(name) if own_name(&name).is_err() => {
                self.tell_attribute(node, number, Err(ErrorCode::Denied));
            }
            AttributeAction::Set { name, value, only_new } => {
                let mode = if only_new { XattrMode::Create } else { XattrMode::Set };
                let this = self.clone();
                self.names.change_as_manager(
                    self.world.wall(),
                    Durability::Synced,
                    SetXattr { of, name, value, mode },
                    move |result| {
                        this.tell_change_of_attribute(node, number, result);
                    },
                );
            }
            AttributeAction::Remove(name) => {
                let this = self.clone();
                self.names.change_as_manager(
                    self.world.wall(),
                    Durability::Synced,
                    RemoveXattr { of, name },
                    move |result| {
                        this.tell_change_of_attribute(node, number, result);
                    },
                );
            }
        }
    }

    /// Where the attributes of the open file are. A disk server may name only those writers of which it is an in-sync replica; a striped file has
    /// none, and any disk server may put it together.
    fn owner_of_attributes(&self, read: &dyn Read, node: NodeId, file: OpenedFile) -> Result<XattrOf, NsError> {
        let Some(writer) = file.writer else { return Ok(XattrOf::Inode(file.ino)) };
        let stale =
            || NsError::Stale { what: format!("writer {:016x}", writer.object.0), why: "it is not written there" };
        // A writer that was fenced or has ended is an error.
        let is_hidden = namespace::is_hidden_upload(read, &writer)?;
        let WriterToken { key, object, .. } = writer;
        let record = namespace::writer_of(read, key, object)?.ok_or_else(stale)?;
        let (view, in_sync) = (self.view.get(), &record.placement.in_sync);
        if record.ino != file.ino
            || (!in_sync.is_empty() && !in_sync.iter().any(|one| view.node_of(one.store) == Some(node)))
        {
            return Err(stale());
        }
        Ok(if is_hidden { XattrOf::Upload(writer) } else { XattrOf::Inode(file.ino) })
    }

    fn tell_change_of_attribute(&self, node: NodeId, number: u64, result: Result<(), NsError>) {
        self.tell_attribute(node, number, result.map(|()| AttributeResult::Done).map_err(|error| code(&error)));
    }

    fn tell_attribute(&self, node: NodeId, number: u64, result: Result<AttributeResult, ErrorCode>) {
        self.world.send(node, FromManager::Attribute(AttributeAnswer { number, result }));
    }
}

/// Refuses the names of weir's own attributes.
fn own_name(name: &[u8]) -> Result<(), NsError> {
    if name.starts_with(CLIENT_ATTRIBUTE) {
        return Ok(());
    }
    let what = format!("attribute {}", name.escape_ascii());
    Err(NsError::Invalid { what, why: "it is none of a client's" })
}

fn code(error: &NsError) -> ErrorCode {
    match error {
        NsError::NotFound(_, "attribute") => ErrorCode::NoAttribute,
        other => other.code(),
    }
}
