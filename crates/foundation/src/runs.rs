//! The last run on the objects of this disk: a small file beside the objects. It shows when a namespace was put back from an older backup. Such a
//! namespace would hand out numbers of existing objects again.

use disk::{Access, Disk, DiskError, OpenOptions};

/// The file.
pub const FILE: &str = "store/RUNS";
const DIR: &str = "store";
const TEXT_MAX: usize = 64;

/// The values in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Runs {
    /// The number that the namespace gave to the last run. It rises with each run, and each run takes its inode and object numbers before it begins.
    pub last: u64,
    /// An older namespace was accepted once. The store may hold unreferenced objects, so it deletes none.
    pub older_accepted: bool,
}

impl Runs {
    /// Reads the file. A missing file, or one that cannot be decoded, counts as empty: the file is only an additional safety net.
    pub fn read(disk: &dyn Disk) -> Result<Self, DiskError> {
        if disk.len_of(FILE)?.is_none() {
            return Ok(Self::default());
        }
        let mut bytes = [0; TEXT_MAX];
        let got = disk.open(FILE, OpenOptions { access: Access::Read, direct: false })?.read_at(&mut bytes, 0)?;
        let text = String::from_utf8_lossy(&bytes[..got]).into_owned();
        Ok(Self::parse(&text).unwrap_or_else(|| {
            tracing::warn!("{FILE} cannot be read: `{}`", text.escape_debug());
            Self::default()
        }))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut words = text.strip_suffix('\n')?.split(' ');
        let last = words.next()?.parse().ok()?;
        let older_accepted = match words.next() {
            None => false,
            Some("older-accepted") => true,
            Some(_) => return None,
        };
        words.next().is_none().then_some(Self { last, older_accepted })
    }

    /// Replaces the file. It is durable when this returns.
    pub fn write(&self, disk: &dyn Disk) -> Result<(), DiskError> {
        disk.create_dir_all(DIR)?;
        let text = format!("{}{}\n", self.last, if self.older_accepted { " older-accepted" } else { "" });
        disk::replace_file(disk, FILE, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_file_reads_back_as_written() {
        let temp = tempfile::tempdir().unwrap();
        let disk = disk::RealDisk::open(temp.path()).unwrap();
        assert_eq!(Runs::read(&disk).unwrap(), Runs::default());
        for runs in [Runs { last: 7, older_accepted: false }, Runs { last: u64::MAX, older_accepted: true }] {
            runs.write(&disk).unwrap();
            assert_eq!(Runs::read(&disk).unwrap(), runs);
        }
        for text in ["", "x\n", "7", "7 else\n", "7 older-accepted more\n"] {
            assert_eq!(Runs::parse(text), None, "{text}");
        }
    }
}
