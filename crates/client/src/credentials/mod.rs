//! What the client shows to a server that wants to know who it is. The server lists the methods that it takes (`offers`);
//! like the stock client, this one tries them in the server's order.

mod certificate;
mod local_user;
mod shared_secret;
mod token;

use std::fmt;
use std::net::SocketAddr;

pub use certificate::{CertificateSource, HeldProxy, UserCertificate};
pub use gsi::Delegation;
pub use token::{Token, TokenSource};

pub(crate) use certificate::SystemNumbers;

use certificate::GsiLogin;
use gsi::SessionKey;
use token::Places;

use crate::Authorities;

/// The longest list of methods. (The stock client reads 4 KiB of it.)
const METHODS_LEN_MAX: usize = 16 << 10;
/// The most methods in a list. XRootD has seven.
const METHODS_MAX: usize = 32;
/// The longest token that a server takes unless it says otherwise, as at the stock server.
const TOKEN_LEN: usize = 4096;

/// The variable by which stock clients are told whether to delegate.
const DELEGATION_VARIABLE: &str = "XrdSecGSIDELEGPROXY";

/// What the variable says: with 1 clients sign a proxy. With 2, stock clients send the key of their own proxy, which this one never does.
fn delegation_of(value: Option<&std::ffi::OsStr>) -> Delegation {
    if value.is_some_and(|value| value == "1") { Delegation::Sign } else { Delegation::Never }
}

/// A method of authentication.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// A bearer token, over TLS only.
    Ztn,
    /// A secret that it shares with the server.
    Sss,
    /// A certificate, or a proxy of it.
    Gsi,
    /// The names of the user and the group, which the server believes.
    Unix,
    /// The client's address.
    Host,
}

impl Method {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Ztn, Self::Sss, Self::Gsi, Self::Unix, Self::Host];

    /// Returns its name in the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ztn => "ztn",
            Self::Sss => "sss",
            Self::Gsi => "gsi",
            Self::Unix => "unix",
            Self::Host => "host",
        }
    }
}

/// What the client may show to servers that want to know who it is.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The methods that it may use. The server's order decides.
    pub methods: Vec<Method>,
    /// Where its bearer token comes from.
    pub token: TokenSource,
    /// Where its certificate comes from.
    pub certificate: CertificateSource,
    /// Whether it signs a proxy for a server that asks for one by `gsi`.
    pub delegation: Delegation,
}

/// The server that wants to know who the client is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Server<'a> {
    /// Its name, as the client was told to find it.
    pub(crate) host: &'a str,
    /// Who may have issued its certificate.
    pub(crate) authorities: &'a Authorities,
    /// The client's own address on the connection.
    pub(crate) from: Option<SocketAddr>,
}

impl Credentials {
    /// Uses only these methods.
    #[must_use]
    pub fn only(methods: &[Method]) -> Self {
        Self {
            methods: methods.to_vec(),
            token: TokenSource::default(),
            certificate: CertificateSource::default(),
            delegation: Delegation::Never,
        }
    }

    /// Uses the methods that `XrdSecPROTOCOL` names, like the stock client; without it all of them.
    #[must_use]
    pub fn from_environment() -> Self {
        // What is no text names no method.
        let named = Self::named_in(
            std::env::var_os("XrdSecPROTOCOL").map(|list| list.to_string_lossy().into_owned()).as_deref(),
        );
        Self { delegation: delegation_of(std::env::var_os(DELEGATION_VARIABLE).as_deref()), ..named }
    }

    fn named_in(list: Option<&str>) -> Self {
        let is_named =
            |method: &Method| list.is_none_or(|list| list.split(',').map(str::trim).any(|name| name == method.name()));
        Self::only(&Method::ALL.into_iter().filter(is_named).collect::<Vec<_>>())
    }

    /// Returns the credential for what the server offers. Some contain the address from which this client connects.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) fn for_offer(
        &self,
        offer: &Offer<'_>,
        channel: Channel,
        server: Server<'_>,
    ) -> Result<Credential, String> {
        let Some(method) = Method::ALL.into_iter().find(|method| method.name().as_bytes() == offer.name) else {
            return Err("weir's client does not speak it".to_owned());
        };
        if !self.methods.contains(&method) {
            return Err("it is not among the methods that may be used, see XrdSecPROTOCOL".to_owned());
        }
        match method {
            Method::Ztn if channel == Channel::Clear => {
                Err("a token is sent over TLS only: use an address that begins with roots://".to_owned())
            }
            Method::Ztn => {
                let len_max = token_len_max(offer.parameters)?;
                let token = self.token.find(&Places::usual(), len_max)?;
                Ok(Credential(Secret::Token(token)))
            }
            Method::Sss => Ok(Credential(Secret::Shared(shared_secret::bytes(offer.parameters, server.from)?))),
            Method::Gsi => {
                let login = GsiLogin::begin(&self.certificate, self.delegation, offer.parameters, server)?;
                Ok(Credential(Secret::Certificate(Box::new(login))))
            }
            Method::Unix => Ok(Credential(Secret::Names(local_user::names()))),
            Method::Host => Ok(Credential(Secret::Nothing)),
        }
    }
}

