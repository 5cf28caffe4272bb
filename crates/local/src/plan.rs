//! The plan of a cluster on this machine: its nodes, its database, and their addresses. A small file keeps it, so that the addresses stay
//! the same.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use types::Location;

use super::LocalError;
use super::ports::Ports;
use crate::args::{LOCAL_DISKS_MAX, LOCAL_MANAGERS_MAX};

/// The file's name.
pub const FILE: &str = "local.json";
/// The file while it is written.
pub const FILE_NEW: &str = "local.json.new";
const FILE_MAX: u64 = 1 << 20;
const VERSION: u32 = 1;
/// The first manager's name. The others have numbers: `manager2` and so on.
pub const MANAGER: &str = "manager";
/// The database's name.
pub const DATABASE: &str = "database";
/// The number of sites that the disk servers are spread over.
const SITES: u16 = 2;

/// What a process of the cluster does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// It is PostgreSQL.
    Database,
    /// It is a manager.
    Manager,
    /// It is a disk server.
    Disk,
}

/// A node, or the database.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodePlan {
    /// Its name, and that of its data directory.
    pub name: String,
    /// Its address for clients.
    pub listen: SocketAddr,
    /// Its address for other nodes; of the database, the same.
    pub nodes: SocketAddr,
    /// The location of a disk server, for policies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Whether its data directory was made. If it is empty afterwards, its disk is not mounted, or it was lost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub made: bool,
}

impl NodePlan {
    /// What it does.
    pub fn kind(&self) -> Kind {
        match self.name.strip_prefix(MANAGER) {
            Some("") => Kind::Manager,
            Some(number) if number.parse::<u16>().is_ok() => Kind::Manager,
            _ if self.name == DATABASE => Kind::Database,
            _ => Kind::Disk,
        }
    }

    /// Whether it is a manager.
    pub fn is_manager(&self) -> bool {
        self.kind() == Kind::Manager
    }
}

/// Where the managers keep the namespace, if not in their data directory.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum DatabasePlan {
    /// A database that this cluster has for itself.
    Own(NodePlan),
    /// One that a user gave.
    Given(GivenUrl),
}

/// The address of a database. It may hold a password, so it is not shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GivenUrl(pub String);

impl GivenUrl {
    /// The address without its password and its parameters.
    pub fn shown(&self) -> String {
        let (scheme, rest) = self.0.split_once("://").unwrap_or(("postgres", &self.0));
        // A password may have characters that it should not have, so the last `@` ends it.
        let (account, place) = rest.rsplit_once('@').map_or((None, rest), |(account, place)| (Some(account), place));
        let user = account.map(|account| account.split(':').next().unwrap_or_default());
        let place = place.split('?').next().unwrap_or_default();
        format!("{scheme}://{}{place}", user.map(|user| format!("{user}@")).unwrap_or_default())
    }
}

impl fmt::Debug for GivenUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GivenUrl(not shown)")
    }
}

