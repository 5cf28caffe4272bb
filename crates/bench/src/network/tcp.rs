//! Flows of TCP.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::load::Meter;

/// Longer than any pause of a flow that is alive.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Sends for `how_long` over one flow, then says that this was all; answers bytes.
///
/// # Errors
/// Of the connection.
pub fn send(stream: &mut TcpStream, block: usize, how_long: Duration, meter: &Meter) -> io::Result<u64> {
    stream.set_write_timeout(Some(SILENCE_MAX))?;
    let data = vec![0x5a; block];
    let end = Instant::now() + how_long;
    let mut sent = 0;
    while Instant::now() < end {
        stream.write_all(&data)?;
        sent += block as u64;
        meter.add(block as u64);
    }
    stream.shutdown(Shutdown::Write)?;
    Ok(sent)
}

/// Receives over one flow until the other side says that it was all; answers bytes.
///
/// # Errors
/// Of the connection.
pub fn receive(stream: &mut TcpStream, block: usize, meter: &Meter) -> io::Result<u64> {
    stream.set_read_timeout(Some(SILENCE_MAX))?;
    let mut data = vec![0; block];
    let mut received = 0;
    loop {
        match stream.read(&mut data) {
            Ok(0) => return Ok(received),
            Ok(bytes) => {
                received += bytes as u64;
                meter.add(bytes as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
