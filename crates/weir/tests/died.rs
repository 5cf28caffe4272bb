//! A thread dies by a panic. Nobody hangs, the waiting client gets an error, and the node stops with the exit code for this.
//!
//! The node contains panics of operations, completions and rounds. To get past that, the panic's payload here panics again when it is
//! dropped, or a disk panics under a thread of a certain name.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail this way

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use crate::session::Session;
use crate::watched::Watched;
use config::Config;
use disk::{Disk, DiskOp, RealDisk};
use foundation::{DataDir, Foundation, IfNew, Purpose};
use kv::{Durability, Kv as _};
use types::{BootId, Timestamp};
use weir::Failure;
use weir::exit::Exit;
use weir::people::People;
use weir::serve::{Clock, serve_on};
use wire::request::{Access, Open, OpenOptions as Options};
use wire::{PathArg, Request, Response};

/// Panics again when dropped outside a panic.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "the bomb goes off");
    }
}

fn explode() {
    std::panic::panic_any(Bomb)
}

/// Starts a server, has `kill` kill the victim and asks for a change. Returns the answer and the reason why the node ended. Panics if
/// anything hangs.
fn dies(victim: &'static str, kill: impl FnOnce(&Foundation, &AtomicBool)) -> (Option<Response>, Failure) {
    let place = tempfile::tempdir().unwrap();
    let now = Timestamp(1_700_000_000_000_000_000);
    let data = DataDir::open(&place.path().join("data"), IfNew::Make, now).unwrap();
    let armed = Arc::new(AtomicBool::new(false));
    let real: Arc<dyn Disk> = Arc::new(RealDisk::open(&data.path).unwrap());
    // Once armed, the disk panics under the victim. A thread that dies while it leads a write takes the journal with it, but the keeper
    // must die alone.
    let deadly = if victim == "keeper" { DiskOp::Space } else { DiskOp::Write };
    let trap = Arc::clone(&armed);
    let watch = Arc::new(move |op| {
        if op == deadly && trap.load(Ordering::SeqCst) && std::thread::current().name() == Some(victim) {
            explode();
        }
    });
    let disk = Arc::new(Watched { inner: real, watch });
    let config = Config::defaults();
    let foundation = Arc::new(Foundation::open_on(disk, &data, &config.foundation(), Purpose::Serve, now).unwrap());
    let address: SocketAddr = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (_never, stop) = channel();
    let (tell, ended) = channel();
    let served = Arc::clone(&foundation);
    std::thread::spawn(move || {
        let server_config = xrootd::ServerConfig::new(address, BootId(1));
        let (metrics, mut clock) = (weir::metrics::Metrics::nowhere(), Clock::default());
        let result =
            serve_on(&served, &config, server_config, metrics, &stop, &mut |_| (), &mut clock, &People::nobody());
        tell.send(result).unwrap();
    });
    let end = Instant::now() + Duration::from_secs(60);
    while std::net::TcpStream::connect(address).is_err() {
        assert!(Instant::now() < end, "it does not serve");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut session = Session::open(address, 1);
    session.put("/before", b"acknowledged");
    kill(&foundation, &armed);
    let open = Open::plain(Access(0o644), Options::NEW | Options::UPDATE, PathArg::plain(b"/after"));
    let answer = session.try_send(&Request::Open(open));
    let Err(failure) = ended.recv_timeout(Duration::from_secs(60)).expect("the node goes on") else {
        panic!("the node ended as if all were well");
    };
    (answer, failure)
}

fn is_told(answer: &Option<Response>, who: &str) {
    let Some(Response::Error { text, .. }) = answer else { panic!("answered {answer:?}") };
    let text = String::from_utf8_lossy(text);
    assert!(text.contains(who) || text.contains("lost track"), "{text}");
}

#[test]
fn the_committer_dies_in_an_operation() {
    let (answer, failure) = dies("nobody", |foundation, _| {
        foundation.names.embedded.submit(
            Durability::Written,
            Box::new(|_| {
                explode();
                kv::OpOutcome::Abort
            }),
            Box::new(|_| ()),
        );
    });
    is_told(&answer, "committer");
    assert_eq!(failure.exit, Exit::Broken);
    assert!(failure.to_string().contains("committer"), "{failure}");
}

#[test]
fn the_committer_dies_while_it_writes_the_journal() {
    let (answer, failure) = dies("committer", |_, armed| armed.store(true, Ordering::SeqCst));
    is_told(&answer, "died");
    assert_eq!(failure.exit, Exit::Broken);
}

#[test]
fn the_keeper_dies() {
    let (_, failure) = dies("keeper", |_, armed| armed.store(true, Ordering::SeqCst));
    assert_eq!(failure.exit, Exit::Broken);
    assert!(failure.to_string().contains("keeper"), "{failure}");
}
