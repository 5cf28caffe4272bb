//! Several checkpoint files as one sorted stream. Where several have a key, the newest counts.

use crate::KvError;
use crate::checkpoint::file::Reader;
use crate::engine::{Entry, EntrySource};

pub(crate) struct Merge {
    /// Newest first. The flag says that the reader stands at an entry not yet returned.
    readers: Vec<(Reader, bool)>,
    /// Readers whose entry the last call returned or hid.
    used: Vec<usize>,
    /// Whether to return deletions.
    deletions: bool,
}

impl Merge {
    /// `readers` must be newest first and freshly opened.
    pub(crate) fn new(readers: Vec<Reader>, deletions: bool) -> Self {
        let used = (0..readers.len()).collect();
        Self { readers: readers.into_iter().map(|reader| (reader, false)).collect(), used, deletions }
    }
}

impl EntrySource for Merge {
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError> {
        let newest = loop {
            for at in std::mem::take(&mut self.used) {
                if let Some((reader, open)) = self.readers.get_mut(at) {
                    *open = reader.advance()?;
                }
            }
            let mut newest: Option<(usize, &Reader)> = None;
            for (at, (reader, open)) in self.readers.iter().enumerate() {
                if !open {
                    continue;
                }
                match newest.map(|(_, best)| reader.key().cmp(best.key())) {
                    None | Some(std::cmp::Ordering::Less) => {
                        newest = Some((at, reader));
                        self.used.clear();
                        self.used.push(at);
                    }
                    Some(std::cmp::Ordering::Equal) => self.used.push(at),
                    Some(std::cmp::Ordering::Greater) => {}
                }
            }
            let Some((at, reader)) = newest else { return Ok(None) };
            if self.deletions || reader.entry().1.is_some() {
                break at;
            }
        };
        Ok(self.readers.get(newest).map(|(reader, _)| reader.entry()))
    }
}
