//! Answers to protocol, login and bind.

use crate::reader::{Reader, text};
use crate::{SessionId, WireError};

flags! {
    /// The role and the abilities of a server (the flags of the protocol answer).
    ServerFlags(u32) {
        /// The server holds data. XrdCl opens further data streams only to such servers, and lists directories at
        /// one of them only.
        IS_SERVER = 0x0000_0001;
        /// The server knows where data are.
        IS_MANAGER = 0x0000_0002;
        /// The server is a manager of managers.
        ATTR_META = 0x0000_0100;
        /// The server is a proxy.
        ATTR_PROXY = 0x0000_0200;
        /// The server is a supervisor.
        ATTR_SUPER = 0x0000_0400;
        /// The server redirects by itself.
        ATTR_VIRT_REDIRECTOR = 0x0000_0800;
        /// After a lost connection a writer starts again at the manager.
        RECOVER_WRITES = 0x0000_1000;
        /// Redirects can be collapsed.
        COLLAPSE_REDIRECT = 0x0000_2000;
        /// The server redirects to erasure-coded sets.
        EC_REDIRECT = 0x0000_4000;
        /// The server supports gpfile without login.
        ANON_GPF = 0x0080_0000;
        /// The server supports gpfile.
        SUPPORTS_GPF = 0x0040_0000;
        /// The server supports pgread and pgwrite. xrdcp uses them then, unless the channel is TLS.
        SUPPORTS_PGRW = 0x0020_0000;
        /// The server can keep a file only if it is closed.
        SUPPORTS_POSC = 0x0010_0000;
        /// The server supports TLS.
        HAVE_TLS = 0x8000_0000;
        /// TLS begins right after this answer.
        GOTO_TLS = 0x4000_0000;
        /// TLS on data streams.
        TLS_DATA = 0x0100_0000;
        /// TLS for gpfile.
        TLS_GPF = 0x0200_0000;
        /// TLS before login.
        TLS_LOGIN = 0x0400_0000;
        /// TLS after login.
        TLS_SESSION = 0x0800_0000;
        /// TLS for third-party copies.
        TLS_TPC = 0x1000_0000;
        /// TLS for gpfile without login.
        TLS_GPFA = 0x2000_0000;
    }
}

/// The answer to protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProtocolReply {
    /// The server's version.
    pub version: u32,
    /// Its role and abilities.
    pub flags: ServerFlags,
    /// The interfaces for further data streams, if [`crate::request::ProtocolFlags::BIFREQS`] was set and there are
    /// any.
    pub bind_interfaces: Option<Vec<u8>>,
    /// Which requests must be signed, if [`crate::request::ProtocolFlags::SECREQS`] was set.
    pub security: Option<SecurityRequirements>,
}

/// Which requests must be signed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SecurityRequirements {
    /// Always 0.
    pub version: u8,
    /// 1: data are signed too; 2: sign even if the authentication method has no key.
    pub options: u8,
    /// 0 none, 1 compatible, 2 standard, 3 intense, 4 pedantic.
    pub level: u8,
    /// Exceptions: the request code minus 3000, and 0 ignore, 1 likely, 2 needed.
    pub overrides: Vec<(u8, u8)>,
}

impl ProtocolReply {
    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.flags.0.to_be_bytes());
        if let Some(interfaces) = &self.bind_interfaces {
            // a NUL, then NULs up to a multiple of 8 bytes including the 4 before; the length counts them
            let len = (4 + interfaces.len() + 1).next_multiple_of(8) - 4;
            let len = u16::try_from(len).unwrap_or(u16::MAX - 7);
            out.extend_from_slice(&[b'B', 0]);
            out.extend_from_slice(&len.to_be_bytes());
            let start = out.len();
            out.extend_from_slice(&interfaces[..interfaces.len().min(usize::from(len) - 1)]);
            out.resize(start + usize::from(len), 0);
        }
        if let Some(security) = &self.security {
            let count = u8::try_from(security.overrides.len()).unwrap_or(u8::MAX);
            out.extend_from_slice(&[b'S', 0, security.version, security.options, security.level, count]);
            for &(request, need) in security.overrides.iter().take(usize::from(count)) {
                out.extend_from_slice(&[request, need]);
            }
        }
    }

    /// Parses the body.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("protocol answer", body);
        let mut reply =
            Self { version: reader.u32()?, flags: ServerFlags(reader.u32()?), bind_interfaces: None, security: None };
        while reader.left() > 0 {
            match reader.u8()? {
                b'B' if reply.bind_interfaces.is_none() && reply.security.is_none() => {
                    reader.skip(1)?;
                    let len = reader.u16()?;
                    let interfaces = text("bind interfaces", reader.take(usize::from(len))?)?;
                    reply.bind_interfaces = Some(interfaces.to_vec());
                }
                b'S' if reply.security.is_none() => {
                    reader.skip(1)?;
                    let (version, options, level) = (reader.u8()?, reader.u8()?, reader.u8()?);
                    let count = reader.u8()?;
                    let mut overrides = Vec::with_capacity(usize::from(count));
                    for _ in 0..count {
                        overrides.push((reader.u8()?, reader.u8()?));
                    }
                    reply.security = Some(SecurityRequirements { version, options, level, overrides });
                }
                _ => return Err(WireError::Malformed { what: "protocol answer", why: "an unknown part" }),
            }
        }
        Ok(reply)
    }
}

/// The answer to login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginReply {
    /// The id of this session, for endsess and bind.
    pub session: SessionId,
    /// `&P=method,parameters…` for each method of authentication, or nothing.
    pub methods: Vec<u8>,
}

impl LoginReply {
    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.session.0);
        if !self.methods.is_empty() {
            out.extend_from_slice(&self.methods);
            out.push(0);
        }
    }

    /// Parses the body.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("login answer", body);
        let session = SessionId(*reader.array()?);
        Ok(Self { session, methods: text("login answer", reader.rest())?.to_vec() })
    }
}

/// The answer to bind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindReply {
    /// The number of this connection among the session's data streams.
    pub path_id: u8,
}

impl BindReply {
    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.path_id);
    }

    /// Parses the body.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("bind answer", body);
        let path_id = reader.u8()?;
        reader.end()?;
        Ok(Self { path_id })
    }
}
