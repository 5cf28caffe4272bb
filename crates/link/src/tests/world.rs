//! Clusters of a few nodes on the loopback interface.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;
use types::{ClusterId, NodeId, Timestamp};

use crate::channel::{self, Deadline, SplitChannel};
use crate::connection::{Handler, IncomingHeader, Received};
use crate::hello::{self, Expect};
use crate::verify::name_of;
use crate::*;

pub const DAY: Duration = Duration::from_secs(86_400);
/// Long enough for a busy machine, short enough for a person who waits for a failing test.
pub const SOON: Duration = Duration::from_secs(20);

pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp(i64::try_from(since.as_nanos()).unwrap())
}

pub fn quick() -> Settings {
    Settings {
        connect_time: Duration::from_secs(5),
        frame_time: Duration::from_secs(1),
        send_time: Duration::from_secs(2),
        alive_every: Duration::from_millis(100),
        silence_max: Duration::from_millis(2500),
        close_time: Duration::from_millis(500),
        requests_max: 4,
        bytes_max: 40 << 20,
        one_way_bytes_max: 1 << 20,
    }
}

/// A cluster with its authority.
pub struct Cluster {
    pub folder: TempDir,
    pub authority: Arc<Authority>,
}

impl Cluster {
    pub fn new(number: u128) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::create(folder.path(), ClusterId(number), now()).unwrap();
        Self { folder, authority: Arc::new(authority) }
    }

    pub fn identity(&self, node: u64, roles: Roles) -> Identity {
        Identity::issue(&self.authority, NodeId(node), roles, now(), DAY).unwrap()
    }

    pub fn us(&self, node: u64, roles: Roles) -> LocalNode {
        local_node_of(&self.identity(node, roles))
    }

    /// A node with the handler [`Answers`].
    pub fn node(&self, node: u64, roles: Roles) -> Node {
        Node::start(self.us(node, roles), None)
    }
}

pub fn local_node_of(identity: &Identity) -> LocalNode {
    LocalNode::new(Arc::new(Credentials::new(identity).unwrap()), quick())
}

/// A node's observations of its peers, as text.
#[derive(Default)]
pub struct Seen {
    lines: Mutex<Vec<String>>,
    more: Condvar,
}

impl Seen {
    fn add(&self, line: String) {
        self.lines.lock().push(line);
        self.more.notify_all();
    }

    /// Waits for a line that contains `part`.
    pub fn wait_for(&self, part: &str) -> String {
        let until = Instant::now() + SOON;
        let mut lines = self.lines.lock();
        loop {
            if let Some(line) = lines.iter().find(|line| line.contains(part)) {
                return line.clone();
            }
            assert!(!self.more.wait_until(&mut lines, until).timed_out(), "nothing of {part:?} in {lines:?}");
        }
    }

    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }
}

/// Answers by the request's text: `echo` with the same message and bulk, `bulk <n>` with that many bytes. `later` is
/// answered after a message `now`, `never` is dropped, `slow` takes time, and `back` first asks the sender. Bulk of
/// messages that begin with `no room` gets no buffer.
#[derive(Default)]
pub struct Answers {
    pub seen: Seen,
    pub kept: Mutex<Vec<Responder<Vec<u8>>>>,
    pub unwanted: Mutex<Option<NodeId>>,
}

impl Handler for Answers {
    type Buffer = Vec<u8>;

    fn buffer(&self, _: &PeerIdentity, arriving: &IncomingHeader<'_>) -> Option<Vec<u8>> {
        // Longer than needed, like the buffers of a pool.
        (!arriving.message.starts_with(b"no room")).then(|| vec![0xee; arriving.header.bulk_len as usize + 100])
    }

    fn admit(&self, peer: &PeerIdentity) -> Result<(), String> {
        match *self.unwanted.lock() == Some(peer.name.node) {
            true => Err(format!("node {} was removed from the cluster", peer.name.node)),
            false => Ok(()),
        }
    }

    fn connected(&self, peer: &Peer<Vec<u8>>) {
        self.seen.add(format!("connected {}", peer.identity()));
    }

