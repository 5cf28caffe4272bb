//! Puts bytes into the socket, in the clear or encrypted.

use std::io::{self, IoSlice, Write as _};
use std::time::Instant;

use super::{Session, is_a_pause};
use crate::ClientError;
use crate::watch::WaitReason;

/// So much is encrypted at a time: it stays in the cache until it is sent.
const SEALED_AT_ONCE: usize = 128 << 10;

impl Session {
    pub(super) fn write_all(&mut self, parts: &mut [IoSlice<'_>]) -> Result<(), ClientError> {
        if self.sealed.is_none() {
            return self.write_parts(parts, self.rate.is_limited());
        }
        let mut out = std::mem::take(&mut self.sealed_output);
        let written = self.write_sealed(parts, &mut out);
        out.clear();
        self.sealed_output = out;
        written
    }

    /// Encrypts `parts` and sends them, some at a time.
    fn write_sealed(&mut self, parts: &[IoSlice<'_>], out: &mut Vec<u8>) -> Result<(), ClientError> {
        let at_once = self.rate.part(SEALED_AT_ONCE);
        let mut waiting = 0;
        for piece in parts.iter().flat_map(|part| part.chunks(at_once)) {
            if waiting + piece.len() > at_once {
                self.write_encrypted(out, waiting)?;
                waiting = 0;
            }
            if let Some(sealed) = &self.sealed {
                sealed.seal(&[IoSlice::new(piece)], out).map_err(|error| self.lost(error))?;
            }
            waiting += piece.len();
        }
        self.write_encrypted(out, waiting)
    }

    /// Sends encrypted bytes, in which `count` others are.
    pub(super) fn write_encrypted(&mut self, out: &mut Vec<u8>, count: usize) -> Result<(), ClientError> {
        if out.is_empty() {
            return Ok(());
        }
        let written = self.write_parts(&mut [IoSlice::new(out)], false);
        out.clear();
        written?;
        self.keep_rate(self.rate.sent(count))
    }

    fn write_parts(&mut self, parts: &mut [IoSlice<'_>], is_limited: bool) -> Result<(), ClientError> {
        let mut left = parts;
        let mut since = Instant::now();
        while !left.is_empty() {
            // The kernel takes at most 1024 parts in one call.
            let count = left.len().min(1024);
            let sent = if is_limited && !left[0].is_empty() {
                let part = self.rate.part(left[0].len());
                self.socket.write(&left[0][..part])
            } else {
                self.socket.write_vectored(&left[..count])
            };
            match sent {
                Ok(0) => return Err(self.lost(io::ErrorKind::WriteZero.into())),
                Ok(sent) => {
                    IoSlice::advance_slices(&mut left, sent);
                    if is_limited {
                        self.keep_rate(self.rate.sent(sent))?;
                    }
                    // A slow connection takes a large request for longer than a server may be silent.
                    since = Instant::now();
                    self.waiting.deadline.asked(since);
                }
                Err(error) if is_a_pause(&error) => {
                    if since.elapsed() >= self.silence_max {
                        return Err(ClientError::Silent { server: self.server().clone(), after: self.silence_max });
                    }
                    self.waiting.tick(WaitReason::Room)?;
                }
                Err(error) => return Err(self.lost(error)),
            }
            self.waiting.stop_check()?;
        }
        Ok(())
    }
}
