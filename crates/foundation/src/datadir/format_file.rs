//! The FORMAT file: text, one `key = value` a line. The last line is a checksum of all lines before it. `docs/reference/formats.md` describes it.
//! Every version can read the line `format = N` for ever; everything else may depend on N.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use types::{Crc32c, Incarnation, StoreId, Timestamp};

/// The version that this program writes, and the only one that it reads.
///
/// - 1: the first.
/// - 2: the principal of each writer, the snapshot epoch of each inode record, the shard beside each missing replica.
pub const FORMAT_VERSION: u32 = 2;
/// Feature bits that a program must know to read the directory correctly.
pub const KNOWN_INCOMPATIBLE: u64 = OF_A_CLUSTER;
/// The directory belongs to a node of a cluster; the line `role` gives its role.
const OF_A_CLUSTER: u64 = 1;
/// Feature bits that older programs may ignore. This version has none.
pub const KNOWN_COMPATIBLE: u64 = 0;

const LENGTH_MAX: u64 = 64 * 1024;
const HEADING: &str = "# weir data directory; docs/reference/formats.md tells what the lines mean. Do not edit.\n";

/// The role of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DirRole {
    /// A single node's directory: names and objects.
    Single,
    /// The directory of a cluster's manager: names, and the cluster's certificate authority.
    Manager,
    /// The directory of a disk server: its identity.
    Disk,
    /// A store of a disk server: objects.
    Store,
}

impl DirRole {
    /// The roles that have a line in the file.
    const OF_A_CLUSTER: [(DirRole, &'static str); 3] =
        [(DirRole::Manager, "manager"), (DirRole::Disk, "disk"), (DirRole::Store, "store")];

    fn word(self) -> Option<&'static str> {
        Self::OF_A_CLUSTER.into_iter().find(|(role, _)| *role == self).map(|(_, word)| word)
    }

    fn from_word(word: &str) -> Option<Self> {
        Self::OF_A_CLUSTER.into_iter().find(|(_, known)| *known == word).map(|(role, _)| role)
    }
}

impl std::fmt::Display for DirRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            DirRole::Single => "a single node's data directory",
            DirRole::Manager => "the data directory of a cluster's manager",
            DirRole::Disk => "a disk server's data directory",
            DirRole::Store => "a disk server's store",
        })
    }
}

/// The values in a FORMAT file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Format {
    /// Feature bits that a reader must know.
    pub incompatible: u64,
    /// Feature bits that a reader may ignore.
    pub compatible: u64,
    /// The cluster to which the objects and their namespace belong: 128 random bits.
    pub cluster: u128,
    /// The store in this directory.
    pub store: StoreId,
    /// The incarnation of the namespace. A restore from a backup raises it.
    pub incarnation: Incarnation,
    /// When the directory was created.
    pub created: Timestamp,
    /// The role of the directory.
    pub role: DirRole,
}

