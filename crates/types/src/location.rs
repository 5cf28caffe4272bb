//! The location of a machine: `site/rack/host`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// Longest name of a site, rack or host, in bytes.
pub const LOCATION_NAME_MAX: usize = 64;

/// Why a text is not a location.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LocationError {
    /// It does not have three names.
    #[error("`{0}` is not a location; write site/rack/host, as in `cern/r12/ds7`")]
    NotThree(String),
    /// A prefix that does not have one to three names.
    #[error("`{0}` is not the beginning of a location; write site, site/rack or site/rack/host, as in `cern/r12`")]
    NotAPrefix(String),
    /// An invalid name.
    #[error(
        "`{whole}`: a site, rack or host has 1 to 64 bytes, letters, digits, `.`, `_` or `-`, and `{name}` has not"
    )]
    BadName {
        /// The given text, shortened if it was long.
        whole: String,
        /// The invalid part, shortened if it was long.
        name: String,
    },
}

/// What two locations have in common. Ordered: closer is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Shared {
    /// They are at different sites.
    Nothing,
    /// The site.
    Site,
    /// The site and the rack.
    Rack,
    /// The host.
    Host,
}

/// The location of a machine, in canonical form. Racks of the same name at two sites differ, and so do hosts in two
/// racks.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Location(LocationPrefix);

impl Location {
    /// Makes a location of the three names.
    ///
    /// # Errors
    /// [`LocationError::BadName`].
    pub fn new(site: &str, rack: &str, host: &str) -> Result<Self, LocationError> {
        format!("{site}/{rack}/{host}").parse()
    }

    /// The site.
    #[must_use]
    pub fn site(&self) -> &str {
        self.name(0)
    }

    /// The rack's name within its site.
    #[must_use]
    pub fn rack(&self) -> &str {
        self.name(1)
    }

    /// The host's name within its rack.
    #[must_use]
    pub fn host(&self) -> &str {
        self.name(2)
    }

    fn name(&self, at: usize) -> &str {
        self.0.0.split('/').nth(at).unwrap_or_default()
    }

    /// `site/rack/host`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0.0
    }

    /// The first `depth` names: 1 is the site, 2 site and rack, 3 (or more) the whole location.
    #[must_use]
    pub fn prefix(&self, depth: usize) -> LocationPrefix {
        let end = self.0.0.match_indices('/').nth(depth.max(1) - 1).map_or(self.0.0.len(), |(at, _)| at);
        LocationPrefix(self.0.0[..end].into())
    }

    /// What this location and `other` have in common.
    #[must_use]
    pub fn shared_with(&self, other: &Location) -> Shared {
        if self == other {
            return Shared::Host;
        }
        if self.site() != other.site() {
            return Shared::Nothing;
        }
        if self.rack() == other.rack() { Shared::Rack } else { Shared::Site }
    }
}

