//! stat and statx.

use service::FileKind;
use wire::StreamId;
use wire::request::{Stat, StatOptions, Statx, Target};
use wire::response::{StatFlags, VfsReply};

use crate::connection::Connection;
use crate::from_wire::{parse_line, parse_path};
use crate::to_wire::{RequestError, stat_reply};

const MIB: u64 = 1 << 20;

impl Connection {
    /// kXR_stat of a path, of a handle, or of the file system.
    pub(crate) fn stat(&mut self, stream: StreamId, r: &Stat) -> Result<(), RequestError> {
        let (service, session) = (&self.front.service, &self.session.open);
        if r.options.has(StatOptions::VFS) {
            let space = service.space(&"stat the file system")?;
            let (mut used, mut total) = (space.total.saturating_sub(space.free), space.total);
            let mut free = space.free.saturating_sub(space.floor);
            if let Target::Path(target) = &r.target
                && let Some(quota) = self.quota_space(&target.path)?
            {
                (used, total, free) = (quota.used, quota.limit, free.min(quota.free));
            }
            let percent = u128::from(used).saturating_mul(100).checked_div(u128::from(total)).unwrap_or(0);
            let reply = VfsReply {
                write_nodes: 1,
                write_free_mib: free / MIB,
                write_used_percent: u64::try_from(percent.min(100)).unwrap_or(100),
                ..VfsReply::default()
            };
            return self.ok(stream, |out| reply.encode(out));
        }
        let stat = match &r.target {
            Target::Path(target) => service.stat(session, &"stat", &parse_path(&target.path)?)?,
            Target::Handle(handle) => service.stat_file(&session.caller(), &*self.file(*handle)?),
        };
        self.ok(stream, |out| stat_reply(service, &stat).encode(out))
    }

    /// kXR_statx: one byte per path, which gives only its type. Clients compare it, so it must equal the byte of the
    /// stock server.
    #[inline(never)] // see `dispatch`
    pub(crate) fn statx(&mut self, stream: StreamId, r: &Statx) -> Result<(), RequestError> {
        let caller = self.session.open.caller();
        let mut flags = Vec::new();
        for line in r.lines() {
            let kind = match self.front.service.kind(&caller, &"stat", &parse_line(line)?)? {
                FileKind::Directory => StatFlags::IS_DIR,
                FileKind::Symlink => StatFlags::OTHER,
                FileKind::File => StatFlags::NONE,
            };
            flags.push(u8::try_from(kind.0).unwrap_or(0));
        }
        self.ok(stream, |out| out.extend_from_slice(&flags))
    }
}
