//! A process of its own for a flow: this program again, with a hidden command. Its standard input is a socket, over
//! which it gets its orders and the flow's own socket. So only the first process connects and greets, however many
//! there are.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};

use super::error::NetworkError;
use super::flow::{FlowContext, FlowEnd, FlowWork, move_bytes};
use super::line::Line;
use super::message::{Order, Report};
use super::movers::Shared;
use super::{OPENING_MAX, SILENCE_MAX};
use crate::content::Content;
use crate::load::Meter;
use crate::peer::{Peer, Timed as _};

/// How to start a process for a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// The arguments that make it call [`serve_flow`] with its standard input.
    pub arguments: Vec<String>,
}

/// How often a process reports its progress.
const PROGRESS: Duration = Duration::from_millis(250);
/// How long a process may take to exit after its last message.
const ENDING_MAX: Duration = Duration::from_secs(5);

impl Program {
    /// This program, even if its file has been moved.
    #[must_use]
    pub fn this(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|word| (*word).to_owned()).collect();
        Self { path: PathBuf::from("/proc/self/exe"), arguments }
    }
}

/// Lets a process do a flow, and watches it. The flow's thread of the first process calls this.
pub(super) fn run(program: &Program, work: &FlowWork, line: &Line, shared: &Shared, meter: &Meter) -> FlowEnd {
    let failed = |why: String| FlowEnd {
        number: work.number,
        sends: work.sends,
        bytes: meter.read().bytes,
        operations: meter.read().operations,
        failure: Some(why),
        ..FlowEnd::default()
    };
    let (mut process, mut peer) = match start(program, work, line, shared) {
        Ok(started) => started,
        Err(error) => return failed(format!("its process cannot be started: {error}")),
    };
    let end = match watch(&mut peer, shared, meter) {
        Ok(Some(end)) => end,
        Ok(None) => FlowEnd { number: work.number, sends: work.sends, ..FlowEnd::default() },
        Err(error) => failed(error.to_string()),
    };
    drop(peer);
    end_process(&mut process);
    end
}

fn start(
    program: &Program,
    work: &FlowWork,
    line: &Line,
    shared: &Shared,
) -> Result<(Child, Peer<UnixStream>), NetworkError> {
    let (ours, theirs) = UnixStream::pair().map_err(NetworkError::here("make a pair of sockets"))?;
    let process = Command::new(&program.path)
        .args(&program.arguments)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .spawn()
        .map_err(NetworkError::here(format!("start {}", program.path.display())))?;
    let mut process = ChildGuard(Some(process));
    shared.add_child(ours.try_clone().map_err(NetworkError::here("share a socket"))?);
    ours.set_patience(Some(OPENING_MAX)).map_err(NetworkError::here("set a socket's time"))?;
    let mut peer = Peer { stream: ours, name: format!("the process of flow {}", work.number) };
    // Any contents that cannot be compressed and differ between flows.
    let seed = work.session ^ u64::from(work.number);
    peer.send(&Order::Prepare { work: work.clone(), seed })?;
    send_socket(&peer.stream, line).map_err(NetworkError::here("hand a socket to a process"))?;
    match (peer.receive()?, process.0.take()) {
        (Report::Ready, Some(process)) => Ok((process, peer)),
        (other, _) => Err(NetworkError::Unexpected { peer: peer.name, what: format!("{other:?}") }),
    }
}

/// A process that is killed if something else goes wrong.
struct ChildGuard(Option<Child>);

impl Drop for ChildGuard {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            end_process(process);
        }
    }
}

/// `None`: the flow must not begin.
fn watch(peer: &mut Peer<UnixStream>, shared: &Shared, meter: &Meter) -> Result<Option<FlowEnd>, NetworkError> {
    if shared.start().is_none() {
        return Ok(None);
    }
    peer.send(&Order::Start)?;
    peer.stream.set_patience(Some(SILENCE_MAX)).map_err(NetworkError::here("set a socket's time"))?;
    loop {
        match peer.receive()? {
            Report::Progress(reading) => meter.set(reading),
            Report::Finished(end) => return Ok(Some(end)),
            Report::Ready => {}
        }
    }
}

/// The process exits when its input is closed. Otherwise it is killed.
fn end_process(process: &mut Child) {
    let end = Instant::now() + ENDING_MAX;
    while let Ok(None) = process.try_wait() {
        if Instant::now() >= end {
            // A process that cannot be killed has ended.
            let _ = process.kill();
            let _ = process.wait();
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Does what the other end of `input` orders. This is the hidden command's whole life.
///
/// # Errors
/// No message or an unexpected one comes, or the other end is gone.
pub fn serve_flow(input: UnixStream) -> Result<(), NetworkError> {
    let mut parent = Peer { stream: input, name: "the process that started this one".to_owned() };
    let Order::Prepare { work, seed } = parent.receive()? else {
        return Err(NetworkError::Unexpected { peer: parent.name, what: "a start before a flow".to_owned() });
    };
    let socket = receive_socket(&parent.stream).map_err(NetworkError::here("receive a socket"))?;
    let line = Line::from_descriptor(socket, work.protocol);
    let content = Content::new(seed);
    parent.send(&Report::Ready)?;
    match parent.receive()? {
        Order::Start => {}
        Order::Prepare { .. } => {
            return Err(NetworkError::Unexpected { peer: parent.name, what: "a second flow".to_owned() });
        }
    }
    let (start, meter, stop) = (Instant::now(), Meter::default(), AtomicBool::new(false));
    let end = std::thread::scope(|scope| {
        let (ended, end) = std::sync::mpsc::sync_channel(1);
        let at = FlowContext { work: &work, content: &content, start, meter: &meter, stop: &stop };
        let line = &line;
        scope.spawn(move || {
            // If the first process is gone, nobody waits for the result.
            let _ = ended.send(move_bytes(line, &at));
        });
        loop {
            match end.recv_timeout(PROGRESS) {
                Ok(end) => return Ok(end),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let what = "a flow that ended without a result".to_owned();
                    return Err(NetworkError::Unexpected { peer: "this process".to_owned(), what });
                }
            }
            if let Err(error) = parent.send(&Report::Progress(meter.read())) {
                // The other end is gone, so the flow must stop.
                stop.store(true, Ordering::Relaxed);
                line.cut();
                return Err(error.into());
            }
        }
    })?;
    parent.send(&Report::Finished(end))?;
    Ok(())
}

/// The socket travels with one byte, because a message must not be empty.
fn send_socket(way: &UnixStream, line: &Line) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors = [line.as_fd()];
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("a descriptor does not fit into a message"));
    }
    sendmsg(way, &[IoSlice::new(&[0])], &mut control, SendFlags::empty())?;
    Ok(())
}

fn receive_socket(way: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(way, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let first = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    first.ok_or_else(|| io::Error::other("no socket came"))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::network::Protocol;

    #[test]
    fn a_socket_goes_from_one_process_to_another() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        let (a, b) = UnixStream::pair().unwrap();
        send_socket(&a, &Line::Tcp(stream)).unwrap();
        let Line::Tcp(mut handed) = Line::from_descriptor(receive_socket(&b).unwrap(), Protocol::Tcp) else { panic!() };
        handed.write_all(b"x").unwrap();
        let mut byte = [0];
        other.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn a_message_without_a_socket_is_an_error() {
        let (mut a, b) = UnixStream::pair().unwrap();
        a.write_all(b"x").unwrap();
        assert!(receive_socket(&b).is_err());
    }
}