/// Why a FORMAT file was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// A newer program wrote it.
    #[error(
        "format {found} is newer than this weir ({} knows up to {FORMAT_VERSION}); use the newer weir that wrote it. Nothing was touched", env!("CARGO_PKG_VERSION")
    )]
    Newer {
        /// The version in the file.
        found: u32,
    },
    /// An earlier program wrote it. There is no conversion.
    #[error(
        "format {found} is of an earlier weir, and this one ({}) reads format {FORMAT_VERSION} alone; copy the files out with the weir that wrote it, and start this one on a new directory. Nothing was touched", env!("CARGO_PKG_VERSION")
    )]
    Older {
        /// The version in the file.
        found: u32,
    },
    /// It uses features that this program does not know.
    #[error(
        "uses incompatible features that this weir {} does not know (bits {unknown:#x}); use the newer weir that wrote it. Nothing was touched", env!("CARGO_PKG_VERSION")
    )]
    UnknownFeatures {
        /// The unknown bits.
        unknown: u64,
    },
    /// It cannot be decoded as it was written.
    #[error(
        "does not read as written ({reason}); restore the file from a backup, or from the last lines of the node's log, which names its values at each start. Nothing was touched"
    )]
    Damaged {
        /// What is wrong.
        reason: String,
    },
    /// The operating system returned an error.
    #[error("cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl Format {
    /// A new format for a single node, with random ids.
    pub fn fresh(now: Timestamp) -> io::Result<Self> {
        Self::fresh_as(DirRole::Single, now)
    }

    /// A new format for a `role`. A disk server does not know its cluster before it has joined: the cluster is 0 until then.
    pub fn fresh_as(role: DirRole, now: Timestamp) -> io::Result<Self> {
        let mut random = [0u8; 24];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        let (cluster, store) = random.split_at(16);
        let number = |bytes: &[u8]| bytes.iter().fold(0u128, |sum, byte| sum << 8 | u128::from(*byte));
        let has_store = matches!(role, DirRole::Single | DirRole::Store);
        Ok(Self {
            incompatible: if role == DirRole::Single { 0 } else { OF_A_CLUSTER },
            compatible: 0,
            cluster: if role == DirRole::Disk { 0 } else { number(cluster) },
            // A store's number is never 0, and fits into a signed number for languages without unsigned ones.
            store: StoreId(if has_store { u64::try_from(number(store) >> 1).unwrap_or(1).max(1) } else { 0 }),
            incarnation: Incarnation(1),
            created: now,
            role,
        })
    }

    /// The format of a directory that is restored from a backup of the node with these values.
    #[must_use]
    pub fn of_backup(role: DirRole, cluster: u128, store: StoreId, created: Timestamp) -> Self {
        let incompatible = if role == DirRole::Single { 0 } else { OF_A_CLUSTER };
        Self { incompatible, compatible: 0, cluster, store, incarnation: Incarnation(1), created, role }
    }

    /// The text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::from(HEADING);
        let _ = write!(
            text,
            "format = {FORMAT_VERSION}\nincompatible = {:#018x}\ncompatible = {:#018x}\ncluster = {:032x}\nstore = {}\nincarnation = {}\ncreated = {}\n",
            self.incompatible, self.compatible, self.cluster, self.store, self.incarnation, self.created
        );
        if let Some(word) = self.role.word() {
            let _ = writeln!(text, "role = {word}");
        }
        let sum = Crc32c::of(text.as_bytes());
        let _ = writeln!(text, "crc32c = {:08x}", sum.0);
        text
    }

    fn from_text(text: &str) -> Result<Self, FormatError> {
        let damaged = |reason: &str| FormatError::Damaged { reason: reason.to_owned() };
        let field = |name: &str| {
            let mut found = text.lines().filter_map(|line| line.split_once(" = ")).filter(|(key, _)| *key == name);
            match (found.next(), found.next()) {
                (Some((_, value)), None) => Ok(value),
                (Some(_), Some(_)) => Err(FormatError::Damaged { reason: format!("`{name}` is there twice") }),
                (None, _) => Err(FormatError::Damaged { reason: format!("`{name}` is missing") }),
            }
        };
        let decimal = |name: &str| {
            field(name)?.parse::<u64>().map_err(|_| FormatError::Damaged { reason: format!("`{name}` is no number") })
        };
        let bits = |name: &str| {
            field(name)?
                .strip_prefix("0x")
                .and_then(|digits| u64::from_str_radix(digits, 16).ok())
                .ok_or_else(|| FormatError::Damaged { reason: format!("`{name}` is no set of bits") })
        };

        let version = decimal("format")?;
        if version > u64::from(FORMAT_VERSION) {
            return Err(FormatError::Newer { found: u32::try_from(version).unwrap_or(u32::MAX) });
        }
        if version == 0 {
            return Err(damaged("`format` is not a version that ever was"));
        }
        if version < u64::from(FORMAT_VERSION) {
            return Err(FormatError::Older { found: u32::try_from(version).unwrap_or_default() });
        }
        let (summed, sum) = text.rsplit_once("crc32c = ").ok_or_else(|| damaged("its checksum is missing"))?;
        let sum = u32::from_str_radix(sum.trim_end(), 16).map_err(|_| damaged("its checksum is no number"))?;
        if Crc32c::of(summed.as_bytes()) != Crc32c(sum) {
            return Err(damaged("its checksum does not match"));
        }
        let incompatible = bits("incompatible")?;
        let unknown = incompatible & !KNOWN_INCOMPATIBLE;
        if unknown != 0 {
            return Err(FormatError::UnknownFeatures { unknown });
        }
        let role = match incompatible & OF_A_CLUSTER {
            0 => DirRole::Single,
            _ => DirRole::from_word(field("role")?).ok_or_else(|| damaged("`role` is none that is known"))?,
        };
        let created = field("created")?;
        let (secs, nanos) = created.split_once('.').ok_or_else(|| damaged("`created` is no time"))?;
        let (Ok(secs), Ok(nanos)) = (secs.parse::<i64>(), nanos.parse::<i64>()) else {
            return Err(damaged("`created` is no time"));
        };
        Ok(Self {
            incompatible,
            compatible: bits("compatible")?,
            cluster: u128::from_str_radix(field("cluster")?, 16).map_err(|_| damaged("`cluster` is no id"))?,
            store: StoreId(decimal("store")?),
            incarnation: Incarnation(decimal("incarnation")?),
            created: Timestamp(secs.saturating_mul(1_000_000_000).saturating_add(nanos)),
            role,
        })
    }
}

