//! Small files that are written completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, fchown};
use std::path::Path;

/// Writes `name` in `folder` under another name, syncs it, and renames it. It gets the bits `mode`, and the user and group `owner` if there is one.
///
/// It follows no link that somebody has put in the place of either name.
pub(super) fn write(folder: &Path, name: &str, mode: u32, owner: Option<(u32, u32)>, bytes: &[u8]) -> io::Result<()> {
    let new = folder.join(format!("{name}.tmp"));
    // What an interrupted attempt has left.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
    file.write_all(bytes)?;
    if let Some((user, group)) = owner {
        fchown(&file, Some(user), Some(group))?;
    }
    file.sync_all()?;
    fs::rename(&new, folder.join(name))?;
    File::open(folder)?.sync_all()
}
