//! The command line of `weir init`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use types::{Location, StoreClass};

use super::JoinText;

/// What a new node is for.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum InitRole {
    /// The manager of a new cluster.
    Manager,
    /// A disk server, which joins a cluster.
    Disk,
    /// A single node, which needs no others.
    Single,
}

/// Arguments of `weir init`.
#[derive(Args, Debug, Default, Clone)]
pub struct InitArgs {
    /// What the node is for. Also writes its configuration file.
    #[arg(long, value_name = "ROLE")]
    pub role: Option<InitRole>,
    /// The data directory: empty, or missing in a folder that exists [default with --role: WEIR_DATA, else
    /// /var/lib/weir/data].
    #[arg(long, value_name = "DIR", required_unless_present_any = ["role", "config"])]
    pub data: Option<PathBuf>,
    /// Disk server: the token that `weir token create` printed. Others can see it in the list of processes; use
    /// --join-file to avoid that.
    #[arg(long, value_name = "TOKEN", conflicts_with = "join_file")]
    pub join: Option<JoinText>,
    /// Disk server: the file that holds the token.
    #[arg(long, value_name = "FILE")]
    pub join_file: Option<PathBuf>,
    /// Disk server: the directory of a store, empty or missing in a folder that exists. Repeat the flag for each disk
    /// [default: `store` in the data directory].
    #[arg(long = "store", value_name = "DIR", requires = "role")]
    pub stores: Vec<PathBuf>,
    /// Node of a cluster: the name or address at which other machines reach this one [default: this host's full name,
    /// if it leads here, else its address].
    #[arg(long, value_name = "HOST", requires = "role")]
    pub host: Option<String>,
    /// Disk server: its location, as site/rack/host [default: default/default/ and the host's name].
    #[arg(long, value_name = "LOCATION", requires = "role")]
    pub location: Option<Location>,
    /// Disk server: the class of its stores, for policies that ask for a class.
    #[arg(long, value_name = "CLASS", requires = "role")]
    pub class: Option<StoreClass>,
    /// The address to listen on for clients [default: port 1094 of all addresses; of a single node, 127.0.0.1:1094].
    #[arg(long, value_name = "HOST:PORT", requires = "role")]
    pub listen: Option<String>,
    /// Node of a cluster: the address at which the other nodes reach it [default: port 1095 of --host].
    #[arg(long, value_name = "HOST:PORT", requires = "role")]
    pub nodes: Option<String>,
    /// Single node: serve other machines although clients need not prove who they are: everybody who reaches the port may
    /// read, write and delete everything. Nodes of a cluster always do, unless --listen says otherwise.
    #[arg(long, requires = "role")]
    pub insecure: bool,
    /// The configuration file: with --role it is written, without --role it says what to make [default:
    /// /etc/weir/weir.toml].
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Replace the configuration file if it is there.
    #[arg(long, requires = "role")]
    pub force: bool,
    /// Then start the package's service, now and at each boot.
    #[arg(long)]
    pub start: bool,
}
