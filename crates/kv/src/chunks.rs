//! Entries that come in chunks, as one sorted stream. Between two chunks nothing is held open at the place where they come from.

use std::collections::VecDeque;
use std::ops::ControlFlow;

use crate::batch::RESERVED;
use crate::engine::{Entry, EntrySource};
use crate::{KvError, Read, ScanOrder};

/// A key and its value.
pub type OwnedEntry = (Vec<u8>, Vec<u8>);

/// The entries that `fetch` gives, chunk by chunk. It is called with the last key of the chunk before, and an empty chunk is the end.
pub struct Chunks<F> {
    fetch: F,
    chunk: VecDeque<OwnedEntry>,
    current: Option<OwnedEntry>,
}

impl<F: FnMut(Option<&[u8]>) -> Result<Vec<OwnedEntry>, KvError>> Chunks<F> {
    /// All entries.
    pub fn new(fetch: F) -> Self {
        Self { fetch, chunk: VecDeque::new(), current: None }
    }
}

impl<F: FnMut(Option<&[u8]>) -> Result<Vec<OwnedEntry>, KvError>> EntrySource for Chunks<F> {
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError> {
        if self.chunk.is_empty() {
            self.chunk = (self.fetch)(self.current.as_ref().map(|(key, _)| key.as_slice()))?.into();
        }
        self.current = self.chunk.pop_front();
        Ok(self.current.as_ref().map(|(key, value)| (key.as_slice(), Some(value.as_slice()))))
    }
}

/// Bytes of entries that end a chunk.
const CHUNK_BYTES: usize = 4 << 20;

/// The first entries behind `after`, or of all: at most `most`, and fewer if they are large.
///
/// # Errors
/// Those of `read`.
pub fn chunk_of(read: &dyn Read, after: Option<&[u8]>, most: usize) -> Result<Vec<OwnedEntry>, KvError> {
    let mut start = after.map_or_else(Vec::new, <[u8]>::to_vec);
    if after.is_some() {
        // The first key behind it.
        start.push(0);
    }
    let (mut chunk, mut bytes) = (Vec::new(), 0);
    read.scan(&start, &[RESERVED], ScanOrder::Ascending, &mut |key, value| {
        chunk.push((key.to_vec(), value.to_vec()));
        bytes += key.len() + value.len();
        if chunk.len() < most && bytes < CHUNK_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(chunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Durability, Kv, MemoryKv, OpOutcome, transact};

    #[test]
    fn chunks_of_any_size_are_one_stream() {
        let kv = MemoryKv::new();
        let keys: [&[u8]; 6] = [b"\0", b"\0\0", b"a", b"a\0", b"a\xff\xff", b"\xfe\xff"];
        transact(&kv, Durability::Synced, move |txn| {
            keys.iter().for_each(|key| txn.put(key, key));
            (OpOutcome::Commit, ())
        })
        .unwrap();
        for most in 1..=keys.len() + 1 {
            let snapshot = kv.snapshot();
            let mut chunks = Chunks::new(|after| chunk_of(&*snapshot, after, most));
            let mut found = Vec::new();
            while let Some((key, value)) = chunks.next().unwrap() {
                assert_eq!(Some(key), value);
                found.push(key.to_vec());
            }
            assert_eq!(found, keys, "{most}");
        }
    }
}
