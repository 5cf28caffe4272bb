//! The URLs that are asked: `https` only, but for services on this machine.

use std::fmt;
use std::net::IpAddr;

/// Longest URL, in bytes. (Issuers have shorter ones, redirects may not.)
const URL_MAX: usize = 2048;

/// Why a URL cannot be asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UrlError {
    /// Too long.
    #[error("it has more than {URL_MAX} bytes")]
    TooLong,
    /// Not HTTPS.
    #[error("it does not begin with `https://`")]
    NotHttps,
    /// Neither HTTPS nor on this machine.
    #[error("it does not begin with `https://`; `http://` is for `localhost`, 127.0.0.1 and [::1] only")]
    NotPrivate,
    /// A relative path, or nothing.
    #[error("it is neither a whole URL nor a path from the root")]
    Relative,
    /// A blank, a control character, or one outside of ASCII.
    #[error("it contains a blank, a quote, or a character outside ASCII")]
    Character,
    /// No host, or not the name of one.
    #[error("it has no proper host")]
    Host,
    /// Not a port.
    #[error("its port is not one from 1 to 65535")]
    Port,
}

/// A URL that can be asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct HttpsUrl {
    /// Without TLS: the host is this machine.
    pub(crate) is_plain: bool,
    /// A name or an address; that of IPv6 without its brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The path and the query.
    pub(crate) target: String,
}

impl HttpsUrl {
    pub(crate) fn parse(url: &str) -> Result<Self, UrlError> {
        check_characters(url)?;
        Self::after_scheme(url.strip_prefix("https://").ok_or(UrlError::NotHttps)?, "443", false)
    }

    /// The URL of a service that may also be on this machine, without TLS.
    pub(crate) fn parse_private(url: &str) -> Result<Self, UrlError> {
        check_characters(url)?;
        let Some(rest) = url.strip_prefix("http://") else {
            return Self::parse(url).map_err(|why| if why == UrlError::NotHttps { UrlError::NotPrivate } else { why });
        };
        let url = Self::after_scheme(rest, "80", true)?;
        let is_here = url.host == "localhost" || url.host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
        if is_here { Ok(url) } else { Err(UrlError::NotPrivate) }
    }

    fn after_scheme(rest: &str, usual_port: &str, is_plain: bool) -> Result<Self, UrlError> {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at(end);
        let (host, port) = match authority.strip_prefix('[') {
            Some(inside) => {
                let (host, port) = inside.split_once(']').ok_or(UrlError::Host)?;
                host.parse::<std::net::Ipv6Addr>().map_err(|_| UrlError::Host)?;
                (host, port.strip_prefix(':').or(port.is_empty().then_some(usual_port)).ok_or(UrlError::Host)?)
            }
            None => authority.split_once(':').unwrap_or((authority, usual_port)),
        };
        let proper = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte);
        if host.is_empty() || !host.bytes().all(proper) {
            return Err(UrlError::Host);
        }
        let digits = port.bytes().all(|digit| digit.is_ascii_digit());
        let port = port.parse().ok().filter(|port| digits && *port > 0).ok_or(UrlError::Port)?;
        let target = target.split('#').next().unwrap_or_default();
        let slash = if target.starts_with('/') { "" } else { "/" };
        Ok(Self { is_plain, host: host.to_owned(), port, target: format!("{slash}{target}") })
    }

    /// The URL that this one redirects to.
    pub(crate) fn redirected(&self, location: &str) -> Result<Self, UrlError> {
        if location.starts_with("//") {
            return Self::parse(&format!("https:{location}"));
        }
        if location.starts_with('/') {
            check_characters(location)?;
            let target = location.split('#').next().unwrap_or_default().to_owned();
            return Ok(Self { target, ..self.clone() });
        }
        // Something before a colon is a scheme.
        if location.split(['/', '?', '#']).next().is_some_and(|first| first.contains(':')) {
            return Self::parse(location);
        }
        Err(UrlError::Relative)
    }

    /// The host and the port, as the request names them.
    pub(crate) fn authority(&self) -> String {
        let Self { is_plain, host, port, .. } = self;
        let usual = if *is_plain { 80 } else { 443 };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        if *port == usual { host } else { format!("{host}:{port}") }
    }
}

