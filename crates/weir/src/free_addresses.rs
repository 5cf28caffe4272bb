//! Checks, before a data directory is made, that the node can listen on its addresses. A start that fails makes nothing: no directory, and no node of
//! a cluster, which would use up its join token.

use std::net::{SocketAddr, TcpListener};

use crate::Failure;
use crate::exit::Exit;

/// Refuses a start that would make a directory, if one of `addresses` is not free. Each comes with what the node does there. A start on existing
/// directories needs no such check: it listens when it has opened them, so that nobody waits for a recovery.
///
/// # Errors
/// The address that is not free, and why.
pub(crate) fn check(addresses: &[(&str, Option<SocketAddr>)]) -> Result<(), Failure> {
    // All at a time, so that two of them are not the same. Nobody knows of a new node, so nobody connects until they are dropped.
    let mut taken = Vec::new();
    for (what, address) in addresses {
        let Some(address) = address else { continue };
        taken.push(TcpListener::bind(address).map_err(|error| {
            let what = format!("cannot {what} on {address}: {error}; is another server there? Port 0 picks a free one");
            Failure::message(Exit::Listen, what)
        })?);
    }
    Ok(())
}
