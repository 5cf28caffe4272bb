//! `node/managers`: the addresses of the managers, from the token with which a node joined, and then as a manager has told them last. So it finds
//! them again. It is text: `weir managers 1`, an address on each line, and the checksum of all this in the last line.

use std::fs::{self, DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use config::keys::address;
use types::Crc32c;

use crate::Failure;
use crate::exit::Exit;

const FOLDER: &str = "node";
const FILE: &str = "node/managers";
const UNFINISHED: &str = "node/managers.new";
const FIRST_LINE: &str = "weir managers 1\n";
const LENGTH_MAX: u64 = 16 << 10;

/// Writes the file; it is durable when this returns.
pub(crate) fn write(data: &Path, managers: &[String]) -> Result<(), Failure> {
    let text = to_text(managers);
    let written = (|| {
        // The folder also holds the node's secrets.
        DirBuilder::new().recursive(true).mode(0o700).create(data.join(FOLDER))?;
        let mut file = File::create(data.join(UNFINISHED))?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(data.join(UNFINISHED), data.join(FILE))?;
        File::open(data.join(FOLDER))?.sync_all()?;
        File::open(data)?.sync_all()
    })();
    written.map_err(|error: std::io::Error| {
        Failure::new(Exit::DiskFailed, error).while_doing(format!("cannot write {}", data.join(FILE).display()))
    })
}

/// Whether the node in this data directory has begun to join.
pub(crate) fn folder_exists(data: &Path) -> bool {
    data.join(FOLDER).exists()
}

/// Reads the file.
pub(crate) fn read(data: &Path) -> Result<Vec<String>, Failure> {
    let path = data.join(FILE);
    let hint = "say where the managers are: `managers = [\"HOST:PORT\"]` in the configuration";
    let mut text = String::new();
    File::open(&path).and_then(|file| file.take(LENGTH_MAX).read_to_string(&mut text)).map_err(|error| {
        Failure::new(Exit::DataDirectory, error).while_doing(format!("cannot read {}; {hint}", path.display()))
    })?;
    from_text(&text).ok_or_else(|| {
        Failure::message(Exit::DataDirectory, format!("{} does not read as it was written; {hint}", path.display()))
    })
}

fn to_text(managers: &[String]) -> String {
    let text = format!("{FIRST_LINE}{}\n", managers.join("\n"));
    let sum = Crc32c::of(text.as_bytes()).0;
    format!("{text}crc32c {sum:08x}\n")
}

fn from_text(text: &str) -> Option<Vec<String>> {
    let (lines, _) = text.strip_prefix(FIRST_LINE)?.rsplit_once("\ncrc32c ")?;
    let managers: Vec<String> = lines.split('\n').map(address).collect::<Result<_, _>>().ok()?;
    (to_text(&managers) == text).then_some(managers)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_written_file_is_read_and_a_changed_one_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let managers = vec!["mgr1.example.org:1095".to_owned(), "[::1]:1095".to_owned()];
        assert_eq!(read(temp.path()).unwrap_err().exit, Exit::DataDirectory);
        write(temp.path(), &managers).unwrap();
        assert_eq!(fs::metadata(temp.path().join(FOLDER)).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(read(temp.path()).unwrap(), managers);
        let text = to_text(&managers);
        assert_eq!(text, "weir managers 1\nmgr1.example.org:1095\n[::1]:1095\ncrc32c 1e27ca76\n");
        for at in 0..text.len() {
            assert_eq!(from_text(&text[..at]), None, "cut at {at}");
            let mut altered = text.clone().into_bytes();
            altered[at] ^= 1;
            assert_eq!(from_text(&String::from_utf8(altered).unwrap()), None, "altered at {at}");
        }
    }
}
