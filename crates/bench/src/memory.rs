//! Memory for blocks: aligned for direct I/O, with huge pages if the kernel has them.

use std::ops::{Deref, DerefMut, Range};

use memmap2::{Advice, MmapMut};

use crate::target::TargetError;

/// Memory for one request. A window of it is written from, or read into.
#[derive(Debug)]
pub struct Memory {
    map: MmapMut,
    window: Range<usize>,
}

impl Memory {
    /// Allocates `len` bytes, aligned to pages. It touches all pages, so that the first use costs no measured time.
    ///
    /// # Errors
    /// The kernel does not have that much memory.
    pub fn new(len: usize) -> Result<Self, TargetError> {
        let taken = MmapMut::map_anon(len.max(1));
        let mut map =
            taken.map_err(|source| TargetError::Path { what: format!("take {len} bytes of memory"), source })?;
        // Only a wish: without huge pages, direct I/O costs more CPU.
        let _ = map.advise(Advice::HugePage);
        map.iter_mut().step_by(types::PAGE_SIZE).for_each(|byte| *byte = 1);
        Ok(Self { map, window: 0..len })
    }

    /// Returns all of the memory, whatever the window is.
    pub fn whole(&mut self) -> &mut [u8] {
        &mut self.map
    }

    /// Shortens the window to its first `len` bytes.
    pub fn cut(&mut self, len: usize) {
        self.window.end = self.window.end.min(self.window.start + len);
    }

    /// Sets the window; it is cut off at the end of the memory.
    pub fn show(&mut self, window: Range<usize>) {
        let end = window.end.min(self.map.len());
        self.window = window.start.min(end)..end;
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[self.window.clone()]
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.window.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_part_of_the_memory() {
        let mut memory = Memory::new(10_000).unwrap();
        assert_eq!(memory.as_ptr() as usize % types::PAGE_SIZE, 0);
        memory.show(4096..5000);
        memory.fill(7);
        assert_eq!((memory.len(), memory.whole()[4096], memory.whole()[5000]), (904, 7, 0));
        memory.show(9000..20_000);
        assert_eq!(memory.len(), 1000);
    }
}
