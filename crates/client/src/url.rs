//! Addresses: `root://[user@]host[:port][,host[:port]…]//path[?key=value&…]`, and the same with `roots://` for TLS.

use std::fmt;

use wire::{Opaque, PathArg};

/// The default port of a server (IANA: `xrootd`).
pub const DEFAULT_PORT: u16 = 1094;
/// The most servers in one address.
const SERVERS_MAX: usize = 16;
/// The longest accepted address. Servers limit paths to much less.
const URL_MAX: usize = 16 << 10;

/// A server.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Endpoint {
    /// Name or address; an IPv6 address without its brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Endpoint {
    /// Parses `host`, `host:port` or `[v6]:port`.
    ///
    /// # Errors
    /// The text says what is wrong.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or("a `[` without its `]`")?;
                let port = match rest {
                    "" => None,
                    rest => {
                        Some(rest.strip_prefix(':').ok_or("something other than a port stands behind the address")?)
                    }
                };
                (host, port)
            }
            None => match text.split_once(':') {
                Some((_, rest)) if rest.contains(':') => return Err("an IPv6 address needs brackets, [::1]"),
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            },
        };
        if host.is_empty() || host.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err("it names no host");
        }
        let port = match port {
            None => DEFAULT_PORT,
            Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or("its port is no number from 1 to 65535")?,
        };
        Ok(Self { host: host.to_owned(), port })
    }
}

/// A path on a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Url {
    /// Whether the connection must be encrypted (`roots://`). If not, it is where the server requires that.
    pub tls: bool,
    /// The server.
    pub server: Endpoint,
    /// Further servers of the same names, as the managers of a cluster. If one cannot be reached, the next one is asked.
    pub others: Vec<Endpoint>,
    /// The user name for the login; `None`: the name of the user who runs this program.
    pub user: Option<String>,
    /// An absolute path, without repeated slashes at its start.
    pub path: String,
    /// The text behind the `?`.
    pub opaque: Option<String>,
}

/// The text is not an address of this kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is not a root:// or roots:// address: {why}")]
pub struct UrlError {
    /// The given text.
    pub text: String,
    /// What is wrong with it.
    pub why: &'static str,
}

impl UrlError {
    /// Returns what is wrong with a text that was probably meant as an address of a server, and is none: without the
    /// slashes behind `root:`, or without `root://` before a host and a port.
    #[must_use]
    pub fn mistaken(text: &str) -> Option<Self> {
        let wrong = |why| Some(Self { text: text.chars().take(200).collect(), why });
        let rest = ["root:", "xroot:", "roots:", "xroots:"].iter().find_map(|scheme| text.strip_prefix(scheme));
        if rest.is_some_and(|rest| !rest.starts_with("//")) {
            return wrong("two slashes follow the colon, as in root://HOST[:PORT]//PATH");
        }
        let (server, _) = text.split_once("//")?;
        let (host, port) = server.rsplit_once(':')?;
        let is_server = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) && !host.contains('/');
        (is_server && Endpoint::parse(server).is_ok()).then(|| wrong("write root:// before the host")).flatten()
    }
}

