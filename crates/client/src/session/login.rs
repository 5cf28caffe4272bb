//! The beginning of a connection: versions, TLS, login, authentication.

use std::time::Instant;

use wire::request::{Auth, CapVer, Expect, Login, LoginAbility, LoginAbility2, Protocol, ProtocolFlags};
use wire::response::{LoginReply, ProtocolReply, ServerFlags};
use wire::{HANDSHAKE_REPLY_LEN, Handshake, HandshakeReply, PROTOCOL_VERSION, Request, Response};

use gsi::SessionKey;

use super::signing::Signer;
use super::{INPUT_LEN, Session};
use crate::credentials::{self, Channel, Credential, Server, Stopped};
use crate::pace::Pace;
use crate::sealed::Sealed;
use crate::{ClientError, Settings, Url};

/// How often a server may ask for more in one authentication.
const ROUNDS_MAX: usize = 8;

/// The answer to credentials.
enum Verdict {
    Accepted,
    /// The server refuses them, and says why.
    Refused(String),
    /// The server asks for more.
    More(Vec<u8>),
}

impl Session {
    /// Logs in at the server of `url`.
    pub(super) fn log_in(&mut self, url: &Url, settings: &Settings) -> Result<(), ClientError> {
        self.output.extend_from_slice(&Handshake.to_bytes());
        // Whoever can speak TLS must do so where the server requires it.
        let wish = if url.tls { ProtocolFlags::WANT_TLS } else { ProtocolFlags::NONE };
        let flags = ProtocolFlags::ABLE_TLS | ProtocolFlags::SECREQS | wish;
        self.queue(&Request::Protocol(Protocol { client_version: PROTOCOL_VERSION, flags, expect: Expect::LOGIN }))?;
        self.flush()?;
        let sent = Instant::now();
        let mut reply = [0; HANDSHAKE_REPLY_LEN];
        self.body_into(&mut reply)?;
        let server = self.server().clone();
        HandshakeReply::decode(&reply).map_err(|source| ClientError::NotXrootd { server, source })?;
        let body = self.answer("log in")?;
        self.answered_after(sent);
        let reply = ProtocolReply::decode(&body).map_err(|source| self.malformed(source))?;
        self.flags = reply.flags;
        let signing = reply.security;
        if reply.flags.has(ServerFlags::GOTO_TLS) || reply.flags.has(ServerFlags::TLS_LOGIN) {
            self.start_tls(settings)?;
        } else if url.tls {
            return Err(ClientError::NoTls { server: self.server().clone() });
        }
        let sent = Instant::now();
        self.queue_login(url, settings)?;
        let body = self.answer("log in")?;
        self.answered_after(sent);
        let reply = LoginReply::decode(&body).map_err(|source| self.malformed(source))?;
        if !reply.methods.is_empty() {
            let key = self.authenticate(&reply.methods, settings)?;
            self.signer = signing.and_then(|asked| Signer::new(&asked, key)).map(Box::new);
        }
        if self.flags.has(ServerFlags::TLS_SESSION) && !self.is_encrypted() {
            self.start_tls(settings)?;
        }
        self.id = reply.session;
        Ok(())
    }

    fn queue_login(&mut self, url: &Url, settings: &Settings) -> Result<(), ClientError> {
        let user = url.user.as_deref().unwrap_or(&settings.user);
        let user = if user.is_empty() { "nobody" } else { user };
        let mut name = [0; 8];
        let len = user.len().min(name.len());
        name[..len].copy_from_slice(&user.as_bytes()[..len]);
        let info = format!("?xrd.appname={}&xrd.info=weir-{}", settings.application, env!("CARGO_PKG_VERSION"));
        let ability = LoginAbility::FULLURL | LoginAbility::MULTIPR | LoginAbility::READRDOK | LoginAbility::HASIPV64;
        self.queue(&Request::Login(Login {
            pid: std::process::id(),
            user: name,
            ability2: LoginAbility2::NONE,
            ability,
            capver: CapVer::XRDCL5,
            info: info.into_bytes(),
        }))?;
        Ok(())
    }

