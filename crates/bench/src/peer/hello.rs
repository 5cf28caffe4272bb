//! The handshake of a connection. Both sides say what they are, and prove that they have the same token without
//! showing it.
//!
//! | from | bytes | |
//! | --- | --- | --- |
//! | connecting side | 44 | greeting: `weirpeer`, version (2, little-endian), role, whether it has a token, 32 random bytes |
//! | accepting side | 44 | greeting |
//! | connecting side | 32 | proof: a hash, keyed by the secret, of both greetings and of the direction |
//! | accepting side | 1 + 32 | verdict, and its proof |
//! | connecting side | 1 | verdict |
//!
//! The random bytes of both sides are in both proofs, so an overheard proof cannot be used again. The direction is
//! in it, so a proof cannot be sent back. Everything has a fixed length and a time limit, so a stranger costs
//! little. The first 10 bytes of the greeting and its length are the same in all versions. So an older or newer
//! peer is told the reason.

mod error;

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rand::TryRngCore as _;

pub use error::{HelloError, PeerRefused};

use super::Token;
use super::token::Secret;

/// The version of all messages between peers. 1: the first.
pub const VERSION: u16 = 1;
/// The length of a greeting in bytes.
pub const GREETING_BYTES: usize = 44;
const PROOF_BYTES: usize = 32;
const MAGIC: &[u8; 8] = b"weirpeer";
/// The context of the key: the hash uses not the secret itself but a key that is derived from it for this purpose
/// only.
const CONTEXT: &str = "weir bench 2026 peers' proofs";

/// The role of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Role {
    /// It gives out work, and gathers results.
    Coordinator = 1,
    /// It works for a coordinator.
    Agent = 2,
    /// It is the client of a network test.
    NetworkClient = 3,
    /// It is the server of a network test.
    NetworkServer = 4,
    /// It is one flow of a network test.
    Flow = 5,
}

/// Our own role and token, and the roles that we accept.
#[derive(Clone, Copy, Debug)]
pub struct Hello<'a> {
    /// Our role.
    pub role: Role,
    /// The roles that the peer may have.
    pub wanted: &'a [Role],
    /// The token that both sides share.
    pub token: &'a Token,
}

/// Values that are new for each connection.
#[derive(Clone, Copy, Debug)]
pub struct Fresh {
    /// Random bytes, never used before.
    pub nonce: [u8; 32],
    /// The present time in seconds since 1970.
    pub now: i64,
    /// How long the handshake may take.
    pub within: Duration,
}

/// A stream with time limits for reads and writes.
pub trait Timed {
    /// Limits each read and write to `patience`; `None`: no limit.
    ///
    /// # Errors
    /// The kernel refuses.
    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()>;
}

impl Timed for TcpStream {
    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(patience)?;
        self.set_write_timeout(patience)
    }
}

impl Timed for UnixStream {
    fn set_patience(&self, patience: Option<Duration>) -> io::Result<()> {
        self.set_read_timeout(patience)?;
        self.set_write_timeout(patience)
    }
}

impl Role {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Coordinator, Self::Agent, Self::NetworkClient, Self::NetworkServer, Self::Flow]
            .into_iter()
            .find(|role| *role as u8 == number)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Coordinator => "a coordinator",
            Self::Agent => "an agent",
            Self::NetworkClient => "the client of a network test",
            Self::NetworkServer => "the server of a network test",
            Self::Flow => "a flow",
        })
    }
}

impl Fresh {
    /// Takes the kernel's randomness, the machine's clock, and ten seconds.
    ///
    /// # Errors
    /// The kernel has no randomness.
    pub fn draw() -> io::Result<Self> {
        let mut nonce = [0; 32];
        rand::rngs::OsRng.try_fill_bytes(&mut nonce).map_err(io::Error::other)?;
        Ok(Self { nonce, now: crate::run::now_secs(), within: Duration::from_secs(10) })
    }
}

