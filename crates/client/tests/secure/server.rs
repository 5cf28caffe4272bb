//! A small server with TLS, which does at each step what a test wants.

use std::fs;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tls::{CertificateFiles, Channel, Opened, ServerCertificate, TrustSource};
use weir_client::{Authorities, Credentials, Settings, Url};

pub const OK: u16 = 0;
pub const AUTH_MORE: u16 = 4002;
pub const ERROR: u16 = 4003;
pub const REDIRECT: u16 = 4004;
pub const AUTH: u16 = 3000;
pub const PROTOCOL: u16 = 3006;
pub const LOGIN: u16 = 3007;
pub const OPEN: u16 = 3010;
pub const READ: u16 = 3013;

pub const HAVE_TLS: u32 = 0x8000_0000;
pub const GOTO_TLS: u32 = 0x4000_0000;
pub const TLS_SESSION: u32 = 0x0800_0000;
pub const IS_SERVER: u32 = 1;

/// An authority with one server.
pub struct Site {
    folder: TempDir,
    pub certificate: Arc<ServerCertificate>,
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

impl Site {
    /// Its server has a certificate for these names and addresses.
    pub fn new(hosts: &[&str]) -> Self {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        fs::write(path("authority.pem"), pem("CERTIFICATE", own.der())).unwrap();
        let issuer = Issuer::new(params, key);
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(hosts).unwrap().signed_by(&key, &issuer).unwrap();
        let files = CertificateFiles { certificate: path("server.pem"), key: path("server.key") };
        fs::write(&files.certificate, pem("CERTIFICATE", certificate.der())).unwrap();
        fs::write(&files.key, pem("PRIVATE KEY", &key.serialize_der())).unwrap();
        fs::set_permissions(&files.key, fs::Permissions::from_mode(0o600)).unwrap();
        let certificate = ServerCertificate::load(files, SystemTime::now().into()).unwrap();
        Self { folder, certificate }
    }

    pub fn authority(&self) -> PathBuf {
        self.folder.path().join("authority.pem")
    }

    /// The settings of an impatient client that trusts this site's authority, and has no credentials.
    pub fn settings(&self) -> Settings {
        Settings {
            connect_timeout: Duration::from_secs(1),
            silence_max: Duration::from_secs(5),
            recovery_max: Duration::from_secs(5),
            credentials: Credentials::only(&[]),
            authorities: Authorities::of(vec![TrustSource::File(self.authority())]),
            ..Settings::default()
        }
    }
}

/// A request.
pub struct Asked {
    pub kind: u16,
    pub head: [u8; 24],
    pub data: Vec<u8>,
}

/// One connection of a client.
pub struct Peer {
    pub socket: TcpStream,
    channel: Option<Channel>,
    sealed: Vec<u8>,
}

impl Peer {
    fn take(&mut self, into: &mut [u8]) -> io::Result<()> {
        let Some(channel) = &self.channel else { return self.socket.read_exact(into) };
        let mut filled = 0;
        while filled < into.len() {
            let mut rest = &self.sealed[..];
            let opened = channel.open(&mut rest, &mut into[filled..]).map_err(io::Error::other)?;
            self.sealed = rest.to_vec();
            match opened {
                Opened::Ended => return Err(io::ErrorKind::UnexpectedEof.into()),
                Opened::Bytes(0) => {
                    let mut more = [0; 16 << 10];
                    let count = self.socket.read(&mut more)?;
                    if count == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    self.sealed.extend_from_slice(&more[..count]);
                }
                Opened::Bytes(count) => filled += count,
            }
        }
        Ok(())
    }

    /// Sends bytes, encrypted if everything is.
    pub fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(channel) = &self.channel else { return self.socket.write_all(bytes) };
        let mut out = Vec::new();
        channel.seal(&[IoSlice::new(bytes)], &mut out).map_err(io::Error::other)?;
        self.socket.write_all(&out)
    }

    pub fn next(&mut self) -> io::Result<Asked> {
        let mut head = [0; 24];
        self.take(&mut head)?;
        let len = u32::from_be_bytes(head[20..24].try_into().unwrap()) as usize;
        let mut data = vec![0; len];
        self.take(&mut data)?;
        Ok(Asked { kind: u16::from_be_bytes([head[2], head[3]]), head, data })
    }

