//! The configuration file of a new node: what is in it, and its text.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use types::{Location, StoreClass};

use crate::Failure;
use crate::cli::InitRole;
use crate::exit::Exit;

/// Where clients connect, by custom.
const CLIENTS_PORT: u16 = 1094;
/// Where other nodes connect.
const NODES_PORT: u16 = 1095;

/// What the caller knows about the new node.
#[derive(Clone, Debug)]
pub(super) struct NewNode<'a> {
    pub(super) role: InitRole,
    pub(super) data: &'a Path,
    /// The name or address at which other machines reach this one. A single node has no use for it.
    pub(super) host: Option<&'a str>,
    pub(super) listen: Option<&'a str>,
    pub(super) nodes: Option<&'a str>,
    pub(super) insecure: bool,
    pub(super) location: Option<&'a Location>,
    pub(super) class: Option<&'a StoreClass>,
    /// The directories of its stores.
    pub(super) stores: &'a [&'a Path],
}

impl NewNode<'_> {
    /// The address to listen on for clients. A node of a cluster is of no use if clients cannot reach it, so it serves all addresses.
    fn listen(&self) -> String {
        let serves_others = self.role != InitRole::Single || self.insecure;
        match (self.listen, self.host) {
            (Some(listen), _) => listen.to_owned(),
            (None, _) if !serves_others => format!("127.0.0.1:{CLIENTS_PORT}"),
            (None, Some(host)) if is_loopback(host) => format!("{host}:{CLIENTS_PORT}"),
            (None, Some(host)) if host.starts_with('[') => format!("[::]:{CLIENTS_PORT}"),
            (None, _) => format!("0.0.0.0:{CLIENTS_PORT}"),
        }
    }

    /// Whether clients on other machines can connect.
    pub(super) fn is_open(&self) -> bool {
        let listen = self.listen();
        !is_loopback(listen.rsplit_once(':').map_or(listen.as_str(), |(host, _)| host))
    }

    /// The address at which clients reach the node, if it is not the one that it listens on.
    fn advertise(&self) -> Option<String> {
        let listen: SocketAddr = self.listen().parse().ok()?;
        let host = self.host.filter(|_| listen.ip().is_unspecified())?;
        Some(format!("{host}:{}", listen.port()))
    }

    /// Where clients reach the node, for people.
    pub(super) fn url(&self) -> String {
        format!("root://{}/", self.advertise().unwrap_or_else(|| self.listen()))
    }

    /// The text of the configuration file.
    ///
    /// # Errors
    /// A path is not text, which a configuration file cannot hold.
    pub(super) fn text(&self) -> Result<String, Failure> {
        let line = |key: &str, value: &str| format!("{key} = {value}\n");
        let mut text =
            "# The settings of this weir node, written by `weir init`. weir.toml(5) lists every key.\n\n".to_owned();
        text += match self.role {
            InitRole::Manager => "role = \"manager\"\n",
            InitRole::Disk => "role = \"disk\"\n",
            InitRole::Single => "",
        };
        text += &line("data", &path(self.data)?);
        text += match self.is_open() {
            true => {
                "\n# Anyone who reaches this port can read, write and delete everything: clients do not authenticate yet.\n"
            }
            false => "\n# Clients on this machine alone: they do not authenticate yet.\n",
        };
        text += &line("listen", &quoted(&self.listen()));
        // A single node says it only if it was asked to.
        if self.is_open() && (self.role != InitRole::Single || self.insecure) {
            text += "insecure = true\n";
        }
        if self.role != InitRole::Single {
            let host = self.host.unwrap_or("127.0.0.1");
            let nodes = self.nodes.map_or_else(|| format!("{host}:{NODES_PORT}"), ToOwned::to_owned);
            text += "\n# Where clients and other nodes reach this machine.\n";
            text += &self.advertise().map(|advertise| line("advertise", &quoted(&advertise))).unwrap_or_default();
            text += &line("nodes", &quoted(&nodes));
        }
        if self.role == InitRole::Disk {
            text += &self.location.map(|location| line("location", &quoted(location.as_str()))).unwrap_or_default();
            text += &self.class.map(|class| line("class", &quoted(class.as_str()))).unwrap_or_default();
        }
        text += "\n# A start makes no new data directory or store: a disk that is not mounted stops the node.\nexisting = true\n";
        for store in self.stores {
            text += &store_table(store)?;
        }
        Ok(text)
    }
}

/// A `[[store]]` of the configuration file, to be put at its end.
pub(crate) fn store_table(dir: &Path) -> Result<String, Failure> {
    Ok(format!("\n[[store]]\ndir = {}\n", path(dir)?))
}

