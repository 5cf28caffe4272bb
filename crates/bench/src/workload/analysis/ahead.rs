//! Read-ahead: a thread reads the next block of a file while the job works on the present one.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::clock::thread_cpu;
use super::cost::{Cost, delay};
use super::input::short;
use crate::memory::Memory;
use crate::target::{OpenFile, Span, TargetError};

/// A file that is read ahead in blocks.
pub(super) struct Ahead {
    ask: Option<Sender<Block>>,
    answers: Receiver<Result<Block, TargetError>>,
    helper: Option<JoinHandle<Result<(), TargetError>>>,
    /// The block that has been read.
    current: Option<Block>,
    /// The start of the block that is being read.
    next: Option<u64>,
    spare: Vec<Memory>,
    bytes: u64,
    window: usize,
}

/// A block, before or after reading.
struct Block {
    span: Span,
    memory: Memory,
    cpu: Duration,
    took: Duration,
}

impl Ahead {
    /// Reads a file of `bytes` in blocks of `window`, with a delay of `added` before each answer.
    pub(super) fn new(
        file: Box<dyn OpenFile>,
        bytes: u64,
        window: usize,
        added: Duration,
    ) -> Result<Self, TargetError> {
        let window = window.min(usize::try_from(bytes).unwrap_or(usize::MAX)).max(1);
        let spare = vec![Memory::new(window)?, Memory::new(window)?];
        let (ask, asked) = channel();
        let (answer, answers) = channel();
        let helper = std::thread::spawn(move || help(file, added, &asked, &answer));
        let (ask, helper) = (Some(ask), Some(helper));
        Ok(Self { ask, answers, helper, current: None, next: None, spare, bytes, window })
    }

    /// Reads at `offset`, and waits if the data are not there yet.
    pub(super) fn read(&mut self, offset: u64, into: &mut [u8], cost: &mut Cost<'_>) -> Result<(), TargetError> {
        let begun = Instant::now();
        let cpu = thread_cpu();
        let read = self.fill(offset, into, cost);
        cost.io_cpu += thread_cpu().saturating_sub(cpu);
        cost.waited += begun.elapsed();
        read
    }

    fn fill(&mut self, offset: u64, into: &mut [u8], cost: &mut Cost<'_>) -> Result<(), TargetError> {
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let block = self.block_with(at, cost)?;
            let skip = usize::try_from(at - block.span.offset).unwrap_or(usize::MAX);
            let there = block.memory.get(skip..).unwrap_or_default();
            let len = there.len().min(into.len() - done);
            if len == 0 {
                return Err(short(Span { offset, len: into.len() }, done));
            }
            into[done..done + len].copy_from_slice(&there[..len]);
            done += len;
        }
        Ok(())
    }

    /// Returns the block with the byte `at`. The next block is then being read.
    fn block_with(&mut self, at: u64, cost: &mut Cost<'_>) -> Result<&Block, TargetError> {
        let window = self.window as u64;
        let holds = |begin: u64| at.checked_sub(begin).is_some_and(|skip| skip < window);
        if !self.current.as_ref().is_some_and(|block| holds(block.span.offset)) {
            self.spare.extend(self.current.take().map(|block| block.memory));
            if !self.next.is_some_and(holds) {
                // The job has gone elsewhere. The pending read must still be awaited.
                if self.next.is_some() {
                    let unwanted = self.take(cost)?;
                    self.spare.push(unwanted.memory);
                }
                self.start(at)?;
            }
            let block = self.take(cost)?;
            let after = block.span.offset.saturating_add(window);
            self.current = Some(block);
            if after < self.bytes {
                self.start(after)?;
            }
        }
        self.current.as_ref().ok_or_else(|| short(Span { offset: at, len: self.window }, 0))
    }

    fn start(&mut self, offset: u64) -> Result<(), TargetError> {
        let len = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(self.window).min(self.window);
        let span = Span { offset, len };
        let mut memory = self.spare.pop().map_or_else(|| Memory::new(self.window), Ok)?;
        memory.show(0..len);
        let block = Block { span, memory, cpu: Duration::ZERO, took: Duration::ZERO };
        self.next = Some(offset);
        let sent = self.ask.as_ref().is_some_and(|ask| ask.send(block).is_ok());
        if sent { Ok(()) } else { Err(short(span, 0)) }
    }

    fn take(&mut self, cost: &mut Cost<'_>) -> Result<Block, TargetError> {
        let at = self.next.take().unwrap_or_default();
        let answer = self.answers.recv().unwrap_or_else(|_| Err(short(Span { offset: at, len: self.window }, 0)));
        let block = answer?;
        cost.helper_cpu += block.cpu;
        cost.has_moved(1, block.memory.len() as u64, block.took);
        Ok(block)
    }

    /// Waits for a pending read, because it is part of the job's cost.
    pub(super) fn close(mut self, cost: &mut Cost<'_>) -> Result<(), TargetError> {
        let begun = Instant::now();
        if self.next.is_some() {
            self.take(cost)?;
        }
        self.ask = None;
        let closed = self.helper.take().map(JoinHandle::join);
        cost.waited += begun.elapsed();
        match closed {
            Some(Ok(closed)) => closed,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.ask = None;
        if let Some(helper) = self.helper.take() {
            // Nobody reads this file any more, so its error does not matter.
            let _ = helper.join();
        }
    }
}

/// Reads the requested blocks until there are no more requests.
fn help(
    mut file: Box<dyn OpenFile>,
    added: Duration,
    asked: &Receiver<Block>,
    answer: &Sender<Result<Block, TargetError>>,
) -> Result<(), TargetError> {
    while let Ok(block) = asked.recv() {
        let read = read(&mut *file, added, block);
        let failed = read.is_err();
        if answer.send(read).is_err() || failed {
            break;
        }
    }
    file.close()
}

fn read(file: &mut dyn OpenFile, added: Duration, block: Block) -> Result<Block, TargetError> {
    let Block { span, memory, .. } = block;
    let (begun, cpu) = (Instant::now(), thread_cpu());
    file.read(span.offset, memory)?;
    let done = file.done()?.ok_or_else(|| short(span, 0))?;
    let cpu = thread_cpu().saturating_sub(cpu);
    if done.memory.len() < span.len {
        return Err(short(span, done.memory.len()));
    }
    delay(added, 1);
    Ok(Block { span, memory: done.memory, cpu, took: begun.elapsed() })
}
