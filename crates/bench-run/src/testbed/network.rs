//! Namespaces and their virtual cables. Each peer has a network of its own, which only this machine can reach.

use std::io;
use std::path::PathBuf;

use super::plan::command;
use super::process::run;

/// The subnets to try: 198.18.K.0/30, from the range for measurements of networks (RFC 2544, RFC 5735).
const CABLES: std::ops::Range<u8> = 1..250;

/// The prefix of namespaces' names.
pub const NAMESPACE: &str = "weir-testbed-";
/// The prefix of this machine's ends of cables.
pub const LINK: &str = "wtb";

/// Names and addresses of a peer's network. The names contain this process's number, so they are unique.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Network {
    /// The namespace.
    pub namespace: String,
    /// This machine's end of the cable.
    pub link: String,
    /// This machine's address.
    pub ours: String,
    /// The peer's address.
    pub theirs: String,
}

impl Network {
    fn new(number: u8) -> Self {
        let process = std::process::id();
        Self {
            namespace: format!("{NAMESPACE}{number}-{process}"),
            // At most 15 characters.
            link: format!("{LINK}{number}-{process}"),
            ours: format!("198.18.{number}.1"),
            theirs: format!("198.18.{number}.2"),
        }
    }

    /// A network whose addresses nothing on this machine uses.
    ///
    /// # Errors
    /// From `ip`, or if none is free.
    pub fn free() -> io::Result<Self> {
        let done = std::process::Command::new("ip").args(["-4", "-o", "address"]).output()?;
        let known = String::from_utf8_lossy(&done.stdout).into_owned();
        CABLES
            .map(Self::new)
            .find(|network| !known.contains(&format!(" {}/", network.ours)))
            .ok_or_else(|| io::Error::other("no address of 198.18.0.0/16 is free"))
    }

    /// Makes the network; `link` is its rate in bits a second, both ways.
    ///
    /// # Errors
    /// From `ip` or `tc`.
    pub fn make(&self, link: Option<u64>) -> io::Result<()> {
        let Self { namespace, link: ours, .. } = self;
        let ip = |words: &str| run(&command(&format!("ip {words}").split(' ').collect::<Vec<_>>()));
        ip(&format!("netns add {namespace}"))?;
        ip(&format!("link add {ours} type veth peer name eth0 netns {namespace}"))?;
        ip(&format!("address add {}/30 dev {ours}", self.ours))?;
        ip(&format!("link set {ours} up"))?;
        ip(&format!("-n {namespace} address add {}/30 dev eth0", self.theirs))?;
        ip(&format!("-n {namespace} link set eth0 up"))?;
        ip(&format!("-n {namespace} link set lo up"))?;
        if let Some(bits) = link {
            let limit = format!("root tbf rate {bits}bit burst {} latency 50ms", burst(bits));
            for place in [format!("qdisc add dev {ours} {limit}"), format!("-n {namespace} qdisc add dev eth0 {limit}")]
            {
                run(&command(&format!("tc {place}").split(' ').collect::<Vec<_>>()))?;
            }
        }
        Ok(())
    }
}

/// The burst of the rate limit: ten milliseconds, but at least two packets before segmentation.
fn burst(bits: u64) -> u64 {
    (bits / 8 / 100).clamp(128 << 10, 64 << 20)
}

/// The file that represents a namespace.
pub fn file_of(namespace: &str) -> PathBuf {
    PathBuf::from("/run/netns").join(namespace)
}

/// Removes the network, however much of it exists.
///
/// # Errors
/// From `ip`.
pub fn remove(namespace: &str, link: &str) -> io::Result<()> {
    // The cable goes with either of its ends, a little after the namespace.
    if PathBuf::from("/sys/class/net").join(link).exists() {
        run(&command(&["ip", "link", "delete", link]))?;
    }
    if file_of(namespace).exists() {
        run(&command(&["ip", "netns", "delete", namespace]))?;
    }
    Ok(())
}

/// Parses `100mbit`, `1gbit` and the like into bits a second.
///
/// # Errors
/// Says what is expected.
pub fn parse_link(text: &str) -> Result<u64, String> {
    let wrong = || format!("`{text}` is no rate of a link; write 100mbit, 2.5gbit or the like, from 1mbit to 400gbit");
    let lower = text.to_ascii_lowercase();
    let (number, unit) = [("gbit", 1e9), ("mbit", 1e6)]
        .into_iter()
        .find_map(|(word, unit)| Some((lower.strip_suffix(word)?, unit)))
        .ok_or_else(wrong)?;
    let bits = number.trim().parse::<f64>().map_err(|_| wrong())? * unit;
    if !(1e6..=4e11).contains(&bits) {
        return Err(wrong());
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // bounded above
    let bits = bits as u64;
    Ok(bits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_as_tc_writes_them() {
        assert_eq!(parse_link("100mbit"), Ok(100_000_000));
        assert_eq!(parse_link("2.5Gbit"), Ok(2_500_000_000));
        for wrong in ["100", "0mbit", "1kbit", "nanmbit", "-1gbit", "1e30gbit", "gbit", "100mbit; reboot"] {
            assert!(parse_link(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn names_fit_the_kernels_limits() {
        let network = Network { link: format!("wtb249-{}", 4_194_304), ..Network::new(249) };
        assert!(network.link.len() <= 15 && network.theirs == "198.18.249.2");
        assert_eq!((burst(100_000_000), burst(10_000_000_000)), (131_072, 12_500_000));
    }
}
