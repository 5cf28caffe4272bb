//! Replacing small files as a whole.

use crate::{Access, Disk, DiskError, OpenOptions};

/// Replaces or creates the file `path`. A crash leaves the complete old or the complete new file. Durable on return.
/// Uses the temporary file `path.new`, and removes one that an interrupted call left. The directory must exist.
///
/// # Errors
/// Errors of the disk. The old or the new file exists then.
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
    fn a_replaced_file_survives_a_crash_and_a_leftover_does_no_harm() {
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