/// Greets the peer that we connected to. Returns its role. Afterwards the stream has no time limit.
///
/// # Errors
/// [`HelloError`]. The connection is useless then.
pub fn connect<S: Read + Write + Timed>(
    stream: &mut S,
    peer: &str,
    hello: Hello<'_>,
    fresh: &Fresh,
) -> Result<Role, HelloError> {
    if hello.token.is_expired(fresh.now) {
        return Err(HelloError::Expired { peer: peer.to_owned() });
    }
    let mut line = Line::new(stream, peer, fresh.within);
    let ours = greeting(hello, fresh);
    line.write(&ours)?;
    let theirs = line.read::<GREETING_BYTES>()?;
    check(&theirs, hello, peer)?;
    let role = check_role(&theirs, hello, peer)?;
    let proofs = Proofs::of(hello.token.secret(), &ours, &theirs);
    line.write(proofs.connects.as_bytes())?;
    let [verdict] = line.read::<1>()?;
    let proof = line.read::<PROOF_BYTES>()?;
    line.take_verdict(verdict)?;
    if proofs.accepts != proof {
        line.write(&[PeerRefused::WrongToken as u8])?;
        return Err(HelloError::WrongToken { peer: peer.to_owned() });
    }
    line.write(&[WELCOME])?;
    line.end()?;
    Ok(role)
}

/// Greets a peer that connected to us. Returns its role. Afterwards the stream has no time limit.
///
/// # Errors
/// [`HelloError`]. The connection is useless then.
pub fn accept<S: Read + Write + Timed>(
    stream: &mut S,
    peer: &str,
    hello: Hello<'_>,
    fresh: &Fresh,
) -> Result<Role, HelloError> {
    let mut line = Line::new(stream, peer, fresh.within);
    let theirs = line.read::<GREETING_BYTES>()?;
    if !theirs.starts_with(MAGIC) {
        // A stranger gets no answer.
        return Err(HelloError::Stranger { peer: peer.to_owned() });
    }
    let ours = greeting(hello, fresh);
    line.write(&ours)?;
    check(&theirs, hello, peer)?;
    let proofs = Proofs::of(hello.token.secret(), &theirs, &ours);
    let proof = line.read::<PROOF_BYTES>()?;
    let refuse = |line: &mut Line<'_, S>, why: PeerRefused| {
        let mut answer = [0; 1 + PROOF_BYTES];
        answer[0] = why as u8;
        line.write(&answer)
    };
    if hello.token.is_expired(fresh.now) {
        refuse(&mut line, PeerRefused::Expired)?;
        return Err(HelloError::Expired { peer: peer.to_owned() });
    }
    if proofs.connects != proof {
        refuse(&mut line, PeerRefused::WrongToken)?;
        return Err(HelloError::WrongToken { peer: peer.to_owned() });
    }
    let role = match check_role(&theirs, hello, peer) {
        Ok(role) => role,
        Err(error) => {
            refuse(&mut line, PeerRefused::Role)?;
            return Err(error);
        }
    };
    let mut answer = [WELCOME; 1 + PROOF_BYTES];
    answer[1..].copy_from_slice(proofs.accepts.as_bytes());
    line.write(&answer)?;
    let [verdict] = line.read::<1>()?;
    line.take_verdict(verdict)?;
    line.end()?;
    Ok(role)
}

/// The verdict without a [`PeerRefused`].
const WELCOME: u8 = 0;

fn greeting(hello: Hello<'_>, fresh: &Fresh) -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10] = hello.role as u8;
    bytes[11] = u8::from(!hello.token.is_open());
    bytes[12..].copy_from_slice(&fresh.nonce);
    bytes
}

