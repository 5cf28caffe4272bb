//! Administrators: people who act on a cluster from any machine, with a certificate of the cluster's own authority.
//!
//! An administrator is not a node. Its certificate has a name of another form ([`AdminName`]) and allows use by clients
//! only, so no node takes it for a node's; and no administrator's connection is opened with a node's certificate.
//!
//! People may also come without such a certificate, and show a token on the connection ([`connect_with_token`]), or certificates of another
//! authority ([`connect_with_certificate`]). Who they are is for others to find out.
//!
//! A connection of an administrator carries bytes in both directions ([`AdminStream`]); this crate does not know what
//! they mean.

mod identity;
mod invitation;
mod key_file;
mod name;
mod record;
mod redeem;
mod stream;
mod trusted;

pub use identity::{AdminIdentity, AdminIdentityError, MANAGERS_MAX};
pub use invitation::{Invitation, InvitationError, PresentedInvitation};
pub use key_file::key_to_redeem;
pub use name::{AdminId, AdminName, AdminRole};
pub use record::{ADMINISTRATORS_MAX, AdminError, AdminRecord, admit, check_invitation, read_records, write_records};
pub use redeem::{AdminGrant, AdminService, AdminStore, RedeemError, redeem};
pub use stream::{
    AdminHandler, AdminStream, StreamCutter, connect_admin, connect_with_certificate, connect_with_token,
};
pub use trusted::TrustedCluster;

pub(crate) use redeem::serve as serve_redeem;

/// The longest validity of an administrator's certificate. The client renews it when a third of its time is left.
pub const ADMIN_VALIDITY: std::time::Duration = std::time::Duration::from_secs(30 * 86_400);
/// Longest name of an administrator in bytes.
pub const ADMIN_NAME_MAX: usize = 64;

/// Most bytes about who has invited an administrator. The records of all must fit into their file.
pub const INVITED_BY_MAX: usize = 160;

/// Whether an administrator may have this name: it stands in logs and in lists.
#[must_use]
pub fn is_admin_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    (1..=ADMIN_NAME_MAX).contains(&name.len()) && name.bytes().all(fits) && !name.starts_with(['-', '.'])
}
