//! protocol, login, endsess, set, locate.

use std::net::IpAddr;

use service::{Caller, Role};
use types::{ClientAddress, ClientIdentity, ErrorCode};
use wire::request::{Endsess, Expect, Locate, LocateOptions, Login, Protocol, ProtocolFlags, Set};
use wire::response::{LocateReply, Location, LocationKind, LoginReply, ProtocolReply, ServerFlags};
use wire::{ErrorNumber, SessionId, StreamId};

use tls::TlsRequired;

use crate::config::TlsConfig;
use crate::connection::{Connection, Stop};
use crate::from_wire::{hints_of, parse_path, process_of};
use crate::signatures::announcement;
use crate::to_wire::RequestError;

impl Connection {
    /// kXR_protocol.
    pub(crate) fn protocol(&mut self, stream: StreamId, r: &Protocol) -> Result<Result<(), RequestError>, Stop> {
        let what = match self.front.service.role() {
            // A stock client goes back to the manager that has redirected it, if a disk server dies. So a standby is one, too.
            Role::Manager(_) | Role::Standby(_) => ServerFlags::IS_MANAGER,
            Role::Alone { .. } | Role::Disk(_) => ServerFlags::IS_SERVER,
        };
        let mut flags = what | ServerFlags::SUPPORTS_PGRW | ServerFlags::SUPPORTS_POSC;
        let tls = self.front.config.tls.clone();
        // Not in a session: other threads may be answering its requests.
        let begins = tls.as_ref().filter(|tls| self.tls_begins(tls.required, r) && !self.logged_in);
        if let Some(TlsConfig { required, .. }) = &tls {
            flags = flags | flags_of(*required);
        }
        if begins.is_some() {
            flags = flags | ServerFlags::GOTO_TLS;
        }
        tracing::trace!(client = %self.session, version = r.client_version, "protocol");
        self.client_version = r.client_version;
        // A client that does not ask is not told, and must sign all the same.
        let security = announcement(self.signing).filter(|_| r.flags.has(ProtocolFlags::SECREQS));
        let reply = ProtocolReply { version: self.front.protocol_version(), flags, bind_interfaces: None, security };
        let _ = self.ok(stream, |out| reply.encode(out));
        if let Some(tls) = begins {
            self.start_tls(&tls.certificate)?;
        }
        Ok(Ok(()))
    }

    /// Whether TLS begins after the answer to `protocol`. As in the stock server, a client that only can speak it does so
    /// where this server requires it.
    fn tls_begins(&mut self, required: TlsRequired, r: &Protocol) -> bool {
        let wants = r.flags.has(ProtocolFlags::WANT_TLS);
        self.is_tls_able |= wants || r.flags.has(ProtocolFlags::ABLE_TLS);
        let is_required = match r.expect {
            Expect::LOGIN | Expect::TPC => required.login,
            Expect::BIND => required.data,
            _ => false,
        };
        !self.out.is_encrypted() && (wants || self.is_tls_able && is_required)
    }

    /// kXR_login. If clients must show who they are, the answer offers how, and nothing else is done before
    /// (see [`super::auth`]).
    #[inline(never)] // see `dispatch`
    pub(crate) fn login(&mut self, stream: StreamId, r: &Login) -> Result<Result<(), RequestError>, Stop> {
        if let Some(TlsConfig { required, .. }) = &self.front.config.tls
            && !self.out.is_encrypted()
            && (required.login || required.session && !self.is_tls_able)
        {
            return Ok(Err(self.refuse_without_tls("login", "This server takes logins")));
        }
        let user = String::from_utf8_lossy(r.user_name()).into_owned();
        let host = self.session.peer.ip().to_canonical().to_string();
        let caller = self.session.open.caller();
        let client = ClientIdentity { principal: caller.principal, user, pid: r.pid, host };
        let methods = match self.offered() {
            Ok(methods) => methods,
            Err(request_error) => {
                if let RequestError::Error { text, .. } = &request_error {
                    let why = (ErrorCode::Denied, text.clone());
                    self.front.service.login_refused(&caller.with_client(client), None, why);
                }
                return Ok(Err(request_error));
            }
        };
        self.session.open.set_process(process_of(r));
        if methods.is_empty() {
            self.enter(Caller::clone(&caller), client);
        } else {
            self.pending = Some(client);
        }
        let reply = LoginReply { session: self.session.id, methods };
        let _ = self.ok(stream, |out| reply.encode(out));
        // Otherwise the client shows first who it is, as at the stock server (`logLogin` in XrdXrootdXeq.cc).
        if self.logged_in {
            self.seal_session()?;
        }
        Ok(Ok(()))
    }

    /// After the login and all that belongs to it: TLS for the rest of the session, if that is required.
    pub(crate) fn seal_session(&mut self) -> Result<(), Stop> {
        match self.front.config.tls.clone() {
            Some(tls) if tls.required.session && !self.out.is_encrypted() => self.start_tls(&tls.certificate),
            _ => Ok(()),
        }
    }

    /// The refusal of a client without TLS, with its line in the audit log.
    pub(crate) fn refuse_without_tls(&self, operation: &'static str, what: &str) -> RequestError {
        let error = tls_required(what);
        if let RequestError::Error { text, .. } = &error {
            self.audit_denial(operation, text.clone());
        }
        error
    }

