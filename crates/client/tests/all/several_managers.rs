//! A client with the addresses of several managers, of which some are gone, wait for their turn, or die. The managers are small test servers.

use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use weir_client::{Client, ClientError, DirlistOptions, Endpoint, OpenOptions, Reader, Settings, Url};

use crate::server::{AllAnswers, OK, OPEN, READ, REDIRECT, serve};

const STAT: u16 = 3017;
const RM: u16 = 3014;

/// A server that can die.
struct Server {
    at: Endpoint,
    is_dead: Arc<AtomicBool>,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
    stats: Arc<AtomicUsize>,
}

impl Server {
    /// `answers`: what it answers to a request, by its kind and the number of earlier requests of this kind.
    fn new(answers: impl Fn(u16, usize) -> (u16, Vec<u8>) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = Endpoint { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() };
        let (is_dead, sockets) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let stats = Arc::new(AtomicUsize::new(0));
        let server =
            Self { at, is_dead: Arc::clone(&is_dead), sockets: Arc::clone(&sockets), stats: Arc::clone(&stats) };
        let opens = AtomicUsize::new(0);
        let answers: Arc<AllAnswers> = Arc::new(move |kind, _, _| {
            let before = match kind {
                STAT => stats.fetch_add(1, Ordering::SeqCst),
                OPEN => opens.fetch_add(1, Ordering::SeqCst),
                _ => 0,
            };
            vec![answers(kind, before)]
        });
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                if is_dead.load(Ordering::SeqCst) {
                    return;
                }
                let socket = connection.unwrap();
                sockets.lock().unwrap().push(socket.try_clone().unwrap());
                let answers = Arc::clone(&answers);
                // The connection may end at any time.
                std::thread::spawn(move || serve(socket, &*answers).ok());
            }
        });
        server
    }

    /// It answers everything itself.
    fn active() -> Self {
        Self::new(|kind, _| whole(kind))
    }

    /// It redirects everything.
    fn leading_to(to: &Endpoint) -> Self {
        let to = redirect(to);
        Self::new(move |_, _| to.clone())
    }

    fn dies(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
        // The thread leaves the listener.
        let _ = TcpStream::connect((self.at.host.as_str(), self.at.port));
        for socket in self.sockets.lock().unwrap().drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn stats(&self) -> usize {
        self.stats.load(Ordering::SeqCst)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.dies();
    }
}

/// The answer of a server that has the file, which has 8 bytes.
fn whole(kind: u16) -> (u16, Vec<u8>) {
    (
        OK,
        match kind {
            STAT => b"1 8 16 1000\0".to_vec(),
            OPEN => [&[1, 2, 3, 4][..], &[0; 8], b"1 8 16 1000\0"].concat(),
            READ => b"contents".to_vec(),
            _ => Vec::new(),
        },
    )
}

fn redirect(to: &Endpoint) -> (u16, Vec<u8>) {
    (REDIRECT, [&u32::from(to.port).to_be_bytes()[..], to.host.as_bytes()].concat())
}

/// An address at which nobody listens.
fn nobody() -> Endpoint {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    Endpoint { host: "127.0.0.1".to_owned(), port }
}

fn url(servers: &[&Endpoint]) -> Url {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    Url::parse(&format!("root://{}//file", servers.join(","))).unwrap()
}

fn client() -> Client {
    let (silence_max, recovery_max) = (Duration::from_secs(10), Duration::from_secs(10));
    Client::new(Settings { silence_max, recovery_max, ..Settings::default() })
}

fn open(client: &mut Client, url: &Url) -> Reader<Vec<u8>> {
    Reader::new(client.open(url, OpenOptions::READ, 0).unwrap())
}

/// What the server of the file sends, and which one that is.
fn read(reader: &mut Reader<Vec<u8>>) -> (Vec<u8>, Endpoint) {
    reader.ask(0, 8, vec![0; 8]).unwrap();
    let chunk = reader.wait().unwrap().unwrap();
    (chunk.buffer, reader.file().url().server.clone())
}

#[test]
fn a_manager_that_is_gone_costs_a_new_client_nothing() {
    let (active, gone) = (Server::active(), nobody());
    for servers in [[&gone, &active.at], [&active.at, &gone]] {
        let mut client = client();
        let file = url(&servers);
        assert_eq!(client.stat(&file).unwrap().size, 8);
        assert_eq!(read(&mut open(&mut client, &file)).0, b"contents");
    }
    let failed = client().stat(&url(&[&gone, &nobody()])).unwrap_err();
    assert!(matches!(failed, ClientError::Connect { .. }), "at once, as nobody was ever there: {failed}");
}

#[test]
fn a_manager_that_dies_is_replaced_by_the_next_one() {
    let (first, second) = (Server::active(), Server::active());
    let (mut client, file) = (client(), url(&[&first.at, &second.at]));
    for _ in 0..3 {
        client.stat(&file).unwrap();
    }
    assert_eq!((first.stats(), second.stats()), (3, 0));
    first.dies();
    assert_eq!(client.stat(&file).unwrap().size, 8);
    assert_eq!(second.stats(), 1);
}

