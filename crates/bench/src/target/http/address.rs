//! Addresses: `http://host[:port]/path`, `https://…`; grid tools also use `dav://` and `davs://`.

use std::fmt;

use client::Endpoint;

/// The longest accepted address.
const ADDRESS_MAX: usize = 16 << 10;

/// A path on an HTTP server.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpUrl {
    tls: bool,
    server: Endpoint,
    /// The path, percent-encoded; it begins with a slash.
    path: String,
    /// The text behind the `?`. It may be a secret from a redirect, and is never shown.
    query: Option<String>,
}

/// The text is not an address of this kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{text}` is not an HTTP address: {why}")]
pub struct HttpUrlError {
    /// The given text.
    pub text: String,
    /// What is wrong.
    pub why: &'static str,
}

impl HttpUrl {
    /// Whether `text` looks like such an address.
    #[must_use]
    pub fn is_meant(text: &str) -> bool {
        scheme(text).is_some()
    }

    /// Parses the address of a directory.
    ///
    /// # Errors
    /// [`HttpUrlError`] says what is wrong.
    pub fn parse(text: &str) -> Result<Self, HttpUrlError> {
        let url = Self::parse_any(text)?;
        match url.query {
            Some(_) => Err(wrong(text, "a directory has no `?`; put a token into BEARER_TOKEN")),
            None => Ok(url),
        }
    }

    fn parse_any(text: &str) -> Result<Self, HttpUrlError> {
        if text.len() > ADDRESS_MAX {
            return Err(wrong(text, "it is too long"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong(text, "write spaces and letters beyond ASCII as %20 and the like"));
        }
        let (tls, rest) = scheme(text).ok_or_else(|| wrong(text, "it does not begin with http:// or https://"))?;
        let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        if authority.contains('@') {
            return Err(wrong(text, "it must not contain names and passwords; put a token into BEARER_TOKEN"));
        }
        let has_port = authority.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
        let mut server = Endpoint::parse(authority).map_err(|why| wrong(text, why))?;
        if !has_port {
            server.port = if tls { 443 } else { 80 };
        }
        let mut url = Self { tls, server, path: String::new(), query: None };
        url.set_path(path);
        Ok(url)
    }

    fn set_path(&mut self, text: &str) {
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (text, None),
        };
        self.path = format!("/{}", path.trim_start_matches('/'));
        self.query = query.filter(|query| !query.is_empty());
    }

    /// Returns the entry `name` in this directory; `name` must need no encoding.
    #[must_use]
    pub(in crate::target) fn join(&self, name: &str) -> Self {
        let path = format!("{}/{name}", self.path.trim_end_matches('/'));
        Self { path, query: None, ..self.clone() }
    }

    /// Returns the same address with a slash at its end, which some servers require for directories.
    #[must_use]
    pub(in crate::target) fn as_directory(&self) -> Self {
        Self { path: format!("{}/", self.path.trim_end_matches('/')), ..self.clone() }
    }

    /// Returns the target of a `Location` header in an answer from here.
    ///
    /// # Errors
    /// [`HttpUrlError`].
    pub(super) fn follow(&self, location: &str) -> Result<Self, HttpUrlError> {
        if location.starts_with('/') && !location.starts_with("//") {
            let plain = format!("{}://{}/", self.scheme(), self.server);
            let mut url = Self::parse_any(&format!("{plain}{}", location.trim_start_matches('/')))?;
            url.server = self.server.clone();
            return Ok(url);
        }
        Self::parse_any(location)
    }

    /// Whether an `Authorization` for `self` may be sent to `other`.
    pub(super) fn trusts(&self, other: &Self) -> bool {
        other.tls || (!self.tls && other.server == self.server)
    }

    pub(super) fn is_tls(&self) -> bool {
        self.tls
    }

    pub(in crate::target) fn server(&self) -> &Endpoint {
        &self.server
    }

    pub(in crate::target) fn path(&self) -> &str {
        &self.path
    }

    /// Appends the target in the form of a request.
    pub(super) fn write_target(&self, out: &mut String) {
        out.push_str(&self.path);
        if let Some(query) = &self.query {
            out.push('?');
            out.push_str(query);
        }
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

fn scheme(text: &str) -> Option<(bool, &str)> {
    [("http://", false), ("https://", true), ("dav://", false), ("davs://", true)]
        .into_iter()
        .find_map(|(scheme, tls)| Some((tls, text.strip_prefix(scheme)?)))
}

fn wrong(text: &str, why: &'static str) -> HttpUrlError {
    // The text behind the `?` may be a secret.
    let shown = text.split_once('?').map_or(text, |(shown, _)| shown);
    HttpUrlError { text: shown.chars().take(200).collect(), why }
}

impl fmt::Display for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}{}", self.scheme(), self.server, self.path)
    }
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        HttpUrl::parse(text).map_or_else(|error| error.to_string(), |url| url.to_string())
    }

    #[test]
    fn addresses_are_parsed() {
        assert_eq!(shown("http://h"), "http://h:80/");
        assert_eq!(shown("davs://h/a/b"), "https://h:443/a/b");
        assert_eq!(shown("https://[::1]:8443//a"), "https://[::1]:8443/a");
        assert_eq!(shown("http://[::1]/a"), "http://[::1]:80/a");
        assert!(shown("http://me:secret@h/").contains("BEARER_TOKEN"));
        assert!(shown("http://h/a?authz=x").contains("BEARER_TOKEN") && !shown("http://h/a?authz=x").contains("authz"));
        assert!(shown("http://h/a b").contains("%20"));
        assert!(shown("http://h:0/").contains("65535"));
        assert!(shown("http:///a").contains("names no host"));
    }

    #[test]
    fn redirects_lead_anywhere_and_their_secrets_are_not_shown() {
        let door = HttpUrl::parse("http://door:2880/data").unwrap();
        let pool = door.follow("http://pool:20001/f?uuid=secret").unwrap();
        assert_eq!(pool.to_string(), "http://pool:20001/f");
        let mut target = String::new();
        pool.write_target(&mut target);
        assert_eq!(target, "/f?uuid=secret");
        assert_eq!(door.follow("/other").unwrap().to_string(), "http://door:2880/other");
        assert!(door.follow("//other/x").is_err() && door.follow("ftp://x/").is_err() && door.follow("other").is_err());
    }

    #[test]
    fn a_token_goes_to_the_same_server_or_over_tls() {
        let of = |text: &str| HttpUrl::parse(text).unwrap();
        let (plain, tls) = (of("http://door/"), of("https://door/"));
        assert!(plain.trusts(&of("http://door/x")) && plain.trusts(&of("https://pool/")));
        assert!(
            !plain.trusts(&of("http://pool/"))
                && !tls.trusts(&of("http://door:443/"))
                && tls.trusts(&of("https://pool/"))
        );
    }
}
