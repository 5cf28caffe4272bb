//! The server's side of a handshake.

use crate::agreement::{Public, SecretExponent};
use crate::rsa_blocks::recover;
use crate::secret::public_key;
use crate::tag::{self, TagForm, signable};
use crate::{
    BucketType, CERTIFICATES_MAX, Cipher, DelegationOptions, Frame, HandshakeError, ProxyKey, Random, ServerSecret,
    SessionKey, Step, VERSION_SIGNED, pem,
};
use rsa::PublicKey;

/// The end of the names of modules that do not fill up the shared secret with zeros.
const NO_PADDING: &[u8] = b"nopad";

/// The longest message of a client that is passed on.
const MESSAGE_BYTES_MAX: usize = 200;

/// What follows from a frame of the client.
#[derive(PartialEq, Eq, Debug)]
pub enum ServerStep {
    /// The server answers this, and waits for another frame.
    Reply(Vec<u8>),
    /// The client has shown that it holds the key of its certificate.
    Presented(Presented),
    /// The client has answered [`ServerHandshake::request_proxy`].
    Answered(ProxyAnswer),
}

/// The answer of a client that was asked to sign a proxy.
#[derive(PartialEq, Eq, Debug)]
pub enum ProxyAnswer {
    /// It has signed one for the key. Nobody has verified more of it.
    Signed {
        /// The certificate in DER form.
        proxy: Vec<u8>,
        /// The key of it.
        key: Box<ProxyKey>,
    },
    /// It has not, and perhaps says why.
    Declined(String),
}

/// What a client has shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Presented {
    /// Its certificates in DER form. It holds the key of the first one. Nobody has verified who has issued them.
    pub certificates: Vec<Vec<u8>>,
    /// The user that it wants to be, as it says.
    pub user: Option<Vec<u8>>,
    /// What it signs requests with.
    pub session_key: SessionKey,
    /// Whether it signs a proxy if it is asked ([`ServerHandshake::request_proxy`]).
    pub may_delegate: bool,
}

/// The server's side. After an error it is over.
pub struct ServerHandshake(State);

enum State {
    New,
    Asked(Box<Asked>),
    /// The client allows to be asked for a proxy.
    Shown(Box<Shown>),
    Requested(Box<Requested>),
    Over,
}

/// The client has shown who it is.
struct Shown {
    form: TagForm,
    cipher: Cipher,
    shared: Vec<u8>,
    /// The client's key.
    key: PublicKey,
    /// The client's certificate.
    certificate: Vec<u8>,
    /// What the client wants to be signed.
    tag: Vec<u8>,
}

/// The client was asked for a proxy.
struct Requested {
    form: TagForm,
    cipher: Cipher,
    shared: Vec<u8>,
    key: PublicKey,
    tag: Vec<u8>,
    proxy_key: ProxyKey,
}

/// The client has the server's certificate.
struct Asked {
    secret: SecretExponent,
    form: TagForm,
    tag: Vec<u8>,
    is_padded: bool,
    options: DelegationOptions,
}

impl ServerHandshake {
    /// Waits for the client's first frame.
    #[must_use]
    pub fn new() -> Self {
        Self(State::New)
    }

    /// Goes on with a frame of the client.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub fn step(
        &mut self,
        secret: &ServerSecret,
        frame: &[u8],
        random: &mut dyn Random,
    ) -> Result<ServerStep, HandshakeError> {
        let state = std::mem::replace(&mut self.0, State::Over);
        let frame = Frame::decode(frame)?;
        match (state, frame.step) {
            (State::New, Step::CLIENT_ASKS) => {
                let (asked, reply) = answer(secret, &frame, random)?;
                self.0 = State::Asked(Box::new(asked));
                Ok(ServerStep::Reply(reply))
            }
            (State::Asked(asked), Step::CLIENT_SHOWS) => {
                let (presented, shown) = presented(secret, &asked, &frame)?;
                if let Some(shown) = shown {
                    self.0 = State::Shown(Box::new(shown));
                }
                Ok(ServerStep::Presented(presented))
            }
            (State::Requested(requested), Step::CLIENT_SIGNS) => answered(*requested, &frame).map(ServerStep::Answered),
            (State::Over, _) => Err(HandshakeError::Over),
            (_, step) => Err(HandshakeError::OutOfTurn(step)),
        }
    }

    /// Asks a client that has presented certificates to sign a proxy for `key`. Returns the frame that the server sends. Without this, the
    /// handshake is over.
    ///
    /// # Errors
    /// [`HandshakeError::NoDelegation`]: the client does not allow it; and what else can go wrong.
    pub fn request_proxy(
        &mut self,
        secret: &ServerSecret,
        key: ProxyKey,
        random: &mut dyn Random,
    ) -> Result<Vec<u8>, HandshakeError> {
        let State::Shown(shown) = std::mem::replace(&mut self.0, State::Over) else {
            return Err(HandshakeError::NoDelegation);
        };
        let signed_tag = secret.sign(&shown.form.text(&shown.tag), random)?;
        let request = key.request(&shown.certificate, random)?;
        let tag = tag::of_server(shown.form, random)?;
        let inner = Frame::new(
            Step::SERVER_REQUESTS,
            vec![
                (BucketType::SIGNED_TAG, signed_tag.as_slice()),
                (BucketType::REQUEST, request.as_bytes()),
                // A stock client fails badly without it.
                (BucketType::TAG, tag.as_slice()),
            ],
        );
        let main = shown.cipher.encrypt(&shown.shared, &inner.encode(), random)?;
        let frame = Frame::new(Step::SERVER_REQUESTS, vec![(BucketType::MAIN, &main)]).encode();
        let Shown { form, cipher, shared, key: of_client, .. } = *shown;
        self.0 = State::Requested(Box::new(Requested { form, cipher, shared, key: of_client, tag, proxy_key: key }));
        Ok(frame)
    }
}

