//! An issuer: an HTTPS server with a discovery document and keys, which can misbehave.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// An authority that signs certificates of servers.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    pub fn pem(&self) -> String {
        use base64::Engine as _;
        let text = base64::engine::general_purpose::STANDARD.encode(&self.certificate);
        let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    }

    /// The settings of a server whose certificate is for `host`.
    pub fn server(&self, host: &str) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![host.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        Arc::new(config)
    }
}

/// What is at a path.
#[derive(Clone)]
pub enum Page {
    /// A document.
    Json(String),
    /// These bytes, and then a proper end of the connection.
    Raw(String),
    /// These bytes, and then an end that TLS does not know of.
    Cut(String),
    /// Nothing, for ever.
    Hang,
    /// A byte of an answer now and then, for ever.
    Drip,
    /// Bytes for ever.
    Endless,
}

struct Shared {
    pages: Mutex<BTreeMap<String, Page>>,
    asked: Mutex<Vec<String>>,
    is_away: AtomicBool,
    is_done: AtomicBool,
    config: Mutex<Arc<ServerConfig>>,
}

pub struct IssuerServer {
    pub port: u16,
    shared: Arc<Shared>,
}

pub const DISCOVERY: &str = "/.well-known/openid-configuration";
pub const OTHER_DISCOVERY: &str = "/.well-known/oauth-authorization-server";
pub const KEYS: &str = "/keys?set=1";

impl IssuerServer {
    pub fn new(config: Arc<ServerConfig>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared {
            pages: Mutex::default(),
            asked: Mutex::default(),
            is_away: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
            config: Mutex::new(config),
        });
        let of_thread = Arc::clone(&shared);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if of_thread.is_done.load(Ordering::SeqCst) {
                    return;
                }
                if of_thread.is_away.load(Ordering::SeqCst) {
                    continue;
                }
                let shared = Arc::clone(&of_thread);
                std::thread::spawn(move || serve(&shared, stream));
            }
        });
        Self { port, shared }
    }

    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.port)
    }

    /// The discovery document.
    pub fn discovery(&self) -> Value {
        json!({"issuer": self.url(), "jwks_uri": format!("{}{KEYS}", self.url())})
    }

    pub fn put(&self, path: &str, page: Page) {
        self.shared.pages.lock().insert(path.to_owned(), page);
    }

    /// Puts a discovery document and these keys where they belong.
    pub fn publish(&self, keys: &[Value]) {
        self.put(DISCOVERY, Page::Json(self.discovery().to_string()));
        self.put(KEYS, Page::Json(json!({ "keys": keys }).to_string()));
    }

    pub fn set_away(&self, is_away: bool) {
        self.shared.is_away.store(is_away, Ordering::SeqCst);
    }

    pub fn set_config(&self, config: Arc<ServerConfig>) {
        *self.shared.config.lock() = config;
    }

    /// How often `path` was asked for.
    pub fn asked(&self, path: &str) -> usize {
        self.shared.asked.lock().iter().filter(|asked| *asked == path).count()
    }

    /// The heads of requests are checked by the server; this is what was asked.
    pub fn all_asked(&self) -> Vec<String> {
        self.shared.asked.lock().clone()
    }
}

impl Drop for IssuerServer {
    fn drop(&mut self) {
        self.shared.is_done.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

/// Answers one request. Clients that go away are normal here.
fn serve(shared: &Shared, stream: TcpStream) {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let connection = ServerConnection::new(Arc::clone(&shared.config.lock())).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.strip_prefix("GET ").and_then(|rest| rest.split_once(" HTTP/1.1\r\n")).unwrap().0.to_owned();
    assert!(head.contains("\r\nHost: localhost:"), "{head}");
    shared.asked.lock().push(path.clone());
    let page = shared.pages.lock().get(&path).cloned();
    let page = page.unwrap_or_else(|| Page::Raw("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".into()));
    match page {
        Page::Json(text) => {
            let head =
                format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", text.len());
            let _ = stream.write_all(format!("{head}{text}").as_bytes());
        }
        Page::Raw(text) => {
            let _ = stream.write_all(text.as_bytes());
        }
        Page::Cut(text) => {
            let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
            return;
        }
        Page::Hang => {
            let _ = stream.read(&mut byte);
            return;
        }
        Page::Drip => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n");
            while stream.write_all(b"X-A: b\r\n").and_then(|()| stream.flush()).is_ok() {
                std::thread::sleep(Duration::from_millis(50));
            }
            return;
        }
        Page::Endless => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
            while stream.write_all(chunk.as_bytes()).is_ok() {}
            return;
        }
    }
    stream.conn.send_close_notify();
    let _ = stream.flush();
    // Bytes of the client that nobody reads would reset the connection.
    let _ = stream.sock.shutdown(std::net::Shutdown::Write);
    let _ = stream.read(&mut byte);
}
