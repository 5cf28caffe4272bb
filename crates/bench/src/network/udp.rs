//! Moves bytes over UDP. Each datagram has a header of 24 bytes, big-endian: session (8), flow (4), kind (4),
//! number (8). The rest is filler.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use super::flow::{FlowContext, FlowEnd};
use super::sequences::Sequences;
use crate::load::Pace;

const HEAD_BYTES: usize = 24;
/// A datagram with data.
const DATA: u32 = 0;
/// The end of the flow.
const END: u32 = 1;
/// A datagram before the flow that opens the route. The answer is the same datagram.
const OPENING: u32 = 2;
/// How often the end is sent, because a datagram may be lost.
const ENDS: u32 = 10;
/// The receive buffer of a socket, for times when its reader does not run. The kernel may give less
/// (`net.core.rmem_max`).
const BUFFER_BYTES: usize = 4 << 20;
/// How long a reader waits before it checks whether the flow is over.
const LOOK: Duration = Duration::from_millis(100);
/// After an end, the reader stops when nothing has arrived for this time.
const QUIET: Duration = Duration::from_millis(200);
/// How long after its time a flow without an end is waited for.
const LATE_MAX: Duration = Duration::from_secs(2);

fn head(session: u64, flow: u32, kind: u32, number: u64) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&session.to_be_bytes());
    head[8..12].copy_from_slice(&flow.to_be_bytes());
    head[12..16].copy_from_slice(&kind.to_be_bytes());
    head[16..].copy_from_slice(&number.to_be_bytes());
    head
}

/// Returns kind and number of a datagram of this flow; `None`: it belongs to another one.
fn of_flow(datagram: &[u8], session: u64, flow: u32) -> Option<(u32, u64)> {
    let head = datagram.get(..HEAD_BYTES)?;
    let word = |at: usize| Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_be_bytes(head.get(at..at + 8)?.try_into().ok()?));
    (long(0)? == session && word(8)? == flow).then_some(())?;
    Some((word(12)?, long(16)?))
}

/// Sets the receive buffer of a new socket.
pub(super) fn make_room(socket: &UdpSocket) {
    // Only a wish: with a smaller buffer more is lost, and that is counted.
    let _ = rustix::net::sockopt::set_socket_recv_buffer_size(socket, BUFFER_BYTES);
}

