//! The part of study B that compares uproot with the bench's own jobs: its sections of the campaign, and the ROOT
//! file that it reads if none is given.

use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::{Table, Value};

use super::Scaled;
use crate::units::{Family, show_sum};
use crate::workload::{MadeFile, UprootWith, word_of};

/// Branches of the made file, and the step between those that jobs read: ten of them, spread over the file.
const BRANCHES: u32 = 120;
const READ_FROM: usize = 5;
const READ_STEP: usize = 12;
/// The events of a cluster, and about the bytes that they take in the file.
const EVENTS: u32 = 5000;
const CLUSTER_BYTES: f64 = 1_900_000.0;
/// The bytes of the study's files, and of the smallest file that is worth reading.
const FULL_BYTES: f64 = 16e9;
const LEAST_BYTES: f64 = 8e6;
const SEED: u64 = 1;

/// How study B runs uproot.
#[derive(Clone, Debug)]
pub struct UprootRequest {
    /// The ROOT file that the jobs read.
    pub file: PathBuf,
    /// Whether that file is the one of [`made_file`], of which jobs read a few branches.
    pub is_made: bool,
    /// The package that opens `root://` addresses; `None`: the default.
    pub with: Option<UprootWith>,
    /// The Python interpreter; `None`: the default.
    pub python: Option<PathBuf>,
    /// The round trip of the delayed path; `None`: the study's.
    pub round_trip: Option<Duration>,
}

/// Returns the file for a study of this scale.
#[must_use]
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between the two sizes
pub fn made_file(path: &Path, scale: f64) -> MadeFile<'_> {
    let bytes = (FULL_BYTES / scale).clamp(LEAST_BYTES, FULL_BYTES);
    MadeFile { path, branches: BRANCHES, clusters: (bytes / CLUSTER_BYTES).ceil() as u64, events: EVENTS, seed: SEED }
}

/// Returns the size of that file, for the list of scaled values.
pub(super) fn scaled_file(scale: f64) -> Scaled {
    #[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)] // a rough size
    let made = (made_file(Path::new(""), scale).clusters as f64 * CLUSTER_BYTES) as u64;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a whole number
    let [was, is] = [FULL_BYTES as u64, made].map(|bytes| vec![show_sum(bytes, Family::Decimal)]);
    Scaled { key: "the ROOT file that uproot makes, about".to_owned(), was, is }
}

/// Whether a section of the campaign runs uproot.
fn is_beside(section: &Value) -> bool {
    section.get("beside").is_some()
}

/// Removes the sections that run uproot, or completes them. Returns the names of the removed ones.
pub(super) fn settle(campaign: &mut Table, asked: Option<&UprootRequest>) -> Vec<String> {
    let Some(sections) = campaign.get_mut("analysis").and_then(Value::as_array_mut) else { return Vec::new() };
    let Some(asked) = asked else {
        let name = |section: &Value| section.get("name").and_then(Value::as_str).map(str::to_owned);
        let removed = sections.iter().filter(|section| is_beside(section)).filter_map(name).collect();
        sections.retain(|section| !is_beside(section));
        return removed;
    };
    for section in sections.iter_mut().filter(|section| is_beside(section)).filter_map(Value::as_table_mut) {
        let mut set = |key: &str, value: Value| drop(section.insert(key.to_owned(), value));
        set("root_file", text(&asked.file));
        if asked.is_made {
            let names = (READ_FROM..BRANCHES as usize).step_by(READ_STEP).map(|n| Value::String(format!("b{n:03}")));
            set("branches", Value::Array(names.collect()));
        }
        if let Some(with) = asked.with {
            set("uproot_with", Value::String(word_of(with)));
        }
        if let Some(python) = &asked.python {
            set("python", text(python));
        }
        if let Some(time) = asked.round_trip
            && section.contains_key("round_trip")
        {
            section.insert("round_trip".to_owned(), Value::String(format!("{}ms", time.as_millis())));
        }
    }
    Vec::new()
}

fn text(path: &Path) -> Value {
    Value::String(path.display().to_string())
}
