//! The plan of a cluster on this machine: its nodes and their addresses. A small file keeps it, so that the addresses stay the same.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use types::Location;

use super::LocalError;
use super::ports::Ports;
use crate::args::LOCAL_DISKS_MAX;

/// The file's name.
pub const FILE: &str = "local.json";
/// The file while it is written.
pub const FILE_NEW: &str = "local.json.new";
const FILE_MAX: u64 = 1 << 20;
const VERSION: u32 = 1;
/// The manager's name.
pub const MANAGER: &str = "manager";
/// The number of sites that the disk servers are spread over.
const SITES: u16 = 2;

/// A node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePlan {
    /// Its name, and that of its data directory.
    pub name: String,
    /// Its address for clients.
    pub listen: SocketAddr,
    /// Its address for other nodes.
    pub nodes: SocketAddr,
    /// The location of a disk server, for policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Whether its data directory was made. If it is empty afterwards, its disk is not mounted, or it was lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub made: bool,
}

impl NodePlan {
    /// Whether it is the manager.
    pub fn is_manager(&self) -> bool {
        self.name == MANAGER
    }
}

/// All nodes, the manager first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    version: u32,
    /// The nodes.
    pub nodes: Vec<NodePlan>,
}

impl Plan {
    /// Plans a new cluster that listens for clients at `listen`.
    pub fn new(listen: SocketAddr, ports: &mut Ports) -> Result<Self, LocalError> {
        let ip = listen.ip();
        let listen = if listen.port() == 0 { SocketAddr::new(ip, take(ports, ip)?) } else { listen };
        let nodes = SocketAddr::new(ip, take(ports, ip)?);
        Ok(Self {
            version: VERSION,
            nodes: vec![NodePlan { name: MANAGER.into(), listen, nodes, location: None, made: false }],
        })
    }

    /// Adds disk servers until there are `count`. Each has an IP address of its own: stock clients name hosts without ports, and can so say
    /// which server they could not reach.
    pub fn grow(&mut self, count: u16, ports: &mut Ports) -> Result<(), LocalError> {
        let mut hosts = (2..=254).map(|last| IpAddr::from(Ipv4Addr::new(127, 0, 0, last)));
        for number in self.disks() + 1..=count.min(LOCAL_DISKS_MAX) {
            let is_free = |ip: &IpAddr| self.nodes.iter().all(|node| node.listen.ip() != *ip);
            let ip = hosts.find(is_free).ok_or(LocalError::NoPort { ip: Ipv4Addr::LOCALHOST.into() })?;
            let mut address = || Ok::<_, LocalError>(SocketAddr::new(ip, take(ports, ip)?));
            let (listen, nodes) = (address()?, address()?);
            let name = format!("disk{number}");
            let location = Some(format!("site{}/rack1/{name}", (number - 1) % SITES + 1));
            self.nodes.push(NodePlan { name, listen, nodes, location, made: false });
        }
        Ok(())
    }

    /// The number of disk servers.
    pub fn disks(&self) -> u16 {
        u16::try_from(self.nodes.len().saturating_sub(1)).unwrap_or(u16::MAX)
    }

    /// The manager.
    pub fn manager(&self) -> &NodePlan {
        &self.nodes[0]
    }