    /// The session begins, or goes on as another client of its principal.
    pub(crate) fn enter(&mut self, caller: Caller, client: ClientIdentity) {
        let open = &self.session.open;
        open.set_caller(caller.with_client(client));
        if !self.logged_in {
            self.logged_in = true;
            self.input.logged_in();
            self.front.service.enrol(open);
            self.front.service.logged_in(open);
            self.front.sessions.lock().insert(open.number(), self.session.clone());
            tracing::debug!(client = %self.session, "logged in");
        }
    }

    /// kXR_endsess. For its own session, the client closes all files. An abandoned session of the same client is
    /// ended, so that its writers are detached at once. The connection stays until the client closes it.
    #[inline(never)] // see `dispatch`
    pub(crate) fn endsess(&mut self, stream: StreamId, r: &Endsess) -> Result<(), RequestError> {
        if r.session == SessionId([0; 16]) || r.session == self.session.id {
            self.front.service.let_go(&self.session.open);
        } else {
            if let Some(other) = self.front.session(r.session)
                && other.open.caller().is_same_client(&self.session.open.caller())
            {
                // The other session's thread may be in a long write, so detach its writers here, before the answer.
                other.end(&self.front);
                other.outgoing.cut();
            }
        }
        // The answer does not reveal whether the session existed.
        self.ok(stream, |_| ())
    }

    /// kXR_set: settings that only identify the client for monitoring.
    #[inline(never)] // see `dispatch`
    pub(crate) fn set(&mut self, stream: StreamId, r: &Set) -> Result<(), RequestError> {
        let shown = &r.args[..r.args.len().min(200)];
        tracing::debug!(client = %self.session, text = %shown.escape_ascii(), "set");
        let mut words = r.args.split(|&b| matches!(b, b' ' | 0)).filter(|word| !word.is_empty());
        match (words.next(), words.next()) {
            (Some(b"appid"), _) | (Some(b"monitor"), Some(b"on" | b"off")) => self.ok(stream, |_| ()),
            // The number of the text in monitoring: none.
            (Some(b"monitor"), Some(b"info")) => self.ok(stream, |out| out.extend_from_slice(&[0; 4])),
            (None, _) | (Some(b"monitor"), None) => Err(RequestError::new(
                ErrorNumber::ARG_MISSING,
                "The request names nothing to set; appid and monitor can be",
            )),
            _ => {
                let text = format!("'{}' cannot be set here; appid and monitor can", shown.escape_ascii());
                Err(RequestError::new(ErrorNumber::ARG_INVALID, text))
            }
        }
    }

    /// kXR_locate.
    #[inline(never)] // see `dispatch`
    pub(crate) fn locate(&mut self, stream: StreamId, r: &Locate) -> Result<(), RequestError> {
        let path = r.target.path.strip_prefix(b"*").unwrap_or(&r.target.path);
        if !path.is_empty() {
            let path = parse_path(path)?;
            let found = self.front.service.locate(&self.session.open.caller(), &path, &hints_of(&r.target))?;
            if !found.is_empty() {
                let at = |at: ClientAddress| Location {
                    kind: LocationKind::Server,
                    writable: true,
                    address: address(&at.host, at.port),
                };
                let locations = found.into_iter().map(at).collect();
                return self.ok(stream, |out| LocateReply { locations }.encode(out));
            }
        }
        // Requests about names go to this server, whatever its role is.
        let address = self.own_address(r.options.has(LocateOptions::PREFER_NAMES));
        let location = Location { kind: LocationKind::Server, writable: true, address };
        self.ok(stream, |out| LocateReply { locations: vec![location] }.encode(out))
    }

    /// The address that the client has used to reach this server. A single node has no name to prefer.
    fn own_address(&self, _prefer_names: bool) -> Vec<u8> {
        let address = self.out.socket().local_addr().unwrap_or(self.front.address);
        shown(address.ip(), address.port())
    }
}

/// What the answer to `protocol` says.
fn flags_of(required: TlsRequired) -> ServerFlags {
    let mut flags = ServerFlags::HAVE_TLS;
    for (is_set, flag) in [
        (required.login, ServerFlags::TLS_LOGIN),
        (required.session && !required.login, ServerFlags::TLS_SESSION),
        (required.data, ServerFlags::TLS_DATA),
    ] {
        if is_set {
            flags = flags | flag;
        }
    }
    flags
}

/// The refusal of a client without TLS.
pub(super) fn tls_required(what: &str) -> RequestError {
    let text = format!("{what} over TLS only: use an address that begins with roots://");
    RequestError::new(ErrorNumber::TLS_REQUIRED, text)
}

/// The address of another server.
fn address(host: &str, port: u16) -> Vec<u8> {
    match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(ip) => shown(ip, port),
        Err(_) => format!("{host}:{port}").into_bytes(),
    }
}

fn shown(ip: IpAddr, port: u16) -> Vec<u8> {
    match ip.to_canonical() {
        // As the stock server writes it and its clients expect it.
        IpAddr::V4(ip) => format!("[::{ip}]:{port}").into_bytes(),
        IpAddr::V6(ip) => format!("[{ip}]:{port}").into_bytes(),
    }
}
