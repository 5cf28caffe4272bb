//! Telling the service manager how the node is: one datagram to the socket that `NOTIFY_SOCKET` names (sd_notify(3)). Without one there
//! is nobody to be told.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells `state`, such as `READY=1`. A node whose manager does not listen is as good as any.
pub fn tell(state: &str) {
    let Some(socket) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let address = match socket.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&socket),
    };
    let told = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = told {
        tracing::warn!("the service manager at {} cannot be told {state}: {error}", socket.display());
    }
}
