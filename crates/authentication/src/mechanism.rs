//! How clients authenticate.

use std::fmt;

use identity::shown;

/// A way to authenticate, by the name that it has in the protocol of XRootD.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mechanism {
    /// Bearer tokens.
    Ztn,
    /// X.509 certificates and proxies.
    Gsi,
    /// Shared secrets.
    Sss,
    /// Kerberos.
    Krb5,
    /// The login name that the client says it has.
    Unix,
    /// The host that the client connects from.
    Host,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::Ztn, Self::Gsi, Self::Sss, Self::Krb5, Self::Unix, Self::Host];

    /// The name, as in `mechanisms` and in the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ztn => "ztn",
            Self::Gsi => "gsi",
            Self::Sss => "sss",
            Self::Krb5 => "krb5",
            Self::Unix => "unix",
            Self::Host => "host",
        }
    }

    /// Whether a client proves who it is. The others take its word, or that of the network.
    #[must_use]
    pub fn is_proof(self) -> bool {
        !matches!(self, Self::Unix | Self::Host)
    }

    /// Whether a login by it gives both sides a key, so that the client can sign its requests.
    #[must_use]
    pub fn gives_key(self) -> bool {
        self == Self::Gsi
    }

    /// Its place in [`Self::ALL`].
    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a list of mechanisms is refused.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MechanismError {
    /// There is no such mechanism.
    #[error("`{name}` is not a mechanism; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// It is in the list twice.
    #[error("`{0}` is in the list twice")]
    Twice(Mechanism),
}

/// The mechanisms that a node offers, in the order in which it offers them. Each is there at most once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Mechanisms(Vec<Mechanism>);

impl Mechanisms {
    /// Parses names.
    ///
    /// # Errors
    ///
    /// [`MechanismError`].
    pub fn parse<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, MechanismError> {
        let known = || Mechanism::ALL.map(Mechanism::name).join(", ");
        let mut mechanisms = Vec::new();
        for name in names {
            let Some(mechanism) = Mechanism::ALL.into_iter().find(|mechanism| mechanism.name() == name) else {
                return Err(MechanismError::Unknown { name: shown(name), known: known() });
            };
            if mechanisms.contains(&mechanism) {
                return Err(MechanismError::Twice(mechanism));
            }
            mechanisms.push(mechanism);
        }
        Ok(Self(mechanisms))
    }

    /// Whether `mechanism` is offered.
    #[must_use]
    pub fn contains(&self, mechanism: Mechanism) -> bool {
        self.0.contains(&mechanism)
    }

    /// The mechanisms, in their order.
    pub fn iter(&self) -> impl Iterator<Item = Mechanism> {
        self.0.iter().copied()
    }

    /// Whether there is none: clients cannot authenticate.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_keeps_its_order() {
        let mechanisms = Mechanisms::parse(["unix", "ztn"]).unwrap();
        assert_eq!(mechanisms.iter().collect::<Vec<_>>(), [Mechanism::Unix, Mechanism::Ztn]);
        assert!(mechanisms.contains(Mechanism::Ztn) && !mechanisms.contains(Mechanism::Host));
        assert!(Mechanisms::parse([]).unwrap().is_empty());
    }

    #[test]
    fn each_mechanism_has_its_own_place_and_name() {
        for (place, mechanism) in Mechanism::ALL.into_iter().enumerate() {
            assert_eq!(mechanism.index(), place);
            let parsed = Mechanisms::parse([mechanism.name()]);
            assert!(parsed.is_ok_and(|parsed| parsed.contains(mechanism)), "{mechanism}");
        }
    }

    #[test]
    fn errors_say_what_there_is() {
        let why = |names: &[&str]| Mechanisms::parse(names.iter().copied()).unwrap_err().to_string();
        assert_eq!(why(&["ztn", "ZTN"]), "`ZTN` is not a mechanism; there are ztn, gsi, sss, krb5, unix, host");
        assert_eq!(why(&["unix", "ztn", "unix"]), "`unix` is in the list twice");
        assert!(why(&[&"\u{1b}".repeat(100_000)]).len() < 2000);
    }
}
