//! Copies finished files to a second system, block by block through this machine.

use std::time::Instant;

use super::Site;
use crate::load::{Tally, Worker};
use crate::memory::Memory;
use crate::target::{Purpose, Session, Target, TargetError};

pub(super) fn copy_out(site: &Site<'_>, copies: &dyn Target, worker: &Worker) -> Result<Tally, TargetError> {
    let (mut from, mut to) = (site.target.session()?, copies.session()?);
    let mut memory = Some(Memory::new(site.spec.block_bytes as usize)?);
    let mut tally = Tally::default();
    let start = worker.start();
    while let Some(file) = site.floor.next_to_copy(worker) {
        if let Err(error) = one_file(site, (&mut *from, &mut *to), file, &mut memory, worker, start, &mut tally) {
            worker.meter().add_failure();
            tally.add_failure(start.elapsed(), &error);
        }
    }
    Ok(tally)
}

fn one_file(
    site: &Site<'_>,
    (from, to): (&mut dyn Session, &mut dyn Session),
    (recorder, file): (u32, u32),
    spare: &mut Option<Memory>,
    worker: &Worker,
    start: Instant,
    tally: &mut Tally,
) -> Result<(), TargetError> {
    let spec = site.spec;
    let (name, key) = (spec.name(recorder, file), spec.key(recorder, file));
    let mut source = from.open(&name, Purpose::Read, spec.io_options)?;
    let mut copy =
        to.open(&spec.copy_name(recorder, file), Purpose::Create { len: spec.file_bytes }, spec.io_options)?;
    let mut at = 0;
    while at < spec.file_bytes && !worker.is_stopped() {
        let begun = Instant::now();
        let len = usize::try_from((spec.file_bytes - at).min(u64::from(spec.block_bytes))).unwrap_or(usize::MAX);
        let mut memory = match spare.take() {
            Some(memory) => memory,
            None => Memory::new(spec.block_bytes as usize)?,
        };
        memory.show(0..len);
        source.read(at, memory)?;
        memory = source.done_whole(len, &|| format!("read {name} at byte {at}"))?;
        if spec.verify {
            match site.content.check(key, 0..=0, at, &memory) {
                Ok(()) => tally.verified += len as u64,
                Err(mismatch) => tally.add_wrong(start.elapsed(), format!("{name}: {mismatch}")),
            }
        }
        copy.write(at, memory)?;
        *spare = Some(copy.done_whole(len, &|| format!("write the copy of {name} at byte {at}"))?);
        at += len as u64;
        worker.meter().add(len as u64);
        tally.add(len as u64, begun.elapsed());
    }
    source.close()?;
    if at >= spec.file_bytes || copy.keeps_part() { copy.close() } else { Ok(()) }
}
