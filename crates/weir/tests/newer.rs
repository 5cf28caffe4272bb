//! This version refuses files of a newer weir, names their version in the error, and leaves them unchanged.
#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::fs;
use std::path::{Path, PathBuf};

use crate::node::{self, Node};
use crate::session::Session;
use types::Crc32c;

/// A stopped node with a large and a small file.
fn stopped(place: &Path) -> PathBuf {
    let data = place.join("data");
    let node = Node::start(&data, &[]);
    let mut session = Session::open(node.address.parse().unwrap(), 1);
    session.put("/large", &vec![7; 300_000]);
    session.put("/small", b"small");
    node.stop();
    data
}

fn files_below(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push((path.clone(), fs::read(path).unwrap()));
        }
    }
    found.retain(|(path, _)| !path.ends_with("lock"));
    found.sort();
    found
}

/// Puts `bytes` at `at`, and corrects the checksum of `summed`, which stands behind it.
fn patch(path: &Path, at: usize, bytes: &[u8], summed: std::ops::Range<usize>) {
    let mut content = fs::read(path).unwrap();
    content[at..at + bytes.len()].copy_from_slice(bytes);
    let sum = Crc32c::of(&content[summed.clone()]).0.to_le_bytes();
    content[summed.end..summed.end + 4].copy_from_slice(&sum);
    fs::write(path, content).unwrap();
}

/// A start and an fsck fail with exit code 3 and this text, and change nothing in `part` of the data directory.
fn refused(data: &Path, part: &str, words: &str) {
    let before = files_below(&data.join(part));
    let text = data.to_str().unwrap();
    for arguments in [vec!["serve", "--data", text, "--listen", "127.0.0.1:0"], vec!["fsck", "--data", text]] {
        let (code, said) = node::refusal(&arguments);
        assert!(code == 3 && said.contains(words), "{arguments:?}: {code} {said}");
    }
    assert!(files_below(&data.join(part)) == before, "something was touched");
}

#[test]
fn format() {
    let temp = tempfile::tempdir().unwrap();
    let data = stopped(temp.path());
    let file = data.join("FORMAT");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("format = 2\n", "format = 3\n")).unwrap();
    refused(&data, "", "format 3 is newer");
    fs::write(&file, text.replace("format = 2\n", "format = 1\n")).unwrap();
    refused(&data, "", "format 1 is of an earlier weir");
    let (body, _) = text.rsplit_once("crc32c = ").unwrap();
    let body = body.replace("incompatible = 0x0000000000000000", "incompatible = 0x0000000000000004");
    fs::write(&file, format!("{body}crc32c = {:08x}\n", Crc32c::of(body.as_bytes()).0)).unwrap();
    refused(&data, "", "bits 0x4");
}

#[test]
fn journal() {
    let temp = tempfile::tempdir().unwrap();
    let data = stopped(temp.path());
    let first = fs::read_dir(data.join("journal")).unwrap().map(|entry| entry.unwrap().path()).min().unwrap();
    let before = fs::read(&first).unwrap();
    patch(&first, 8, &2u32.to_le_bytes(), 0..4092);
    refused(&data, "", "it has format 2");
    fs::write(&first, &before).unwrap();
    patch(&first, 16, &8u64.to_le_bytes(), 0..4092);
    refused(&data, "", "0x8");
    fs::write(&first, &before).unwrap();
    // The checksum of the first record stands before its bytes.
    let mut content = before;
    content[4096 + 45] = 2;
    let sum = Crc32c::of(&content[4096 + 8..4096 + 48]).0.to_le_bytes();
    content[4100..4104].copy_from_slice(&sum);
    fs::write(&first, content).unwrap();
    refused(&data, "", "record 1 has version 2");
}

#[test]
fn checkpoint() {
    for index in ["namespace", "store"] {
        for (at, bytes, words) in
            [(8, &2u32.to_le_bytes()[..], "version 2"), (16, &4u64.to_le_bytes()[..], "features 0x4")]
        {
            let temp = tempfile::tempdir().unwrap();
            let data = stopped(temp.path());
            let backup = temp.path().join("backup");
            let made = node::weir_ends(&["backup", "--data", data.to_str().unwrap(), backup.to_str().unwrap()]);
            assert!(made.status.success());
            let file = data.join(format!("{index}/checkpoint/base-00000000000fffff.ckpt"));
            fs::copy(backup.join("00000001-full.ckpt"), &file).unwrap();
            patch(&file, at, bytes, 0..60);
            refused(&data, &format!("{index}/checkpoint"), words);
        }
    }
}

#[test]
fn backups() {
    let temp = tempfile::tempdir().unwrap();
    let data = stopped(temp.path());
    let backup = temp.path().join("backup");
    let (data_text, backup_text) = (data.to_str().unwrap(), backup.to_str().unwrap());
    let take = ["backup", "--data", data_text, backup_text];
    assert!(node::weir_ends(&take).status.success());
    let restore = ["restore", backup_text, "--data", data_text];
    let file = backup.join("00000001-full.ckpt");
    let whole = fs::read(&file).unwrap();
    patch(&file, 8, &2u32.to_le_bytes(), 0..60);
    let before = files_below(&data);
    let (code, said) = node::refusal(&restore);
    assert!(code == 3 && said.contains("version 2"), "{code} {said}");
    assert!(files_below(&data) == before, "something was touched");
    fs::write(&file, whole).unwrap();
    for name in ["WEIR-BACKUP", "00000001.backup"] {
        let text = fs::read_to_string(backup.join(name)).unwrap();
        for other in [1, 3] {
            fs::write(backup.join(name), text.replace("format = 2\n", &format!("format = {other}\n"))).unwrap();
            for arguments in [&take[..], &restore[..]] {
                let (code, said) = node::refusal(arguments);
                let is_told = said.contains(&format!("format {other}")) && said.contains(name);
                assert!(code == 3 && is_told, "{code} {said}");
            }
        }
        fs::write(backup.join(name), text).unwrap();
    }
}
