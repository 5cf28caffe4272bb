//! TLS on one connection. The session reads from it as from its socket, and sends what it encrypts.

use std::io::{self, ErrorKind, IoSlice, Read as _};
use std::net::{IpAddr, TcpStream};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tls::{Channel, ChannelError, Opened, Trust};

/// The most encrypted bytes that are received at once. A record has up to 16 KiB.
const RECEIVED_LEN: usize = 64 << 10;
/// Room for all that they, and the part of a record that came before, can hold.
const REST_LEN: usize = RECEIVED_LEN + (64 << 10);

/// TLS on one connection.
#[derive(Debug)]
pub(crate) struct Sealed {
    channel: Channel,
    received: Buffer,
    /// Decrypted bytes that had no room in the memory of the last reader. So whoever waits for the socket knows that no
    /// complete record is here.
    rest: Buffer,
    /// What the next reader gets after the rest.
    failed: Option<ChannelError>,
}

/// Bytes of which the first may have been taken.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    at: usize,
    end: usize,
}

impl Buffer {
    fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// All of its memory, when everything was taken.
    fn room(&mut self, len: usize) -> &mut [u8] {
        self.bytes.resize(len, 0);
        &mut self.bytes
    }

    fn filled(&mut self, count: usize) {
        (self.at, self.end) = (0, count);
    }
}

impl Sealed {
    /// Begins a connection with `host`, which must have a certificate of a trusted authority with this name or address.
    pub(crate) fn new(trust: &Trust, host: &str) -> Result<Self, ChannelError> {
        // The certificate has the address without the form for sockets of both versions of IP.
        let host = match host.parse::<IpAddr>() {
            Ok(address) => address.to_canonical().to_string(),
            Err(_) => host.to_owned(),
        };
        let channel = Channel::client(trust.config(), &host)?;
        Ok(Self { channel, received: Buffer::default(), rest: Buffer::default(), failed: None })
    }

    /// Whether the two sides still agree on keys.
    pub(crate) fn is_handshaking(&self) -> bool {
        self.channel.is_handshaking()
    }

    /// Takes a part of the server's side of the agreement on keys.
    pub(crate) fn shake_hands(&mut self, received: &[u8]) -> Result<(), ChannelError> {
        let mut left = received;
        self.channel.open(&mut left, &mut [])?;
        // The server may have said more already.
        self.received.room(RECEIVED_LEN.max(left.len()))[..left.len()].copy_from_slice(left);
        self.received.filled(left.len());
        if !self.is_handshaking() {
            self.keep_rest();
        }
        Ok(())
    }