/// Opens the route from the client: sends openings until one is answered, or the time is over. Returns whether it
/// was answered.
pub(super) fn open_from_client(socket: &UdpSocket, session: u64, flow: u32, within: Duration) -> io::Result<bool> {
    socket.set_read_timeout(Some(LOOK))?;
    let (end, mut answer) = (Instant::now() + within, [0; HEAD_BYTES]);
    while Instant::now() < end {
        // If no server listens yet, the kernel reports that at the next call.
        let _ = socket.send(&head(session, flow, OPENING, 0));
        match socket.recv(&mut answer) {
            Ok(_) if of_flow(&answer, session, flow) == Some((OPENING, 0)) => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

/// The same on the server: waits for an opening from any port of `client`, and then receives from that port only.
pub(super) fn open_at_server(
    socket: &UdpSocket,
    client: SocketAddr,
    session: u64,
    flow: u32,
    within: Duration,
) -> io::Result<bool> {
    socket.set_read_timeout(Some(LOOK))?;
    let (end, mut first) = (Instant::now() + within, [0; HEAD_BYTES]);
    while Instant::now() < end {
        match socket.recv_from(&mut first) {
            Ok((_, from)) if from.ip() == client.ip() && of_flow(&first, session, flow) == Some((OPENING, 0)) => {
                socket.connect(from)?;
                socket.send(&first)?;
                return Ok(true);
            }
            _ => {}
        }
    }
    Ok(false)
}

/// Sends until the time is over.
pub(super) fn send(socket: &UdpSocket, at: &FlowContext<'_>) -> FlowEnd {
    let mut end = FlowEnd::default();
    let failure = send_all(socket, at, &mut end).err();
    let finished = FlowEnd { bytes: end.bytes, operations: end.operations, failure, ..at.finished() };
    for _ in 0..ENDS {
        let _ = socket.send(&head(at.work.session, at.work.number, END, finished.operations));
        std::thread::sleep(Duration::from_millis(5));
    }
    finished
}

fn send_all(socket: &UdpSocket, at: &FlowContext<'_>, done: &mut FlowEnd) -> Result<(), String> {
    let block = at.work.block_bytes as usize;
    let mut memory = at.content.memory(block).map_err(|error| error.to_string())?;
    // Datagrams are adjacent in the filler, always at the same offsets, so that their headers do not overwrite all
    // of it.
    let places = (crate::content::TABLE_BYTES / block).max(1) as u64;
    let (end, mut pace) = (at.end(), Pace::of_bytes(at.start, at.work.block_bytes, at.work.rate));
    while pace.wait() < end && Instant::now() < end && !at.is_stopped() {
        let begin = usize::try_from(done.operations % places).unwrap_or(0) * block;
        let Some(datagram) = memory.whole().get_mut(begin..begin + block) else {
            return Err("a datagram did not fit into its memory".to_owned());
        };
        let head = head(at.work.session, at.work.number, DATA, done.operations);
        datagram.iter_mut().zip(head).for_each(|(byte, head)| *byte = head);
        match socket.send(datagram) {
            Ok(_) => {
                at.meter.add(block as u64);
                done.bytes += block as u64;
                done.operations += 1;
            }
            // The interface's queue is full, so the datagram was not sent.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error()) => {
                std::thread::sleep(Duration::from_micros(100));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(format!("cannot send a datagram of {block} bytes: {error}")),
        }
    }
    Ok(())
}

/// Receives until the sender has ended.
pub(super) fn receive(socket: &UdpSocket, at: &FlowContext<'_>) -> FlowEnd {
    let (mut sequences, mut bytes, mut in_time, mut last) = (Sequences::new(), 0, 0, at.start);
    let mut all = || -> Result<(), String> {
        let mut memory = vec![0; 1 << 16];
        socket.set_read_timeout(Some(LOOK)).map_err(|error| error.to_string())?;
        let mut ended = None;
        while !at.is_stopped() {
            match socket.recv(&mut memory) {
                Ok(length) => match of_flow(&memory[..length], at.work.session, at.work.number) {
                    Some((DATA, number)) => {
                        let before = sequences.received();
                        sequences.add(number);
                        if sequences.received() > before {
                            at.meter.add(length as u64);
                            bytes += length as u64;
                            last = Instant::now();
                            in_time = if last < at.end() { bytes } else { in_time };
                        }
                    }
                    Some((END, _)) => ended = ended.or(Some(Instant::now())),
                    _ => {}
                },
                Err(error) if is_brief(&error) => {}
                Err(error) => return Err(format!("the socket broke: {error}")),
            }
            let now = Instant::now();
            if ended.is_some_and(|ended| now >= ended.max(last) + QUIET) || now >= at.end() + LATE_MAX {
                break;
            }
        }
        Ok(())
    };
    let failure = all().err();
    FlowEnd {
        bytes,
        in_time,
        operations: sequences.received(),
        reordered: sequences.reordered(),
        duplicates: sequences.duplicates(),
        failure,
        ..at.finished()
    }
}

/// Whether the error says nothing about the flow: nothing arrived, or the other side had not opened its socket yet.
fn is_brief(error: &io::Error) -> bool {
    use io::ErrorKind as E;
    matches!(error.kind(), E::WouldBlock | E::TimedOut | E::Interrupted | E::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_recognised_and_others_are_refused() {
        let bytes = head(7, 3, DATA, 1 << 40);
        assert_eq!(of_flow(&bytes, 7, 3), Some((DATA, 1 << 40)));
        assert_eq!((of_flow(&bytes, 8, 3), of_flow(&bytes, 7, 4), of_flow(&bytes[..23], 7, 3)), (None, None, None));
    }
}