impl Default for ServerHandshake {
    fn default() -> Self {
        Self::new()
    }
}

/// It tells no key.
impl std::fmt::Debug for ServerHandshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            State::New => "ServerHandshake(new)",
            State::Asked(_) => "ServerHandshake(asked)",
            State::Shown(_) => "ServerHandshake(shown)",
            State::Requested(_) => "ServerHandshake(requested)",
            State::Over => "ServerHandshake(over)",
        })
    }
}

pub(crate) fn required<'a>(frame: &Frame<'a>, kind: BucketType) -> Result<&'a [u8], HandshakeError> {
    frame.get(kind).ok_or(HandshakeError::Missing(kind))
}

/// A text without the NULs that some peers send behind it.
pub(crate) fn text(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    &bytes[..end]
}

/// Whether the shared secret is filled up with zeros, with the first module of the list that is known. All peers have one name.
pub(crate) fn is_padded(modules: &[u8]) -> Result<bool, HandshakeError> {
    let names = text(modules).split(|byte| *byte == b'|');
    let known = names.filter_map(|name| {
        let bare = name.strip_suffix(NO_PADDING).unwrap_or(name);
        (bare == b"ssl").then_some(bare.len() == name.len())
    });
    known.take(1).next().ok_or(HandshakeError::NoModule)
}

/// The answer to the first frame.
fn answer(
    server: &ServerSecret,
    frame: &Frame<'_>,
    random: &mut dyn Random,
) -> Result<(Asked, Vec<u8>), HandshakeError> {
    let version = required(frame, BucketType::VERSION)?;
    let version = version.try_into().map_err(|_| HandshakeError::Malformed(BucketType::VERSION))?;
    let version = u32::from_be_bytes(version);
    if version < VERSION_SIGNED {
        return Err(HandshakeError::TooOld(version));
    }
    // Old clients send none.
    let options = frame.get(BucketType::OPTIONS).map_or(Ok([0; 4]), TryInto::try_into);
    let options = options.map_err(|_| HandshakeError::Malformed(BucketType::OPTIONS))?;
    let options = DelegationOptions(u32::from_be_bytes(options));
    let modules = required(frame, BucketType::MODULE)?;
    let is_padded = is_padded(modules)?;
    let inner = Frame::decode(required(frame, BucketType::MAIN)?)?;
    let form = TagForm::of(version);
    let client_tag = signable(required(&inner, BucketType::TAG)?)?;
    if tag::is_of_server(client_tag) {
        return Err(HandshakeError::MarkedTag);
    }
    let signed_tag = server.sign(&form.text(client_tag), random)?;
    let secret = server.group.secret(random)?;
    let agreement = server.sign_public(&secret, random)?;
    let tag = tag::of_server(form, random)?;
    let inner = Frame::new(
        Step::SERVER_SHOWS,
        vec![(BucketType::SIGNED_TAG, signed_tag.as_slice()), (BucketType::TAG, tag.as_slice())],
    )
    .encode();
    let ciphers = Cipher::list();
    let reply = Frame::new(
        Step::SERVER_SHOWS,
        vec![
            (BucketType::MODULE, modules),
            (BucketType::AGREEMENT, &agreement),
            (BucketType::CIPHERS, ciphers.as_bytes()),
            (BucketType::DIGESTS, b"sha256"),
            (BucketType::CERTIFICATES, server.certificate.as_bytes()),
            (BucketType::MAIN, &inner),
        ],
    );
    let reply = reply.encode();
    Ok((Asked { secret, form, tag, is_padded, options }, reply))
}