    pub fn answer(&mut self, to: &Asked, status: u16, body: &[u8]) -> io::Result<()> {
        let len = u32::try_from(body.len()).unwrap().to_be_bytes();
        self.put(&[&to.head[..2], &status.to_be_bytes(), &len, body].concat())
    }

    pub fn refuse(&mut self, to: &Asked, text: &str) -> io::Result<()> {
        self.answer(to, ERROR, &[&3030_u32.to_be_bytes()[..], text.as_bytes(), b"\0"].concat())
    }

    /// Answers the first two messages. Returns the flags of the client's protocol request.
    pub fn greet(&mut self, flags: u32) -> io::Result<u8> {
        let mut hello = [0; 20];
        self.take(&mut hello)?;
        self.put(&[&[0, 0, 0, 0, 0, 0, 0, 8][..], &0x511_u32.to_be_bytes(), &1_u32.to_be_bytes()].concat())?;
        let asked = self.next()?;
        assert_eq!(asked.kind, PROTOCOL);
        self.answer(&asked, OK, &[0x511_u32.to_be_bytes(), (flags | IS_SERVER).to_be_bytes()].concat())?;
        Ok(asked.head[8])
    }

    /// Waits for the client's first bytes of TLS, and does not understand them.
    pub fn hear(&mut self) -> io::Result<usize> {
        self.socket.read(&mut [0; 4096])
    }

    /// Agrees on keys.
    pub fn start_tls(&mut self, site: &Site) -> io::Result<()> {
        let channel = Channel::server(site.certificate.config(SystemTime::now().into())).map_err(io::Error::other)?;
        while channel.is_handshaking() {
            let mut received = [0; 16 << 10];
            let count = self.socket.read(&mut received)?;
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let mut rest = &received[..count];
            channel.open(&mut rest, &mut []).map_err(io::Error::other)?;
            self.sealed.extend_from_slice(rest);
            let mut out = Vec::new();
            channel.seal(&[], &mut out).map_err(io::Error::other)?;
            self.socket.write_all(&out)?;
        }
        self.channel = Some(channel);
        Ok(())
    }

    /// Answers a login with this list of methods.
    pub fn login(&mut self, methods: &[u8]) -> io::Result<()> {
        let asked = self.next()?;
        assert_eq!(asked.kind, LOGIN);
        self.answer(&asked, OK, &[&[7; 16][..], methods].concat())
    }
}

/// Starts a server that treats each connection so. Returns its address at `host`, and the count of connections.
pub fn serve(
    host: &str,
    each: impl Fn(&mut Peer) -> io::Result<()> + Send + Sync + 'static,
) -> (Url, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("roots://{host}:{}//file", listener.local_addr().unwrap().port())).unwrap();
    let (count, each) = (Arc::new(AtomicUsize::new(0)), Arc::new(each));
    let counted = Arc::clone(&count);
    std::thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            counted.fetch_add(1, Ordering::Relaxed);
            let each = Arc::clone(&each);
            std::thread::spawn(move || each(&mut Peer { socket, channel: None, sealed: Vec::new() }));
        }
    });
    (url, count)
}

/// The rest of a connection of a good server: one file of `content`, under any name.
pub fn serve_file(peer: &mut Peer, content: &[u8]) -> io::Result<()> {
    let stat = format!("7 {} 48 1000\0", content.len());
    loop {
        let asked = peer.next()?;
        match asked.kind {
            OPEN => peer.answer(&asked, OK, &[&[1, 2, 3, 4][..], &[0; 8], stat.as_bytes()].concat())?,
            READ => {
                let offset = usize::try_from(u64::from_be_bytes(asked.head[8..16].try_into().unwrap())).unwrap();
                let len = u32::from_be_bytes(asked.head[16..20].try_into().unwrap()) as usize;
                peer.answer(&asked, OK, &content[offset..offset + len])?;
            }
            3017 => peer.answer(&asked, OK, stat.as_bytes())?,
            _ => peer.answer(&asked, OK, &[])?,
        }
    }
}

/// A whole connection of a good server that speaks TLS from the beginning.
pub fn good(peer: &mut Peer, site: &Site, content: &[u8]) -> io::Result<()> {
    assert_eq!(peer.greet(HAVE_TLS | GOTO_TLS)?, 0x07);
    peer.start_tls(site)?;
    peer.login(b"")?;
    serve_file(peer, content)
}
