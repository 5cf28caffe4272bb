//! Who may have the checksum of a file.

use namespace::{AccessKind, Inode, NsError};
use types::NsPath;

use crate::caller::Caller;
use crate::error::Error;
use crate::open_file::{Access, OpenFile};
use crate::service::Service;

/// Denies the checksum of a file that the caller may not read, whether the checksum is known or not: who guesses the bytes can compare them with it.
///
/// The stock server asks for less. `XrdOfs::chksum` authorizes the request as `AOP_Stat`, so that a client that may look a name up gets its checksum.
fn permit_sum(caller: &Caller, path: &NsPath, inode: &Inode) -> Result<(), NsError> {
    // Other inodes get the error that they have no checksum.
    if inode.content().is_none() {
        return Ok(());
    }
    namespace::permit(&caller.actor(), &inode.access, AccessKind::Read, &|| path.to_string())
}

/// The same, for an open file with this inode.
pub(super) fn permit_handle(caller: &Caller, file: &OpenFile, inode: Inode) -> Result<Inode, NsError> {
    // The open of a reader has checked that it may read.
    if matches!(file.access, Access::Write(_)) {
        permit_sum(caller, &file.path, &inode)?;
    }
    Ok(inode)
}

impl Service {
    /// The inode of a file whose checksum the caller may have.
    pub(super) fn inode_to_sum(&self, caller: &Caller, path: &NsPath) -> Result<Inode, Error> {
        let inode = self.inode_at(caller, &"checksum", path)?;
        let permitted = self
            .names
            .read(|_| permit_sum(caller, path, &inode))
            .map_err(|error| Error::of_namespace(&"checksum", &error));
        self.audit_read(caller, &"checksum", path, &permitted);
        permitted?;
        Ok(inode)
    }
}
