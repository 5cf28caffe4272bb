//! Moving bytes over TCP.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use super::flow::{FlowContext, FlowEnd};
use super::kernel::TcpState;
use super::{DRAINING_MAX, SILENCE_MAX};
use crate::content::FileKey;
use crate::load::Pace;
use crate::memory::Memory;
use crate::peer::Timed as _;

/// The receiver's message when the last byte has arrived.
const ALL_CAME: u8 = 1;

/// Sends until the time is over, and waits until all bytes have arrived. Only then are retransmissions counted
/// completely.
pub(super) fn send(mut stream: &TcpStream, at: &FlowContext<'_>) -> FlowEnd {
    let mut end = FlowEnd::default();
    let failure = send_all(&mut stream, at, &mut end).err();
    let tcp = TcpState::of(stream);
    FlowEnd { bytes: end.bytes, operations: end.operations, tcp, failure, ..at.finished() }
}

fn send_all(stream: &mut &TcpStream, at: &FlowContext<'_>, done: &mut FlowEnd) -> Result<(), String> {
    let block = at.work.block_bytes as usize;
    let mut memory = at.content.memory(block).map_err(|error| error.to_string())?;
    let key = FileKey { file: u64::from(at.work.number), generation: 0 };
    let (end, mut pace) = (at.end(), Pace::of_bytes(at.start, at.work.block_bytes, at.work.rate));
    stream.set_patience(Some(SILENCE_MAX)).map_err(|error| error.to_string())?;
    while pace.wait() < end && Instant::now() < end && !at.is_stopped() {
        let Some(place) = at.content.block(memory.whole(), key, done.bytes, block) else {
            return Err("a block did not fit into its memory".to_owned());
        };
        stream.write_all(&memory.whole()[place]).map_err(|error| silence(&error, "taken"))?;
        at.meter.add(block as u64);
        done.bytes += block as u64;
        done.operations += 1;
    }
    stream.shutdown(Shutdown::Write).map_err(|error| format!("cannot end it: {error}"))?;
    if at.is_stopped() {
        return Ok(());
    }
    let mut said = [0];
    stream.set_patience(Some(DRAINING_MAX)).map_err(|error| error.to_string())?;
    match stream.read_exact(&mut said) {
        Ok(()) if said == [ALL_CAME] => Ok(()),
        Ok(()) => Err("the receiver sent an unexpected byte".to_owned()),
        Err(error) if is_silence(&error) => {
            Err(format!("{} s after its end, some bytes had not arrived", DRAINING_MAX.as_secs()))
        }
        Err(error) => Err(format!("the receiver closed before all bytes had arrived: {error}")),
    }
}

/// Receives until the sender has ended.
pub(super) fn receive(mut stream: &TcpStream, at: &FlowContext<'_>) -> FlowEnd {
    let (mut bytes, mut operations) = (0, 0);
    // Later bytes were under way at the end. On a slow link they last many seconds.
    let mut in_time = None;
    let mut all = || -> Result<(), String> {
        let mut memory = Memory::new(at.work.block_bytes as usize).map_err(|error| error.to_string())?;
        stream.set_patience(Some(SILENCE_MAX)).map_err(|error| error.to_string())?;
        while !at.is_stopped() {
            match stream.read(&mut memory) {
                // The sender knows whether it ended too early.
                Ok(0) => break,
                Ok(read) => {
                    if in_time.is_none() && Instant::now() >= at.end() {
                        in_time = Some(bytes);
                    }
                    at.meter.add(read as u64);
                    bytes += read as u64;
                    operations += 1;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(silence(&error, "received")),
            }
        }
        Ok(())
    };
    let failure = all().err();
    let end = FlowEnd { bytes, in_time: in_time.unwrap_or(bytes), operations, failure, ..at.finished() };
    // The sender waits for this, unless it is gone. The connection stays open until the session ends, so that the
    // kernel keeps its counters.
    let _ = stream.write_all(&[ALL_CAME]);
    end
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn silence(error: &io::Error, what: &str) -> String {
    if is_silence(error) {
        format!("no byte was {what} for {} s", SILENCE_MAX.as_secs())
    } else {
        format!("the connection broke: {error}")
    }
}