/// Checks the peer's greeting. Both sides make the same checks, so both can report the reason.
fn check(theirs: &[u8; GREETING_BYTES], hello: Hello<'_>, peer: &str) -> Result<(), HelloError> {
    let peer = || peer.to_owned();
    if !theirs.starts_with(MAGIC) {
        return Err(HelloError::Stranger { peer: peer() });
    }
    let version = u16::from_le_bytes([theirs[8], theirs[9]]);
    if version != VERSION {
        return Err(HelloError::Version { peer: peer(), theirs: version });
    }
    let they = theirs[11] != 0;
    if they == hello.token.is_open() {
        return Err(HelloError::NoToken { peer: peer(), they });
    }
    Ok(())
}

fn check_role(theirs: &[u8; GREETING_BYTES], hello: Hello<'_>, peer: &str) -> Result<Role, HelloError> {
    let role = Role::from_number(theirs[10]).filter(|role| hello.wanted.contains(role));
    role.ok_or_else(|| HelloError::WrongRole {
        peer: peer.to_owned(),
        theirs: theirs[10],
        wanted: hello.wanted.to_vec(),
    })
}

/// The proofs of both sides. They are compared in constant time.
struct Proofs {
    connects: blake3::Hash,
    accepts: blake3::Hash,
}

impl Proofs {
    fn of(secret: &Secret, connects: &[u8; GREETING_BYTES], accepts: &[u8; GREETING_BYTES]) -> Self {
        let key = blake3::derive_key(CONTEXT, secret.key());
        let of = |direction: &[u8; 8]| {
            let mut hasher = blake3::Hasher::new_keyed(&key);
            hasher.update(direction).update(connects).update(accepts);
            hasher.finalize()
        };
        Self { connects: of(b"connects"), accepts: of(b"accepts ") }
    }
}

/// A stream with the deadline of the handshake.
struct Line<'a, S> {
    stream: &'a mut S,
    peer: &'a str,
    within: Duration,
    end: Instant,
}

impl<'a, S: Read + Write + Timed> Line<'a, S> {
    fn new(stream: &'a mut S, peer: &'a str, within: Duration) -> Self {
        Self { stream, peer, within, end: Instant::now() + within }
    }

    fn failed(&self, source: io::Error) -> HelloError {
        let peer = self.peer.to_owned();
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => HelloError::Slow { peer, within: self.within },
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => {
                HelloError::Gone { peer }
            }
            _ => HelloError::Io { peer, source },
        }
    }

    /// Sets the remaining time, however slowly bytes arrive.
    fn wait_no_longer(&self) -> Result<(), HelloError> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(HelloError::Slow { peer: self.peer.to_owned(), within: self.within });
        }
        self.stream.set_patience(Some(left)).map_err(|error| self.failed(error))
    }

    fn read<const N: usize>(&mut self) -> Result<[u8; N], HelloError> {
        let mut bytes = [0; N];
        let mut done = 0;
        while done < N {
            self.wait_no_longer()?;
            match self.stream.read(&mut bytes[done..]) {
                Ok(0) => return Err(HelloError::Gone { peer: self.peer.to_owned() }),
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed(error)),
            }
        }
        Ok(bytes)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), HelloError> {
        self.wait_no_longer()?;
        self.stream.write_all(bytes).and_then(|()| self.stream.flush()).map_err(|error| self.failed(error))
    }

    fn take_verdict(&self, verdict: u8) -> Result<(), HelloError> {
        if verdict == WELCOME {
            return Ok(());
        }
        let peer = || self.peer.to_owned();
        let known = [PeerRefused::WrongToken, PeerRefused::Expired, PeerRefused::Role].into_iter();
        match known.into_iter().find(|why| *why as u8 == verdict) {
            Some(why) => Err(HelloError::Refused { peer: peer(), why }),
            None => Err(HelloError::Stranger { peer: peer() }),
        }
    }

    fn end(self) -> Result<(), HelloError> {
        self.stream.set_patience(None).map_err(|error| self.failed(error))
    }
}

#[cfg(test)]
mod tests;
