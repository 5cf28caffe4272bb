//! Messages between a cluster's manager and a client that moves the bytes of a striped file itself, to and from the
//! servers of its stripe units.
//!
//! A client announces this ability with its open ([`DIRECT_KEY`]). The redirect names a server that would combine the
//! units. It also describes the file ([`STRIPED_KEY`]) and, for reading, the locations of its units ([`UNITS_KEY`]). A
//! client with this ability goes to these servers, and asks the manager for a unit only if that fails. All other
//! clients follow the redirect.

use std::fmt;

use crate::striping::{self, StripedOpenWrite};
use crate::{Ino, ObjectId, Stripe, Timestamp, capability};

/// The key in an open whose client can use the units of a striped file: `weir.direct=1`.
pub const DIRECT_KEY: &str = "weir.direct";
/// The key of the answer in the redirect; the value is that of [`StripedFile::show`].
pub const STRIPED_KEY: &str = "weir.striped";

/// The key in the redirect for the locations of the units; the value is that of [`UnitAddress::show_all`].
pub const UNITS_KEY: &str = "weir.units";
/// Longest value of [`UNITS_KEY`]; longer ones are left out, because some addresses and requests cannot hold more.
const UNITS_LEN_MAX: usize = 8 << 10;

/// Where to read a unit of a striped file: the same as the manager's redirect for that unit.
#[derive(Clone, PartialEq, Eq)]
pub struct UnitAddress {
    /// Host name or address of its server.
    pub host: String,
    /// The server's port.
    pub port: u16,
    /// The capability for that server. Never show it to another one.
    pub capability: String,
    /// The unit's object.
    pub object: ObjectId,
}

impl fmt::Debug for UnitAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UnitAddress({}:{})", self.host, self.port)
    }
}

impl UnitAddress {
    /// The value for the first units of a file, in order; `None` if they do not fit.
    #[must_use]
    pub fn show_all(units: &[Self]) -> Option<String> {
        let one =
            |Self { host, port, capability, object }: &Self| format!("{host}~{port}~{capability}~{:016x}", object.0);
        let text = units.iter().map(one).collect::<Vec<_>>().join(",");
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]~,".contains(&byte);
        let separators = |text: &str| text.bytes().filter(|byte| b"~,".contains(byte)).count();
        let is_shown = !units.is_empty()
            && text.len() <= UNITS_LEN_MAX
            && text.bytes().all(plain)
            && separators(&text) == 4 * units.len() - 1;
        is_shown.then_some(text)
    }

    /// Parses the value of [`UnitAddress::show_all`].
    #[must_use]
    pub fn parse_all(text: &str) -> Option<Vec<Self>> {
        let one = |text: &str| {
            let mut parts = text.split('~');
            let (host, port, capability) = (parts.next()?, parts.next()?.parse().ok()?, parts.next()?);
            let [object] = striping::numbers(parts.next()?, [16])?;
            let is_whole = parts.next().is_none() && !host.is_empty() && !capability.is_empty();
            let (host, capability) = (host.to_owned(), capability.to_owned());
            is_whole.then_some(Self { host, port, capability, object: ObjectId(object) })
        };
        text.split(',').map(one).collect()
    }

    /// The opaque part of the unit's URL: the text after the `?`.
    #[must_use]
    pub fn words(&self) -> String {
        capability::words(&self.capability, self.object)
    }
}

/// A striped file that may be read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripedFile {
    /// Its striping.
    pub stripe: Stripe,
    /// Its inode number.
    pub ino: Ino,
    /// Its permission bits.
    pub mode: u16,
    /// When it was last changed.
    pub mtime: Timestamp,
    /// The allowed actions.
    pub rights: DirectRights,
}

/// The allowed actions on a striped file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirectRights {
    /// Writing.
    Write {
        /// The open write, with the proof that the client may write.
        writing: StripedOpenWrite,
        /// The write was interrupted and continues. The same holds for its units, as far as they have ended.
        goes_on: bool,
    },
    /// Reading, without a writer.
    Read {
        /// The object.
        object: ObjectId,
        /// Its length in bytes. If its writer has left, the length without a gap from the beginning.
        len: u64,
        /// Whether its writer has left.
        is_partial: bool,
    },
}

