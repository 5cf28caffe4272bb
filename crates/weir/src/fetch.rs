//! Fetches files from other servers, for third-party copies.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use client::{
    Algorithm, AllowedServers, Authorities, CertificateSource, Chunk, Client, ClientError, Credentials, Endpoint,
    HeldProxy, Method, Reader, Settings, Stop, Sum, Url,
};
use disk::AlignedBuf;
use glob::{MatchOptions, Pattern};
use service::{Cancelled, Pull, PullLeave, PullSink, PullSource};
use tls::TrustSource;
use wire::request::OpenOptions;

/// Bytes of one request.
const CHUNK: usize = 4 << 20;
const WINDOW: usize = 4;

/// Fetches with weir's own client.
#[derive(Debug)]
pub struct Fetch {
    settings: Settings,
    sources: Sources,
    /// Whose certificates sources may have that a user's proxy is shown to.
    authorities: Authorities,
}

impl Fetch {
    /// Fetches only from the servers that `hosts` name; `*` and `?` in them are wildcards. With a delegated proxy, it logs in only at those
    /// whose certificate is from one of the authorities in this directory.
    #[must_use]
    pub fn from_these(hosts: &[String], authorities: &Path) -> Self {
        let sources = Sources(hosts.iter().filter_map(|host| Pattern::new(host).ok()).collect());
        let within = sources.clone();
        let settings = Settings {
            // The fetch fails if a source sends nothing, or next to nothing, for this long.
            silence_max: Duration::from_secs(60),
            recovery_max: Duration::from_secs(60),
            application: "weir-tpc".to_owned(),
            user: "weir".to_owned(),
            // A client names the source. It must not get this node's own token, nor take it for the
            // user that runs it.
            credentials: Credentials::only(&[Method::Host]),
            // Also limits where a source may redirect us to.
            reach: AllowedServers::only(move |server| within.has(server)),
            ..Settings::default()
        };
        let authorities = Authorities::of(vec![TrustSource::Directory(authorities.to_owned())]);
        Self { settings, sources, authorities }
    }
}

/// The hosts that the node may fetch from.
#[derive(Clone, Debug)]
struct Sources(Vec<Pattern>);

impl Sources {
    fn has(&self, server: &Endpoint) -> bool {
        let how = MatchOptions {
            case_sensitive: false,
            require_literal_separator: false,
            require_literal_leading_dot: false,
        };
        self.0.iter().any(|pattern| pattern.matches_with(&server.host, how))
    }
}

impl Pull for Fetch {
    fn may_fetch_from(&self, server: &str) -> Result<(), String> {
        let url = Url::parse(&format!("root://{server}/")).map_err(|error| error.to_string())?;
        if self.sources.has(&url.server) {
            return Ok(());
        }
        Err(format!(
            "Cannot fetch from {}: this server takes third-party copies from some hosts only, and that is none of them",
            url.server
        ))
    }

