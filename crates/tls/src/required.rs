//! What a server requires TLS for.

/// What requires TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TlsRequired {
    /// The login, and all that follows.
    pub login: bool,
    /// All that follows the login.
    pub session: bool,
    /// The data on further connections.
    pub data: bool,
}

impl TlsRequired {
    /// Whether nothing requires it.
    #[must_use]
    pub fn is_nothing(self) -> bool {
        self == Self::default()
    }
}
