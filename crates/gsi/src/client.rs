//! The client's side of a handshake.

use rsa::pkcs8::DecodePublicKey as _;
use rsa::{PrivateKey, PublicKey};

use crate::agreement::Public;
use crate::rsa_blocks::{recover, sign};
use crate::secret::{belongs, private_key, public_key};
use crate::server::{is_padded, required, text};
use crate::tag::{self, TagForm, signable};
use crate::{
    BucketType, CERTIFICATES_MAX, Cipher, DelegationOptions, Frame, HandshakeError, Random, SecretError, SessionKey,
    Step, VERSION, VERSION_SIGNED, issuer_hash, pem, proxy_sign,
};

/// The certificates of a client, and the key of the first one.
pub struct ClientSecret {
    /// In PEM form, the certificate of the key first.
    certificates: String,
    /// The same in DER form.
    pub(crate) chain: Vec<Vec<u8>>,
    /// In PEM form.
    public: String,
    pub(crate) key: PrivateKey,
    /// The hash of the authority that has issued the last one.
    authority: String,
}

impl ClientSecret {
    /// Reads certificates and a key in PEM form: those of a proxy, which are in one text, or of a user.
    ///
    /// # Errors
    /// [`SecretError`].
    pub fn new(certificates: &[u8], key: &[u8]) -> Result<Self, SecretError> {
        let chain: Vec<_> = pem::certificates(certificates).into_iter().take(CERTIFICATES_MAX).collect();
        let first = chain.first().ok_or(SecretError::NoCertificate)?;
        let key = private_key(key)?;
        if !belongs(&key, first)? {
            return Err(SecretError::Mismatch);
        }
        let (public, _) = public_key(first).ok_or(SecretError::Certificate)?;
        // The authority of the user's own certificate, which comes last. Servers look for it by this.
        let authority = chain.last().and_then(|last| issuer_hash(last)).ok_or(SecretError::Certificate)?;
        let certificates = chain.iter().map(|one| pem::encode("CERTIFICATE", one)).collect();
        Ok(Self { certificates, chain, public: pem::encode("PUBLIC KEY", &public), key, authority })
    }

    /// Signs the proxy that `request` (PKCS #10, in PEM form) asks for at `now`, in seconds since 1970. Returns the certificate in PEM form.
    /// Whoever has the key of the request can then act as this client, so call it only for a server that has shown who it is.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub fn sign_proxy(&self, request: &[u8], now: i64, random: &mut dyn Random) -> Result<String, HandshakeError> {
        proxy_sign::sign(&self.key, &self.chain, request, now, random)
    }

    fn sign(&self, bytes: &[u8], random: &mut dyn Random) -> Result<Vec<u8>, HandshakeError> {
        sign(&self.key, bytes, random).map_err(|error| HandshakeError::Sign(error.to_string()))
    }
}

/// It tells no key.
impl std::fmt::Debug for ClientSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSecret").field("authority", &self.authority).finish_non_exhaustive()
    }
}

/// Whether a client signs a proxy for the server, with which the server can act as the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Delegation {
    /// It does not, as stock clients do without being told (`XrdSecGSIDELEGPROXY`).
    #[default]
    Never,
    /// It signs one if the server asks for it.
    Sign,
}

/// The client's side.
pub struct ClientHandshake {
    form: TagForm,
    tag: Option<Vec<u8>>,
    is_padded: bool,
    session_key: Option<SessionKey>,
    delegation: Delegation,
    shown: Option<Shown>,
}

/// What the client needs for the request of the server.
struct Shown {
    server: PublicKey,
    cipher: Cipher,
    shared: Vec<u8>,
    tag: Vec<u8>,
}

