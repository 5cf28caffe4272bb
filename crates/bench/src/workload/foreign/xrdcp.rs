//! xrdcp on the work of streams. Each stream runs one process after the other, one for each file, from a file in
//! memory or to nowhere, as sites measure with it. The bench's own client reads the written files back and compares
//! them.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::thread;
use std::time::Instant;

use super::tool::Running;
use super::{ForeignSpec, location, told};
use crate::content::{Content, FileKey};
use crate::latency::Latency;
use crate::load::{Tally, Worker};
use crate::memory::Memory;
use crate::target::{IoOptions, Purpose, Target, TargetError};

/// The directory of files in memory.
const MEMORY: &str = "/dev/shm";
const BLOCK: usize = 1 << 20;

pub(super) fn run(
    spec: &ForeignSpec,
    target: &dyn Target,
    content: &Content,
    worker: &Worker,
) -> Result<Tally, TargetError> {
    let location = location(spec, target)?;
    let writes = spec.work.access.writes();
    let source = if writes { Some(Source::make(spec, content)?) } else { None };
    let start = worker.start();
    let copied: Result<Vec<u64>, TargetError> = thread::scope(|scope| {
        let streams: Vec<_> = (0..spec.work.streams)
            .map(|stream| {
                let (location, source) = (&location, &source);
                thread::Builder::new()
                    .spawn_scoped(scope, move || one_stream(spec, stream, location, source.as_ref(), worker))
                    .map_err(|source| TargetError::path("start a thread for a process".to_owned(), source))
            })
            .collect::<Result<_, _>>()?;
        streams
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let files: u64 = copied?.into_iter().sum();
    let took = start.elapsed();
    worker.span(start, took);
    let mut tally = told(worker, files * spec.work.file_bytes, files, Latency::default());
    tally.cut = u64::from(files < u64::from(spec.work.streams) * u64::from(spec.work.files));
    Ok(tally)
}

/// Returns the number of copied files.
fn one_stream(
    spec: &ForeignSpec,
    stream: u32,
    location: &str,
    source: Option<&Source>,
    worker: &Worker,
) -> Result<u64, TargetError> {
    let mut copied = 0;
    for file in 0..spec.work.files {
        let there = format!("{location}/{}", spec.name(stream, file));
        let mut arguments = vec!["--nopbar".to_owned(), "--silent".to_owned(), "--force".to_owned()];
        match source {
            Some(source) => arguments.extend([source.path.display().to_string(), there]),
            None => arguments.extend([there, "/dev/null".to_owned()]),
        }
        if Running::start("xrdcp", &arguments)?.wait(worker)?.is_none() {
            break;
        }
        copied += 1;
    }
    Ok(copied)
}

/// A file in memory, which is removed at the end.
struct Source {
    path: PathBuf,
}

impl Source {
    fn make(spec: &ForeignSpec, content: &Content) -> Result<Self, TargetError> {
        let path = PathBuf::from(format!("{MEMORY}/weir-bench-{}-{}", std::process::id(), spec.work.file_bytes));
        let failed = |source| TargetError::path(format!("make {}", path.display()), source);
        let mut file = File::create_new(&path).map_err(failed)?;
        let made = Self { path: path.clone() };
        let mut memory = Memory::new(BLOCK)?;
        let mut at = 0;
        while at < spec.work.file_bytes {
            let len = usize::try_from(spec.work.file_bytes - at).unwrap_or(BLOCK).min(BLOCK);
            content.fill(FileKey::default(), at, &mut memory.whole()[..len]);
            file.write_all(&memory.whole()[..len]).map_err(failed)?;
            at += len as u64;
        }
        Ok(made)
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // It is our own file: its name has the number of this process.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Reads back and compares all written files, as long as `go_on` returns `true`, because the tool's success alone
/// proves nothing.
pub(super) fn read_back(
    spec: &ForeignSpec,
    target: &dyn Target,
    content: &Content,
    tally: &mut Tally,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<(), TargetError> {
    let mut session = target.session()?;
    let (since, mut memory) = (Instant::now(), Some(Memory::new(BLOCK)?));
    for (stream, file) in (0..spec.work.streams).flat_map(|stream| (0..spec.work.files).map(move |file| (stream, file)))
    {
        let name = spec.name(stream, file);
        let io_options = IoOptions { direct: false, ..spec.work.io_options };
        let mut open = session.open(&name, Purpose::Read, io_options)?;
        let mut at = 0;
        while at < spec.work.file_bytes {
            if !go_on() {
                return Ok(());
            }
            let asked = usize::try_from(spec.work.file_bytes - at).unwrap_or(BLOCK).min(BLOCK);
            let mut block = memory.take().map_or_else(|| Memory::new(BLOCK), Ok)?;
            block.show(0..asked);
            open.read(at, block)?;
            let block = open.done_whole(asked, &|| format!("read {name} at byte {at}"))?;
            match content.check(0, 0..=0, at, &block) {
                Ok(()) => tally.verified += asked as u64,
                Err(mismatch) => tally.add_wrong(since.elapsed(), format!("{name}: {mismatch}")),
            }
            memory = Some(block);
            at += asked as u64;
        }
        open.close()?;
    }
    Ok(())
}
