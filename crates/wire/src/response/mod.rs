//! The responses of servers as plain data.
//!
//! [`Response`] is one frame as a client sees it: status and body. The meaning of an `ok` body depends on the
//! request. Each kind of body has a struct ([`StatReply`], [`OpenReply`], …) with `encode`, which appends to a
//! buffer, and `decode`. A server makes whole frames with [`crate::reply`].

mod dirlist;
mod fattr;
mod frame;
mod locate;
mod open;
mod query;
mod session;
mod stat;
mod status;

pub use dirlist::{DirEntry, DirlistBody, Dirlisting, NotListable};
pub use fattr::{FattrList, FattrReply, FattrResult};
pub(crate) use frame::put_text;
pub use frame::{Attn, RESPONSE_HEADER_LEN, Redirect, Response, ResponseHeader, ResponseStatus};
pub use locate::{LocateReply, Location, LocationKind};
pub use open::{ChkpointReply, Compression, OpenReply, ReadvSegment};
pub use query::{ChecksumReply, ConfigReply, SpaceReply, checksum_text};
pub use session::{BindReply, LoginReply, ProtocolReply, SecurityRequirements, ServerFlags};
pub use stat::{StatExtra, StatFlags, StatReply, VfsReply};
pub use status::{BadPages, PgreadHeader, ResultKind, STATUS_BODY_LEN, Status, StatusInfo};