impl ClientHandshake {
    /// Begins with a server that has offered `gsi` with `parameters` (`v:10700,c:ssl,ca:…`). Returns the first frame too.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub fn begin(
        secret: &ClientSecret,
        parameters: &[u8],
        delegation: Delegation,
        random: &mut dyn Random,
    ) -> Result<(Self, Vec<u8>), HandshakeError> {
        let parameter =
            |name: &[u8]| text(parameters).split(|byte| *byte == b',').find_map(|part| part.strip_prefix(name));
        let version = parameter(b"v:").and_then(|version| std::str::from_utf8(version).ok()?.parse().ok());
        let version = version.ok_or(HandshakeError::Malformed(BucketType::VERSION))?;
        if version < VERSION_SIGNED {
            return Err(HandshakeError::TooOld(version));
        }
        let form = TagForm::of(version);
        let is_padded = is_padded(parameter(b"c:").unwrap_or(b"ssl"))?;
        let module: &[u8] = if is_padded { b"ssl" } else { b"sslnopad" };
        let tag = tag::new(random)?;
        let inner = Frame::new(Step::CLIENT_ASKS, vec![(BucketType::TAG, tag.as_slice())]).encode();
        let version = VERSION.to_be_bytes();
        let options = DelegationOptions::of(delegation).0.to_be_bytes();
        let first = Frame::new(
            Step::CLIENT_ASKS,
            vec![
                (BucketType::MODULE, module),
                (BucketType::VERSION, &version),
                (BucketType::AUTHORITY, secret.authority.as_bytes()),
                (BucketType::OPTIONS, &options),
                (BucketType::MAIN, &inner),
            ],
        );
        let begun = Self { form, tag: Some(tag), is_padded, session_key: None, delegation, shown: None };
        Ok((begun, first.encode()))
    }

    /// Answers the server's certificate. `check` gets it in DER form, and says what is wrong with it.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub fn show(
        &mut self,
        secret: &ClientSecret,
        frame: &[u8],
        check: &dyn Fn(&[u8]) -> Result<(), String>,
        random: &mut dyn Random,
    ) -> Result<Vec<u8>, HandshakeError> {
        let own_tag = self.tag.take().ok_or(HandshakeError::Over)?;
        let frame = Frame::decode(frame)?;
        if frame.step != Step::SERVER_SHOWS {
            return Err(HandshakeError::OutOfTurn(frame.step));
        }
        let certificates = pem::certificates(required(&frame, BucketType::CERTIFICATES)?);
        let certificate = certificates.first().ok_or(HandshakeError::Certificates(0))?;
        check(certificate).map_err(HandshakeError::Server)?;
        let (_, key) = public_key(certificate).ok_or(HandshakeError::Key)?;
        let agreement = recover(&key, required(&frame, BucketType::AGREEMENT)?)
            .ok_or(HandshakeError::Signature(BucketType::AGREEMENT))?;
        let inner = Frame::decode(required(&frame, BucketType::MAIN)?)?;
        let signed_tag = recover(&key, required(&inner, BucketType::SIGNED_TAG)?)
            .ok_or(HandshakeError::Signature(BucketType::SIGNED_TAG))?;
        if signed_tag != self.form.text(&own_tag) {
            return Err(HandshakeError::OtherTag);
        }
        let cipher = Cipher::first_of(text(required(&frame, BucketType::CIPHERS)?)).ok_or(HandshakeError::Cipher)?;
        let digest = digest_of(text(required(&frame, BucketType::DIGESTS)?)).ok_or(HandshakeError::Digest)?;
        let server_tag = signable(required(&inner, BucketType::TAG)?)?;
        if tag::is_for_older_client(server_tag) {
            return Err(HandshakeError::Lowered);
        }
        let signed_tag = secret.sign(&self.form.text(server_tag), random)?;

        let public = Public::parse(&agreement)?;
        let group = public.group()?;
        let exponent = group.secret(random)?;
        let shared = group.shared(&exponent, &public, self.is_padded)?;
        // The server signs this one with its request.
        let next_tag = match self.delegation {
            Delegation::Never => None,
            Delegation::Sign => Some(tag::new(random)?),
        };
        let mut inner = vec![
            (BucketType::CERTIFICATES, secret.certificates.as_bytes()),
            (BucketType::SIGNED_TAG, signed_tag.as_slice()),
        ];
        inner.extend(next_tag.as_deref().map(|tag| (BucketType::TAG, tag)));
        let main = cipher.encrypt(&shared, &Frame::new(Step::CLIENT_SHOWS, inner).encode(), random)?;
        let agreement = secret.sign(exponent.text.as_bytes(), random)?;
        self.session_key = Some(SessionKey::new(cipher, &shared));
        let module: &[u8] = if self.is_padded { b"ssl" } else { b"sslnopad" };
        let chosen = format!("{}#16", cipher.name());
        let buckets = vec![
            (BucketType::MODULE, module),
            (BucketType::CIPHERS, chosen.as_bytes()),
            (BucketType::DIGESTS, digest),
            (BucketType::AGREEMENT, &agreement),
            (BucketType::PUBLIC_KEY, secret.public.as_bytes()),
            (BucketType::MAIN, &main),
        ];
        let frame = Frame::new(Step::CLIENT_SHOWS, buckets).encode();
        self.shown = next_tag.map(|tag| Shown { server: key, cipher, shared, tag });
        Ok(frame)
    }

    /// Answers the server's request for a proxy at `now`, in seconds since 1970. The client must have allowed it.
    ///
    /// # Errors
    /// [`HandshakeError`]. Then the server has got no proxy.
    pub fn sign(
        &mut self,
        secret: &ClientSecret,
        frame: &[u8],
        now: i64,
        random: &mut dyn Random,
    ) -> Result<Vec<u8>, HandshakeError> {
        let frame = Frame::decode(frame)?;
        if frame.step != Step::SERVER_REQUESTS {
            return Err(HandshakeError::OutOfTurn(frame.step));
        }
        if self.delegation == Delegation::Never {
            return Err(HandshakeError::NoDelegation);
        }
        let Shown { server, cipher, shared, tag } = self.shown.take().ok_or(HandshakeError::OutOfTurn(frame.step))?;
        let inner = cipher.decrypt(&shared, required(&frame, BucketType::MAIN)?).ok_or(HandshakeError::Decrypt)?;
        let inner = Frame::decode(&inner).map_err(|_| HandshakeError::Decrypt)?;
        let signed_tag = recover(&server, required(&inner, BucketType::SIGNED_TAG)?)
            .ok_or(HandshakeError::Signature(BucketType::SIGNED_TAG))?;
        if signed_tag != self.form.text(&tag) {
            return Err(HandshakeError::OtherTag);
        }
        let request = required(&inner, BucketType::REQUEST)?;
        let proxy = secret.sign_proxy(request, now, random)?;
        let signed_tag = secret.sign(&self.form.text(signable(required(&inner, BucketType::TAG)?)?), random)?;
        let inner = Frame::new(
            Step::CLIENT_SIGNS,
            vec![(BucketType::CERTIFICATES, proxy.as_bytes()), (BucketType::SIGNED_TAG, signed_tag.as_slice())],
        );
        let main = cipher.encrypt(&shared, &inner.encode(), random)?;
        Ok(Frame::new(Step::CLIENT_SIGNS, vec![(BucketType::MAIN, &main)]).encode())
    }

    /// The key of the session, after [`Self::show`] has answered.
    #[must_use]
    pub fn session_key(&self) -> Option<&SessionKey> {
        self.session_key.as_ref()
    }
}