    /// Agrees on keys with the server, and checks its certificate. The time for a connection bounds this.
    fn start_tls(&mut self, settings: &Settings) -> Result<(), ClientError> {
        if self.has_input() {
            // Somebody between the two could have put it there.
            let what = "bytes in the clear, where TLS begins".to_owned();
            return Err(ClientError::Unexpected { server: self.server().clone(), what });
        }
        let server = self.server().clone();
        let trust = settings.authorities.trust();
        let trust = trust.map_err(|source| {
            let (server, source) = (server.clone(), Box::new(source));
            ClientError::Authorities { server, source }
        })?;
        let failed = |source| ClientError::Tls { server: server.clone(), source: Box::new(source) };
        let mut sealed = Sealed::new(&trust, &server.host).map_err(failed)?;
        let mut pace = Pace::new(Instant::now());
        let (mut received, mut out) = (vec![0; INPUT_LEN], Vec::new());
        loop {
            sealed.seal(&[], &mut out).map_err(|error| self.lost(error))?;
            self.write_encrypted(&mut out, 0)?;
            if !sealed.is_handshaking() {
                break;
            }
            let count = self.receive_into(&mut received, &mut pace)?;
            if let Err(error) = sealed.shake_hands(&received[..count]) {
                // The server learns why, if it still listens.
                let _ = sealed.seal(&[], &mut out);
                let _ = self.write_encrypted(&mut out, 0);
                return Err(failed(error));
            }
        }
        self.sealed = Some(Box::new(sealed));
        Ok(())
    }

    /// Shows credentials for the first method in the server's list for which there are some and that the server accepts. Returns the key
    /// that both sides have then, if the method gives one.
    fn authenticate(&mut self, methods: &[u8], settings: &Settings) -> Result<Option<SessionKey>, ClientError> {
        let offers = credentials::offers(methods).map_err(|what| {
            let what = what.to_owned();
            ClientError::Unexpected { server: self.server().clone(), what }
        })?;
        let channel = if self.is_encrypted() { Channel::Encrypted } else { Channel::Clear };
        let from = self.socket.local_addr().ok();
        let mut reasons: Vec<String> = Vec::new();
        let mut was_refused = false;
        let host = self.server().host.clone();
        let server = Server { host: &host, authorities: &settings.authorities, from };
        for offer in offers {
            let why = match settings.credentials.for_offer(&offer, channel, server) {
                Err(why) => why,
                Ok(mut credential) => match self.show(&mut credential) {
                    Ok(None) => return Ok(credential.session_key()),
                    Ok(Some(why)) => {
                        was_refused = true;
                        why
                    }
                    // Some servers end the connection after a refusal. That must not hide it.
                    Err(error) if error.is_connection() && was_refused => break,
                    Err(error) => return Err(error),
                },
            };
            tracing::debug!(server = %self.server(), "{}: {why}", offer.shown());
            reasons.push(format!("{} ({why})", offer.shown()));
        }
        Err(ClientError::Authentication { server: self.server().clone(), reasons: reasons.join(", ") })
    }

    /// Shows credentials. Returns why the server does not accept them.
    fn show(&mut self, credential: &mut Credential) -> Result<Option<String>, ClientError> {
        let mut bytes = credential.first();
        for _ in 0..ROUNDS_MAX {
            match self.verdict_on(credential.method(), bytes)? {
                Verdict::Accepted if credential.is_complete() => return Ok(None),
                // Whoever is not the server could answer so, without a certificate.
                Verdict::Accepted => {
                    let what = "an acceptance before it has shown its certificate".to_owned();
                    return Err(ClientError::Unexpected { server: self.server().clone(), what });
                }
                Verdict::Refused(text) => return Ok(Some(format!("the server refuses it: {text}"))),
                Verdict::More(asked) => match credential.next(&asked) {
                    Ok(next) => bytes = next,
                    Err(Stopped::Method(why)) => return Ok(Some(why)),
                    Err(Stopped::WrongServer(why)) => {
                        let method = credential.method().escape_ascii().to_string();
                        let reasons = format!("{} ({why})", method.trim_end_matches("\\x00"));
                        return Err(ClientError::Authentication { server: self.server().clone(), reasons });
                    }
                },
            }
        }
        Ok(Some(format!("the server has asked for more {ROUNDS_MAX} times")))
    }

    fn verdict_on(&mut self, method: [u8; 4], credentials: Vec<u8>) -> Result<Verdict, ClientError> {
        let stream = self.queue(&Request::Auth(Auth { method, credentials }))?;
        let (to, response) = self.response()?;
        if to != stream {
            let what = "an answer to a request that was not sent".to_owned();
            return Err(ClientError::Unexpected { server: self.server().clone(), what });
        }
        match response {
            Response::Ok(_) => Ok(Verdict::Accepted),
            Response::AuthMore(asked) => Ok(Verdict::More(asked)),
            Response::Error { text, .. } => {
                let text = String::from_utf8_lossy(&text);
                let text: String = text.trim_end_matches(['\0', '\n', ' ']).chars().take(500).collect();
                Ok(Verdict::Refused(text.escape_debug().to_string()))
            }
            other => Err(self.refused("authenticate", other)),
        }
    }
}
