//! Measures the cost of the encryption between two nodes: 1 MiB of bulk per request, one connection over loopback, and
//! the CPU time of each side. It asserts no limits: `cargo test -p weir-link --release --test rate -- --ignored
//! --nocapture`

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use link::{
    Authority, Call, Credentials, Expect, Handler, Identity, IncomingHeader, LinkError, Listener, LocalNode,
    OtherServices, Outgoing, Peer, PeerIdentity, Received, Roles, Settings, connect,
};
use parking_lot::Mutex;
use types::{ClusterId, NodeId, Timestamp};

const FRAME: usize = 1 << 20;
const FRAMES: u64 = 4096;

/// Receives bulk into the buffers of a small pool, like a store.
#[derive(Default)]
struct Sink {
    pool: Mutex<Vec<Vec<u8>>>,
    /// Nanoseconds of CPU time of the reading thread.
    cpu: AtomicU64,
}

impl Handler for Sink {
    type Buffer = Vec<u8>;

    fn buffer(&self, _: &PeerIdentity, _: &IncomingHeader<'_>) -> Option<Vec<u8>> {
        Some(self.pool.lock().pop().unwrap_or_else(|| vec![0; FRAME]))
    }

    fn received(&self, _: &Peer<Vec<u8>>, received: Received<Vec<u8>>) {
        if let Received::Request { message, bulk, responder } = received {
            if let link::Bulk::Here { buffer, .. } = bulk {
                self.pool.lock().push(buffer);
            }
            responder.answer(Outgoing::new(message)).unwrap();
        }
    }

    fn ended(&self, _: &Peer<Vec<u8>>, _: &LinkError) {
        self.cpu.store(thread_cpu(), Ordering::SeqCst);
    }
}

fn thread_cpu() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
}

fn process_cpu() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap()
}

#[test]
#[ignore = "a measurement"]
#[allow(clippy::cast_precision_loss)] // for display only
fn megabytes_a_second_and_cpu_seconds_a_gigabyte() {
    let folder = tempfile::tempdir().unwrap();
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let now = Timestamp(i64::try_from(since.as_nanos()).unwrap());
    let authority = Authority::create(folder.path(), ClusterId(1), now).unwrap();
    let us = |node| {
        let day = Duration::from_secs(86_400);
        let identity = Identity::issue(&authority, NodeId(node), Roles::DISK, now, day).unwrap();
        LocalNode::new(Arc::new(Credentials::new(&identity).unwrap()), Settings::default())
    };
    let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let sink = Arc::new(Sink::default());
    let accepting = {
        let (listener, us, sink) = (Arc::clone(&listener), us(1), Arc::clone(&sink));
        std::thread::spawn(move || listener.serve(&us, &sink, &OtherServices::default()))
    };
    let ready = connect::<Vec<u8>>(&us(2), listener.address(), Expect::default()).unwrap();
    let peer = ready.peer().clone();
    let reading = std::thread::spawn(move || ready.run(&Sink::default()));
    let bulk: Arc<Vec<u8>> = Arc::new((0..FRAME).map(|i| (i % 251).to_le_bytes()[0]).collect());
    let (cpu, began) = (process_cpu(), Instant::now());
    let mut pending = std::collections::VecDeque::new();
    for _ in 0..FRAMES {
        let call = Call::new(Outgoing::new(b"write".to_vec()).with_bulk(Arc::clone(&bulk) as _));
        pending.push_back(peer.request(call).unwrap());
        if pending.len() > 16 {
            pending.pop_front().unwrap().wait(Duration::from_secs(60)).unwrap();
        }
    }
    for answer in pending {
        answer.wait(Duration::from_secs(60)).unwrap();
    }
    let (seconds, cpu) = (began.elapsed().as_secs_f64(), (process_cpu() - cpu) as f64 / 1e9);
    peer.close("done");
    reading.join().unwrap();
    listener.stop();
    accepting.join().unwrap();
    while sink.cpu.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    let gigabytes = (FRAMES * FRAME as u64) as f64 / 1e9;
    let receiver = sink.cpu.load(Ordering::SeqCst) as f64 / 1e9;
    println!(
        "{:.0} MB/s; CPU-seconds a GB: {:.2} who receives, {:.2} who sends",
        gigabytes * 1e3 / seconds,
        receiver / gigabytes,
        (cpu - receiver) / gigabytes
    );
}
