//! Reads a node's `/metrics`: over the network, and from Prometheus' text format.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

/// The longest page that is read.
const PAGE_MAX: u64 = 16 << 20;
/// For the connection, and for each read.
const PATIENCE: Duration = Duration::from_secs(5);

/// Why a node's metrics could not be read.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// It is no address.
    #[error(
        "`{0}` is no node to look at: write HOST:PORT or http://HOST:PORT/metrics, as `weir serve --metrics` says at its start"
    )]
    NoTarget(String),
    /// The node cannot be reached, or does not answer.
    #[error("cannot read the metrics of {target}: {error}; was the node started with --metrics?")]
    Unreachable {
        /// The address.
        target: String,
        /// The error of the system.
        error: io::Error,
    },
    /// Something other than weir answers there.
    #[error("{target} does not answer with weir's metrics: {what}")]
    NotWeir {
        /// The address.
        target: String,
        /// What it answered.
        what: String,
    },
}

/// The address of the page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    host: String,
    path: String,
}

impl Target {
    /// Parses HOST:PORT or http://HOST:PORT[/PATH].
    pub fn parse(given: &str) -> Result<Self, PageError> {
        let rest = given.strip_prefix("http://").unwrap_or(given);
        let (host, path) = rest.split_once('/').map_or((rest, ""), |(host, path)| (host, path));
        let port = host.rsplit_once(':').and_then(|(name, port)| port.parse::<u16>().ok().filter(|_| !name.is_empty()));
        let plain = given.chars().all(|c| c.is_ascii_graphic());
        if port.is_none() || !plain || rest.contains("://") {
            return Err(PageError::NoTarget(given.to_owned()));
        }
        let path = if path.is_empty() { "/metrics".into() } else { format!("/{path}") };
        Ok(Self { host: host.to_owned(), path })
    }

    /// The address for display.
    pub fn shown(&self) -> String {
        self.host.clone()
    }
}

/// One sample.
#[derive(Clone, PartialEq, Debug)]
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// The samples of a page.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Page {
    samples: Vec<Sample>,
}

impl Page {
    /// Reads the page of a node.
    pub fn fetch(target: &Target) -> Result<Self, PageError> {
        let failed = |error| PageError::Unreachable { target: target.shown(), error };
        let bytes = get(target).map_err(failed)?;
        let text = String::from_utf8_lossy(&bytes);
        let not_weir =
            |what: &str| PageError::NotWeir { target: target.shown(), what: what.chars().take(80).collect() };
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| not_weir("no HTTP answer"))?;
        let status = head.lines().next().unwrap_or("");
        if status.split(' ').nth(1) != Some("200") {
            return Err(not_weir(&status.escape_debug().to_string()));
        }
        let page = Self::parse(body);
        if page.one("weir_start_time_seconds").is_none() {
            return Err(not_weir("the metrics of another program"));
        }
        Ok(page)
    }

    /// Parses the text format; skips invalid lines.
    pub fn parse(text: &str) -> Self {
        Self { samples: text.lines().filter_map(sample).collect() }
    }

    /// The sample of this name without labels.
    pub fn one(&self, name: &str) -> Option<f64> {
        self.samples.iter().find(|sample| sample.name == name && sample.labels.is_empty()).map(|sample| sample.value)
    }

    /// The sum of all samples of this name.
    pub fn sum(&self, name: &str) -> f64 {
        self.samples.iter().filter(|sample| sample.name == name).map(|sample| sample.value).sum()
    }

    /// The distinct values of the label `label` in samples of this name.
    pub fn values_of(&self, name: &str, label: &str) -> Vec<&str> {
        let mut values: Vec<&str> =
            self.samples.iter().filter(|sample| sample.name == name).filter_map(|sample| sample.label(label)).collect();
        values.dedup();
        values
    }

    /// The sample of this name with this label.
    pub fn labelled(&self, name: &str, label: &str, value: &str) -> Option<f64> {
        self.samples
            .iter()
            .find(|sample| sample.name == name && sample.label(label) == Some(value))
            .map(|sample| sample.value)
    }

    /// The buckets of a histogram in order: (upper bound, count of all up to it). With `label`, only those that have it.
    pub fn buckets(&self, name: &str, label: Option<(&str, &str)>) -> Vec<(f64, f64)> {
        let bucket = format!("{name}_bucket");
        let fitting = self.samples.iter().filter(|sample| sample.name == bucket);
        let fitting = fitting.filter(|sample| label.is_none_or(|(label, value)| sample.label(label) == Some(value)));
        let mut buckets: Vec<(f64, f64)> = Vec::new();
        for (bound, value) in fitting.filter_map(|sample| Some((number(sample.label("le")?)?, sample.value))) {
            // Adds up several series, such as the journals of several stores.
            match buckets.iter_mut().find(|(known, _)| *known == bound) {
                Some((_, sum)) => *sum += value,
                None => buckets.push((bound, value)),
            }
        }
        buckets
    }
}

