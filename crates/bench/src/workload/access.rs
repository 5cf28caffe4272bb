//! The order in which the blocks of a file are read or written: IOzone's patterns, and a mixture.

use super::permutation::Permutation;

/// An access pattern. The names follow IOzone, so that results can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    /// Write a new file from start to end.
    Write,
    /// Write an existing file again from start to end.
    Rewrite,
    /// Read from start to end, with empty caches if possible.
    Read,
    /// The same once more, with filled caches.
    Reread,
    /// Read from start to end right after the write, with the caches as the write has left them.
    AfterWrite,
    /// Read from start to end what another stream has written: the stream half of all further on.
    ReadOthers,
    /// Read each block once, in random order.
    RandomRead,
    /// Write each block of an existing file once, in random order.
    RandomWrite,
    /// Read or write random blocks, by chance.
    Mixed,
    /// Read every 17th block, then those after them, and so on.
    StrideRead,
    /// Read from end to start.
    BackwardRead,
    /// Write one block in the middle repeatedly, as often as there are blocks.
    RecordRewrite,
    /// Write a file from start to end with buffers like the C library's. Earlier contents are dropped.
    Fwrite,
    /// The same on an existing file, in place.
    Frewrite,
    /// Read from start to end with such buffers, with empty caches if possible.
    Fread,
    /// The same once more, with filled caches.
    Freread,
}

/// The distance of blocks in a strided read, as in IOzone's default.
const STRIDE: u64 = 17;

impl Access {
    /// Whether the files must exist before.
    #[must_use]
    pub fn needs_files(self) -> bool {
        !self.makes_files()
    }

    /// Whether it creates files, from start to end.
    #[must_use]
    pub fn makes_files(self) -> bool {
        matches!(self, Self::Write | Self::Fwrite)
    }

    /// Whether files are opened with buffers like those of the C library's `fopen`.
    #[must_use]
    pub fn is_stdio(self) -> bool {
        matches!(self, Self::Fwrite | Self::Frewrite | Self::Fread | Self::Freread)
    }

    /// Whether caches must be empty before.
    #[must_use]
    pub fn is_cold(self) -> bool {
        matches!(self, Self::Read | Self::Fread | Self::ReadOthers)
    }

    /// Whether it writes.
    #[must_use]
    pub fn writes(self) -> bool {
        matches!(
            self,
            Self::Write
                | Self::Rewrite
                | Self::RandomWrite
                | Self::Mixed
                | Self::RecordRewrite
                | Self::Fwrite
                | Self::Frewrite
        )
    }

    /// Whether it writes every block.
    #[must_use]
    pub fn writes_all(self) -> bool {
        self.writes() && !matches!(self, Self::Mixed | Self::RecordRewrite)
    }

    /// Whether it reads.
    #[must_use]
    pub fn reads(self) -> bool {
        !self.writes() || self == Self::Mixed
    }
}

/// The part of a file that one worker does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its offset in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

impl Part {
    /// Returns part `number` of `parts` parts of a file of `len` bytes, divided at blocks.
    #[must_use]
    pub fn of(len: u64, block: u64, number: u64, parts: u64) -> Self {
        let blocks = len.div_ceil(block.max(1));
        // The result is at most `blocks`, so it fits.
        let share = |number: u64| u128::from(blocks) * u128::from(number) / u128::from(parts.max(1));
        let cut = |number: u64| u64::try_from(share(number)).unwrap_or(u64::MAX).saturating_mul(block);
        let (offset, end) = (cut(number).min(len), cut(number + 1).min(len));
        Self { offset, len: end - offset }
    }
}

/// One request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Its offset in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: usize,
    /// Whether it writes; otherwise it reads.
    pub write: bool,
}

/// The requests of a part, in order.
#[derive(Clone, Debug)]
pub struct Operations {
    access: Access,
    part: Part,
    block: u64,
    blocks: u64,
    next: u64,
    permutation: Permutation,
    coin: Permutation,
    write_percent: u8,
}

impl Operations {
    /// Returns the requests of `part`, in blocks of `block` bytes; the last may be shorter. `write_percent` is for
    /// [`Access::Mixed`].
    #[must_use]
    pub fn new(access: Access, part: Part, block: usize, write_percent: u8, seed: u64) -> Self {
        let block = (block as u64).max(1);
        let blocks = part.len.div_ceil(block);
        let (permutation, coin) = (Permutation::new(blocks, seed), Permutation::new(blocks, !seed));
        Self { access, part, block, blocks, next: 0, permutation, coin, write_percent }
    }

