//! How many runs the contents on this disk have seen: a small file beside the contents, so that a namespace put
//! back from an older backup is noticed. Such a namespace would hand out numbers that contents on the disk have already.

use disk::{Access, Disk, DiskError, OpenOptions};

/// The file.
pub const FILE: &str = "store/RUNS";
const DIR: &str = "store";
const TEXT_MAX: usize = 64;

/// What the file says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Runs {
    /// The number that the namespace gave to the last run. Numbers rise with each run, and each takes its inode and
    /// object numbers before it begins.
    pub last: u64,
    /// An older namespace was accepted once: the store may hold contents that nothing knows, and clears nothing away.
    pub older_accepted: bool,
}

impl Runs {
    /// Reads the file. Without it nothing is known; what does not read as we wrote it is taken for nothing too, since
    /// it is a net below other nets.
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

    /// Writes the file anew; durable when it returns.
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
    fn what_is_written_is_read() {
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
