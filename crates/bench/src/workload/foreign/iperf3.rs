//! iperf3 on the work of network tests, with an `iperf3 -s` beside the network-test server. The received bytes and
//! the time are iperf3's own figures.

use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use serde_json::Value;

use super::tool::{Running, ToolOutput};
use super::{ForeignError, cut_off, told};
use crate::latency::Latency;
use crate::load::{Tally, Worker, WorkerPool};
use crate::network::{Direction, NetworkSpec, Processes, Protocol};
use crate::target::{RelName, TargetError};
use crate::workload::kind::{Names, Site, Unit, WorkError, Workload, no_names, word_of};

/// Another tool for network tests.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlowTool {
    /// iperf3.
    Iperf3,
}

/// Another tool's network test.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ForeignFlowsSpec {
    /// The tool.
    pub tool: FlowTool,
    /// The work, whose flows are the tool's.
    pub work: NetworkSpec,
}

/// The address of an `iperf3 -s`. It cannot be mistaken for an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Iperf3Server {
    host: String,
    port: u16,
}

/// iperf3's own limits (`MAX_STREAMS` and `MAX_BLOCKSIZE` of its iperf.h). iperf3 would refuse larger values only
/// in the middle of a campaign.
const FLOWS_MAX: u32 = 128;
const BLOCK_MAX: u32 = 1 << 20;
/// The longest DNS name.
const HOST_MAX: usize = 253;
/// The time limit for connecting, in ms.
const CONNECT_MAX_MS: u32 = 10_000;
/// How much longer than its flows it may run: to connect, to receive the bytes under way, and to exchange results.
const AROUND_MAX: Duration = Duration::from_secs(80);
/// The most characters of its output in an error.
const SAID_MAX: usize = 200;

impl FromStr for Iperf3Server {
    type Err = ForeignError;

    /// Parses `HOST:PORT`, with an IPv6 address in brackets.
    fn from_str(text: &str) -> Result<Self, ForeignError> {
        let of_name = || {
            let (host, port) = text.rsplit_once(':')?;
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
            let is_host = (1..=HOST_MAX).contains(&host.len()) && !host.starts_with('-') && host.chars().all(is_name);
            is_host.then_some(Self { host: host.to_owned(), port: port.parse().ok()? })
        };
        let found = match text.parse() {
            Ok(SocketAddr::V6(address)) if address.scope_id() > 0 => {
                Some(Self { host: format!("{}%{}", address.ip(), address.scope_id()), port: address.port() })
            }
            Ok(address) => Some(Self { host: address.ip().to_string(), port: address.port() }),
            Err(_) => of_name(),
        };
        found.filter(|server| server.port > 0).ok_or_else(|| {
            let first = text.chars().take(SAID_MAX).collect();
            ForeignError::Address(first)
        })
    }
}

impl ForeignFlowsSpec {
    /// Returns the part of the work that the tool does not support.
    fn refused(&self) -> Option<String> {
        let work = &self.work;
        if work.processes == Processes::Each {
            return Some("`processes = \"each\"`, as it is one process".to_owned());
        }
        if work.at_once {
            return Some("`at_once = true`, as it knows one server".to_owned());
        }
        if work.flows > FLOWS_MAX {
            return Some(format!("more than {FLOWS_MAX} flows"));
        }
        (work.block_bytes > BLOCK_MAX).then(|| format!("blocks above {BLOCK_MAX} bytes"))
    }
}

impl Workload for ForeignFlowsSpec {
    fn title(&self) -> String {
        format!("{} by {}", word_of(self.work.direction), word_of(self.tool))
    }

    fn check(&self) -> Result<(), WorkError> {
        self.work.check()?;
        match self.refused() {
            Some(what) => Err(ForeignError::Flows { tool: self.tool, what }.into()),
            None => Ok(()),
        }
    }

    fn unit(&self) -> Unit {
        Unit::Bytes
    }

    fn room(&self) -> u64 {
        0
    }

    fn moved(&self) -> u64 {
        0
    }

    fn fixed_time(&self) -> Option<Duration> {
        self.work.fixed_time()
    }

