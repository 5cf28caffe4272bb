//! The output of these commands.

use std::io::{self, BufWriter, StdoutLock, Write};

use transfer::TransferError;

/// Buffered standard output. A closed reader (`| head`) ends the command silently.
pub struct Output {
    out: BufWriter<StdoutLock<'static>>,
    lines: u64,
}

/// The first lines are flushed at once, for a user who waits for them.
const AT_ONCE: u64 = 64;

impl Output {
    /// Standard output.
    #[must_use]
    pub fn new() -> Self {
        Self { out: BufWriter::with_capacity(64 << 10, io::stdout().lock()), lines: 0 }
    }

    /// Prints a line.
    pub fn line(&mut self, text: &str) -> Result<(), TransferError> {
        self.lines += 1;
        let written = self.out.write_all(text.as_bytes()).and_then(|()| self.out.write_all(b"\n"));
        let written = if self.lines == AT_ONCE { written.and_then(|()| self.out.flush()) } else { written };
        written.map_err(failed)
    }

    /// Prints a line of JSON.
    pub fn json(&mut self, value: &serde_json::Value) -> Result<(), TransferError> {
        self.line(&value.to_string())
    }

    /// Prints bytes unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) -> Result<(), TransferError> {
        self.out.write_all(bytes).map_err(failed)
    }

    /// Flushes everything.
    pub fn end(mut self) -> Result<(), TransferError> {
        self.out.flush().map_err(failed)
    }
}

fn failed(source: io::Error) -> TransferError {
    if source.kind() == io::ErrorKind::BrokenPipe {
        return TransferError::Stopped;
    }
    TransferError::Local { what: "write to", path: "standard output".to_owned(), source }
}