/// Whether a host, as it stands before the port, is this machine alone.
fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| crate::listen::is_loopback((address, 0).into()))
}

fn path(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().ok_or_else(|| {
        let what = format!("cannot write {} into a configuration file: the path is not UTF-8", path.display());
        Failure::message(Exit::Usage, what)
    })?;
    Ok(quoted(text))
}

/// A string of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => _ = write!(quoted, "\\u{:04X}", u32::from(c)),
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{ClusterRole, Config};

    fn node<'a>(role: InitRole, host: &'a str) -> NewNode<'a> {
        NewNode {
            role,
            data: Path::new("/var/lib/weir/data"),
            host: Some(host),
            listen: None,
            nodes: None,
            insecure: false,
            location: None,
            class: None,
            stores: &[],
        }
    }

    fn read(node: &NewNode<'_>) -> Config {
        Config::of_text(Path::new("weir.toml"), &node.text().unwrap()).unwrap()
    }

    #[test]
    fn a_manager_serves_clients_everywhere_and_tells_them_its_name() {
        let config = read(&node(InitRole::Manager, "mgr1.example.org"));
        assert_eq!((config.role, config.listen.as_str()), (Some(ClusterRole::Manager), "0.0.0.0:1094"));
        assert_eq!(config.advertise.as_deref(), Some("mgr1.example.org:1094"));
        assert_eq!(config.nodes, "mgr1.example.org:1095");
        assert!(config.insecure && config.existing);
        assert_eq!(node(InitRole::Manager, "mgr1.example.org").url(), "root://mgr1.example.org:1094/");
        let config = read(&node(InitRole::Manager, "[2001:db8::1]"));
        assert_eq!((config.listen.as_str(), config.nodes.as_str()), ("[::]:1094", "[2001:db8::1]:1095"));
    }

    #[test]
    fn a_disk_server_has_its_location_and_its_stores() {
        let (location, class) = ("cern/r1/ds1".parse().unwrap(), "ssd".parse().unwrap());
        let stores = [Path::new("/srv/disk \"1\"/weir"), Path::new("/srv/disk2/we\\ir\n")];
        let disk = node(InitRole::Disk, "10.0.0.7");
        let config = read(&NewNode { location: Some(&location), class: Some(&class), stores: &stores, ..disk });
        assert_eq!(config.role, Some(ClusterRole::Disk));
        assert_eq!((config.location, config.class), (Some(location), Some(class)));
        assert_eq!(config.stores.iter().map(|table| table.dir.as_path()).collect::<Vec<_>>(), stores);
        assert_eq!(config.advertise.as_deref(), Some("10.0.0.7:1094"));
    }

    #[test]
    fn a_single_node_serves_this_machine_unless_told_otherwise() {
        let config = read(&node(InitRole::Single, "x"));
        assert_eq!((config.role, config.listen.as_str(), config.insecure), (None, "127.0.0.1:1094", false));
        assert_eq!(config.advertise, None);
        let config = read(&NewNode { insecure: true, host: None, ..node(InitRole::Single, "x") });
        assert_eq!((config.listen.as_str(), config.insecure), ("0.0.0.0:1094", true));
        let config = read(&NewNode { listen: Some("10.0.0.2:5"), ..node(InitRole::Single, "x") });
        assert_eq!((config.listen.as_str(), config.insecure), ("10.0.0.2:5", false), "it is refused then");
    }

    #[test]
    fn what_listens_on_loopback_is_not_open() {
        let config = read(&node(InitRole::Manager, "127.0.0.1"));
        assert_eq!((config.listen.as_str(), config.insecure, config.advertise), ("127.0.0.1:1094", false, None));
        for (listen, is_open) in
            [("127.0.0.2:5", false), ("[::1]:5", false), ("localhost:5", false), ("10.0.0.2:5", true), ("[::]:5", true)]
        {
            let node = NewNode { listen: Some(listen), ..node(InitRole::Disk, "h") };
            assert_eq!((read(&node).insecure, node.is_open()), (is_open, is_open), "{listen}");
        }
        // An address of its own is what clients are told.
        assert_eq!(read(&NewNode { listen: Some("10.0.0.2:5"), ..node(InitRole::Disk, "h") }).advertise, None);
        let any = NewNode { listen: Some("0.0.0.0:5"), ..node(InitRole::Disk, "h") };
        assert_eq!(read(&any).advertise.as_deref(), Some("h:5"));
    }
}