impl Sample {
    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(label, _)| label == name).map(|(_, value)| value.as_str())
    }
}

fn get(target: &Target) -> io::Result<Vec<u8>> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name stands for no address");
    for address in target.host.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(mut socket) => {
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.set_write_timeout(Some(PATIENCE))?;
                write!(socket, "GET {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", target.path, target.host)?;
                let mut bytes = Vec::new();
                socket.take(PAGE_MAX).read_to_end(&mut bytes)?;
                return Ok(bytes);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Parses `name{label="value",…} 1.5`, optionally with a time behind it.
fn sample(line: &str) -> Option<Sample> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let end = line.find(|c: char| c == '{' || c.is_ascii_whitespace())?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value = number(rest.split_ascii_whitespace().next()?)?;
    Some(Sample { name: name.to_owned(), labels, value })
}

fn number(text: &str) -> Option<f64> {
    match text {
        "+Inf" => Some(f64::INFINITY),
        "-Inf" => Some(f64::NEG_INFINITY),
        text => text.parse().ok(),
    }
}

/// The labels up to the closing bracket, and what follows it.
#[allow(clippy::type_complexity)] // two parts of a line
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next()? {
                (at, '"') => break at,
                (_, '\\') => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.push((name.trim().to_owned(), value));
        rest = &after[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_addresses_or_urls() {
        let target = |given: &str| Target::parse(given).map(|target| (target.host, target.path)).ok();
        let expected = |host: &str, path: &str| Some((host.to_owned(), path.to_owned()));
        assert_eq!(target("127.0.0.1:9094"), expected("127.0.0.1:9094", "/metrics"));
        assert_eq!(target("http://[::1]:9094/"), expected("[::1]:9094", "/metrics"));
        assert_eq!(target("http://node:1/x/metrics"), expected("node:1", "/x/metrics"));
        for wrong in
            ["", "node", "node:", ":9094", "node:99999", "https://node:1/metrics", "node:1/ x", "node:1/\r\nx: y"]
        {
            assert_eq!(target(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn samples_with_and_without_labels() {
        let page = Page::parse(
            "# HELP a x\n# TYPE a counter\na 3\na_b{x=\"1\",y=\"q\\\"\\\\\\n}\"} 1.5e3 1700000000\nc{} -2\nnonsense\nd{x=\"1} 4\n\
             t_bucket{le=\"0.5\"} 1\nt_bucket{le=\"+Inf\"} 2\n\
             u_bucket{s=\"1\",le=\"0.5\"} 1\nu_bucket{s=\"1\",le=\"+Inf\"} 2\nu_bucket{s=\"2\",le=\"0.5\"} 5\nu_bucket{s=\"2\",le=\"+Inf\"} 5\n",
        );
        assert_eq!((page.one("a"), page.one("c"), page.one("d"), page.one("a_b")), (Some(3.0), Some(-2.0), None, None));
        assert_eq!(page.labelled("a_b", "y", "q\"\\\n}"), Some(1500.0));
        assert_eq!(page.values_of("a_b", "x"), ["1"]);
        assert_eq!(page.buckets("t", None), [(0.5, 1.0), (f64::INFINITY, 2.0)]);
        assert_eq!(page.buckets("u", None), [(0.5, 6.0), (f64::INFINITY, 7.0)]);
        assert_eq!(page.buckets("u", Some(("s", "2"))), [(0.5, 5.0), (f64::INFINITY, 5.0)]);
    }
}
