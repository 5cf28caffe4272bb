//! Puts the input files of jobs on the system.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::material::{Material, MaterialFile};
use crate::content::{Content, FileKey};
use crate::load::{Tally, Worker};
use crate::memory::Memory;
use crate::target::{Done, IoOptions, OpenFile, Purpose, RelName, Target, TargetError, Window};

const BLOCK: usize = 1 << 20;
const WINDOW: usize = 4;

/// Returns the name of a file of a copy.
pub(super) fn name(files: usize, copy: u32, file: usize) -> RelName {
    RelName::numbered('f', number(files, copy, file))
}

/// Returns its number among all files, from which its contents follow.
pub(super) fn number(files: usize, copy: u32, file: usize) -> u64 {
    u64::from(copy) * files as u64 + file as u64
}

/// Writes the files of some copies.
pub(super) fn put(
    material: &Material,
    target: &dyn Target,
    content: &Content,
    worker: &Worker,
    copies: impl Iterator<Item = u32>,
) -> Result<Tally, TargetError> {
    let mut session = target.session()?;
    let window = WINDOW.min(target.window_max());
    let io_options = IoOptions { window: Window::Fixed(window), ..IoOptions::default() };
    let mut spare: Vec<Memory> = Vec::new();
    for _ in 0..WINDOW {
        spare.push(Memory::new(BLOCK)?);
    }
    let mut writer = Writer { spare, tally: Tally::default(), worker };
    let start = worker.start();
    let files = material.files.len();
    let each = copies.flat_map(|copy| material.files.iter().enumerate().map(move |(place, file)| (copy, place, file)));
    for (copy, place, file) in each {
        if worker.is_stopped() {
            writer.tally.cut = 1;
            break;
        }
        let name = name(files, copy, place);
        let mut filler = ByteSource::new(file, content, FileKey { file: number(files, copy, place), generation: 0 })?;
        let written = session
            .open(&name, Purpose::Create { len: file.bytes }, io_options)
            .and_then(|open| writer.write(open, file.bytes, window, &mut filler));
        if let Err(error) = written {
            worker.meter().add_failure();
            writer.tally.add_failure(start.elapsed(), &error);
            break;
        }
    }
    Ok(writer.tally)
}

struct Writer<'a> {
    spare: Vec<Memory>,
    tally: Tally,
    worker: &'a Worker,
}

impl Writer<'_> {
    fn write(
        &mut self,
        mut file: Box<dyn OpenFile>,
        bytes: u64,
        window: usize,
        filler: &mut ByteSource<'_>,
    ) -> Result<(), TargetError> {
        let (mut at, mut under_way) = (0, 0);
        while at < bytes && !self.worker.is_stopped() {
            let len = usize::try_from(bytes - at).unwrap_or(BLOCK).min(BLOCK);
            let mut memory = self.spare.pop().map_or_else(|| Memory::new(BLOCK), Ok)?;
            memory.show(0..len);
            filler.fill(at, &mut memory)?;
            file.write(at, memory)?;
            at += len as u64;
            under_way += 1;
            if under_way >= window
                && let Some(done) = file.done()?
            {
                under_way -= 1;
                self.has_done(done);
            }
        }
        while let Some(done) = file.done()? {
            self.has_done(done);
        }
        self.tally.cut |= u64::from(at < bytes);
        if at >= bytes || file.keeps_part() { file.close() } else { Ok(()) }
    }

    fn has_done(&mut self, done: Done) {
        let len = done.memory.len() as u64;
        self.worker.meter().add(len);
        self.tally.add(len, done.took);
        self.spare.push(done.memory);
    }
}

/// The source of a file's bytes.
enum ByteSource<'a> {
    Generated { content: &'a Content, key: FileKey },
    Copied { original: File, what: String, pieces: Vec<SectionPiece> },
}

/// A section of the original, and its offset in the new file.
struct SectionPiece {
    from: u64,
    len: u64,
    to: u64,
}

impl<'a> ByteSource<'a> {
    fn new(file: &MaterialFile, content: &'a Content, key: FileKey) -> Result<Self, TargetError> {
        let Some(original) = &file.original else { return Ok(Self::Generated { content, key }) };
        let what = format!("read {}", original.path.display());
        let open = File::open(&original.path);
        let open = open.map_err(|source| TargetError::Path { what: what.clone(), source })?;
        let mut to = 0;
        let mut pieces = Vec::with_capacity(original.regions.len());
        for region in &original.regions {
            pieces.push(SectionPiece { from: region.from, len: region.len, to });
            to += region.len;
        }
        Ok(Self::Copied { original: open, what, pieces })
    }

    fn fill(&mut self, at: u64, into: &mut [u8]) -> Result<(), TargetError> {
        match self {
            Self::Generated { content, key } => {
                content.fill(*key, at, into);
                Ok(())
            }
            Self::Copied { original, what, pieces } => {
                let mut place = pieces.partition_point(|piece| piece.to + piece.len <= at);
                let mut done = 0;
                while done < into.len() {
                    let here = at + done as u64;
                    let Some(piece) = pieces.get(place) else { break };
                    let left = usize::try_from(piece.to + piece.len - here).unwrap_or(usize::MAX);
                    let len = left.min(into.len() - done);
                    let read = original.read_exact_at(&mut into[done..done + len], piece.from + (here - piece.to));
                    read.map_err(|source| TargetError::Path { what: what.clone(), source })?;
                    done += len;
                    place += 1;
                }
                Ok(())
            }
        }
    }
}