impl StripedFile {
    /// The value for the redirect.
    #[must_use]
    pub fn show(&self) -> String {
        let Self { stripe, ino, mode, mtime, rights } = self;
        let (width, chunk) = (stripe.width(), stripe.chunk());
        let rights = match rights {
            DirectRights::Write { writing, goes_on } => {
                let kind = if *goes_on { 'g' } else { 'w' };
                format!("{kind}.{}", striping::show_writer(*writing))
            }
            DirectRights::Read { object, len, is_partial } => {
                let kind = if *is_partial { 'p' } else { 'r' };
                format!("{kind}.{:016x}.{len:016x}", object.0)
            }
        };
        format!("{width:02x}.{chunk:016x}.{:016x}.{mode:04x}.{:016x}.{rights}", ino.0, mtime.0)
    }

    /// Parses the value of [`StripedFile::show`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let points: Vec<usize> = text.match_indices('.').map(|(at, _)| at).take(6).collect();
        let [.., fifth, sixth] = *points.as_slice() else { return None };
        let [width, chunk, ino, mode, mtime] = striping::numbers(text.get(..fifth)?, [2, 16, 16, 4, 16])?;
        let rest = text.get(sixth + 1..)?;
        let read = |is_partial| {
            let [object, len] = striping::numbers(rest, [16, 16])?;
            Some(DirectRights::Read { object: ObjectId(object), len, is_partial })
        };
        let rights = match text.get(fifth + 1..sixth)? {
            kind @ ("w" | "g") => DirectRights::Write { writing: striping::parse_writer(rest)?, goes_on: kind == "g" },
            "r" => read(false)?,
            "p" => read(true)?,
            _ => return None,
        };
        let stripe = Stripe::new(width, chunk).ok()?;
        let (mode, mtime) = (u16::try_from(mode).ok()?, Timestamp(mtime.cast_signed()));
        Some(Self { stripe, ino: Ino(ino), mode, mtime, rights })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;
    use crate::striping::WriteSecret;
    use crate::{WriterKey, WriterToken};

    #[test]
    fn unit_locations_round_trip_or_are_omitted() {
        let unit = |n: u64| UnitAddress {
            host: ["disk1.site", "[2001:db8::7]"][usize::from(n & 1 == 0)].to_owned(),
            port: 1094,
            capability: "aB-_9".repeat(20),
            object: ObjectId(n),
        };
        let units: Vec<UnitAddress> = (1..=4).map(unit).collect();
        let text = UnitAddress::show_all(&units).unwrap();
        assert_eq!(UnitAddress::parse_all(&text), Some(units.clone()));
        assert_eq!(UnitAddress::show_all(&[]), None);
        let many: Vec<UnitAddress> = (0..64).map(unit).collect();
        assert!(UnitAddress::show_all(&many).is_none(), "they would not fit");
        for host in ["a~b", "a,b", "a&b", "a b", "ä"] {
            let odd = UnitAddress { host: host.to_owned(), ..unit(1) };
            assert_eq!(UnitAddress::show_all(&[unit(2), odd]), None, "{host}");
        }
        for wrong in ["", ",", "a~1~b", "a~1~b~0", "~1~b~0000000000000000", "a~70000~b~0000000000000000"] {
            assert_eq!(UnitAddress::parse_all(wrong), None, "{wrong}");
        }
        assert_eq!(UnitAddress::parse_all(&format!("{text},")), None);
        assert!(!format!("{units:?}").contains(&units[0].capability));
    }

    #[test]
    fn only_valid_values_are_parsed() {
        let writer = WriterToken { key: WriterKey(u64::MAX), object: ObjectId(3), epoch: 9 };
        let read = |is_partial| DirectRights::Read { object: ObjectId(0xab), len: 77, is_partial };
        let writing = StripedOpenWrite { writer, secret: WriteSecret(u128::MAX - 1) };
        let write = |goes_on| DirectRights::Write { writing, goes_on };
        for rights in [write(false), write(true), read(false), read(true)] {
            for mtime in [i64::MIN, -1, 0, 5] {
                let stripe = Stripe::new(3, 1 << 20).unwrap();
                let file = StripedFile { stripe, ino: Ino(7), mode: 0o644, mtime: Timestamp(mtime), rights };
                let text = file.show();
                assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.'), "{text}");
                assert_eq!(StripedFile::parse(&text), Some(file), "{text}");
                for wrong in [&text[1..], &text[..text.len() - 1], &format!("{text}0"), &text.replacen("03", "01", 1)] {
                    assert_eq!(StripedFile::parse(wrong), None, "{wrong}");
                }
            }
        }
        for wrong in ["", ".....", "......", "03.0000000000100000.é.01a4.0.r.0.0"] {
            assert_eq!(StripedFile::parse(wrong), None, "{wrong}");
        }
    }
}