    /// Encrypts `parts`, and appends to `out` what must be sent.
    pub(crate) fn seal(&self, parts: &[IoSlice<'_>], out: &mut Vec<u8>) -> io::Result<()> {
        self.channel.seal(parts, out).map_err(invalid)
    }

    /// Whether the next read needs nothing from the socket.
    pub(crate) fn has_more(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Receives once from the socket, if it must. [`ErrorKind::Interrupted`]: what came is not enough yet. 0: the end.
    pub(crate) fn read(&mut self, mut socket: &TcpStream, into: &mut [u8]) -> io::Result<usize> {
        if let Some(count) = self.open(into)? {
            return Ok(count);
        }
        let count = socket.read(self.received.room(RECEIVED_LEN))?;
        self.received.filled(count);
        if count == 0 {
            return Ok(0);
        }
        self.open(into)?.ok_or_else(|| ErrorKind::Interrupted.into())
    }

    /// Takes what the kernel has, without waiting. Returns whether the next read has a result. TLS itself also sends
    /// bytes, which are for no reader.
    pub(crate) fn look(&mut self, socket: &TcpStream) -> bool {
        if self.has_more() || self.failed.is_some() {
            return true;
        }
        if self.received.is_empty() {
            match recv(socket, self.received.room(RECEIVED_LEN), RecvFlags::DONTWAIT) {
                Ok((0, _)) => return true,
                Ok((count, _)) => self.received.filled(count),
                Err(Errno::AGAIN | Errno::INTR) => return false,
                Err(_) => return true,
            }
        }
        let ended = self.keep_rest();
        ended || self.has_more() || self.failed.is_some()
    }

    /// Decrypts what is here. `None`: more must be received first. Then nothing that was received is left.
    fn open(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        if self.has_more() {
            let rest = &self.rest.bytes[self.rest.at..self.rest.end];
            let count = rest.len().min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            self.rest.at += count;
            return Ok(Some(count));
        }
        if let Some(failed) = self.failed.take() {
            return Err(invalid(failed));
        }
        match self.decrypt(into).map_err(invalid)? {
            Opened::Bytes(0) => Ok(None),
            Opened::Bytes(count) => {
                if count == into.len() {
                    self.keep_rest();
                }
                Ok(Some(count))
            }
            Opened::Ended => Ok(Some(0)),
        }
    }

    fn decrypt(&mut self, into: &mut [u8]) -> Result<Opened, ChannelError> {
        let mut left = &self.received.bytes[self.received.at..self.received.end];
        let opened = self.channel.open(&mut left, into);
        self.received.at = self.received.end - left.len();
        opened
    }

    /// Decrypts all that is here and had no room. Returns whether the server has ended the connection.
    fn keep_rest(&mut self) -> bool {
        let mut rest = std::mem::take(&mut self.rest);
        let opened = self.decrypt(rest.room(REST_LEN));
        rest.filled(0);
        match opened {
            Ok(Opened::Bytes(count)) => rest.filled(count),
            Ok(Opened::Ended) => {}
            Err(ref error) => tracing::debug!(%error, "the connection cannot go on"),
        }
        self.rest = rest;
        match opened {
            Ok(Opened::Ended) => true,
            Ok(Opened::Bytes(_)) => false,
            Err(error) => {
                self.failed = Some(error);
                false
            }
        }
    }
}

fn invalid(error: ChannelError) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use std::io::Write as _;
    use std::net::TcpListener;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::{Duration, Instant, SystemTime};

    use base64::Engine as _;
    use rcgen::{CertificateParams, KeyPair};
    use tls::{CertificateFiles, ServerCertificate, TrustSource};

    use super::*;

    fn pem(label: &str, der: &[u8]) -> String {
        let text = base64::engine::general_purpose::STANDARD.encode(der);
        let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
        format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
    }

    /// A client and a server that have agreed on keys. What TLS sends to the client behind that is still under way.
    fn pair() -> ((Sealed, TcpStream), (Channel, TcpStream)) {
        let folder = tempfile::TempDir::new().unwrap();
        let files = CertificateFiles { certificate: folder.path().join("pem"), key: folder.path().join("key") };
        let key = KeyPair::generate().unwrap();
        let own = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap().self_signed(&key).unwrap();
        std::fs::write(&files.certificate, pem("CERTIFICATE", own.der())).unwrap();
        std::fs::write(&files.key, pem("PRIVATE KEY", &key.serialize_der())).unwrap();
        std::fs::set_permissions(&files.key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let trust = Trust::load(&TrustSource::File(files.certificate.clone())).unwrap();
        let now = SystemTime::now().into();
        let server = Channel::server(ServerCertificate::load(files, now).unwrap().config(now)).unwrap();
        // The address in the form for sockets of both versions of IP is the same address.
        let mut client = Sealed::new(&trust, "::ffff:127.0.0.1").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to_server = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut to_client, _) = listener.accept().unwrap();
        while client.is_handshaking() || server.is_handshaking() {
            let (mut from_client, mut from_server) = (Vec::new(), Vec::new());
            client.seal(&[], &mut from_client).unwrap();
            server.open(&mut &from_client[..], &mut []).unwrap();
            server.seal(&[], &mut from_server).unwrap();
            if client.is_handshaking() {
                client.shake_hands(&from_server).unwrap();
            } else {
                to_client.write_all(&from_server).unwrap();
            }
        }
        ((client, to_server), (server, to_client))
    }

    fn say(server: &(Channel, TcpStream), records: &[&[u8]]) {
        let mut out = Vec::new();
        records.iter().for_each(|record| server.0.seal(&[IoSlice::new(record)], &mut out).unwrap());
        (&server.1).write_all(&out).unwrap();
    }

    /// Looks until something has come, as after a wait for the socket.
    fn comes(client: &mut Sealed, socket: &TcpStream) -> bool {
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end {
            if client.look(socket) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        false
    }

    #[test]
    fn whoever_waits_for_the_socket_misses_nothing() {
        let ((mut client, socket), server) = pair();
        std::thread::sleep(Duration::from_millis(100));
        assert!(!client.look(&socket), "what TLS sends by itself is for no reader");
        say(&server, &[b"0123456789", &[7; 40_000], b"end"]);
        let mut first = [0; 10];
        while let Err(error) = client.read(&socket, &mut first) {
            assert_eq!(error.kind(), ErrorKind::Interrupted);
        }
        assert_eq!(&first, b"0123456789");
        assert!(client.has_more(), "the socket will not tell of it");
        let mut rest = Vec::new();
        while rest.len() < 40_003 {
            assert!(comes(&mut client, &socket));
            let mut some = [0; 999];
            match client.read(&socket, &mut some) {
                Ok(count) => rest.extend_from_slice(&some[..count]),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Interrupted),
            }
        }
        assert!(rest.ends_with(b"end") && !client.has_more() && !client.look(&socket));
    }

    #[test]
    fn the_end_and_damage_are_results_too() {
        let ((mut client, socket), server) = pair();
        let mut out = Vec::new();
        server.0.end(&mut out).unwrap();
        (&server.1).write_all(&out).unwrap();
        assert!(comes(&mut client, &socket));
        assert_eq!(client.read(&socket, &mut [0; 10]).unwrap(), 0);
        let ((mut client, socket), server) = pair();
        let mut out = Vec::new();
        server.0.seal(&[IoSlice::new(b"good"), IoSlice::new(b"bad")], &mut out).unwrap();
        *out.last_mut().unwrap() ^= 1;
        (&server.1).write_all(&out).unwrap();
        assert!(comes(&mut client, &socket));
        let error = client.read(&socket, &mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData, "{error}");
        drop(server);
        assert!(comes(&mut client, &socket));
    }
}
