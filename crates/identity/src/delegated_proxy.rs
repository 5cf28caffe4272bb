//! A proxy that a user has delegated.

use std::fmt;
use std::sync::Arc;

use types::Timestamp;
use zeroize::Zeroizing;

/// A proxy certificate with its key, with which this node can act as the user who has signed it. It exists in memory only. Clones are the
/// same one, and the key is overwritten when the last of them is dropped.
#[derive(Clone)]
pub struct DelegatedProxy(Arc<Content>);

struct Content {
    text: Zeroizing<String>,
    expires: Timestamp,
}

impl DelegatedProxy {
    /// Takes a proxy in PEM form, as the file of a proxy has it: its certificate, its key, and the certificates between it and an
    /// authority. It does not count any more from `expires` on.
    #[must_use]
    pub fn new(text: Zeroizing<String>, expires: Timestamp) -> Self {
        Self(Arc::new(Content { text, expires }))
    }

    /// The text. It lets whoever has it in as the user: never show it, and never store it.
    #[must_use]
    pub fn secret_text(&self) -> &str {
        &self.0.text
    }

    /// From when on it does not count any more.
    #[must_use]
    pub fn expires(&self) -> Timestamp {
        self.0.expires
    }
}

/// It shows no more than when it ends.
impl fmt::Debug for DelegatedProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelegatedProxy").field("expires", &self.0.expires).finish_non_exhaustive()
    }
}

/// Two are equal if they are the same one.
impl PartialEq for DelegatedProxy {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for DelegatedProxy {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_not_shown() {
        let text = || Zeroizing::new("-----BEGIN PRIVATE KEY-----".to_owned());
        let proxy = DelegatedProxy::new(text(), Timestamp::from_secs(7));
        let shown = format!("{proxy:?} {:?}", Some(proxy.clone()));
        assert!(!shown.contains("KEY") && shown.contains('7'), "{shown}");
        assert_eq!(proxy, proxy.clone());
        assert_ne!(proxy, DelegatedProxy::new(text(), Timestamp::from_secs(7)));
    }
}
