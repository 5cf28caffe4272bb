//! Which requests must be signed.

use std::fmt;

/// Which requests a client must sign, if it has logged in by a mechanism that gives it a key (`gsi`). The levels are those of
/// `sec.level` in XRootD.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum SigningLevel {
    /// None.
    #[default]
    None,
    /// Requests that change something and that all clients of that level can sign: removals, renames, modes, opens to write.
    Compatible,
    /// All opens and new directories too.
    Standard,
    /// Requests about open files too, but not plain reads.
    Intense,
    /// All requests.
    Pedantic,
}

impl SigningLevel {
    /// All of them, in their order.
    pub const ALL: [Self; 5] = [Self::None, Self::Compatible, Self::Standard, Self::Intense, Self::Pedantic];

    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Compatible => "compatible",
            Self::Standard => "standard",
            Self::Intense => "intense",
            Self::Pedantic => "pedantic",
        }
    }

    /// The number in the protocol (`kXR_secNone` and so on).
    #[must_use]
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Finds the level of a name. `None`: there is no such level.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.name() == name)
    }
}

impl fmt::Display for SigningLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_have_the_numbers_of_the_protocol() {
        for (number, level) in (0..).zip(SigningLevel::ALL) {
            assert_eq!(level.number(), number);
            assert_eq!(SigningLevel::parse(level.name()), Some(level));
        }
        assert_eq!(SigningLevel::parse("Pedantic"), None);
        assert_eq!(SigningLevel::default(), SigningLevel::None);
    }
}
