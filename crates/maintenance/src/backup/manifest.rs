//! The texts in a folder of backups: the owner of the folder, and the manifest that makes a backup count. They consist of lines `key = value`; the
//! last line is the checksum of the lines before.

use console::time_text::show_time;
use foundation::DirRole;
use foundation::datadir::Format;
use types::{Crc32c, StoreId, Timestamp};

use super::target::TargetError;

const FORMAT_VERSION: u64 = 2;
/// The backups are of a cluster's manager; the line `role` says so.
const OF_A_MANAGER: u64 = 1;

/// The kind of a backup.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Everything.
    Full,
    /// The changes since the backup before it.
    Delta,
}

/// One backup.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Manifest {
    /// Its number, counted from 1.
    pub number: u64,
    /// Its kind.
    pub kind: Kind,
    /// The journal record at which the previous backup stands; 0 in a full one.
    pub after: u64,
    /// The journal record at which this backup stands.
    pub upto: u64,
    /// The incarnation of that journal.
    pub log: u64,
    /// When it was taken. Everything in it is older.
    #[serde(skip)]
    pub taken: Timestamp,
    /// Bytes of its file.
    pub bytes: u64,
    /// The number of its keys.
    pub entries: u64,
    /// CRC32C of the file without its footer.
    pub sum: u32,
}

impl Manifest {
    /// The name of the file with its keys.
    #[must_use]
    pub fn file(&self) -> String {
        let kind = match self.kind {
            Kind::Full => "full",
            Kind::Delta => "delta",
        };
        format!("{:08}-{kind}.ckpt", self.number)
    }

    /// The name of the manifest of backup `number`.
    #[must_use]
    pub fn name(number: u64) -> String {
        format!("{number:08}.backup")
    }

    /// The text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let Self { number, after, upto, log, bytes, entries, sum, .. } = self;
        let kind = if self.kind == Kind::Full { "full" } else { "delta" };
        let text = format!(
            "format = {FORMAT_VERSION}\nnumber = {number}\nkind = {kind}\nafter = {after}\nupto = {upto}\nlog = {log}\ntaken = {}\nbytes = {bytes}\nentries = {entries}\nsum = {sum}\n",
            self.taken.0
        );
        with_sum(text)
    }

    /// Decodes the text of `file`.
    pub fn parse(text: &str, file: &str) -> Result<Self, TargetError> {
        let fields = Fields::of(text, file)?;
        let kind = match fields.text("kind")? {
            "full" => Kind::Full,
            "delta" => Kind::Delta,
            _ => return Err(fields.damaged()),
        };
        Ok(Self {
            number: fields.number("number")?,
            kind,
            after: fields.number("after")?,
            upto: fields.number("upto")?,
            log: fields.number("log")?,
            taken: Timestamp(i64::try_from(fields.number("taken")?).map_err(|_| fields.damaged())?),
            bytes: fields.number("bytes")?,
            entries: fields.number("entries")?,
            sum: u32::try_from(fields.number("sum")?).map_err(|_| fields.damaged())?,
        })
    }

    /// The manifest as JSON, for programs.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let mut value = serde_json::to_value(self).unwrap_or_default();
        if let Some(object) = value.as_object_mut() {
            object.insert("file".into(), self.file().into());
            object.insert("taken".into(), self.taken_text().into());
        }
        value
    }

    /// The time when it was taken, for people.
    #[must_use]
    pub fn taken_text(&self) -> String {
        show_time(u64::try_from(self.taken.0 / 1_000_000_000).unwrap_or(0))
    }
}

/// Lines `key = value`; the last one is the checksum of the lines before.
struct Fields<'a> {
    text: &'a str,
    file: &'a str,
}

fn with_sum(text: String) -> String {
    let sum = Crc32c::of(text.as_bytes()).0;
    format!("{text}crc32c = {sum:08x}\n")
}

impl<'a> Fields<'a> {
    /// Checks the version and the checksum.
    fn of(text: &'a str, file: &'a str) -> Result<Self, TargetError> {
        let fields = Self { text, file };
        let version = fields.number("format")?;
        if version > FORMAT_VERSION {
            return Err(TargetError::Newer { file: file.to_owned(), found: version });
        }
        // Its values are those of the namespace, whose format has changed.
        if (1..FORMAT_VERSION).contains(&version) {
            return Err(TargetError::Older { file: file.to_owned(), found: version });
        }
        let (before, _) = text.rsplit_once("crc32c = ").ok_or_else(|| fields.damaged())?;
        if with_sum(before.to_owned()) == text { Ok(fields) } else { Err(fields.damaged()) }
    }

    fn damaged(&self) -> TargetError {
        TargetError::Damaged { file: self.file.to_owned() }
    }

