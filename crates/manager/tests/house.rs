//! Rules that a compiler does not check: which locks the manager uses, and how it reaches the namespace.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// Files under `src` whose library code contains `what`, without comments.
fn files_with(what: &str) -> Vec<String> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&src, &mut paths);
    let has_it = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).unwrap();
        let code = text.lines().take_while(|line| !line.starts_with("mod tests {"));
        code.filter(|line| !line.trim_start().starts_with("//")).any(|line| line.contains(what))
    };
    let mut files: Vec<String> =
        paths.into_iter().filter(has_it).map(|path| path.strip_prefix(&src).unwrap().display().to_string()).collect();
    files.sort();
    files
}

/// Only counted locks reveal a read of the namespace under a lock.
#[test]
fn all_locks_are_counted() {
    // The published view's lock is held only while a reference is copied. The ticker's lock is held by the code that starts and stops a manager.
    assert_eq!(files_with("parking_lot"), ["coordinator/mod.rs", "manager_node.rs", "tracked.rs"]);
    assert_eq!(files_with("Mutex"), ["manager_node.rs", "tracked.rs"]);
    assert_eq!(files_with("RwLock::new"), ["coordinator/mod.rs"]);
}

/// `Names` checks whether a lock is held.
#[test]
fn the_namespace_is_read_only_through_names() {
    for other in ["namespace.read", "namespace().read"] {
        assert_eq!(files_with(other), Vec::<String>::new());
    }
    assert_eq!(files_with(".0.read("), ["names.rs"]);
}
