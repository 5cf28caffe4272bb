//! Resolves addresses to listen on: only loopback, unless `--insecure` is given.

use std::net::{SocketAddr, ToSocketAddrs as _};

use console::Exit;

/// Why an address was refused.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The text is no address.
    #[error("`{given}` is no address to listen on: {reason}; write HOST:PORT, as in 127.0.0.1:1094 or [::1]:0")]
    NoAddress {
        /// As it was given.
        given: String,
        /// What is wrong.
        reason: String,
    },
    /// It is not loopback.
    #[error(
        "refused to listen on {given}: other machines can reach it, and without authentication everybody there could read, write and delete everything. Listen on 127.0.0.1 or [::1], let clients prove who they are (`authentication.mechanisms` with more than `unix` and `host`), or use --insecure if you trust all machines on the network"
    )]
    NotLoopback {
        /// As it was given.
        given: String,
    },
}

impl ListenError {
    /// The exit code of the run.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self {
            Self::NoAddress { .. } => Exit::Usage,
            Self::NotLoopback { .. } => Exit::Listen,
        }
    }
}

/// Resolves `given` to an address, or says why it is refused.
pub fn resolve(given: &str, insecure: bool) -> Result<SocketAddr, ListenError> {
    let wrong = |reason: String| ListenError::NoAddress { given: given.to_owned(), reason };
    let addresses: Vec<SocketAddr> = given.to_socket_addrs().map_err(|error| wrong(error.to_string()))?.collect();
    let first = *addresses.first().ok_or_else(|| wrong("the name stands for no address".into()))?;
    // A name is accepted only if all its addresses are allowed, because which one comes first is chance.
    if !insecure && !addresses.iter().all(|address| is_loopback(*address)) {
        return Err(ListenError::NotLoopback { given: given.to_owned() });
    }
    Ok(first)
}

/// Whether no other machine can reach it.
#[must_use]
pub fn is_loopback(address: SocketAddr) -> bool {
    match address {
        SocketAddr::V4(v4) => v4.ip().is_loopback(),
        // ::ffff:127.0.0.1 is loopback too, and ::ffff:10.0.0.1 is not.
        SocketAddr::V6(v6) => v6.ip().is_loopback() || v6.ip().to_ipv4_mapped().is_some_and(|v4| v4.is_loopback()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_alone() {
        for good in ["127.0.0.1:1094", "127.9.9.9:0", "[::1]:0", "[::ffff:127.0.0.1]:1"] {
            assert!(resolve(good, false).is_ok(), "{good}");
        }
        for wide in ["0.0.0.0:1094", "[::]:1094", "192.0.2.1:0", "[::ffff:10.0.0.1]:1", "[2001:db8::1]:1"] {
            let error = resolve(wide, false).unwrap_err();
            assert_eq!(error.exit(), Exit::Listen);
            assert!(error.to_string().contains("--insecure"), "{error}");
            assert!(resolve(wide, true).is_ok(), "{wide}");
        }
    }

    #[test]
    fn nonsense_is_a_usage_error() {
        for wrong in ["", "1094", "localhost", "127.0.0.1:", "127.0.0.1:99999", "::1:5x"] {
            assert_eq!(resolve(wrong, true).unwrap_err().exit(), Exit::Usage, "{wrong}");
        }
    }
}