    fn pull(&self, source: &PullSource, cancelled: Cancelled, into: &mut dyn PullSink) -> Result<(), String> {
        let settings = Settings { stop: Stop::when(move || cancelled()), ..self.settings.clone() };
        let (url, settings) = match &source.leave {
            PullLeave::Key(key) => (url_of(source, Some((key, &name_of(source.client))))?, settings),
            PullLeave::Proxy(proxy) => {
                let held = HeldProxy::new(proxy.secret_text().as_bytes())?;
                // Not as somebody else where the source takes no proxy, and nobody gets a proxy of the proxy.
                let credentials =
                    Credentials { certificate: CertificateSource::Held(held), ..Credentials::only(&[Method::Gsi]) };
                (url_of(source, None)?, Settings { credentials, authorities: self.authorities.clone(), ..settings })
            }
        };
        let mut client = Client::new(settings);
        let in_words = |error: ClientError| error.to_string();
        let file = client.open(&url, OpenOptions::READ, 0).map_err(in_words)?;
        let len = file.stat().size;
        if let Some(expected) = source.expected_len.filter(|expected| *expected != len) {
            return Err(format!("the source has {len} bytes, {expected} were announced"));
        }
        // The key has served its purpose; further requests do not need it.
        let plain = Url { opaque: None, ..file.url().clone() };
        let algorithm = client.config(&plain, &["chksum"]).ok();
        let algorithm = algorithm.and_then(|lines| Algorithm::offered(lines.first()?)).unwrap_or(Algorithm::Crc32c);
        let sum = receive(Reader::new(file), len, algorithm, into)?;
        // A source without checksums is trusted; only TCP has protected its bytes.
        match client.checksum(&plain, Some(algorithm.name())) {
            Ok((name, value)) if name == algorithm.name() && !sum.is(&value) => {
                Err(format!("what came has {sum}, the source says {name}:{value}"))
            }
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), client::Kind::Unsupported | client::Kind::Usage) => {
                tracing::info!(%error, source = %plain, "the source told no checksum to compare");
                Ok(())
            }
            // Still being written, known to be damaged, or gone.
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The name that a stock source gives the client's host: the name of the address as it appears at a dual-stack socket. An address without a
/// name stands in brackets.
fn name_of(client: IpAddr) -> String {
    let seen = match client {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    dns_lookup::lookup_addr(&IpAddr::V6(seen)).unwrap_or_else(|_| format!("[{seen}]"))
}

/// The URL of the source. `key`: the key of the copy, and the name of the client's host.
fn url_of(source: &PullSource, key: Option<(&String, &str)>) -> Result<Url, String> {
    let words = key.map(|(key, client)| format!("tpc.key={key}&tpc.org={}@{client}&tpc.stage=copy", source.origin));
    let key = key.map(|(key, _)| key);
    if [&source.server, &source.path, &source.origin].into_iter().chain(key).any(|word| word.contains(['&', '?', '\0']))
    {
        return Err("its names hold what cannot be sent on".to_owned());
    }
    let mut url = Url::parse(&format!("root://{}/", source.server)).map_err(|error| error.to_string())?;
    url.tls = source.tls;
    url.path = format!("/{}", source.path.trim_start_matches('/'));
    url.opaque = words;
    Ok(url)
}

/// Receives the whole file and returns its checksum.
fn receive(
    mut reader: Reader<AlignedBuf>,
    len: u64,
    algorithm: Algorithm,
    into: &mut dyn PullSink,
) -> Result<Sum, String> {
    let in_words = |error: ClientError| error.to_string();
    let mut buffers: Vec<AlignedBuf> = (0..WINDOW).map(|_| AlignedBuf::new(CHUNK)).collect();
    let mut asked = 0;
    // Most servers answer one connection in order, but they need not.
    let mut parts = transfer::PartChecksums::new(algorithm);
    loop {
        while asked < len
            && let Some(buffer) = buffers.pop()
        {
            let part = usize::try_from(len - asked).unwrap_or(CHUNK).min(CHUNK);
            reader.ask(asked, part, buffer).map_err(in_words)?;
            asked += part as u64;
        }
        let Some(Chunk { offset, len, buffer }) = reader.wait().map_err(in_words)? else { break };
        let data = &buffer[..len];
        parts.add(offset, len as u64, algorithm.of(data));
        into.put(offset, data)?;
        buffers.push(buffer);
    }
    reader.close().map_err(in_words)?;
    parts.whole(len).ok_or_else(|| "parts of it are missing, a bug".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn only_configured_sources_are_allowed() {
        let fetch = |hosts: &[&str]| {
            Fetch::from_these(&hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>(), Path::new("/a"))
        };
        assert!(fetch(&["*"]).may_fetch_from("ana@anything.example.org:1094").is_ok());
        assert!(fetch(&[]).may_fetch_from("anything").is_err());
        let some = fetch(&["*.example.org", "10.1.*", "::1"]);
        for good in ["a.example.org", "A.b.EXAMPLE.org:99", "u@10.1.2.3:1094", "[::1]:99"] {
            assert_eq!(some.may_fetch_from(good), Ok(()), "{good}");
        }
        for bad in
            ["example.org", "a.example.org.evil.net", "10.10.2.3", "u@evil.net:1094", "a.example.org@evil.net", ""]
        {
            assert!(some.may_fetch_from(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_source_is_named_with_key_and_origin() {
        let mut source = PullSource {
            server: "host:99".into(),
            tls: false,
            path: "//a/b".into(),
            leave: PullLeave::Key("k".into()),
            origin: "ana.7".into(),
            client: IpAddr::from([127, 0, 0, 1]),
            expected_len: None,
        };
        let (key, bad) = ("k".to_owned(), "k&x=1".to_owned());
        let url = url_of(&source, Some((&key, "h"))).unwrap();
        assert_eq!(url.to_string(), "root://host:99//a/b");
        assert_eq!(url.opaque.as_deref(), Some("tpc.key=k&tpc.org=ana.7@h&tpc.stage=copy"));
        source.tls = true;
        assert_eq!(url_of(&source, Some((&key, "h"))).unwrap().to_string(), "roots://host:99//a/b");
        assert!(url_of(&source, Some((&bad, "h"))).is_err());
        // With a proxy there is nothing to say.
        assert_eq!(url_of(&source, None).unwrap().opaque, None);
        source.path = "/a&b".into();
        assert!(url_of(&source, None).is_err());
    }
}