    fn text(&self, name: &str) -> Result<&'a str, TargetError> {
        let mut values = self.text.lines().filter_map(|line| line.split_once(" = ")).filter(|(key, _)| *key == name);
        values.next().map(|(_, value)| value).ok_or_else(|| self.damaged())
    }

    fn number(&self, name: &str) -> Result<u64, TargetError> {
        self.text(name)?.parse().map_err(|_| self.damaged())
    }
}

/// The owner of a folder of backups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupSource {
    /// A single node, or the manager of a cluster.
    pub role: DirRole,
    /// The cluster.
    pub cluster: u128,
    /// The store.
    pub store: StoreId,
    /// When the owner's data directory was created.
    pub created: Timestamp,
}

impl BackupSource {
    /// The owner whose data directory has this format.
    #[must_use]
    pub fn of(format: &Format) -> Self {
        let Format { role, cluster, store, created, .. } = *format;
        Self { role, cluster, store, created }
    }

    /// The format of the owner's data directory.
    #[must_use]
    pub fn format(self) -> Format {
        Format::of_backup(self.role, self.cluster, self.store, self.created)
    }

    /// The text of the file.
    #[must_use]
    pub fn to_text(self) -> String {
        let Self { role, cluster, store, created } = self;
        let (bits, line) = match role {
            DirRole::Manager => (OF_A_MANAGER, "role = manager\n"),
            _ => (0, ""),
        };
        with_sum(format!(
            "format = {FORMAT_VERSION}\nincompatible = {bits}\ncluster = {cluster:032x}\nstore = {store}\ncreated = {}\n{line}",
            created.0
        ))
    }

    /// Decodes the text of `file`.
    pub fn parse(text: &str, file: &str) -> Result<Self, TargetError> {
        let fields = Fields::of(text, file)?;
        let bits = fields.number("incompatible")?;
        if bits & !OF_A_MANAGER != 0 {
            return Err(TargetError::Newer { file: file.to_owned(), found: bits });
        }
        let role = match bits {
            0 => DirRole::Single,
            _ if fields.text("role")? == "manager" => DirRole::Manager,
            _ => return Err(fields.damaged()),
        };
        Ok(Self {
            role,
            cluster: u128::from_str_radix(fields.text("cluster")?, 16).map_err(|_| fields.damaged())?,
            store: StoreId(fields.number("store")?),
            created: Timestamp(i64::try_from(fields.number("created")?).map_err(|_| fields.damaged())?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let (number, kind, after, upto, log) = (3, Kind::Delta, 10, 20, u64::MAX);
        Manifest {
            number,
            kind,
            after,
            upto,
            log,
            taken: Timestamp(1_795_219_171_417_482_420),
            bytes: 128,
            entries: 7,
            sum: 9,
        }
    }

    /// The bytes on disk, pinned. A change here is a change of the format.
    #[test]
    fn manifest_bytes_are_pinned() {
        assert_eq!(
            manifest().to_text(),
            "format = 2\nnumber = 3\nkind = delta\nafter = 10\nupto = 20\nlog = 18446744073709551615\n\
             taken = 1795219171417482420\nbytes = 128\nentries = 7\nsum = 9\ncrc32c = 67a01cc8\n"
        );
        let node = BackupSource { role: DirRole::Single, cluster: 0xabc, store: StoreId(77), created: Timestamp(5) };
        let text = node.to_text();
        assert!(text.starts_with("format = 2\nincompatible = 0\ncluster = 00000000000000000000000000000abc\nstore = 77\ncreated = 5\ncrc32c = "), "{text}");
        let manager = BackupSource { role: DirRole::Manager, store: StoreId(0), ..node };
        let text = manager.to_text();
        assert!(text.starts_with("format = 2\nincompatible = 1\ncluster = 00000000000000000000000000000abc\nstore = 0\ncreated = 5\nrole = manager\ncrc32c = "), "{text}");
        for whose in [node, manager] {
            assert_eq!(BackupSource::parse(&whose.to_text(), "x").unwrap(), whose);
            assert_eq!(BackupSource::of(&whose.format()), whose);
        }
    }

    #[test]
    fn manifests_read_back_and_damaged_ones_or_other_versions_are_refused() {
        let text = manifest().to_text();
        assert_eq!(Manifest::parse(&text, "x").unwrap(), manifest());
        for place in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[place] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(Manifest::parse(&changed, "x").is_err(), "{changed}");
            assert!(Manifest::parse(&text[..place], "x").is_err(), "{place}");
        }
        let newer = text.replace("format = 2", "format = 3");
        assert!(matches!(Manifest::parse(&newer, "x"), Err(TargetError::Newer { found: 3, .. })));
        let older = text.replace("format = 2", "format = 1");
        assert!(matches!(Manifest::parse(&older, "x"), Err(TargetError::Older { found: 1, .. })));
        let unknown = with_sum("format = 2\nincompatible = 4\ncluster = 0\nstore = 1\ncreated = 0\n".into());
        assert!(matches!(BackupSource::parse(&unknown, "x"), Err(TargetError::Newer { found: 4, .. })));
    }
}