    fn received(&self, peer: &Peer<Vec<u8>>, received: Received<Vec<u8>>) {
        match received {
            Received::OneWay { message, bulk } => {
                self.seen.add(format!("one way {} {}", String::from_utf8_lossy(&message), bulk.bytes().len()));
                if message == b"now" {
                    for responder in self.kept.lock().drain(..) {
                        responder.answer(Outgoing::new(b"at last".to_vec())).unwrap();
                    }
                }
            }
            Received::Request { message, bulk, responder } => {
                let text = String::from_utf8_lossy(&message).into_owned();
                self.seen.add(format!("request {text}"));
                match (text.split_once(' ').unwrap_or((&text, "")), bulk) {
                    (("later", _), _) => self.kept.lock().push(responder),
                    (("never", _), _) => {}
                    (("slow", _), _) => {
                        std::thread::sleep(quick().silence_max * 2);
                        responder.answer(Outgoing::new(message)).unwrap();
                    }
                    (("back", _), bulk) => {
                        let length = u32::try_from(bulk.bytes().len()).unwrap();
                        let question = Outgoing::new(b"echo".to_vec()).with_bulk(Arc::new(bulk.bytes().to_vec()));
                        let answer = move |answer: Result<Answer<Vec<u8>>, CallError>| {
                            let bulk = answer.unwrap().bulk.bytes().to_vec();
                            responder.answer(Outgoing::new(message).with_bulk(Arc::new(bulk))).unwrap();
                        };
                        let call = Call::new(question).expecting(length);
                        peer.request_then(call, Room::Try, answer).unwrap();
                    }
                    (("bulk", number), _) => {
                        let bytes = vec![b'b'; number.parse().unwrap()];
                        let answer = Outgoing::new(message).with_bulk(Arc::new(bytes));
                        if let Err(error) = responder.answer(answer) {
                            self.seen.add(error.to_string());
                        }
                    }
                    (_, Bulk::Dropped { length }) => {
                        responder.answer(Outgoing::new(format!("dropped {length}").into_bytes())).unwrap();
                    }
                    (_, bulk) => {
                        let answer = Outgoing::new(message).with_bulk(Arc::new(bulk.bytes().to_vec()));
                        responder.answer(answer).unwrap();
                    }
                }
            }
        }
    }

    fn ended(&self, _: &Peer<Vec<u8>>, why: &LinkError) {
        self.seen.add(format!("ended {why}"));
    }
}

/// A node that listens.
pub struct Node {
    pub us: LocalNode,
    pub listener: Arc<Listener>,
    pub answers: Arc<Answers>,
    thread: Option<JoinHandle<()>>,
}

impl Node {
    pub fn start(us: LocalNode, service: Option<JoinService>) -> Self {
        Self::start_with(us, OtherServices { join: service.map(Arc::new), admin: None })
    }

    pub fn start_with(us: LocalNode, others: OtherServices) -> Self {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let answers = Arc::new(Answers::default());
        let thread = {
            let (us, listener, answers) = (us.clone(), Arc::clone(&listener), Arc::clone(&answers));
            std::thread::spawn(move || listener.serve(&us, &answers, &others))
        };
        Self { us, listener, answers, thread: Some(thread) }
    }

    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    pub fn seen(&self) -> &Seen {
        &self.answers.seen
    }
}

impl Node {
    /// Restarts the node with other settings.
    pub fn restart_with(&mut self, settings: Settings) {
        *self = Self::start(LocalNode { settings, ..self.us.clone() }, None);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.listener.stop();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// A connection to a node, with its own thread.
pub struct Link {
    pub peer: Peer<Vec<u8>>,
    thread: Option<JoinHandle<Arc<LinkError>>>,
}

impl Link {
    pub fn up(us: &LocalNode, node: &Node) -> Self {
        Self::try_up(us, node, Expect::default()).unwrap()
    }

    pub fn try_up(us: &LocalNode, node: &Node, expect: Expect) -> Result<Self, LinkError> {
        let ready = connect(us, node.address(), expect)?;
        let peer = ready.peer().clone();
        Ok(Self { peer, thread: Some(std::thread::spawn(move || ready.run(&Answers::default()))) })
    }

    pub fn ask(&self, text: &str) -> Result<Answer<Vec<u8>>, CallError> {
        self.peer.request(call(text)).unwrap().wait(SOON)
    }

    /// Waits for the end.
    pub fn end(mut self) -> Arc<LinkError> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.peer.close("the test is over");
            thread.join().unwrap();
        }
    }
}