impl Url {
    /// Whether `text` looks like such an address: `root://`, `xroot://`, or with TLS `roots://`, `xroots://`.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        ["root://", "xroot://", "roots://", "xroots://"].iter().any(|scheme| text.starts_with(scheme))
    }

    /// Parses `text`.
    ///
    /// # Errors
    /// [`UrlError`] says what is wrong.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let wrong = |why| UrlError { text: text.chars().take(200).collect(), why };
        if text.len() > URL_MAX || text.contains('\0') {
            return Err(wrong("it is too long, or holds a NUL"));
        }
        let (scheme, rest) = text.split_once("://").unwrap_or((text, ""));
        let tls = match scheme {
            "root" | "xroot" if scheme.len() < text.len() => false,
            "roots" | "xroots" if scheme.len() < text.len() => true,
            _ => return Err(wrong("it begins with neither root:// nor roots://")),
        };
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user.split(':').next().unwrap_or(user).to_owned()), host),
            None => (None, authority),
        };
        let mut servers = host.split(',').map(|host| Endpoint::parse(host).map_err(wrong));
        let server = servers.next().unwrap_or_else(|| Err(wrong("it names no host")))?;
        let mut others: Vec<Endpoint> = Vec::new();
        for other in servers {
            let other = other?;
            if other != server && !others.contains(&other) {
                others.push(other);
            }
        }
        if others.len() >= SERVERS_MAX {
            return Err(wrong("it names more than 16 servers"));
        }
        let (path, opaque) = match path.split_once('?') {
            Some((path, opaque)) => (path, Some(opaque.to_owned()).filter(|opaque| !opaque.is_empty())),
            None => (path, None),
        };
        let path = format!("/{}", path.trim_start_matches('/'));
        Ok(Self { tls, server, others, user: user.filter(|user| !user.is_empty()), path, opaque })
    }

    /// Returns all its servers, in their order.
    pub fn servers(&self) -> impl Iterator<Item = &Endpoint> {
        std::iter::once(&self.server).chain(&self.others)
    }

    /// Whether this is one of its servers.
    #[must_use]
    pub fn is_at(&self, server: &Endpoint) -> bool {
        self.servers().any(|known| known == server)
    }

    /// Returns the same URL at this server alone.
    #[must_use]
    pub fn at(&self, server: Endpoint) -> Self {
        Self { server, others: Vec::new(), ..self.clone() }
    }

    /// Returns the URL of the entry `name` in this directory.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        let path = format!("{}/{}", self.path.trim_end_matches('/'), name.trim_start_matches('/'));
        Self { path, ..self.clone() }
    }

    /// Returns the URL of its parent directory; `None` for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let (parent, name) = self.path.trim_end_matches('/').rsplit_once('/')?;
        let path = if parent.is_empty() { "/" } else { parent }.to_owned();
        (!name.is_empty()).then(|| Self { path, ..self.clone() })
    }

    /// Returns its last name; empty for the root.
    #[must_use]
    pub fn name(&self) -> &str {
        self.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
    }

    /// Returns the value of a word behind the `?`.
    #[must_use]
    pub fn word(&self, key: &str) -> Option<&str> {
        let mut words = self.opaque.as_deref()?.split('&').filter_map(|word| word.split_once('='));
        words.find(|(of, _)| *of == key).map(|(_, value)| value)
    }

    /// Adds more words (`key=value&other=value`) behind the `?`. They replace words with the same keys.
    pub fn add_words(&mut self, more: &str) {
        let more = more.trim_matches(['?', '&']);
        if more.is_empty() {
            return;
        }
        let key = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
        let keys: Vec<String> = more.split('&').map(key).collect();
        self.keep_words(|word| !word.is_empty() && !keys.contains(&key(word)));
        match &mut self.opaque {
            Some(opaque) => {
                opaque.push('&');
                opaque.push_str(more);
            }
            None => self.opaque = Some(more.to_owned()),
        }
    }

    /// Returns the same URL without the words of a key.
    #[must_use]
    pub fn without(&self, key: &str) -> Self {
        let mut others = self.clone();
        others.keep_words(|word| word.split('=').next() != Some(key));
        others
    }

    fn keep_words(&mut self, is_kept: impl Fn(&str) -> bool) {
        if let Some(opaque) = self.opaque.take() {
            let kept: Vec<&str> = opaque.split('&').filter(|word| is_kept(word)).collect();
            self.opaque = (!kept.is_empty()).then(|| kept.join("&"));
        }
    }

    /// Adds `host` to the hosts that could not be used (`tried=`, as in the stock client). The server that decides
    /// about redirects avoids them. Reasons (`triedrc=`) that were given for the others are not those for this one, so
    /// they are removed.
    pub(crate) fn add_tried(&mut self, host: &str) {
        self.keep_words(|word| word.split('=').next() != Some("triedrc"));
        if self.has_tried(host) {
            return;
        }
        let tried = match self.word("tried").filter(|before| !before.is_empty()) {
            Some(before) => format!("tried={before},{host}"),
            None => format!("tried={host}"),
        };
        self.add_words(&tried);
    }

    /// Whether `host` is among the hosts that could not be used.
    pub(crate) fn has_tried(&self, host: &str) -> bool {
        self.word("tried").is_some_and(|before| before.split(',').any(|other| other == host))
    }

    /// Removes a word (`key=value`).
    pub(crate) fn remove_word(&mut self, word: &str) {
        self.keep_words(|other| other != word);
    }

    /// Returns the name of its protocol: `roots` or `root`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.tls { "roots" } else { "root" }
    }

    /// Returns the path as a request carries it.
    #[must_use]
    pub fn target(&self) -> PathArg {
        let opaque = self.opaque.as_ref().and_then(|opaque| Opaque::parse(opaque.as_bytes()).ok());
        PathArg { path: self.path.clone().into_bytes(), opaque }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme())?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        // The text behind `?` may be a secret.
        write!(f, "{}", self.server)?;
        for other in &self.others {
            write!(f, ",{other}")?;
        }
        write!(f, "/{}", self.path)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn words_can_be_removed() {
        let mut url = Url::parse("root://host//file?a=1&weir.resume=1&b=2").unwrap();
        url.remove_word("weir.resume=1");
        assert_eq!(url.opaque.as_deref(), Some("a=1&b=2"));
        url.remove_word("a=1");
        url.remove_word("b=2");
        assert_eq!(url.opaque, None);
        let url = Url::parse("root://host//f?oss.asize=5&a=b&oss.asize.x=1").unwrap();
        assert_eq!(url.without("oss.asize").opaque.as_deref(), Some("a=b&oss.asize.x=1"));
        assert_eq!(url.without("a").without("oss.asize").without("oss.asize.x").opaque, None);
        assert_eq!(Url::parse("root://host//f").unwrap().without("a").opaque, None);
    }

    #[test]
    fn tried_hosts_accumulate() {
        let mut url = Url::parse("root://host//file?a=1").unwrap();
        for host in ["d1", "d2", "d1"] {
            url.add_tried(host);
            assert!(url.has_tried(host));
        }
        assert_eq!((url.word("tried"), url.word("a"), url.has_tried("d")), (Some("d1,d2"), Some("1"), false));
        for host in ["d2", "d3"] {
            url.add_words("triedrc=resel,resel");
            url.add_tried(host);
            assert_eq!(url.word("triedrc"), None, "{host} is not in use");
        }
        assert_eq!(url.word("tried"), Some("d1,d2,d3"));
    }

    #[test]
    fn words_are_found_by_their_keys() {
        let url = Url::parse("root://host//file?weir.cap=a=b&weir.object=0000000000000007&x").unwrap();
        assert_eq!((url.word("weir.object"), url.word("weir.cap")), (Some("0000000000000007"), Some("a=b")));
        assert_eq!((url.word("weir"), url.word("x")), (None, None));
        assert_eq!(Url::parse("root://host//file").unwrap().word("x"), None);
    }

    #[test]
    fn addresses_are_understood() {
        for (text, shown, path, opaque) in [
            ("root://host", "root://host:1094//", "/", None),
            ("root://host/", "root://host:1094//", "/", None),
            ("root://host//a/b", "root://host:1094//a/b", "/a/b", None),
            ("root://host/a", "root://host:1094//a", "/a", None),
            ("xroot://u@host:99//a?x=1&y=?", "root://u@host:99//a", "/a", Some("x=1&y=?")),
            ("root://[::1]:99//a", "root://[::1]:99//a", "/a", None),
            ("root://[::1]", "root://[::1]:1094//", "/", None),
            ("root://host?k=v", "root://host:1094//", "/", Some("k=v")),
            ("root://u:secret@host//a", "root://u@host:1094//a", "/a", None),
            ("roots://host//a", "roots://host:1094//a", "/a", None),
            ("xroots://u@[::1]:99//a?b=c", "roots://u@[::1]:99//a", "/a", Some("b=c")),
            ("root://m1,m2:99,[::1]//a", "root://m1:1094,m2:99,[::1]:1094//a", "/a", None),
            ("root://m1,m2,m1:1094,m2", "root://m1:1094,m2:1094//", "/", None),
            ("root://u@m1,m2//a,b", "root://u@m1:1094,m2:1094//a,b", "/a,b", None),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.to_string().as_str(), url.path.as_str()), (shown, path), "{text}");
            assert_eq!(url.opaque.as_deref(), opaque, "{text}");
            assert_eq!(Url::parse(&url.to_string()).unwrap().path, url.path);
            assert_eq!(url.tls, text.contains("roots://"), "{text}");
        }
        for text in [
            "",
            "/a",
            "http://host/",
            "root://",
            "root:///a",
            "root://h:0//a",
            "root://h:x//a",
            "root://::1//a",
            "rootss://h//a",
            "yroot://h//a",
            "root",
            "roots",
            "root:/h//a",
            "root://[::1//a",
            "root://[::1]x//a",
            "root://a b//c",
            "root://,//c",
            "root://m1,//c",
            "root://m1,,m2//c",
            "root://m1,m2:x//c",
            &format!("root://{}//c", (0..17).map(|n| format!("m{n}")).collect::<Vec<_>>().join(",")),
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn names_and_parents() {
        let url = Url::parse("root://h//a/b/").unwrap();
        assert_eq!((url.name(), url.parent().unwrap().path.as_str()), ("b", "/a"));
        assert_eq!(url.parent().unwrap().parent().unwrap().path, "/");
        assert_eq!(url.parent().unwrap().parent().unwrap().parent(), None);
        assert_eq!(url.join("c").path, "/a/b/c");
        assert_eq!(Url::parse("root://h").unwrap().join("c").path, "/c");
    }
}
