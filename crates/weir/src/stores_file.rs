//! `node/stores`: where the stores of a disk server are. A start finds out by it that the disk of a store is not mounted: an empty directory
//! would otherwise become a new store. It is text: `weir stores 1`, a line for each store, and the checksum of all this in the last line.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use disk::{Access, Disk, DiskError, OpenOptions};
use types::{Crc32c, StoreId};

const FOLDER: &str = "node";
const FILE: &str = "node/stores";
const FIRST_LINE: &str = "weir stores 1\n";
const LENGTH_MAX: usize = 4 << 20;

/// The stores by their directories: [`key`].
pub(crate) type Stores = BTreeMap<PathBuf, StoreId>;

/// Reads the file. A file that is missing or cannot be decoded names no stores: it is only an additional safety net.
pub(crate) fn read(disk: &dyn Disk) -> Result<Stores, DiskError> {
    let Some(len) = disk.len_of(FILE)? else { return Ok(Stores::new()) };
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(LENGTH_MAX).min(LENGTH_MAX)];
    let got = disk.open(FILE, OpenOptions { access: Access::Read, direct: false })?.read_at(&mut bytes, 0)?;
    let stores = std::str::from_utf8(&bytes[..got]).ok().and_then(from_text);
    Ok(stores.unwrap_or_else(|| {
        tracing::warn!("{FILE} does not read as it was written and is written again");
        Stores::new()
    }))
}

/// Replaces the file. It is durable when this returns.
pub(crate) fn write(disk: &dyn Disk, stores: &Stores) -> Result<(), DiskError> {
    disk.create_dir_all(FOLDER)?;
    disk.sync_dir("")?;
    disk::replace_file(disk, FILE, to_text(stores).as_bytes())
}

fn to_text(stores: &Stores) -> String {
    let mut text = FIRST_LINE.to_owned();
    for (dir, store) in stores {
        let _ = write!(text, "{store} ");
        for byte in dir.as_os_str().as_bytes() {
            let _ = match byte {
                b'%' | ..=b' ' | 0x7f.. => write!(text, "%{byte:02x}"),
                plain => write!(text, "{}", char::from(*plain)),
            };
        }
        text.push('\n');
    }
    let sum = Crc32c::of(text.as_bytes()).0;
    text + &format!("crc32c {sum:08x}\n")
}

fn from_text(text: &str) -> Option<Stores> {
    let (lines, _) = text.strip_prefix(FIRST_LINE)?.rsplit_once("crc32c ")?;
    let mut stores = Stores::new();
    for line in lines.lines() {
        let (store, dir) = line.split_once(' ')?;
        let mut parts = dir.split('%');
        let mut bytes = parts.next()?.as_bytes().to_vec();
        for part in parts {
            bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
            bytes.extend_from_slice(&part.as_bytes()[2..]);
        }
        stores.insert(OsString::from_vec(bytes).into(), StoreId(store.parse().ok()?));
    }
    (to_text(&stores) == text).then_some(stores)
}

/// The key of the store's directory `dir` in the file: relative inside the data directory `data`, which can be moved with it.
pub(crate) fn key(data: &Path, dir: &Path) -> PathBuf {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (data, dir) = (absolute(data), absolute(dir));
    dir.strip_prefix(&data).map_or_else(|_| dir.clone(), Path::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_in_the_data_directory_moves_with_it() {
        for data in ["/srv/weir", "/other", "here"] {
            assert_eq!(key(Path::new(data), &Path::new(data).join("store")), Path::new("store"));
        }
        assert_eq!(key(Path::new("/srv/weir"), Path::new("/srv/disk1/weir")), Path::new("/srv/disk1/weir"));
    }

    #[test]
    fn a_written_file_is_read_and_a_changed_one_names_no_stores() {
        let temp = tempfile::tempdir().unwrap();
        let disk = disk::RealDisk::open(temp.path()).unwrap();
        assert_eq!(read(&disk).unwrap(), Stores::new());
        let odd = OsString::from_vec(b"/srv/100% \xff\n1 /x".to_vec());
        let stores = Stores::from([("/srv/disk1".into(), StoreId(7)), (odd.into(), StoreId(u64::MAX))]);
        write(&disk, &stores).unwrap();
        assert_eq!(read(&disk).unwrap(), stores);
        let text = to_text(&stores);
        assert_eq!(
            text,
            "weir stores 1\n18446744073709551615 /srv/100%25%20%ff%0a1%20/x\n7 /srv/disk1\ncrc32c d7ee0919\n"
        );
        for at in 0..text.len() {
            assert_eq!(from_text(&text[..at]), None, "cut at {at}");
            let mut altered = text.clone().into_bytes();
            altered[at] ^= 1;
            assert_eq!(from_text(&String::from_utf8(altered).unwrap()), None, "altered at {at}");
        }
        std::fs::write(temp.path().join(FILE), [0xff; 10]).unwrap();
        assert_eq!(read(&disk).unwrap(), Stores::new());
    }
}
