//! The client alone: how fast this machine makes blocks and sums them, with no system behind. It is the ceiling of what its streams can do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use types::Crc32c;

use crate::content::{Content, FileKey, blocks_memory};
use crate::load::{Crew, Tally, Worker};
use crate::memory::Memory;
use crate::target::TargetError;

/// What is made.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenerateSpec {
    /// Threads.
    pub threads: u32,
    /// Bytes of each block.
    pub block_bytes: u32,
    /// For how long, in seconds.
    pub seconds: u32,
    /// Also sums each block (CRC32C), as a client does that checks what it sends.
    pub sums: bool,
}

impl GenerateSpec {
    /// Workers that do it, ready to start.
    #[must_use]
    pub fn crew(&self, content: &Arc<Content>) -> Crew {
        let (spec, content) = (self.clone(), Arc::clone(content));
        Crew::hire(self.threads as usize, move |worker| generate(&spec, &content, worker))
    }
}

fn generate(spec: &GenerateSpec, content: &Content, worker: &Worker) -> Result<Tally, TargetError> {
    let block = spec.block_bytes as usize;
    let what = || format!("take {} bytes of memory", blocks_memory(block));
    let mut memory = Memory::new(blocks_memory(block)).map_err(|source| TargetError::Path { what: what(), source })?;
    content.fill(FileKey::default(), 0, memory.whole());
    let key = FileKey { file: worker.number as u64, generation: 0 };
    let (mut tally, mut offset, mut sum) = (Tally::default(), 0, 0);
    let end = worker.start() + Duration::from_secs(u64::from(spec.seconds));
    let mut begun = Instant::now();
    while begun < end && !worker.is_stopped() {
        if let Some(place) = content.block(memory.whole(), key, offset, block)
            && spec.sums
        {
            sum ^= Crc32c::of(&memory.whole()[place]).0;
        }
        offset += block as u64;
        let now = Instant::now();
        tally.add(block as u64, now - begun);
        worker.meter().add(block as u64);
        begun = now;
    }
    // The sums are used, so that nobody leaves them out.
    std::hint::black_box(sum);
    Ok(tally)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_makes_blocks_for_as_long_as_it_is_told() {
        let spec = GenerateSpec { threads: 2, block_bytes: 1 << 16, seconds: 1, sums: true };
        let finished = spec.crew(&Arc::new(Content::new(1))).run(None, |_| true);
        assert!(finished.wall >= Duration::from_secs(1) && finished.wall < Duration::from_secs(3));
        for worker in &finished.workers {
            let tally = worker.as_ref().unwrap();
            assert!(tally.bytes > 10 << 20 && tally.bytes == tally.operations << 16, "{}", tally.bytes);
        }
    }
}
