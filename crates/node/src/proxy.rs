//! Delegated proxies on their way from a manager to the disk server that copies for a client.

use std::fmt;

use serde::{Deserialize, Serialize};
use types::{ObjectId, Timestamp};
use zeroize::Zeroize as _;

/// The longest text of a proxy that a manager keeps or sends. Chains of proxies with attributes have some 10 KiB.
pub const PROXY_BYTES_MAX: usize = 64 << 10;

/// The source of a third-party copy, as the client has named it to the manager.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopySource {
    /// `host`, `host:port` or `user@host:port`.
    pub server: String,
    /// Whether the connection to it must be encrypted.
    pub tls: bool,
    /// The path on that server.
    pub path: String,
}

/// A proxy that a client has delegated: the text lets whoever has it in as that client. It is overwritten when it is dropped, and never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentProxy {
    text: String,
    /// From when on it does not count any more.
    pub expires: Timestamp,
    /// What it is for. A disk server reads nothing else with it, whatever a client says there: a stolen capability must not let its thief choose.
    pub source: CopySource,
}

impl SentProxy {
    /// Takes the text of a proxy; `None`: it is too long.
    #[must_use]
    pub fn new(text: String, expires: Timestamp, source: CopySource) -> Option<Self> {
        let proxy = Self { text, expires, source };
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
        let Self { expires, source, .. } = self;
        f.debug_struct("SentProxy").field("expires", expires).field("source", source).finish_non_exhaustive()
    }
}

/// Asks for the proxy that the client of a new file has delegated, to read the source of a third-party copy with it. The manager gives it to the
/// server alone to which it has sent the client with this object, once, and for a minute after that.
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
    /// What the manager has.
    pub found: FoundProxy,
}

/// What a manager has for an object that it has sent a client with.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FoundProxy {
    /// Nothing, or it is for another server.
    None,
    /// The manager has given it already. A client that comes to the manager again brings it again.
    Given,
    /// This proxy.
    Proxy(SentProxy),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_on_its_way_is_bounded_and_not_shown() {
        let expires = Timestamp::from_secs(7);
        let source = CopySource { server: "host".into(), tls: true, path: "/a".into() };
        assert!(SentProxy::new("x".repeat(PROXY_BYTES_MAX + 1), expires, source.clone()).is_none());
        let proxy = SentProxy::new("-----BEGIN PRIVATE KEY-----".to_owned(), expires, source).unwrap();
        let shown = format!("{:?}", ProxyAnswer { number: 1, found: FoundProxy::Proxy(proxy.clone()) });
        assert!(!shown.contains("KEY"), "{shown}");
        assert!(proxy.into_text().contains("KEY"));
    }
}
