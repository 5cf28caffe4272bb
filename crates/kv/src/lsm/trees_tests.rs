//! Trees for the tests.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use journal::Seq;

use super::LsmConfig;
use super::inner::Inner;
use crate::KvError;
use crate::engine::{Applied, Entry, EntrySource};

struct SingleChange(Option<(&'static [u8], Option<Vec<u8>>)>, Option<(&'static [u8], Option<Vec<u8>>)>);

impl EntrySource for SingleChange {
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError> {
        self.1 = self.0.take();
        Ok(self.1.as_ref().map(|(key, value)| (*key, value.as_deref())))
    }
}

pub(super) fn change(inner: &Inner, seq: u64, key: &'static [u8], value: Option<&[u8]>) {
    let mut one = SingleChange(Some((key, value.map(<[u8]>::to_vec))), None);
    inner.apply(&mut one, Applied { seq: Seq(seq), incarnation: 1 }).unwrap();
}

/// Opens a tree that compacts only when the test asks for it.
pub(super) fn open(folder: &Path) -> Arc<Inner> {
    let (home, name) = (folder.parent().unwrap(), folder.file_name().unwrap().to_str().unwrap());
    let home = Arc::new(disk::Directory::open(home).unwrap());
    let inner = Inner::open(&home, name, LsmConfig { flushed_runs: 2, ..LsmConfig::default() }).unwrap();
    inner.stop();
    inner.signals.give_up.store(false, Ordering::Relaxed);
    inner.signal.0.lock().stop = false;
    inner
}