/// Reads and checks the file at `path`.
pub fn read(path: &Path) -> Result<Format, FormatError> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LENGTH_MAX).read_to_end(&mut bytes)?;
    let text = String::from_utf8(bytes).map_err(|_| FormatError::Damaged { reason: "it is not text".into() })?;
    Format::from_text(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Format {
        Format {
            incompatible: 0,
            compatible: 0,
            cluster: 0x00ab_cdef,
            store: StoreId(77),
            incarnation: Incarnation(3),
            created: Timestamp(1_700_000_000_000_000_123),
            role: DirRole::Single,
        }
    }

    /// The bytes on disk, pinned. A change here is a change of the format.
    #[test]
    fn format_file_bytes_are_pinned() {
        assert_eq!(
            sample().to_text(),
            "# weir data directory; docs/reference/formats.md tells what the lines mean. Do not edit.\n\
             format = 2\n\
             incompatible = 0x0000000000000000\n\
             compatible = 0x0000000000000000\n\
             cluster = 00000000000000000000000000abcdef\n\
             store = 77\n\
             incarnation = 3\n\
             created = 1700000000.000000123\n\
             crc32c = 5a76d762\n"
        );
    }

    #[test]
    fn format_reads_back_as_written() {
        assert_eq!(Format::from_text(&sample().to_text()).unwrap(), sample());
        for role in [DirRole::Single, DirRole::Manager, DirRole::Disk, DirRole::Store] {
            let fresh = Format::fresh_as(role, Timestamp(5)).unwrap();
            assert_eq!(Format::from_text(&fresh.to_text()).unwrap(), fresh);
            assert_eq!(fresh.store.0 == 0, matches!(role, DirRole::Manager | DirRole::Disk));
        }
        let fresh = || Format::fresh(Timestamp(5)).unwrap();
        assert_ne!(fresh().cluster, fresh().cluster);
    }

    /// The line `role` and its bit occur only together.
    #[test]
    fn role_line_and_its_bit_are_pinned() {
        let store = Format { role: DirRole::Store, incompatible: OF_A_CLUSTER, ..sample() };
        let text = store.to_text();
        assert!(text.contains("\nincompatible = 0x0000000000000001\n"), "{text}");
        assert!(text.ends_with("\nrole = store\ncrc32c = 1c88f0c6\n"), "{text}");
        let resummed = |text: String| {
            let summed = text.rsplit_once("crc32c = ").unwrap().0.to_owned();
            let sum = Crc32c::of(summed.as_bytes()).0;
            Format::from_text(&format!("{summed}crc32c = {sum:08x}\n"))
        };
        assert_eq!(resummed(text.clone()).unwrap(), store);
        assert!(matches!(resummed(text.replace("role = store\n", "")), Err(FormatError::Damaged { .. })));
        assert!(matches!(resummed(text.replace("role = store", "role = king")), Err(FormatError::Damaged { .. })));
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let text = sample().to_text();
        // The checksum covers the heading too. The text after `crc32c = ` is the checksum itself.
        for place in 0..text.len() - 1 {
            for bit in 0..7 {
                let mut bytes = text.clone().into_bytes();
                bytes[place] ^= 1 << bit;
                let Ok(changed) = String::from_utf8(bytes) else { continue };
                match Format::from_text(&changed) {
                    Err(_) => {}
                    // A hexadecimal digit may change its case without changing the checksum.
                    Ok(read) => assert!(read == sample() && changed.eq_ignore_ascii_case(&text), "{changed}"),
                }
            }
        }
        assert!(Format::from_text("").is_err());
    }

    #[test]
    fn other_versions_and_unknown_features_are_told_from_damage() {
        // Another version may use another checksum. Its number is reported all the same.
        let of = |version| sample().to_text().replace("format = 2", &format!("format = {version}"));
        assert!(matches!(Format::from_text(&of(9)), Err(FormatError::Newer { found: 9 })));
        let older = Format::from_text(&of(1)).unwrap_err();
        assert!(matches!(older, FormatError::Older { found: 1 }));
        assert!(older.to_string().starts_with("format 1 is of an earlier weir"), "{older}");
        assert!(matches!(Format::from_text(&of(0)), Err(FormatError::Damaged { .. })));
        let unknown = Format { incompatible: 1 << 40, ..sample() }.to_text();
        assert!(
            matches!(Format::from_text(&unknown), Err(FormatError::UnknownFeatures { unknown }) if unknown == 1 << 40)
        );
        let ignored = Format { compatible: 1 << 40, ..sample() }.to_text();
        assert!(Format::from_text(&ignored).is_ok());
    }
}