pub fn call(text: &str) -> Call<Vec<u8>> {
    Call::new(Outgoing::new(text.as_bytes().to_vec()))
}

/// A node of the cluster that sends a proper hello, and then arbitrary bytes.
pub struct Rogue {
    pub halves: SplitChannel,
}

impl Rogue {
    pub fn greet(us: &LocalNode, node: &Node) -> Self {
        let mut rogue = Self::connect(us, node);
        let name = us.credentials.name();
        let ours = Hello { versions: us.versions, name, requests_max: 4, bytes_max: 1 << 26, software: "rogue".into() };
        let certificate = node.us.credentials.name();
        hello::exchange(&mut rogue.halves, &ours, &certificate, Expect::default(), soon(), &|_, _| Ok(())).unwrap();
        rogue
    }

    /// After TLS, before the hello.
    pub fn connect(us: &LocalNode, node: &Node) -> Self {
        let socket = TcpStream::connect(node.address()).unwrap();
        let config = Arc::clone(&us.credentials.current().client);
        let (halves, shown) = channel::connect(socket, config, soon(), SOON).unwrap();
        assert!(name_of(&shown.certificate.unwrap()).is_some());
        Self { halves }
    }

    /// The node's verdict on the hello of `us`.
    pub fn verdict_on(&mut self, us: &LocalNode) -> String {
        let (versions, name) = (us.versions, us.credentials.name());
        let ours = Hello { versions, name, requests_max: 4, bytes_max: 1 << 26, software: "weir of a test".into() };
        self.send(&ours.to_bytes());
        let (mut hello, mut head) = ([0; HELLO_BYTES], [0; 4]);
        assert!(self.halves.reading.fill(&mut hello, soon()).unwrap());
        assert!(self.halves.reading.fill(&mut head, soon()).unwrap());
        let mut reason = vec![0; usize::from(u16::from_le_bytes([head[2], head[3]]))];
        assert!(reason.is_empty() || self.halves.reading.fill(&mut reason, soon()).unwrap());
        String::from_utf8(reason).unwrap()
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.halves.writing.send(&[bytes]).unwrap();
    }

    /// The goodbye of the node before it ends the connection.
    pub fn last_words(&mut self) -> String {
        loop {
            let mut bytes = [0; HEADER_BYTES];
            assert!(self.halves.reading.fill(&mut bytes, soon()).unwrap(), "it ended without a word");
            let header = FrameHeader::from_bytes(&bytes).unwrap();
            let mut message = vec![0; (header.message_len + header.bulk_len) as usize];
            if !message.is_empty() {
                self.halves.reading.fill(&mut message, soon()).unwrap();
            }
            if header.kind == Kind::Goodbye {
                return String::from_utf8(message).unwrap();
            }
        }
    }
}

impl Rogue {
    /// Like [`Rogue::last_words`], but skips other frames before the goodbye.
    pub fn last_words_after_request(mut self) -> String {
        let mut message = [0; 3];
        assert!(self.halves.reading.fill(&mut message, soon()).unwrap());
        self.last_words()
    }

    /// Waits until the node ends the connection, whatever it sends before.
    pub fn end_of_stream(&mut self) -> Instant {
        let deadline = soon();
        loop {
            match self.halves.reading.fill(&mut [0; 1], deadline) {
                Ok(true) => {}
                Err(CloseCause::Slow { .. }) => panic!("the node does not end the connection"),
                Ok(false) | Err(_) => return Instant::now(),
            }
        }
    }
}

pub fn soon() -> Deadline {
    Deadline::new("this test", SOON)
}