    fn directories(&self) -> Vec<RelName> {
        Vec::new()
    }

    fn files(&self) -> Names<'_> {
        no_names()
    }

    fn needs_place(&self) -> bool {
        false
    }

    fn needs_peers(&self) -> bool {
        true
    }

    fn asked_rate(&self, role: &str) -> Option<f64> {
        self.work.asked_rate(role)
    }

    fn runs_a_tool(&self) -> bool {
        true
    }

    /// The number of the tool's flows.
    fn workers(&self) -> u32 {
        self.work.flows
    }

    fn parts(&self) -> u32 {
        1
    }

    fn worker_pool(&self, site: &Site, _parts: Range<u32>) -> Result<WorkerPool, WorkError> {
        Workload::check(self)?;
        let peer = site.peers.first().ok_or(WorkError::NoPeer)?;
        let (work, server) = (self.work.clone(), peer.iperf3.parse::<Iperf3Server>()?);
        Ok(WorkerPool::hire(&[("", 0..1)], move |worker| run(&work, &server, worker))?)
    }
}

fn run(work: &NetworkSpec, server: &Iperf3Server, worker: &Worker) -> Result<Tally, TargetError> {
    let longest = Duration::from_secs(u64::from(work.seconds)) + AROUND_MAX;
    let start = worker.start();
    let ended = Running::start("iperf3", &arguments(work, server))?.at_most(longest).ended(worker)?;
    let Some(ended) = ended else {
        return Ok(cut_off("iperf3", start.elapsed()));
    };
    let wrong = |said: String| {
        let what = format!("flows with iperf3 at {}, port {}", server.host, server.port);
        TargetError::path(what, io::Error::other(said))
    };
    let found = read(&ended, work.direction).map_err(wrong)?;
    // The time for connecting and for the final exchange does not count, as in the bench's own tests. The result
    // cannot have taken longer than the limit.
    worker.span(start, found.took.min(longest));
    // It does not report calls. The number of blocks is what the bench's own worker would count.
    let blocks = found.bytes.div_ceil(u64::from(work.block_bytes.max(1)));
    Ok(told(worker, found.bytes, blocks, Latency::default()))
}

/// Its command line.
fn arguments(work: &NetworkSpec, server: &Iperf3Server) -> Vec<String> {
    let mut all = vec![
        "--json".to_owned(),
        // Its report of each second is not needed, and would be very long in a long test.
        "--interval=0".to_owned(),
        format!("--connect-timeout={CONNECT_MAX_MS}"),
        format!("--client={}", server.host),
        format!("--port={}", server.port),
        format!("--time={}", work.seconds),
        format!("--parallel={}", work.flows),
        format!("--length={}", work.block_bytes),
    ];
    match work.direction {
        Direction::To => {}
        Direction::From => all.push("--reverse".to_owned()),
        Direction::Both => all.push("--bidir".to_owned()),
    }
    if work.protocol == Protocol::Udp {
        all.push("--udp".to_owned());
    }
    // Bits a second of each flow. 0 means as fast as possible; without it, UDP would send 1 Mbit/s.
    match (work.rate, work.protocol) {
        (Some(rate), _) => all.push(format!("--bitrate={}", rate.saturating_mul(8))),
        (None, Protocol::Udp) => all.push("--bitrate=0".to_owned()),
        (None, Protocol::Tcp) => {}
    }
    all
}

#[derive(PartialEq, Debug)]
struct Iperf3Result {
    bytes: u64,
    took: Duration,
}