impl Default for Credentials {
    fn default() -> Self {
        Self::from_environment()
    }
}

/// Whether others can read what the client sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Channel {
    Encrypted,
    Clear,
}

/// A method that the server offers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer<'a> {
    name: &'a [u8],
    parameters: &'a [u8],
}

impl Offer<'_> {
    /// Returns its name for people.
    pub(crate) fn shown(&self) -> String {
        self.name[..self.name.len().min(16)].escape_ascii().to_string()
    }
}

/// Parses the list in the answer to a login: `&P=ztn,0:4096:&P=unix`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn offers(list: &[u8]) -> Result<Vec<Offer<'_>>, &'static str> {
    if list.len() > METHODS_LEN_MAX {
        return Err("a list of methods to authenticate that is far too long");
    }
    let mut offers = Vec::new();
    for part in list.split(|byte| *byte == b'&') {
        let Some(part) = part.strip_prefix(b"P=") else { continue };
        let end = part.iter().position(|byte| *byte == b',').unwrap_or(part.len());
        let (name, parameters) = part.split_at(end);
        offers.push(Offer { name, parameters: parameters.strip_prefix(b",").unwrap_or_default() });
        if offers.len() > METHODS_MAX {
            return Err("far too many methods to authenticate");
        }
    }
    if offers.is_empty() {
        return Err("a list of methods to authenticate without a method");
    }
    Ok(offers)
}

/// The longest token that the server takes, from `<options and version>:<length>:`.
fn token_len_max(parameters: &[u8]) -> Result<usize, String> {
    if parameters.is_empty() {
        return Ok(TOKEN_LEN);
    }
    let text = std::str::from_utf8(parameters).unwrap_or_default();
    let mut numbers = text.split(':').map(|number| number.parse::<u64>().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(_), Some(len)) if len > 0 => Ok(usize::try_from(len).unwrap_or(usize::MAX)),
        _ => Err("the server's parameters are malformed".to_owned()),
    }
}

/// Why a login does not go on.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// It cannot go on with this method.
    Method(String),
    /// The server is not the right one, so that nothing must be shown to it by another method either.
    WrongServer(String),
}

/// What is shown to a server.
pub(crate) struct Credential(Secret);

enum Secret {
    Token(Token),
    /// Encrypted with a shared secret.
    Shared(Vec<u8>),
    Certificate(Box<GsiLogin>),
    /// `user group`
    Names(String),
    Nothing,
}

impl Credential {
    /// Returns the method as a request names it.
    pub(crate) fn method(&self) -> [u8; 4] {
        match &self.0 {
            Secret::Token(_) => *b"ztn\0",
            Secret::Shared(_) => *b"sss\0",
            Secret::Certificate(_) => *b"gsi\0",
            Secret::Names(_) => *b"unix",
            Secret::Nothing => *b"host",
        }
    }

    /// Returns the bytes of the first request.
    pub(crate) fn first(&self) -> Vec<u8> {
        match &self.0 {
            Secret::Token(token) => {
                let token = token.as_str().as_bytes();
                // The length counts the NUL at the end. No token is as long as this can say.
                let len = u16::try_from(token.len() + 1).unwrap_or(u16::MAX);
                let mut bytes = b"ztn\0\0T\0\0".to_vec();
                bytes.extend_from_slice(&len.to_be_bytes());
                bytes.extend_from_slice(token);
                bytes.push(0);
                bytes
            }
            Secret::Shared(bytes) => bytes.clone(),
            Secret::Certificate(login) => login.first(),
            Secret::Names(names) => [b"unix\0", names.as_bytes(), b"\0"].concat(),
            Secret::Nothing => b"host\0".to_vec(),
        }
    }

    /// Returns the bytes of the next request, after the server has `asked` for more.
    ///
    /// # Errors
    /// There is no more, or the server is not the right one.
    pub(crate) fn next(&mut self, asked: &[u8]) -> Result<Vec<u8>, Stopped> {
        match &mut self.0 {
            Secret::Certificate(login) => login.next(asked),
            Secret::Token(_) | Secret::Shared(_) | Secret::Names(_) | Secret::Nothing => {
                let why = "the server asks for more, and this method has nothing more to show";
                Err(Stopped::Method(why.to_owned()))
            }
        }
    }

    /// The key that both sides have after the login, if the method gives one.
    pub(crate) fn session_key(&self) -> Option<SessionKey> {
        match &self.0 {
            Secret::Certificate(login) => login.session_key(),
            Secret::Token(_) | Secret::Shared(_) | Secret::Names(_) | Secret::Nothing => None,
        }
    }

    /// Whether everything was shown, so that the server can accept it.
    pub(crate) fn is_complete(&self) -> bool {
        match &self.0 {
            Secret::Certificate(login) => login.is_complete(),
            Secret::Token(_) | Secret::Shared(_) | Secret::Names(_) | Secret::Nothing => true,
        }
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({})", self.method().escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    fn server() -> Server<'static> {
        static AUTHORITIES: std::sync::OnceLock<Authorities> = std::sync::OnceLock::new();
        Server { host: "localhost", authorities: AUTHORITIES.get_or_init(|| Authorities::of(Vec::new())), from: None }
    }

