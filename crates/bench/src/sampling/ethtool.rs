//! The output of `ethtool` about an interface, if it is installed. The kernel has no files about offloads and
//! rings.

use std::process::{Command, Stdio};

/// Offloads that affect speed, by their names in `ethtool -k`.
const OFFLOADS: [&str; 8] = [
    "rx-checksumming",
    "tx-checksumming",
    "scatter-gather",
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "large-receive-offload",
    "rx-gro-hw",
];

/// Returns offloads and ring sizes of an interface; none if `ethtool` is missing or does not know the interface.
pub(super) fn offloads(interface: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = of_features(&said("-k", interface));
    found.extend(of_rings(&said("-g", interface)));
    found
}

fn said(what: &str, interface: &str) -> String {
    // Administrators' programs may be outside the search path of other users.
    let run = |program: &str| Command::new(program).args([what, interface]).stdin(Stdio::null()).output().ok();
    let output = ["ethtool", "/usr/sbin/ethtool", "/sbin/ethtool"].into_iter().find_map(run);
    output
        .filter(|output| output.status.success())
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

/// Parses lines such as `tcp-segmentation-offload: on`.
fn of_features(text: &str) -> Vec<(String, String)> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let known = lines.filter(|(name, _)| OFFLOADS.contains(name));
    known.filter_map(|(name, value)| Some((name.to_owned(), value.split_whitespace().next()?.to_owned()))).collect()
}

/// The present sizes follow the largest ones, with the same names.
fn of_rings(text: &str) -> Vec<(String, String)> {
    let Some((_, current)) = text.split_once("Current hardware settings:") else { return Vec::new() };
    let lines = current.lines().filter_map(|line| line.split_once(':'));
    let known = lines.filter(|(name, _)| ["RX", "TX"].contains(name));
    let size = |value: &str| value.trim().parse::<u32>().ok();
    known.filter_map(|(name, value)| Some((format!("{name} ring"), size(value)?.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_ethtool_are_parsed() {
        let features = "Features for eth0:\nrx-checksumming: on [fixed]\n\ttx-checksum-ipv4: on\ntcp-segmentation-offload: off\nx: y\n";
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(of_features(features), [pair("rx-checksumming", "on"), pair("tcp-segmentation-offload", "off")]);
        let rings = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nTX: 4096\nCurrent hardware settings:\nRX:\t\t256\nRX Mini:\tn/a\nTX:\tn/a\n";
        assert_eq!(of_rings(rings), [pair("RX ring", "256")]);
        assert_eq!((of_features(":\n"), of_rings("")), (vec![], vec![]));
        assert_eq!(offloads("no such interface"), []);
    }
}