    fn block_at(&self, place: u64) -> u64 {
        match self.access {
            Access::Write | Access::Rewrite | Access::Read | Access::Reread | Access::AfterWrite => place,
            Access::Fwrite | Access::Frewrite | Access::Fread | Access::Freread | Access::ReadOthers => place,
            Access::RandomRead | Access::RandomWrite | Access::Mixed => self.permutation.at(place),
            Access::StrideRead => strided(place, self.blocks),
            Access::BackwardRead => self.blocks - 1 - place,
            Access::RecordRewrite => self.blocks / 2,
        }
    }
}

/// Returns block number `place` of `blocks` blocks: 0, 17, 34, ..., then 1, 18, ...
fn strided(place: u64, blocks: u64) -> u64 {
    // The first `longer` lanes have one more block than the others.
    let (short, longer) = (blocks / STRIDE, blocks % STRIDE);
    let in_longer = longer * (short + 1);
    let (lane, step) = if place < in_longer {
        (place / (short + 1), place % (short + 1))
    } else {
        (longer + (place - in_longer) / short.max(1), (place - in_longer) % short.max(1))
    };
    lane + step * STRIDE
}

impl Iterator for Operations {
    type Item = Operation;

    fn next(&mut self) -> Option<Operation> {
        if self.next >= self.blocks {
            return None;
        }
        let place = self.next;
        self.next += 1;
        let within = self.block_at(place) * self.block;
        let len = self.block.min(self.part.len - within);
        let write = match self.access {
            Access::Mixed => self.coin.at(place) * 100 < u64::from(self.write_percent) * self.blocks,
            access => access.writes(),
        };
        Some(Operation { offset: self.part.offset + within, len: usize::try_from(len).unwrap_or(usize::MAX), write })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Part = Part { offset: 1 << 20, len: 100 * 4096 + 17 };

    fn offsets(access: Access) -> Vec<u64> {
        Operations::new(access, PART, 4096, 30, 5).map(|operation| (operation.offset - PART.offset) / 4096).collect()
    }

    #[test]
    fn every_block_is_done_once() {
        use Access as A;
        for access in [
            A::Write,
            A::Rewrite,
            A::Read,
            A::Reread,
            A::RandomRead,
            A::RandomWrite,
            A::Mixed,
            A::StrideRead,
            A::BackwardRead,
            A::Fwrite,
            A::Freread,
        ] {
            let mut blocks = offsets(access);
            blocks.sort_unstable();
            assert_eq!(blocks, (0..101).collect::<Vec<_>>(), "{access:?}");
            let bytes: usize = Operations::new(access, PART, 4096, 30, 5).map(|operation| operation.len).sum();
            assert_eq!(bytes as u64, PART.len, "{access:?}");
        }
        assert_eq!(offsets(A::RecordRewrite), vec![50; 101]);
    }

    #[test]
    fn the_orders_match_their_names() {
        assert_eq!(offsets(Access::Read)[..3], [0, 1, 2]);
        assert_eq!(offsets(Access::BackwardRead)[..3], [100, 99, 98]);
        assert_eq!(offsets(Access::StrideRead)[..8], [0, 17, 34, 51, 68, 85, 1, 18]);
        assert_ne!(offsets(Access::RandomRead)[..5], [0, 1, 2, 3, 4]);
        for few in 1..40 {
            let mut blocks: Vec<_> = (0..few).map(|place| strided(place, few)).collect();
            blocks.sort_unstable();
            assert_eq!(blocks, (0..few).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_mixture_has_the_requested_share_of_writes() {
        let writes =
            Operations::new(Access::Mixed, Part { offset: 0, len: 1000 * 512 }, 512, 30, 5).filter(|o| o.write).count();
        assert_eq!(writes, 300);
    }

    #[test]
    fn parts_cover_a_file_and_end_at_blocks() {
        for (len, parts) in [(10_000_000, 3), (4096, 4), (1, 2), (0, 1), (8 << 20, 8)] {
            let mut at = 0;
            for number in 0..parts {
                let part = Part::of(len, 4096, number, parts);
                assert!(part.offset == at && (at % 4096 == 0 || part.len == 0), "{len} {parts}");
                at += part.len;
            }
            assert_eq!(at, len);
        }
    }
}
