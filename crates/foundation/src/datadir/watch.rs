//! Watches whether the path of an open data directory still names it. It does not if a disk was mounted over the
//! directory or one of its parts, or if somebody moved it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Directory, Named};

use crate::layout::{
    JOURNAL_DIR, NAMESPACE_CHECKPOINT_DIR, NAMESPACE_DIR, NAMESPACE_INDEX_DIR, OBJECTS_DIR, SEGMENTS_DIR,
    STORE_CHECKPOINT_DIR, STORE_DIR, STORE_INDEX_DIR,
};

/// The folders that exist as long as a node runs: it keeps to them.
pub(crate) const PARTS: [&str; 9] = [
    JOURNAL_DIR,
    NAMESPACE_DIR,
    NAMESPACE_INDEX_DIR,
    NAMESPACE_CHECKPOINT_DIR,
    STORE_DIR,
    OBJECTS_DIR,
    SEGMENTS_DIR,
    STORE_INDEX_DIR,
    STORE_CHECKPOINT_DIR,
];

/// The path of an open directory names another one, or nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{path} {}. What was acknowledged is in the directory that was opened, and nothing was written to what is there \
     now. Look at it with `findmnt --target {path}`, put the right directory there, and start again",
    match named {
        Named::Nothing => "is gone: the directory was moved or removed while the node ran, or its disk was unmounted",
        _ => "is not the directory that the node opened: a disk was mounted over it or unmounted, or it was replaced",
    }
)]
pub struct Displaced {
    /// The path.
    pub path: PathBuf,
    /// What it names.
    pub named: Named,
}

/// Compares open directories with what their paths name.
#[derive(Debug)]
pub struct DirWatch {
    directory: Arc<Directory>,
    /// Whether the last look failed. Each failure is logged once.
    is_unknown: std::sync::atomic::AtomicBool,
}

impl DirWatch {
    /// Watches `directory` and the parts that it keeps.
    pub(super) fn of(directory: Arc<Directory>) -> Self {
        Self { directory, is_unknown: false.into() }
    }

    /// The path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.shown()
    }

    /// Looks once: a few `stat` calls. A path that cannot be examined is logged, and counts as unchanged.
    ///
    /// # Errors
    ///
    /// The first path that names something else.
    pub fn look(&self) -> Result<(), Displaced> {
        use std::sync::atomic::Ordering;
        let mut failed = None;
        for directory in std::iter::once(&*self.directory).chain(self.directory.kept()) {
            match directory.named() {
                Ok(Named::Same) => {}
                Ok(named) => return Err(Displaced { path: directory.shown().to_owned(), named }),
                Err(error) => failed = Some((directory.shown(), error)),
            }
        }
        let was_unknown = self.is_unknown.swap(failed.is_some(), Ordering::Relaxed);
        if let Some((path, error)) = failed.filter(|_| !was_unknown) {
            tracing::warn!("cannot check that {} is the directory that was opened: {error}", path.display());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_replaced_directory_or_part_is_noticed() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("data");
        fs::create_dir_all(path.join("store/objects")).unwrap();
        let directory = Arc::new(Directory::open(&path).unwrap());
        directory.keep(&PARTS);
        let watch = DirWatch::of(directory);
        watch.look().unwrap();
        // Parts that are made later are not watched.
        fs::create_dir_all(path.join("namespace/index")).unwrap();
        fs::remove_dir_all(path.join("namespace")).unwrap();
        watch.look().unwrap();

        fs::rename(path.join("store/objects"), path.join("store/moved")).unwrap();
        let gone = watch.look().unwrap_err();
        assert_eq!((&gone.path, gone.named), (&path.join("store/objects"), Named::Nothing));
        assert!(gone.to_string().contains("objects is gone"), "{gone}");
        fs::create_dir(path.join("store/objects")).unwrap();
        let replaced = watch.look().unwrap_err();
        assert_eq!((&replaced.path, replaced.named), (&path.join("store/objects"), Named::Another));
        assert!(replaced.to_string().contains("objects is not the directory"), "{replaced}");
        fs::remove_dir(path.join("store/objects")).unwrap();
        fs::rename(path.join("store/moved"), path.join("store/objects")).unwrap();
        watch.look().unwrap();

        fs::rename(&path, temp.path().join("moved")).unwrap();
        assert_eq!(watch.look().unwrap_err().path, path);
    }
}