    /// Finds a node by its name.
    pub fn node(&self, name: &str) -> Result<&NodePlan, LocalError> {
        self.nodes.iter().find(|node| node.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
            LocalError::NoNode { name: name.into(), known: known.join(", ") }
        })
    }

    /// Reads the file in `dir`; `None`: there is no file.
    pub fn read(dir: &Path) -> Result<Option<Self>, LocalError> {
        let path = dir.join(FILE);
        let mut text = String::new();
        match File::open(&path).and_then(|file| file.take(FILE_MAX).read_to_string(&mut text)) {
            Ok(_) => Self::parse(&text).map(Some).map_err(|why| LocalError::Plan { path, why }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(LocalError::Io { what: "read", path, source }),
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let error = |error: serde_json::Error| error.to_string();
        let Version { version } = serde_json::from_str(text).map_err(error)?;
        if version != VERSION {
            return Err(format!("it is of version {version}, and this weir knows {VERSION}"));
        }
        let plan: Self = serde_json::from_str(text).map_err(error)?;
        let is_right = |(at, node): (usize, &NodePlan)| {
            let location = node.location.as_ref().map(|location| location.parse::<Location>().is_ok());
            let is_named = if at == 0 { node.is_manager() } else { node.name == format!("disk{at}") };
            is_named && location == (at > 0).then_some(true) && node.listen.ip().is_loopback()
        };
        let fits = (1..=usize::from(LOCAL_DISKS_MAX) + 1).contains(&plan.nodes.len());
        if !fits || !plan.nodes.iter().enumerate().all(is_right) {
            return Err("it does not begin with `manager`, followed by `disk1` and so on, each with loopback addresses and a location".into());
        }
        Ok(plan)
    }

    /// Replaces the file in `dir` atomically.
    pub fn write(&self, dir: &Path) -> Result<(), LocalError> {
        let path = dir.join(FILE);
        let failed = |path: PathBuf| move |source| LocalError::Io { what: "write", path, source };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(path.clone())(error.into()))?;
        let new = dir.join(FILE_NEW);
        let mut file = File::create(&new).map_err(failed(new.clone()))?;
        writeln!(file, "{text}").and_then(|()| file.sync_all()).map_err(failed(new.clone()))?;
        fs::rename(&new, &path).map_err(failed(path))
    }
}

fn take(ports: &mut Ports, ip: IpAddr) -> Result<u16, LocalError> {
    ports.take(ip).ok_or(LocalError::NoPort { ip })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn plan(listen: &str, disks: u16) -> Plan {
        let mut ports = Ports::new(7);
        let mut plan = Plan::new(listen.parse().unwrap(), &mut ports).unwrap();
        plan.grow(disks, &mut ports).unwrap();
        plan
    }

    #[test]
    fn every_disk_server_has_its_own_host_and_half_of_them_each_site() {
        let plan = plan("127.0.0.3:0", 5);
        let hosts: BTreeSet<IpAddr> = plan.nodes.iter().map(|node| node.listen.ip()).collect();
        assert_eq!(hosts.len(), 6);
        let locations: Vec<_> = plan.nodes.iter().filter_map(|node| node.location.as_deref()).collect();
        let expected =
            ["site1/rack1/disk1", "site2/rack1/disk2", "site1/rack1/disk3", "site2/rack1/disk4", "site1/rack1/disk5"];
        assert_eq!(locations, expected);
        let addresses: BTreeSet<_> = plan.nodes.iter().flat_map(|node| [node.listen, node.nodes]).collect();
        assert_eq!(addresses.len(), 12);
    }

    #[test]
    fn the_file_keeps_the_plan_and_growing_keeps_the_old_nodes() {
        let temp = tempfile::tempdir().unwrap();
        assert_eq!(Plan::read(temp.path()).unwrap(), None);
        let mut before = plan("127.0.0.1:0", 2);
        before.nodes[1].made = true;
        before.write(temp.path()).unwrap();
        let mut after = Plan::read(temp.path()).unwrap().unwrap();
        assert_eq!(after, before);
        after.grow(4, &mut Ports::new(9)).unwrap();
        assert_eq!((&after.nodes[..3], after.disks()), (&before.nodes[..], 4));
    }

    #[test]
    fn a_file_that_is_no_plan_is_refused() {
        let good = serde_json::to_string(&plan("127.0.0.1:0", 2)).unwrap();
        assert!(Plan::parse(&good).is_ok());
        let wrong = [
            ("\"version\":1", "\"version\":2"),
            ("disk2", "disk7"),
            ("\"manager\"", "\"king\""),
            ("127.0.0.2:", "10.0.0.2:"),
            ("site1/rack1/disk1", "site1"),
            ("\"nodes\":[", "\"more\":1,\"nodes\":["),
        ];
        for (from, to) in wrong {
            let text = good.replace(from, to);
            assert!(text != good && Plan::parse(&text).is_err(), "{text}");
        }
        for text in ["", "{}", "[]", "{\"version\":1,\"nodes\":[]}"] {
            assert!(Plan::parse(text).is_err(), "{text}");
        }
    }
}