/// Checks the second frame. Returns what is needed to ask for a proxy, too, if the client allows that.
fn presented(
    server: &ServerSecret,
    asked: &Asked,
    frame: &Frame<'_>,
) -> Result<(Presented, Option<Shown>), HandshakeError> {
    let cipher = Cipher::chosen(text(required(frame, BucketType::CIPHERS)?)).ok_or(HandshakeError::Cipher)?;
    if text(required(frame, BucketType::DIGESTS)?) != b"sha256" {
        return Err(HandshakeError::Digest);
    }
    let claimed = pem::blocks(required(frame, BucketType::PUBLIC_KEY)?);
    let [claimed] = claimed.as_slice() else { return Err(HandshakeError::Malformed(BucketType::PUBLIC_KEY)) };
    // What a server signs for anybody must not count as a client's.
    if *claimed.der == server.public {
        return Err(HandshakeError::OwnKey);
    }
    let key = crate::client::public_key_of(&claimed.der)?;
    let agreement = recover(&key, required(frame, BucketType::AGREEMENT)?)
        .ok_or(HandshakeError::Signature(BucketType::AGREEMENT))?;
    let public = Public::parse(&agreement)?;
    server.group.check_same(&public)?;
    let shared = server.group.shared(&asked.secret, &public, asked.is_padded)?;
    let inner = cipher.decrypt(&shared, required(frame, BucketType::MAIN)?).ok_or(HandshakeError::Decrypt)?;
    // Without authentication of the ciphertext, another key can look as if it fitted.
    let inner = Frame::decode(&inner).map_err(|_| HandshakeError::Decrypt)?;
    let certificates = pem::certificates(required(&inner, BucketType::CERTIFICATES)?);
    if certificates.is_empty() || certificates.len() > CERTIFICATES_MAX {
        return Err(HandshakeError::Certificates(certificates.len()));
    }
    let (certified, _) = public_key(&certificates[0]).ok_or(HandshakeError::Key)?;
    if certified != *claimed.der {
        return Err(HandshakeError::OtherKey);
    }
    let signed_tag = recover(&key, required(&inner, BucketType::SIGNED_TAG)?)
        .ok_or(HandshakeError::Signature(BucketType::SIGNED_TAG))?;
    if signed_tag != asked.form.text(&asked.tag) {
        return Err(HandshakeError::OtherTag);
    }
    let user = inner.get(BucketType::USER).map(|user| text(user).to_vec());
    let session_key = SessionKey::new(cipher, &shared);
    // Stock clients that sign a proxy have sent a tag.
    let tag = inner.get(BucketType::TAG).filter(|_| asked.options.allow());
    let shown = match tag {
        Some(tag) if tag::is_of_server(signable(tag)?) => return Err(HandshakeError::MarkedTag),
        Some(tag) => {
            let certificate = certificates[0].clone();
            Some(Shown { form: asked.form, cipher, shared, key, certificate, tag: tag.to_vec() })
        }
        None => None,
    };
    Ok((Presented { certificates, user, session_key, may_delegate: shown.is_some() }, shown))
}

/// Checks the answer to the request for a proxy.
fn answered(requested: Requested, frame: &Frame<'_>) -> Result<ProxyAnswer, HandshakeError> {
    let Requested { form, cipher, shared, key, tag, proxy_key } = requested;
    let inner = cipher.decrypt(&shared, required(frame, BucketType::MAIN)?).ok_or(HandshakeError::Decrypt)?;
    let inner = Frame::decode(&inner).map_err(|_| HandshakeError::Decrypt)?;
    let signed_tag = recover(&key, required(&inner, BucketType::SIGNED_TAG)?)
        .ok_or(HandshakeError::Signature(BucketType::SIGNED_TAG))?;
    if signed_tag != form.text(&tag) {
        return Err(HandshakeError::OtherTag);
    }
    let Some(proxy) = inner.get(BucketType::CERTIFICATES) else {
        let message = text(inner.get(BucketType::MESSAGE).unwrap_or_default());
        let message = &message[..message.len().min(MESSAGE_BYTES_MAX)];
        return Ok(ProxyAnswer::Declined(message.escape_ascii().to_string()));
    };
    let mut proxies = pem::certificates(proxy);
    let (Some(proxy), true) = (proxies.pop(), proxies.is_empty()) else {
        return Err(HandshakeError::Malformed(BucketType::CERTIFICATES));
    };
    match public_key(&proxy) {
        Some((public, _)) if public == proxy_key.public() => {
            Ok(ProxyAnswer::Signed { proxy, key: Box::new(proxy_key) })
        }
        Some(_) => Err(HandshakeError::OtherProxyKey),
        None => Err(HandshakeError::Key),
    }
}
