//! The addresses of managers that the active manager of a cluster has told: `contexts/.managers-NAME`, one a line. What the user has given is in the
//! context itself, so each answer replaces this file, and the addresses of managers that were removed go with it.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use link::admin::MANAGERS_MAX;

/// The most bytes of the file that anybody reads.
const TEXT_MAX: u64 = 16 << 10;

/// Whether a line can have it, and a person can read it.
fn is_address(text: &str) -> bool {
    let is_plain = !text.contains(|c: char| c.is_control() || c.is_whitespace());
    is_plain && config::keys::address(text).is_ok()
}

/// `given` and then `told`, each address once. The user's own stay first: they may lead through a tunnel.
pub(super) fn together(given: &[String], told: &[String]) -> Vec<String> {
    let mut all = given.to_vec();
    for address in told {
        if all.len() < MANAGERS_MAX && is_address(address) && !all.contains(address) {
            all.push(address.clone());
        }
    }
    all
}

/// Reads the file. Without it, or if it cannot be read, the user's own addresses must do.
pub(super) fn read(path: &Path) -> Vec<String> {
    let mut text = String::new();
    match fs::File::open(path).and_then(|file| file.take(TEXT_MAX).read_to_string(&mut text)) {
        Ok(_) => text.lines().filter(|line| is_address(line)).take(MANAGERS_MAX).map(str::to_owned).collect(),
        Err(_) => Vec::new(),
    }
}

/// Writes the file, unless it has these addresses already.
pub(super) fn replace(path: &Path, told: &[String]) -> io::Result<()> {
    if read(path) == told {
        return Ok(());
    }
    // Two commands may learn at once.
    let unfinished = path.with_file_name(format!(".managers.new-{}", std::process::id()));
    let mut options = fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    told.iter().try_for_each(|address| writeln!(file, "{address}"))?;
    fs::rename(&unfinished, path)
}