impl std::fmt::Debug for ClientHandshake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClientHandshake(..)")
    }
}

/// The digest of a server's list that is named in the answer: SHA-256, or the first one. Nothing is digested with it, so that what old
/// servers offer (XRootD 5.5 has SHA-1 and MD5) does no harm.
fn digest_of(list: &[u8]) -> Option<&[u8]> {
    let mut names = list.split(|byte| *byte == b':').filter(|name| (1..=16).contains(&name.len()));
    names.clone().find(|name| *name == b"sha256").or_else(|| names.next())
}

/// The key in the form in which certificates have it.
pub(crate) fn public_key_of(der: &[u8]) -> Result<PublicKey, HandshakeError> {
    PublicKey::from_public_key_der(der).map_err(|_| HandshakeError::Key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_random::Numbers;
    use crate::{ServerHandshake, ServerSecret, ServerStep};

    fn presented(client: &ClientSecret) -> Result<ServerStep, HandshakeError> {
        let (certificate, key) =
            (include_bytes!("../tests/data/server.pem"), include_bytes!("../tests/data/server.key"));
        let random = &mut Numbers(3);
        let server = ServerSecret::new(certificate, key, random).unwrap();
        let (mut at_client, first) = ClientHandshake::begin(client, b"v:10700,c:ssl", Delegation::Never, random)?;
        let mut at_server = ServerHandshake::new();
        let ServerStep::Reply(reply) = at_server.step(&server, &first, random)? else { panic!("no reply") };
        let second = at_client.show(client, &reply, &|_| Ok(()), random)?;
        at_server.step(&server, &second, random)
    }

    #[test]
    fn a_certificate_without_its_key_is_worth_nothing() {
        let secret = |certificate: &[u8], key: &[u8]| ClientSecret::new(certificate, key).unwrap();
        let ana = || secret(include_bytes!("../tests/data/user.pem"), include_bytes!("../tests/data/user.key"));
        let bob = || secret(include_bytes!("../tests/data/other.pem"), include_bytes!("../tests/data/other.key"));
        assert!(presented(&ana()).is_ok());
        // Bob signs, and shows ana's certificate: alone, or before his own.
        let forged = ClientSecret { certificates: ana().certificates, ..bob() };
        assert_eq!(presented(&forged), Err(HandshakeError::OtherKey));
        let both = ana().certificates + &bob().certificates;
        assert_eq!(presented(&ClientSecret { certificates: both, ..bob() }), Err(HandshakeError::OtherKey));
        // He says that her key is his.
        let forged = ClientSecret { certificates: ana().certificates, public: ana().public, ..bob() };
        assert_eq!(presented(&forged), Err(HandshakeError::Signature(BucketType::AGREEMENT)));
        let none = ClientSecret { certificates: String::new(), ..bob() };
        assert_eq!(presented(&none), Err(HandshakeError::Certificates(0)));
        let many = ClientSecret { certificates: bob().certificates.repeat(CERTIFICATES_MAX + 1), ..bob() };
        assert_eq!(presented(&many), Err(HandshakeError::Certificates(CERTIFICATES_MAX + 1)));
    }
}
