//! Answers to protocol, login and bind.

use crate::reader::{Reader, text};
use crate::{SessionId, WireError};

flags! {
    /// What a server is and can (the flags of the protocol answer).
    ServerFlags(u32) {
        /// It holds data. XrdCl opens further data streams only to such hosts, and lists directories at one of them only.
        IS_SERVER = 0x0000_0001;
        /// It knows where data is.
        IS_MANAGER = 0x0000_0002;
        /// It is a manager of managers.
        ATTR_META = 0x0000_0100;
        /// It passes requests on.
        ATTR_PROXY = 0x0000_0200;
        /// It is a supervisor.
        ATTR_SUPER = 0x0000_0400;
        /// It redirects by itself.
        ATTR_VIRT_REDIRECTOR = 0x0000_0800;
        /// After a lost connection a writer begins again at the manager.
        RECOVER_WRITES = 0x0000_1000;
        /// Redirects can be collapsed.
        COLLAPSE_REDIRECT = 0x0000_2000;
        /// Redirects to erasure-coded sets.
        EC_REDIRECT = 0x0000_4000;
        /// gpfile without login.
        ANON_GPF = 0x0080_0000;
        /// gpfile.
        SUPPORTS_GPF = 0x0040_0000;
        /// pgread and pgwrite. xrdcp uses them then, unless the channel is TLS.
        SUPPORTS_PGRW = 0x0020_0000;
        /// Files that stay only if they are closed.
        SUPPORTS_POSC = 0x0010_0000;
        /// It can do TLS.
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

/// Answer to protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProtocolReply {
    /// The server's version.
    pub version: u32,
    /// What it is and can.
    pub flags: ServerFlags,
    /// Interfaces for further data streams, if [`crate::request::ProtocolFlags::BIFREQS`] was set and there are any.
    pub bind_interfaces: Option<Vec<u8>>,
    /// How requests are to be signed, if [`crate::request::ProtocolFlags::SECREQS`] was set.
    pub security: Option<SecurityRequirements>,
}

/// Which requests have to be signed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SecurityRequirements {
    /// 0.
    pub version: u8,
    /// 1: data is signed too; 2: sign even if the authentication method makes no key.
    pub options: u8,
    /// 0 none, 1 compatible, 2 standard, 3 intense, 4 pedantic.
    pub level: u8,
    /// Exceptions: request code less 3000, and 0 ignore, 1 likely, 2 needed.
    pub overrides: Vec<(u8, u8)>,
}

impl ProtocolReply {
    /// The body at the end of `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.version.to_be_bytes());
        out.extend_from_slice(&self.flags.0.to_be_bytes());
        if let Some(interfaces) = &self.bind_interfaces {
            // NUL at the end, then NULs to a multiple of 8 bytes with the 4 before; the length counts them
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

    /// Reads the body.
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

/// Answer to login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoginReply {
    /// What endsess and bind will call this session.
    pub session: SessionId,
    /// `&P=method,parameters…` for each method of authentication, or nothing.
    pub methods: Vec<u8>,
}

impl LoginReply {
    /// The body at the end of `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.session.0);
        if !self.methods.is_empty() {
            out.extend_from_slice(&self.methods);
            out.push(0);
        }
    }

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("login answer", body);
        let session = SessionId(*reader.array()?);
        Ok(Self { session, methods: text("login answer", reader.rest())?.to_vec() })
    }
}

/// Answer to bind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BindReply {
    /// The number of this connection among the session's data streams.
    pub path_id: u8,
}

impl BindReply {
    /// The body at the end of `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.path_id);
    }

    /// Reads the body.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("bind answer", body);
        let path_id = reader.u8()?;
        reader.end()?;
        Ok(Self { path_id })
    }
}
