//! The ways in which a job reads an open file: each basket separately, many at once, ahead, or from a local copy.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::ahead::Ahead;
use super::cost::{CallResult, Cost};
use crate::memory::Memory;
use crate::target::{IoOptions, OpenFile, Purpose, RelName, RoundTrips, Session, Span, TargetError, Window};

/// How a job reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Read each basket when it is needed, in its own request. Replay a recording as it was recorded.
    Direct,
    /// Read as many baskets at once as a cache holds, like `TTreeCache`.
    Vector,
    /// Read large blocks, the next one while the job computes.
    ReadAhead,
    /// Copy the file to this machine first, and read the copy.
    CopyIn,
}

const COPY_BLOCK: usize = 4 << 20;
const COPY_WINDOW: usize = 4;

/// An open file.
pub(super) enum Input {
    Straight(Box<dyn OpenFile>),
    Ahead(Ahead),
    Local(File),
}

/// The options of an open.
pub(super) struct InputOptions<'a> {
    pub(super) mode: Mode,
    /// The length of read-ahead blocks.
    pub(super) window: usize,
    /// The directory for copies.
    pub(super) scratch: &'a Path,
}

impl Input {
    pub(super) fn open(
        session: &mut dyn Session,
        name: &RelName,
        bytes: u64,
        how: &InputOptions<'_>,
        cost: &mut Cost<'_>,
    ) -> Result<Self, TargetError> {
        let io_options = IoOptions { window: Window::Fixed(COPY_WINDOW), ..IoOptions::default() };
        let opened = cost.call(|| {
            let value = session.open(name, Purpose::Read, io_options)?;
            Ok(CallResult { value, trips: RoundTrips { requests: 1, in_turn: 1 }, bytes: 0 })
        })?;
        match how.mode {
            Mode::Direct | Mode::Vector => Ok(Self::Straight(opened)),
            Mode::ReadAhead => Ok(Self::Ahead(Ahead::new(opened, bytes, how.window, cost.added)?)),
            Mode::CopyIn => copy_in(opened, name, bytes, how.scratch, cost).map(Self::Local),
        }
    }

    /// Reads `spans`, one behind the other, to the front of `memory`, which is long enough. Some modes read them
    /// together.
    pub(super) fn get(
        &mut self,
        spans: &[Span],
        together: bool,
        mut memory: Memory,
        cost: &mut Cost<'_>,
    ) -> Result<Memory, TargetError> {
        let wanted: usize = spans.iter().map(|span| span.len).sum();
        memory.show(0..wanted);
        match self {
            Self::Straight(file) if together && spans.len() > 1 => cost.call(|| {
                let trips = file.read_spans(spans, &mut memory)?;
                Ok(CallResult { value: (), trips, bytes: wanted as u64 })
            })?,
            Self::Straight(file) => {
                let mut at = 0;
                for span in spans {
                    memory.show(at..at + span.len);
                    memory = cost.call(|| one(&mut **file, *span, memory))?;
                    at += span.len;
                }
            }
            Self::Ahead(ahead) => {
                let mut left: &mut [u8] = &mut memory;
                for span in spans {
                    let (now, later) = left.split_at_mut_checked(span.len).ok_or_else(|| short(*span, 0))?;
                    ahead.read(span.offset, now, cost)?;
                    left = later;
                }
            }
            Self::Local(file) => {
                let mut left: &mut [u8] = &mut memory;
                for span in spans {
                    let (now, later) = left.split_at_mut_checked(span.len).ok_or_else(|| short(*span, 0))?;
                    let failed =
                        |source| TargetError::Path { what: "read the copy on this machine".to_owned(), source };
                    cost.local(|| file.read_exact_at(now, span.offset).map_err(failed))?;
                    left = later;
                }
            }
        }
        memory.show(0..wanted);
        Ok(memory)
    }

    pub(super) fn close(self, cost: &mut Cost<'_>) -> Result<(), TargetError> {
        match self {
            Self::Straight(file) => cost.call(|| {
                file.close()?;
                Ok(CallResult { value: (), trips: RoundTrips { requests: 1, in_turn: 1 }, bytes: 0 })
            }),
            Self::Ahead(ahead) => ahead.close(cost),
            Self::Local(_) => Ok(()),
        }
    }
}

/// One plain read.
fn one(file: &mut dyn OpenFile, span: Span, memory: Memory) -> Result<CallResult<Memory>, TargetError> {
    file.read(span.offset, memory)?;
    let done = file.done()?.ok_or_else(|| short(span, 0))?;
    if done.memory.len() < span.len {
        return Err(short(span, done.memory.len()));
    }
    Ok(CallResult { value: done.memory, trips: RoundTrips { requests: 1, in_turn: 1 }, bytes: span.len as u64 })
}

pub(super) fn short(span: Span, moved: usize) -> TargetError {
    TargetError::Short { what: format!("read {} bytes at {}", span.len, span.offset), moved, asked: span.len }
}

/// Copies a file to an unnamed one on this machine.
fn copy_in(
    mut from: Box<dyn OpenFile>,
    name: &RelName,
    bytes: u64,
    scratch: &Path,
    cost: &mut Cost<'_>,
) -> Result<File, TargetError> {
    let failed = |source| TargetError::Path { what: format!("copy {name} to {}", scratch.display()), source };
    let to = tempfile::tempfile_in(scratch).map_err(failed)?;
    let (mut at, mut under_way, mut requests) = (0, 0, 0_u64);
    let mut spare: Vec<Memory> = Vec::new();
    while (at < bytes || under_way > 0) && !cost.is_stopped() {
        while at < bytes && under_way < COPY_WINDOW {
            let len = usize::try_from(bytes - at).unwrap_or(COPY_BLOCK).min(COPY_BLOCK);
            let mut memory = spare.pop().map_or_else(|| Memory::new(COPY_BLOCK), Ok)?;
            memory.show(0..len);
            cost.local(|| from.read(at, memory))?;
            at += len as u64;
            (under_way, requests) = (under_way + 1, requests + 1);
        }
        let Some(done) = cost.local(|| from.done())? else { break };
        under_way -= 1;
        cost.has_moved(1, done.memory.len() as u64, done.took);
        cost.local(|| to.write_all_at(&done.memory, done.offset).map_err(failed))?;
        spare.push(done.memory);
    }
    super::cost::delay(cost.added, requests.div_ceil(COPY_WINDOW as u64) + 1);
    cost.local(|| from.close())?;
    Ok(to)
}