/// All nodes, the managers first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    version: u32,
    /// The database, if the cluster has one. An older weir refuses a plan with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub database: Option<DatabasePlan>,
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
            database: None,
            nodes: vec![NodePlan { name: MANAGER.into(), listen, nodes, location: None, made: false }],
        })
    }

    /// Plans a database of the cluster's own.
    pub fn own_database(ports: &mut Ports) -> Result<DatabasePlan, LocalError> {
        let ip = IpAddr::from(Ipv4Addr::LOCALHOST);
        let listen = SocketAddr::new(ip, take(ports, ip)?);
        let name = DATABASE.into();
        Ok(DatabasePlan::Own(NodePlan { name, listen, nodes: listen, location: None, made: false }))
    }

    /// Adds managers until there are `count`. They have the same port for clients, so that one host name can stand for all of them.
    pub fn add_managers(&mut self, count: u16, ports: &mut Ports) -> Result<(), LocalError> {
        let (first, port) = (self.manager().listen.ip(), self.manager().listen.port());
        for number in self.managers().len() + 1..=usize::from(count.min(LOCAL_MANAGERS_MAX)) {
            let can_have = |ip: &IpAddr| self.is_free(*ip) && ports.hold(SocketAddr::new(*ip, port)).is_ok();
            let ip = hosts().find(can_have).ok_or(LocalError::NoPort { ip: first })?;
            let (listen, nodes) = (SocketAddr::new(ip, port), SocketAddr::new(ip, take(ports, ip)?));
            let manager = NodePlan { name: format!("{MANAGER}{number}"), listen, nodes, location: None, made: false };
            self.nodes.insert(number - 1, manager);
        }
        Ok(())
    }

    fn is_free(&self, ip: IpAddr) -> bool {
        self.nodes.iter().all(|node| node.listen.ip() != ip)
    }

    /// Adds disk servers until there are `count`. Each has an IP address of its own: stock clients name hosts without ports, and can so say
    /// which server they could not reach.
    pub fn grow(&mut self, count: u16, ports: &mut Ports) -> Result<(), LocalError> {
        for number in self.disks() + 1..=count.min(LOCAL_DISKS_MAX) {
            let ip =
                hosts().find(|ip| self.is_free(*ip)).ok_or(LocalError::NoPort { ip: Ipv4Addr::LOCALHOST.into() })?;
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
        u16::try_from(self.nodes.len() - self.managers().len()).unwrap_or(u16::MAX)
    }

    /// The first manager.
    pub fn manager(&self) -> &NodePlan {
        &self.nodes[0]
    }

    /// The managers.
    pub fn managers(&self) -> &[NodePlan] {
        let disks = self.nodes.iter().position(|node| !node.is_manager());
        &self.nodes[..disks.unwrap_or(self.nodes.len())]
    }

    /// The cluster's own database.
    pub fn own(&self) -> Option<&NodePlan> {
        match &self.database {
            Some(DatabasePlan::Own(node)) => Some(node),
            _ => None,
        }
    }

    /// The cluster's own database, and all nodes.
    pub fn all(&self) -> impl Iterator<Item = &NodePlan> {
        self.own().into_iter().chain(&self.nodes)
    }

    /// The same.
    pub fn all_mut(&mut self) -> impl Iterator<Item = &mut NodePlan> {
        let own = match &mut self.database {
            Some(DatabasePlan::Own(node)) => Some(node),
            _ => None,
        };
        own.into_iter().chain(&mut self.nodes)
    }

    /// Where clients find the cluster, if it has several managers.
    pub fn address(&self) -> Option<String> {
        let all: Vec<String> = self.managers().iter().map(|manager| manager.listen.to_string()).collect();
        (all.len() > 1).then(|| format!("root://{}//", all.join(",")))
    }

    /// Finds a node, or the database, by its name.
    pub fn node(&self, name: &str) -> Result<&NodePlan, LocalError> {
        self.all().find(|node| node.name == name).ok_or_else(|| {
            let known: Vec<&str> = self.all().map(|node| node.name.as_str()).collect();
            LocalError::NoNode { name: name.into(), known: known.join(", ") }
        })
    }

    /// Reads the file in `dir`; `None`: there is no file.
    pub fn read(dir: &Path) -> Result<Option<Self>, LocalError> {
        let path = dir.join(FILE);
        let mut text = String::new();
        match fs::File::open(&path).and_then(|file| file.take(FILE_MAX).read_to_string(&mut text)) {
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
        let managers = plan.managers().len();
        let is_right = |(at, node): (usize, &NodePlan)| {
            let location = node.location.as_ref().map(|location| location.parse::<Location>().is_ok());
            let is_named = match at {
                0 => node.name == MANAGER,
                _ if at < managers => node.name == format!("{MANAGER}{}", at + 1),
                _ => node.name == format!("disk{}", at + 1 - managers),
            };
            is_named && location == (at >= managers).then_some(true) && node.listen.ip().is_loopback()
        };
        let fits = (1..=usize::from(LOCAL_MANAGERS_MAX)).contains(&managers) && plan.disks() <= LOCAL_DISKS_MAX;
        if !fits || !plan.nodes.iter().enumerate().all(is_right) {
            return Err("it does not begin with `manager`, perhaps `manager2` and so on, followed by `disk1` and so on, each with loopback addresses and the disk servers with a location".into());
        }
        if managers > 1 && plan.database.is_none() {
            return Err("it has several managers and no database".into());
        }
        if plan.own().is_some_and(|own| own.kind() != Kind::Database || !own.listen.ip().is_loopback()) {
            return Err("its database is not called `database`, or has no loopback address".into());
        }
        Ok(plan)
    }

    /// Replaces the file in `dir` atomically.
    pub fn write(&self, dir: &Path) -> Result<(), LocalError> {
        let path = dir.join(FILE);
        let failed = |path: PathBuf| move |source| LocalError::Io { what: "write", path, source };
        let text = serde_json::to_string_pretty(self).map_err(|error| failed(path.clone())(error.into()))?;
        let new = dir.join(FILE_NEW);
        // The address of a given database may hold a password.
        let mode = if self.database.is_some() { 0o600 } else { 0o644 };
        // One that an interrupted command left may have another mode.
        let _ = fs::remove_file(&new);
        let file = OpenOptions::new().create_new(true).write(true).mode(mode).open(&new);
        let mut file = file.map_err(failed(new.clone()))?;
        writeln!(file, "{text}").and_then(|()| file.sync_all()).map_err(failed(new.clone()))?;
        fs::rename(&new, &path).map_err(failed(path))
    }
}

/// The addresses of nodes with an IP address of their own.
fn hosts() -> impl Iterator<Item = IpAddr> {
    (2..=254).map(|last| IpAddr::from(Ipv4Addr::new(127, 0, 0, last)))
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
    fn managers_share_a_port_and_are_added_before_the_disk_servers() {
        let mut ports = Ports::new(11);
        let mut plan = plan("127.0.0.2:0", 2);
        plan.database = Some(Plan::own_database(&mut ports).unwrap());
        let port = plan.manager().listen.port();
        // Another program has the port at one of the addresses.
        let taken = std::net::TcpListener::bind(("127.0.0.5", port));
        plan.add_managers(3, &mut ports).unwrap();
        let names: Vec<&str> = plan.all().map(|node| node.name.as_str()).collect();
        assert_eq!(names, ["database", "manager", "manager2", "manager3", "disk1", "disk2"]);
        assert_eq!((plan.managers().len(), plan.disks()), (3, 2));
        assert!(plan.managers().iter().all(|manager| manager.listen.port() == port));
        assert!(taken.is_err() || plan.nodes.iter().all(|node| node.listen.ip() != IpAddr::from([127, 0, 0, 5])));
        let hosts: BTreeSet<IpAddr> = plan.nodes.iter().map(|node| node.listen.ip()).collect();
        assert_eq!(hosts.len(), 5);
        let address = plan.address().unwrap();
        assert!(address.starts_with(&format!("root://127.0.0.2:{port},127.0.0.")) && address.ends_with("//"));
        plan.grow(3, &mut ports).unwrap();
        assert_eq!(plan.nodes[5].location.as_deref(), Some("site1/rack1/disk3"));
        // The file keeps all of it, and only its owner can read it.
        let temp = tempfile::tempdir().unwrap();
        plan.write(temp.path()).unwrap();
        assert_eq!(Plan::read(temp.path()).unwrap(), Some(plan.clone()));
        let mode =
            std::os::unix::fs::PermissionsExt::mode(&fs::metadata(temp.path().join(FILE)).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600);
        for (from, to) in
            [("\"manager2\"", "\"manager4\""), ("\"database\",", "\"disk\","), ("\"database\":{", "\"more\":{")]
        {
            let good = serde_json::to_string(&plan).unwrap();
            let text = good.replace(from, to);
            assert!(text != good && Plan::parse(&text).is_err(), "{text}");
        }
        plan.database = None;
        assert!(Plan::parse(&serde_json::to_string(&plan).unwrap()).unwrap_err().contains("no database"));
    }

    #[test]
    fn a_password_in_an_address_is_not_shown() {
        let mut plan = plan("127.0.0.1:0", 1);
        plan.database = Some(DatabasePlan::Given(GivenUrl("postgres://weir:secret@127.0.0.1/weir".into())));
        assert!(!format!("{plan:?}").contains("secret"));
        for (given, shown) in [
            ("postgres://weir:secret@db1,db2:5433/weir?passfile=/secret", "postgres://weir@db1,db2:5433/weir"),
            ("postgres://weir:a@/?secret@db1/weir", "postgres://weir@db1/weir"),
            ("postgresql://db1/weir?password=secret", "postgresql://db1/weir"),
        ] {
            assert_eq!(GivenUrl(given.into()).shown(), shown);
        }
        assert_eq!(Plan::parse(&serde_json::to_string(&plan).unwrap()).unwrap(), plan);
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