fn check_characters(url: &str) -> Result<(), UrlError> {
    if url.len() > URL_MAX {
        return Err(UrlError::TooLong);
    }
    let proper = |byte: u8| byte.is_ascii_graphic() && !b"\"'<>\\^`{|}".contains(&byte);
    if url.bytes().all(proper) { Ok(()) } else { Err(UrlError::Character) }
}

impl fmt::Display for HttpsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_plain { "http" } else { "https" };
        write!(f, "{scheme}://{}{}", self.authority(), self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_a_port_and_a_target() {
        for (text, host, port, target) in [
            ("https://a.example", "a.example", 443, "/"),
            ("https://a.example:8443/x/y?z=1#w", "a.example", 8443, "/x/y?z=1"),
            ("https://a.example?z=/", "a.example", 443, "/?z=/"),
            ("https://[2001:db8::1]/x", "2001:db8::1", 443, "/x"),
            ("https://[::1]:1/", "::1", 1, "/"),
        ] {
            let url = HttpsUrl::parse(text).unwrap();
            assert_eq!((url.host.as_str(), url.port, url.target.as_str()), (host, port, target));
            assert_eq!(HttpsUrl::parse(&url.to_string()), Ok(url));
        }
        for (text, why) in [
            ("http://a.example/", UrlError::NotHttps),
            ("", UrlError::NotHttps),
            ("https://", UrlError::Host),
            ("https:///x", UrlError::Host),
            ("https://me@a.example/", UrlError::Host),
            ("https://[::1/", UrlError::Host),
            ("https://[a]/", UrlError::Host),
            ("https://[::1]x/", UrlError::Host),
            ("https://a:b:1/", UrlError::Port),
            ("https://a:0/", UrlError::Port),
            ("https://a:/", UrlError::Port),
            ("https://a:+1/", UrlError::Port),
            ("https://a:65536/", UrlError::Port),
            ("https://a/ b", UrlError::Character),
            ("https://a/\r\nX: y", UrlError::Character),
        ] {
            assert_eq!(HttpsUrl::parse(text), Err(why), "{text}");
        }
        assert_eq!(HttpsUrl::parse(&format!("https://a/{}", "x".repeat(URL_MAX))), Err(UrlError::TooLong));
    }

    #[test]
    fn without_tls_a_service_is_on_this_machine() {
        for text in ["http://localhost:8080/map", "http://127.0.0.2/map", "http://[::1]:81/", "https://a.example/map"] {
            let url = HttpsUrl::parse_private(text).unwrap();
            assert_eq!((url.to_string().as_str(), url.is_plain), (text, text.starts_with("http:")));
        }
        for text in [
            "http://a.example/",
            "http://10.0.0.1/",
            "http://localhost.a.example/",
            "ftp://localhost/",
            "",
            "http://[::2]/",
        ] {
            assert_eq!(HttpsUrl::parse_private(text), Err(UrlError::NotPrivate), "{text}");
        }
        assert_eq!(HttpsUrl::parse("http://localhost/"), Err(UrlError::NotHttps));
        assert_eq!(HttpsUrl::parse_private("http://me@localhost/"), Err(UrlError::Host));
    }

    #[test]
    fn redirects_stay_with_https() {
        let url = HttpsUrl::parse("https://a.example:8443/x/y?z").unwrap();
        let to = |location: &str| url.redirected(location).map(|url| url.to_string());
        assert_eq!(to("/w?v#u").unwrap(), "https://a.example:8443/w?v");
        assert_eq!(to("//b.example/w").unwrap(), "https://b.example/w");
        assert_eq!(to("https://b.example/w").unwrap(), "https://b.example/w");
        for (location, why) in [
            ("http://a.example/", UrlError::NotHttps),
            ("file:///etc/passwd", UrlError::NotHttps),
            ("w", UrlError::Relative),
            ("", UrlError::Relative),
            ("/a b", UrlError::Character),
        ] {
            assert_eq!(to(location), Err(why), "{location}");
        }
    }
}
