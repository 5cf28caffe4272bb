//! The command line of `weir audit`.

use std::path::PathBuf;

use audit::{Event, Outcome};
use clap::Args;

use super::usual_data;

/// Arguments of `weir audit`.
#[derive(Args, Debug, Clone)]
pub struct AuditArgs {
    /// The data directory of the node. Its log is in `audit` there. Without it, the environment variable WEIR_DATA names
    /// it, else it is the one that the package serves.
    #[arg(long, value_name = "DIR", default_value_os_t = usual_data())]
    pub data: PathBuf,
    /// The configuration of the node, which says where its log is.
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    pub config: Option<PathBuf>,
    /// The directory of the log.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["data", "config"])]
    pub directory: Option<PathBuf>,
    /// Read the lines from standard input, as those of `journalctl -t weir-audit -o cat`.
    #[arg(long, conflicts_with_all = ["data", "config", "directory", "follow"])]
    pub stdin: bool,
    /// Only lines about this user, by name or number; can be given several times.
    #[arg(long = "principal", value_name = "USER")]
    pub principals: Vec<String>,
    /// Only lines about this path and what is below; can be given several times.
    #[arg(long = "path", value_name = "PATH")]
    pub paths: Vec<String>,
    /// Only lines about this operation, as in mkdir; can be given several times.
    #[arg(long = "operation", value_name = "OPERATION")]
    pub operations: Vec<String>,
    /// Only such lines: login, change, read, admin or lost; can be given several times.
    #[arg(long = "event", value_name = "EVENT", value_parser = |text: &str| named(text, &Event::ALL))]
    pub events: Vec<Event>,
    /// Only lines with this result: ok, denied, failed or redirected; can be given several times.
    #[arg(long = "result", value_name = "RESULT", value_parser = |text: &str| named(text, &Outcome::ALL))]
    pub results: Vec<Outcome>,
    /// Only lines from this time on, in UTC: `2026-11-21`, `2026-11-21 09:45:00`.
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only lines before this time.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Go on with new lines as they come, until interrupted.
    #[arg(short, long)]
    pub follow: bool,
    /// Print the lines as they are: a JSON object each.
    #[arg(long)]
    pub json: bool,
}

fn named<T: Copy>(text: &str, all: &[(&str, T)]) -> Result<T, String> {
    let found = all.iter().find(|(name, _)| *name == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
        format!("it is one of {}", names.join(", "))
    })
}
