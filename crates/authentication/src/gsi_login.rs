//! A login by `gsi`, which takes several rounds.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use gsi::{HandshakeError, NoRandom, ProxyAnswer, ProxyKey, Random, ServerHandshake, ServerStep};
use identity::DelegatedProxy;
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::gsi_files::Gsi;
use crate::{Authenticated, AuthenticationError, Authenticator, Mechanism};

/// How long a client may take for the handshake. What it has signed says that it was there in this time.
pub const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(60);

/// Whether somebody on the way can change the requests that follow a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Requests {
    /// TLS protects them, or the client must sign those that open files for writing.
    Protected,
    /// Nothing protects them. The client is not asked for a proxy: somebody on the way could have it used for another file.
    Plain,
}

/// What follows from what a client has sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LoginStep {
    /// The server sends this, and waits for more.
    More(Vec<u8>),
    /// The client is let in.
    Done(Authenticated),
}

/// A login by `gsi`. It holds some kilobytes, and after an error nothing more can be done with it.
#[derive(Debug)]
pub struct GsiLogin {
    authenticator: Authenticator,
    /// The certificate and the authorities of its beginning, also if they change meanwhile.
    files: Arc<Gsi>,
    handshake: ServerHandshake,
    began: Duration,
    peer: IpAddr,
    requests: Requests,
    /// The client was asked for a proxy. It is let in as this when it has answered.
    known: Option<Known>,
}

/// A client that has shown who it is.
#[derive(Debug)]
struct Known {
    authenticated: Authenticated,
    /// The certificates that it has presented.
    certificates: Vec<Vec<u8>>,
}

/// The randomness of the system.
pub(crate) struct SystemNumbers(SystemRandom);

impl SystemNumbers {
    pub(crate) fn new() -> Self {
        Self(SystemRandom::new())
    }
}

impl Random for SystemNumbers {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandom> {
        self.0.fill(bytes).map_err(|_| NoRandom)
    }
}

impl GsiLogin {
    pub(crate) fn new(
        authenticator: Authenticator,
        files: Arc<Gsi>,
        now: Duration,
        (peer, requests): (IpAddr, Requests),
    ) -> Self {
        Self { authenticator, files, handshake: ServerHandshake::new(), began: now, peer, requests, known: None }
    }

    /// Goes on with what the client has sent.
    ///
    /// # Errors
    ///
    /// [`AuthenticationError`], which says by what rule.
    pub fn step(&mut self, frame: &[u8]) -> Result<LoginStep, AuthenticationError> {
        match self.go_on(frame) {
            Ok(LoginStep::More(reply)) => Ok(LoginStep::More(reply)),
            Ok(LoginStep::Done(authenticated)) => {
                self.authenticator.counted(Mechanism::Gsi, Ok(authenticated)).map(LoginStep::Done)
            }
            Err(error) => self.authenticator.counted(Mechanism::Gsi, Err(error)).map(LoginStep::Done),
        }
    }

    fn go_on(&mut self, frame: &[u8]) -> Result<LoginStep, AuthenticationError> {
        let taken = self.authenticator.steady().saturating_sub(self.began);
        if taken > HANDSHAKE_TIME_MAX {
            return Err(AuthenticationError::Late(taken.as_secs()));
        }
        let step = {
            let _turn = self.authenticator.turn()?;
            self.handshake.step(&self.files.secret, frame, &mut SystemNumbers::new())?
        };
        match step {
            ServerStep::Reply(reply) => Ok(LoginStep::More(reply)),
            ServerStep::Presented(presented) => {
                let mut authenticated =
                    self.authenticator.certificates(&presented.certificates, &self.files.trust, self.peer)?;
                authenticated.session_key = Some(presented.session_key);
                // Only a client that may come in costs a key.
                if !self.files.delegation || !presented.may_delegate {
                    return Ok(LoginStep::Done(authenticated));
                }
                if self.requests == Requests::Plain {
                    tracing::info!(principal = %authenticated.name, "the client is not asked for a proxy: without TLS or signed requests, somebody on the way could use it");
                    return Ok(LoginStep::Done(authenticated));
                }
                let (name, now) = (authenticated.name.as_str(), self.authenticator.steady());
                let Some(key) = self.authenticator.proxy_keys().take(name, now) else {
                    tracing::warn!(principal = %authenticated.name, "no key was ready for a delegated proxy, so the client was not asked for one");
                    return Ok(LoginStep::Done(authenticated));
                };
                let request = {
                    let _turn = self.authenticator.turn()?;
                    self.handshake.request_proxy(&self.files.secret, key, &mut SystemNumbers::new())?
                };
                self.known = Some(Known { authenticated, certificates: presented.certificates });
                Ok(LoginStep::More(request))
            }
            ServerStep::Answered(answer) => {
                let known = self.known.take().ok_or(HandshakeError::Over)?;
                let Known { authenticated, certificates } = known;
                let delegated = match answer {
                    ProxyAnswer::Signed { proxy, key } => Some(self.delegated(&proxy, &key, &certificates)?),
                    ProxyAnswer::Declined(why) => {
                        tracing::info!(principal = %authenticated.name, why, "the client delegates no proxy");
                        None
                    }
                };
                Ok(LoginStep::Done(Authenticated { delegated, ..authenticated }))
            }
        }
    }

    /// The proxy that the client has signed for `key`, after it has presented `certificates`.
    fn delegated(
        &self,
        proxy: &[u8],
        key: &ProxyKey,
        certificates: &[Vec<u8>],
    ) -> Result<DelegatedProxy, AuthenticationError> {
        let user = {
            let _turn = self.authenticator.turn()?;
            let (trust, now) = (&self.files.trust, self.authenticator.wall());
            grid::verify_delegated(proxy, certificates, key.public(), trust, now)
                .map_err(AuthenticationError::Delegated)?
        };
        let text = key.proxy_text(proxy, certificates).map_err(AuthenticationError::ProxyKey)?;
        Ok(DelegatedProxy::new(text, user.not_after))
    }
}