    fn named(list: &[u8]) -> Vec<(String, Vec<u8>)> {
        offers(list).unwrap().iter().map(|offer| (offer.shown(), offer.parameters.to_vec())).collect()
    }

    #[test]
    fn the_servers_list_is_understood_whatever_is_in_it() {
        let of = |name: &str, parameters: &str| (name.to_owned(), parameters.as_bytes().to_vec());
        assert_eq!(named(b"&P=ztn,0:4096:&P=unix"), [of("ztn", "0:4096:"), of("unix", "")]);
        assert_eq!(named(b"x&P=gsi,v:10600,c:ssl&Q=1&P=host"), [of("gsi", "v:10600,c:ssl"), of("host", "")]);
        assert_eq!(named(b"&P=&P=\xff\n")[1], of("\\xff\\n", ""));
        assert_eq!(named(&[b"&P=", &[b'a'; 1000][..]].concat())[0].0.len(), 16);
        for bad in [&b""[..], b"P=unix", b"&&&", &[b'&'; METHODS_LEN_MAX + 1], &b"&P=a".repeat(METHODS_MAX + 1)] {
            let found = offers(bad);
            assert!(found.is_err() || bad == b"P=unix", "{found:?}");
        }
    }

    #[test]
    fn credentials_are_those_of_the_stock_client() {
        let mut token = Credential(Secret::Token(Token::new("abc.def").unwrap()));
        assert_eq!((token.method(), token.first()), (*b"ztn\0", b"ztn\0\0T\0\0\0\x08abc.def\0".to_vec()));
        let names = Credential(Secret::Names("ana users".to_owned()));
        assert_eq!((names.method(), names.first()), (*b"unix", b"unix\0ana users\0".to_vec()));
        let host = Credential(Secret::Nothing);
        assert_eq!((host.method(), host.first()), (*b"host", b"host\0".to_vec()));
        assert!(token.next(b"more").is_err());
    }

    #[test]
    fn a_token_is_neither_shown_nor_sent_in_the_clear() {
        let source = TokenSource::from(|| Ok(Token::new("very.secret").unwrap()));
        let credentials = Credentials { token: source, ..Credentials::named_in(None) };
        let offer = Offer { name: b"ztn", parameters: b"0:4096:" };
        let credential = credentials.for_offer(&offer, Channel::Encrypted, server()).unwrap();
        assert!(credential.first().ends_with(b"very.secret\0"));
        assert!(!format!("{credentials:?} {credential:?}").contains("secret"));
        let why = credentials.for_offer(&offer, Channel::Clear, server()).unwrap_err();
        assert!(why.contains("roots://") && !why.contains("secret"), "{why}");
        // One that does not fit is not sent either, and not shown.
        for (parameters, reason) in
            [("0:11:", "longer"), ("0:0:", "malformed"), ("x:12:", "malformed"), ("0", "malformed")]
        {
            let offer = Offer { name: b"ztn", parameters: parameters.as_bytes() };
            let why = credentials.for_offer(&offer, Channel::Encrypted, server()).unwrap_err();
            assert!(why.contains(reason) && !why.contains("secret"), "{parameters}: {why}");
        }
        let offer = Offer { name: b"ztn", parameters: b"0:12:" };
        assert!(credentials.for_offer(&offer, Channel::Encrypted, server()).is_ok());
        let offer = Offer { name: b"ztn", parameters: b"" };
        assert!(credentials.for_offer(&offer, Channel::Encrypted, server()).is_ok());
    }

    #[test]
    fn a_proxy_is_delegated_only_if_somebody_says_so() {
        let of = |value: &str| delegation_of(Some(std::ffi::OsStr::new(value)));
        assert_eq!(of("1"), Delegation::Sign);
        for other in ["", "0", "2", "11"] {
            assert_eq!(of(other), Delegation::Never, "{other}");
        }
        assert_eq!(delegation_of(None), Delegation::Never);
        assert_eq!(Credentials::only(&Method::ALL).delegation, Delegation::Never);
    }

    #[test]
    fn only_named_methods_are_used() {
        let methods = |list| Credentials::named_in(list).methods;
        assert_eq!(methods(None), Method::ALL);
        assert_eq!(methods(Some("unix, ztn,krb5")), [Method::Ztn, Method::Unix]);
        assert_eq!(methods(Some("gsi")), [Method::Gsi]);
        assert_eq!(methods(Some("")), []);
        let unix = Offer { name: b"unix", parameters: b"" };
        let why = Credentials::named_in(Some("host")).for_offer(&unix, Channel::Clear, server()).unwrap_err();
        assert!(why.contains("XrdSecPROTOCOL"), "{why}");
        let krb5 = Offer { name: b"krb5", parameters: b"" };
        let why = Credentials::named_in(None).for_offer(&krb5, Channel::Encrypted, server()).unwrap_err();
        assert!(why.contains("does not speak"), "{why}");
    }
}
