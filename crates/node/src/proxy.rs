//! Delegated proxies on their way from a manager to the disk server that copies for a client.

use std::fmt;

use serde::{Deserialize, Serialize};
use types::{ObjectId, Timestamp};
use zeroize::Zeroize as _;

/// The longest text of a proxy that a manager keeps or sends. Chains of proxies with attributes have some 10 KiB.
pub const PROXY_BYTES_MAX: usize = 64 << 10;

/// A proxy that a client has delegated: the text lets whoever has it in as that client. It is overwritten when it is dropped, and never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentProxy {
    text: String,
    /// From when on it does not count any more.
    pub expires: Timestamp,
}

impl SentProxy {
    /// Takes the text of a proxy; `None`: it is too long.
    #[must_use]
    pub fn new(text: String, expires: Timestamp) -> Option<Self> {
        let proxy = Self { text, expires };
        (proxy.text.len() <= PROXY_BYTES_MAX).then_some(proxy)
    }

    /// Returns the text.
    #[must_use]
    pub fn into_text(mut self) -> String {
        std::mem::take(&mut self.text)
    }
}

impl Drop for SentProxy {
    fn drop(&mut self) {
        self.text.zeroize();
    }
}

impl fmt::Debug for SentProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SentProxy").field("expires", &self.expires).finish_non_exhaustive()
    }
}

/// Asks for the proxy that the client of a new file has delegated, to read the source of a third-party copy with it. The manager gives it to the
/// server alone to which it has sent the client with this object, and for a minute after that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProxyRequest {
    /// The server's number of this request.
    pub number: u64,
    /// The object of the new file.
    pub object: ObjectId,
}

/// The answer to a [`ProxyRequest`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProxyAnswer {
    /// The number of the request.
    pub number: u64,
    /// The proxy; `None`: the manager has none for this object and this server.
    pub proxy: Option<SentProxy>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_on_its_way_is_bounded_and_not_shown() {
        let expires = Timestamp::from_secs(7);
        assert!(SentProxy::new("x".repeat(PROXY_BYTES_MAX + 1), expires).is_none());
        let proxy = SentProxy::new("-----BEGIN PRIVATE KEY-----".to_owned(), expires).unwrap();
        let shown = format!("{:?}", ProxyAnswer { number: 1, proxy: Some(proxy.clone()) });
        assert!(!shown.contains("KEY"), "{shown}");
        assert!(proxy.into_text().contains("KEY"));
    }
}
