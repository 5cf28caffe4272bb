//! What a manager tells its owner about somebody who has shown a token or an invitation.

use std::net::SocketAddr;
use std::sync::Arc;

/// Somebody with the right secret was let in or refused. Strangers are not told of: nobody counts those.
#[derive(Clone, Copy, Debug)]
pub struct Admission<'a> {
    /// The name; of somebody who was refused, the id of the invitation, or nothing.
    pub name: &'a str,
    /// The role that was given.
    pub role: Option<&'a str>,
    /// Where the request came from.
    pub address: SocketAddr,
    /// Why not; `None`: it was let in.
    pub refused: Option<&'a str>,
}

/// Takes what happened, before the peer learns it. It must not wait.
pub type OnAdmission = Arc<dyn Fn(&Admission<'_>) + Send + Sync>;