/// Its process is stopped, and its connections are up.
#[test]
fn a_manager_that_hangs_is_replaced_by_the_next_one() {
    let active = Server::active();
    let hangs = Arc::new(AtomicBool::new(false));
    let hanging = {
        let hangs = Arc::clone(&hangs);
        Server::new(move |kind, _| {
            // The test ends it.
            while matches!(kind, STAT | OPEN | RM) && hangs.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(10));
            }
            whole(kind)
        })
    };
    let next_server_after = Duration::from_millis(300);
    let silence_max = Duration::from_secs(20);
    let mut client = Client::new(Settings { next_server_after, silence_max, ..Settings::default() });
    let file = url(&[&hanging.at, &active.at]);
    client.stat(&file).unwrap();
    hangs.store(true, Ordering::SeqCst);
    let began = std::time::Instant::now();
    assert_eq!(client.stat(&file).unwrap().size, 8);
    assert_eq!(read(&mut open(&mut client, &file)).0, b"contents");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!((hanging.stats(), active.stats()), (2, 1));
    // Removing a file is not repeated: the one that hangs may do it yet.
    let (silence_max, recovery_max) = (Duration::from_millis(600), Duration::ZERO);
    let mut client = Client::new(Settings { next_server_after, silence_max, recovery_max, ..Settings::default() });
    let failed = client.rm(&file).unwrap_err();
    assert!(matches!(failed, ClientError::Silent { after, .. } if after == silence_max), "{failed}");
    hangs.store(false, Ordering::SeqCst);
}

#[test]
fn after_the_redirect_of_a_standby_the_active_one_is_asked_at_once() {
    let active = Server::active();
    let standby = Server::leading_to(&active.at);
    let (mut client, file) = (client(), url(&[&standby.at, &active.at]));
    for _ in 0..3 {
        client.stat(&file).unwrap();
    }
    assert_eq!((standby.stats(), active.stats()), (1, 3));
    // For another client the order is the one of the address.
    self::client().stat(&file).unwrap();
    assert_eq!(standby.stats(), 2);
}

#[test]
fn a_redirect_to_a_manager_that_is_gone_leads_back_to_the_list() {
    let (gone, other) = (nobody(), nobody());
    let to = redirect(&gone);
    // It takes over meanwhile.
    let taking_over = || {
        let to = to.clone();
        Server::new(move |kind, before| if kind != READ && before < 2 { to.clone() } else { whole(kind) })
    };
    let standby = taking_over();
    assert_eq!(client().stat(&url(&[&standby.at, &gone])).unwrap().size, 8);
    assert_eq!(standby.stats(), 3);
    // The redirect may name the other manager in another way than the list.
    let standby = taking_over();
    assert_eq!(client().stat(&url(&[&standby.at, &other])).unwrap().size, 8);
    let standby = taking_over();
    assert_eq!(read(&mut open(&mut client(), &url(&[&standby.at, &gone]))).0, b"contents");
}

#[test]
fn managers_of_one_name_are_asked_again_if_their_redirect_leads_nowhere() {
    let to = redirect(&nobody());
    // The same for all requests but logins: it takes over after the second one.
    let requests = AtomicUsize::new(0);
    let taking_over =
        Server::new(
            move |kind, _| {
                if requests.fetch_add(1, Ordering::SeqCst) % 3 < 2 { to.clone() } else { whole(kind) }
            },
        );
    let (mut client, file) = (client(), url(&[&taking_over.at]));
    assert_eq!(client.stat(&file).unwrap().size, 8);
    client.mkdir(&file, 0o755, false).unwrap();
    let mut count = 0;
    let each = |_| {
        count += 1;
        Ok::<_, ClientError>(())
    };
    client.list(&file, DirlistOptions::NONE, each).unwrap();
    assert_eq!(count, 0, "the listing is empty");
    // They have time to notice it, but not forever.
    let standby = Server::leading_to(&nobody());
    let (silence_max, recovery_max) = (Duration::from_secs(10), Duration::from_millis(300));
    let mut client = Client::new(Settings { silence_max, recovery_max, ..Settings::default() });
    let failed = client.stat(&url(&[&standby.at])).unwrap_err();
    assert!(matches!(failed, ClientError::GaveUp { .. }), "{failed}");
    assert!(standby.stats() > 1);
}

#[test]
fn an_open_file_goes_on_at_another_manager() {
    let (one, other) = (Server::active(), Server::active());
    let (first, second) = (Server::leading_to(&one.at), Server::leading_to(&other.at));
    let mut reader = open(&mut client(), &url(&[&first.at, &second.at]));
    assert_eq!(read(&mut reader), (b"contents".to_vec(), one.at.clone()));
    // The machine with the manager and the disk server is gone.
    first.dies();
    one.dies();
    assert_eq!(read(&mut reader), (b"contents".to_vec(), other.at.clone()));
}
