//! A proxy in front of the database that breaks connections at the worst moments.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// What happens to a connection when a commit of changes passes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Fault {
    /// Nothing.
    None,
    /// The commit does not arrive.
    BeforeCommit,
    /// It arrives, and its answer does not.
    LoseAnswer,
    /// It arrives only some time after the client's connection has broken.
    Late,
}

impl Fault {
    fn of(number: u32) -> Self {
        match number {
            1 => Fault::BeforeCommit,
            2 => Fault::LoseAnswer,
            3 => Fault::Late,
            _ => Fault::None,
        }
    }
}

/// A proxy. Each fault that is [planned](Proxy::plan) happens to one commit.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    planned: Arc<AtomicU32>,
    happened: Arc<AtomicU32>,
    is_down: Arc<AtomicBool>,
    /// How late the answers to commits of changes come, in milliseconds.
    late_ms: Arc<AtomicU64>,
}

/// With the number of a fault: it happens again and again.
const ALWAYS: u32 = 1 << 16;
/// How long a late commit is on its way.
const LATE: Duration = Duration::from_millis(300);

impl Proxy {
    /// Starts a proxy before the server on `port` of 127.0.0.1. It ends with the test program.
    ///
    /// # Panics
    /// If there is no port for it.
    #[must_use]
    #[allow(clippy::panic)] // only tests call this
    pub fn before(port: u16) -> Self {
        let listening = TcpListener::bind("127.0.0.1:0").and_then(|listener| Ok((listener.local_addr()?, listener)));
        let (address, listener) = match listening {
            Ok(listening) => listening,
            Err(why) => panic!("cannot start the proxy: {why}"),
        };
        let proxy = Self {
            port: address.port(),
            planned: Arc::default(),
            happened: Arc::default(),
            is_down: Arc::default(),
            late_ms: Arc::default(),
        };
        let (planned, happened) = (Arc::clone(&proxy.planned), Arc::clone(&proxy.happened));
        let (is_down, late_ms) = (Arc::clone(&proxy.is_down), Arc::clone(&proxy.late_ms));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                if is_down.load(Ordering::SeqCst) {
                    continue;
                }
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                // Small messages would wait for each other's acknowledgements.
                let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
                let (planned, happened, late_ms) = (Arc::clone(&planned), Arc::clone(&happened), Arc::clone(&late_ms));
                std::thread::spawn(move || relay(client, server, (&planned, &happened), late_ms));
            }
        });
        proxy
    }

    /// The address of a database on the server at `port`, through the proxy.
    #[must_use]
    pub fn url(&self, url: &str, port: u16) -> String {
        format!("{}?sslmode=disable", url.replace(&format!(":{port}/"), &format!(":{}/", self.port)))
    }

    /// The next commit of changes meets this fault.
    pub fn plan(&self, fault: Fault) {
        self.planned.store(fault as u32, Ordering::SeqCst);
    }

    /// Every commit of changes meets this fault, until another one is planned.
    pub fn plan_always(&self, fault: Fault) {
        self.planned.store(fault as u32 | ALWAYS, Ordering::SeqCst);
    }

    /// Number of faults that happened.
    #[must_use]
    pub fn happened(&self) -> u32 {
        self.happened.load(Ordering::SeqCst)
    }

    /// The answers to commits of changes come so late from now on.
    pub fn set_late(&self, late: Duration) {
        self.late_ms.store(u64::try_from(late.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// Whether new connections are refused.
    pub fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }
}

/// The fault that is planned, which usually happens once.
fn take(planned: &AtomicU32) -> u32 {
    let next = |planned| Some(if planned & ALWAYS == 0 { 0 } else { planned });
    let (Ok(taken) | Err(taken)) = planned.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    taken & !ALWAYS
}

fn relay(
    mut client: TcpStream,
    mut server: TcpStream,
    (planned, happened): (&AtomicU32, &AtomicU32),
    late_ms: Arc<AtomicU64>,
) {
    let (Ok(mut from_server), Ok(mut to_client)) = (server.try_clone(), client.try_clone()) else { return };
    let (silent, is_commit) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (muted, has_committed) = (Arc::clone(&silent), Arc::clone(&is_commit));
    let back = std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(len @ 1..) = from_server.read(&mut buffer) {
            if has_committed.swap(false, Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(late_ms.load(Ordering::SeqCst)));
            }
            if !muted.load(Ordering::SeqCst) && to_client.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
    });
    let mut buffer = vec![0; 1 << 20];
    while let Ok(len @ 1..) = client.read(&mut buffer) {
        let bytes = &buffer[..len];
        // A simple query is `Q`, its length, and the text. A flight that commits changes ends with this one, behind a bind message (`B`).
        let commits = bytes.ends_with(b"COMMIT\0") && bytes.first() == Some(&b'B');
        let fault = if commits { Fault::of(take(planned)) } else { Fault::None };
        if fault != Fault::None {
            happened.fetch_add(1, Ordering::SeqCst);
        }
        match fault {
            Fault::None => {
                if commits {
                    is_commit.store(true, Ordering::SeqCst);
                }
                if server.write_all(bytes).is_err() {
                    break;
                }
            }
            Fault::BeforeCommit => break,
            Fault::LoseAnswer => {
                silent.store(true, Ordering::SeqCst);
                let _ = server.write_all(bytes);
                std::thread::sleep(Duration::from_millis(100));
                break;
            }
            Fault::Late => {
                silent.store(true, Ordering::SeqCst);
                let _ = client.shutdown(Shutdown::Both);
                std::thread::sleep(LATE);
                let _ = server.write_all(bytes);
                std::thread::sleep(Duration::from_millis(100));
                break;
            }
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
    let _ = back.join();
}
