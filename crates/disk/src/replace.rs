//! Small files that are replaced whole.

use crate::{Access, Disk, DiskError, OpenOptions};

/// Replaces the file `path`, or makes it, so that a crash leaves the old one or the new one, whole. Durable when it returns.
/// Beside it stands `path.new` meanwhile; one that an interrupted call has left there is taken away. The folder must be there.
///
/// # Errors
/// What the disk says; the old file is then there, or the new one.
pub fn replace_file(disk: &dyn Disk, path: &str, bytes: &[u8]) -> Result<(), DiskError> {
    let new = format!("{path}.new");
    if disk.len_of(&new)?.is_some() {
        disk.remove(&new)?;
    }
    let file = disk.open(&new, OpenOptions { access: Access::CreateNew, direct: false })?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    disk.rename(&new, path)?;
    disk.sync_dir(path.rsplit_once('/').map_or("", |(dir, _)| dir))
}

#[cfg(all(test, feature = "simulated"))]
mod tests {
    use super::*;
    use crate::{CrashFaults, SimDisk};

    #[test]
    fn what_was_replaced_survives_a_crash_and_what_lies_beside_it_does_no_harm() {
        use rand::SeedableRng;
        for seed in 0..50 {
            let disk = SimDisk::new(seed);
            disk.create_dir_all("d").unwrap();
            disk.sync_dir("").unwrap();
            replace_file(&disk, "d/a", b"first, and longer").unwrap();
            let beside = disk.open("d/a.new", OpenOptions { access: Access::CreateNew, direct: false }).unwrap();
            beside.write_at(b"left by a crash", 0).unwrap();
            replace_file(&disk, "d/a", b"second").unwrap();
            let (after, _) = disk.crash(&mut rand::rngs::SmallRng::seed_from_u64(seed), CrashFaults::mixed());
            let file = after.open("d/a", OpenOptions { access: Access::Read, direct: false }).unwrap();
            let mut bytes = [0; 64];
            let n = file.read_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes[..n], b"second", "{seed}");
        }
    }
}
