//! Lists directories. Each step reads some entries from its own view of the namespace. So a directory of any size
//! takes little memory, and a slow client holds no view.

use std::ops::ControlFlow;

use types::{DigestKind, ErrorCode, FileName, Ino, NsPath};

use crate::attributes::Stat;
use crate::caller::Caller;
use crate::checksums::FileSums;
use crate::error::Error;
use crate::service::Service;
use crate::session::Session;

/// Entries read from one view.
const ENTRIES_PER_VIEW: usize = 4096;

/// A listing in progress.
pub struct Listing {
    path: NsPath,
    directory: Ino,
    with_stat: bool,
    digest: Option<DigestKind>,
    after: Option<FileName>,
}

impl Listing {
    /// The same, with this checksum of each complete file, where it is known and the caller may have it.
    #[must_use]
    pub fn with_digests(self, kind: DigestKind) -> Self {
        Self { digest: Some(kind), ..self }
    }
}

/// One entry of a directory.
pub struct ListEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The attributes, if they were requested.
    pub stat: Option<Stat>,
    /// The checksums of a complete file, if they are known. Only with attributes, and only of a file that the caller may read.
    pub sums: Option<FileSums>,
    /// The one of [`Listing::with_digests`], if it is known; as `sums`.
    pub digest: Option<Vec<u8>>,
}

impl Service {
    /// Begins to list `path`. Attributes of the entries need the right to pass the directory, as looking them up would.
    ///
    /// # Errors
    /// The path is not a directory, or the caller may not read it.
    pub fn list(&self, caller: &Caller, path: NsPath, with_stat: bool) -> Result<Listing, Error> {
        if let Some(elsewhere) = self.reads_elsewhere(caller) {
            return Err(elsewhere);
        }
        let actor = caller.actor();
        let opened = self.names.read(|read| namespace::open_list(read, &actor, &path, with_stat));
        let opened = self.unless_active_knows_more(opened.map_err(|error| Error::of_namespace(&"list", &error)));
        self.audit_read(caller, &"list", &path, &opened);
        let directory = opened?.ino;
        Ok(Listing { path, directory, with_stat, digest: None, after: None })
    }

    /// Continues a listing: passes entries in the order of their names to `visit`, until it breaks. The next call
    /// begins with the entry at which it broke. Returns whether there is more.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn list_more(
        &self,
        session: &Session,
        listing: &mut Listing,
        visit: &mut dyn FnMut(ListEntry<'_>) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        let caller = session.caller();
        loop {
            let mut last: Option<Vec<u8>> = None;
            let mut full = false;
            let page = self.names.read_once(|read| {
                let from = listing.after.as_ref().map(FileName::as_bytes);
                let more =
                    namespace::list_visit(read, listing.directory, from, ENTRIES_PER_VIEW, &mut |name, inode| {
                        let stat = listing.with_stat.then(|| self.show_to(session, &caller, inode));
                        // Without attributes, nobody has checked that the caller may pass the directory.
                        let may_sum = stat.as_ref().is_some_and(|stat| stat.is_readable);
                        let of_file = inode.content().filter(|_| may_sum);
                        let sums = of_file.and_then(|content| content.sums).map(FileSums::from);
                        let kept = |kind| namespace::kept_digest(read, inode, kind).ok().flatten();
                        let digest = listing.digest.filter(|_| may_sum).and_then(kept);
                        if visit(ListEntry { name, stat, sums, digest }).is_break() {
                            full = true;
                            return ControlFlow::Break(());
                        }
                        last = Some(name.to_vec());
                        ControlFlow::Continue(())
                    })?;
                let last = last.take().map(|name| FileName::new(&name)).transpose()?;
                Ok((last, full || more))
            });
            let (last, more) = page.map_err(|error| Error::of_namespace(&"list", &error))?;
            if last.is_some() {
                listing.after = last;
            } else if !full && more {
                // Impossible: the namespace promised more entries and returned none.
                let text = format!("Cannot list {}: the listing does not go on", listing.path);
                return Err(Error::new(ErrorCode::Internal, text));
            }
            if full || !more {
                return Ok(full);
            }
        }
    }
}