/// Returns the received bytes of all directions, or why they are unknown. The exit status does not help: version
/// 3.12 succeeds with an `error` in its output.
fn read(ended: &ToolOutput, direction: Direction) -> Result<Iperf3Result, String> {
    let first = |text: &str| text.chars().take(SAID_MAX).collect::<String>();
    // Notes may precede the JSON.
    let json = ended.out.find('{').and_then(|at| serde_json::from_str::<Value>(ended.out.get(at..)?).ok());
    let Some(json) = json else {
        let last = |text: &str| text.trim().lines().last().map(first);
        let said = last(&ended.err).or_else(|| last(&ended.out)).unwrap_or_default();
        return Err(format!("it reports no figures ({}): {said}", ended.status));
    };
    if let Some(error) = json.get("error") {
        return Err(first(error.as_str().unwrap_or("an error without a text")));
    }
    let sums: &[&str] = match direction {
        Direction::To | Direction::From => &["sum_received"],
        Direction::Both => &["sum_received", "sum_received_bidir_reverse"],
    };
    let mut found = Iperf3Result { bytes: 0, took: Duration::ZERO };
    for name in sums {
        let sum = json.get("end").and_then(|end| end.get(name));
        let number = |key: &str| sum.and_then(|sum| sum.get(key)).and_then(Value::as_f64);
        let took = number("seconds").and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let (Some(bytes), Some(took)) = (number("bytes"), took.filter(|took| !took.is_zero())) else {
            return Err(format!("it does not report the received bytes (`{name}`); use iperf3 3.12 or later"));
        };
        // It writes very large numbers as a fraction with an exponent.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let bytes = bytes as u64;
        found.bytes = found.bytes.saturating_add(bytes);
        found.took = found.took.max(took);
    }
    if found.bytes == 0 {
        return Err("nothing arrived".to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::ExitStatus;

    use super::*;

    fn said(out: &str) -> ToolOutput {
        ToolOutput { status: ExitStatus::default(), out: out.to_owned(), err: String::new() }
    }

    fn spec(direction: Direction, protocol: Protocol, rate: Option<u64>) -> NetworkSpec {
        NetworkSpec {
            protocol,
            direction,
            flows: 6,
            processes: Processes::One,
            at_once: false,
            seconds: 10,
            block_bytes: 1400,
            rate,
        }
    }

    #[test]
    fn received_bytes_are_parsed() {
        // Output of iperf 3.12, without the single streams.
        let to = r#"{"start": {"version": "iperf 3.12"}, "intervals": [], "end": {
            "sum_sent": {"start": 0, "end": 2.000052, "seconds": 2.000052, "bytes": 719530000, "retransmits": 36, "sender": true},
            "sum_received": {"start": 0, "end": 2.000084, "seconds": 2.000084, "bytes": 714793800, "sender": true}}}"#;
        let found = |bytes, took_us| Ok(Iperf3Result { bytes, took: Duration::from_micros(took_us) });
        assert_eq!(read(&said(to), Direction::To), found(714_793_800, 2_000_084));
        let both = r#"{"end": {
            "sum_sent": {"seconds": 2.000021, "bytes": 319718000, "sender": true},
            "sum_received": {"seconds": 2.000095, "bytes": 314720992, "sender": true},
            "sum_sent_bidir_reverse": {"seconds": 2.000021, "bytes": 307608000, "sender": false},
            "sum_received_bidir_reverse": {"seconds": 2.000096, "bytes": 301897400, "sender": false}}}"#;
        assert_eq!(read(&said(both), Direction::Both), found(314_720_992 + 301_897_400, 2_000_096));
        // For UDP `sum` has the sender's bytes; a quarter of these was lost.
        let udp = r#"{"end": {
            "sum": {"seconds": 2.000702, "bytes": 315672000, "jitter_ms": 0.0198, "lost_packets": 56827, "packets": 225480, "sender": true},
            "sum_sent": {"seconds": 2.000599, "bytes": 315672000, "lost_packets": 0, "packets": 225480, "sender": true},
            "sum_received": {"seconds": 2.000702, "bytes": 236114200, "lost_packets": 56827, "packets": 225480, "sender": false}}}"#;
        assert_eq!(read(&said(udp), Direction::From), found(236_114_200, 2_000_702));
        let many = r#"note: x {"end": {"sum_received": {"seconds": 86400.5, "bytes": 1.08e+15}}}"#;
        assert_eq!(read(&said(&many[8..]), Direction::To), found(1_080_000_000_000_000, 86_400_500_000));
    }

    #[test]
    fn errors_of_iperf3_are_reported() {
        let busy = r#"{"start": {"connected": []}, "intervals": [], "end": {},
            "error": "the server is busy running a test. try again later"}"#;
        let why = |out: &str| read(&said(out), Direction::Both).unwrap_err();
        assert_eq!(why(busy), "the server is busy running a test. try again later");
        assert!(why(r#"{"end": {"sum_received": {"seconds": 1, "bytes": 1}}}"#).contains("bidir_reverse"));
        for strange in ["-1", "1e300", "0", "\"1\"", "null"] {
            let out = format!(r#"{{"end": {{"sum_received": {{"seconds": {strange}, "bytes": 1}}}}}}"#);
            assert!(why(&out).contains("sum_received"), "{out}");
        }
        let none = r#"{"end": {"sum_received": {"seconds": 1, "bytes": 0}}}"#;
        assert_eq!(read(&said(none), Direction::To), Err("nothing arrived".to_owned()));
        let refused = ToolOutput {
            status: ExitStatus::from_raw(256),
            out: "Usage: iperf3".to_owned(),
            err: "iperf3: parameter error\n".to_owned(),
        };
        let why = read(&refused, Direction::To).unwrap_err();
        assert_eq!(why, "it reports no figures (exit status: 1): iperf3: parameter error");
        assert!(read(&said(&"x".repeat(9999)), Direction::To).unwrap_err().len() < 300);
    }

    #[test]
    fn iperf3_gets_the_same_flows() {
        let server: Iperf3Server = "[::1]:5201".parse().unwrap();
        let line = |direction, protocol, rate| arguments(&spec(direction, protocol, rate), &server).join(" ");
        assert_eq!(
            line(Direction::To, Protocol::Tcp, None),
            "--json --interval=0 --connect-timeout=10000 --client=::1 --port=5201 --time=10 --parallel=6 --length=1400"
        );
        assert!(line(Direction::From, Protocol::Tcp, Some(1000)).ends_with(" --reverse --bitrate=8000"));
        assert!(line(Direction::Both, Protocol::Udp, None).ends_with(" --bidir --udp --bitrate=0"));
        assert!(line(Direction::To, Protocol::Udp, Some(u64::MAX)).ends_with(&format!("--bitrate={}", u64::MAX)));
    }

    #[test]
    fn an_address_cannot_be_an_option() {
        let server = |text: &str| text.parse::<Iperf3Server>().map(|server| (server.host, server.port)).ok();
        assert_eq!(server("node-1.site_a.example:5201"), Some(("node-1.site_a.example".to_owned(), 5201)));
        assert_eq!(server("192.0.2.7:1"), Some(("192.0.2.7".to_owned(), 1)));
        assert_eq!(server("[2001:db8::7]:1"), Some(("2001:db8::7".to_owned(), 1)));
        assert_eq!(server("[fe80::1%2]:1"), Some(("fe80::1%2".to_owned(), 1)));
        let long = format!("{}:1", "a".repeat(254));
        for wrong in [
            "",
            "a",
            ":1",
            "a:",
            "a:0",
            "a:65536",
            "-R:1",
            "--logfile=x:1",
            "::1:5201",
            "a b:1",
            "a%lo:1",
            "é:1",
            &long,
        ] {
            assert_eq!(server(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn its_work_needs_a_server_and_runs_a_tool() {
        let work = spec(Direction::Both, Protocol::Udp, Some(1_000_000));
        let spec = ForeignFlowsSpec { tool: FlowTool::Iperf3, work };
        assert_eq!((spec.title().as_str(), spec.workers(), spec.parts()), ("both by iperf3", 6, 1));
        assert!(spec.needs_system() && spec.needs_peers() && !spec.needs_place() && spec.runs_a_tool());
        assert_eq!((spec.fixed_time(), spec.asked_rate("")), (Some(Duration::from_secs(10)), Some(12e6)));
        let nobody = Site::alone(std::sync::Arc::new(crate::content::Content::new(1)));
        assert!(matches!(spec.worker_pool(&nobody, 0..1), Err(WorkError::NoPeer)));
    }
}