impl FromStr for Location {
    type Err = LocationError;
    fn from_str(text: &str) -> Result<Self, LocationError> {
        if text.split('/').count() != 3 {
            return Err(LocationError::NotThree(cut(text)));
        }
        check(text)?;
        Ok(Self(LocationPrefix(text.into())))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The beginning of a location: `site`, `site/rack` or `site/rack/host`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocationPrefix(Box<str>);

impl LocationPrefix {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The location of a client at `address` about which nothing else is known. The address serves as the missing names
    /// of rack and host, which no other machine shares.
    #[must_use]
    pub fn of_client(&self, address: IpAddr) -> Option<Location> {
        let own = address.to_string().replace([':', '%'], "-");
        let mut names = self.as_str().split('/').chain([own.as_str(), own.as_str()]);
        Location::new(names.next()?, names.next()?, names.next()?).ok()
    }

    /// Whether `location` begins with it, name by name.
    #[must_use]
    pub fn contains(&self, location: &Location) -> bool {
        match location.as_str().strip_prefix(self.as_str()) {
            Some(rest) => rest.is_empty() || rest.starts_with('/'),
            None => false,
        }
    }
}

impl FromStr for LocationPrefix {
    type Err = LocationError;
    fn from_str(text: &str) -> Result<Self, LocationError> {
        if text.is_empty() || text.split('/').count() > 3 {
            return Err(LocationError::NotAPrefix(cut(text)));
        }
        check(text)?;
        Ok(Self(text.into()))
    }
}

impl fmt::Display for LocationPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LocationPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check(text: &str) -> Result<(), LocationError> {
    match text.split('/').find(|name| !is_name(name, LOCATION_NAME_MAX)) {
        None => Ok(()),
        Some(name) => Err(LocationError::BadName { whole: cut(text), name: cut(name) }),
    }
}

/// Whether `name` consists of 1 to `max` letters, digits, `.`, `_` and `-`.
pub(crate) fn is_name(name: &str, max: usize) -> bool {
    (1..=max).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// Shortens a text from outside for an error message.
pub(crate) fn cut(text: &str) -> String {
    const SHOWN: usize = 100;
    match text.char_indices().nth(SHOWN) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(text: &str) -> Location {
        text.parse().unwrap()
    }

    #[test]
    fn a_location_has_three_names() {
        let here = location("cern/r12/ds7");
        assert_eq!((here.site(), here.rack(), here.host()), ("cern", "r12", "ds7"));
        assert_eq!(here.to_string(), "cern/r12/ds7");
        assert_eq!(Location::new("cern", "r12", "ds7"), Ok(here));
        assert!(matches!("".parse::<Location>(), Err(LocationError::NotThree(_))));
        assert!(matches!("cern/ds7".parse::<Location>(), Err(LocationError::NotThree(_))));
        assert!(matches!("cern/r/h/x".parse::<Location>(), Err(LocationError::NotThree(_))));
        assert!(Location::new("a/b", "c", "d").is_err());
        for wrong in ["/r/h", "cern//h", "cern/r/", "c ern/r/h", "cern/r/h\n", "cern/r/ü"] {
            assert!(matches!(wrong.parse::<Location>(), Err(LocationError::BadName { .. })), "{wrong:?}");
        }
    }

    #[test]
    fn names_have_64_bytes_at_most() {
        let (fits, long) = ("n".repeat(64), "n".repeat(65));
        assert!(format!("{fits}/{fits}/{fits}").parse::<Location>().is_ok());
        assert!(format!("{fits}/{long}/{fits}").parse::<Location>().is_err());
        let error = "x".repeat(1 << 20).parse::<Location>().unwrap_err().to_string();
        assert!(error.len() < 400, "a long text is not repeated whole: {} bytes", error.len());
    }

    #[test]
    fn locations_share_site_rack_or_host() {
        let here = location("a/r1/h1");
        assert_eq!(here.shared_with(&location("a/r1/h1")), Shared::Host);
        assert_eq!(here.shared_with(&location("a/r1/h2")), Shared::Rack);
        assert_eq!(here.shared_with(&location("a/r2/h1")), Shared::Site, "the same host's name in another rack");
        assert_eq!(here.shared_with(&location("b/r1/h1")), Shared::Nothing, "the same names on another site");
        assert!(Shared::Host > Shared::Rack && Shared::Rack > Shared::Site && Shared::Site > Shared::Nothing);
    }

    #[test]
    fn a_prefix_holds_whole_names() {
        let prefix: LocationPrefix = "cern/r1".parse().unwrap();
        assert!(prefix.contains(&location("cern/r1/h1")));
        assert!(!prefix.contains(&location("cern/r12/h1")), "r1 is not the beginning of r12");
        assert!("cern".parse::<LocationPrefix>().unwrap().contains(&location("cern/r12/h1")));
        assert!("cern/r1/h1".parse::<LocationPrefix>().unwrap().contains(&location("cern/r1/h1")));
        for wrong in ["", "cern/", "/", "a/b/c/d"] {
            assert!(wrong.parse::<LocationPrefix>().is_err(), "{wrong:?}");
        }
        let here = location("cern/r1/h1");
        let prefixes = [1, 2, 3, 4].map(|depth| here.prefix(depth).to_string());
        assert_eq!(prefixes, ["cern", "cern/r1", "cern/r1/h1", "cern/r1/h1"]);
    }
}
