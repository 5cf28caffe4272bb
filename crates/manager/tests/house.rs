//! Rules below crate level that a compiler does not check: by which locks and by which way to the namespace the manager goes.

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

/// Files under `src` whose library code has `what` in it, comments left out.
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

/// Only locks that are counted are found out when the namespace is read under them.
#[test]
fn all_locks_are_counted() {
    // That of the published view is held for as long as a reference is copied; that of a ticker by whoever starts and stops a manager.
    assert_eq!(files_with("parking_lot"), ["coordinator/mod.rs", "manager_node.rs", "tracked.rs"]);
    assert_eq!(files_with("Mutex"), ["manager_node.rs", "tracked.rs"]);
    assert_eq!(files_with("RwLock::new"), ["coordinator/mod.rs"]);
}

/// That is `Names`, which asks whether a lock is held.
#[test]
fn the_namespace_is_read_by_one_way() {
    for other in ["namespace.read", "namespace().read"] {
        assert_eq!(files_with(other), Vec::<String>::new());
    }
    assert_eq!(files_with(".0.read("), ["names.rs"]);
}
