//! `weir file`.

use cluster::placement::StoreState;
use config::units::show_size;
use control::ControlRequest;
use manager::{FileView, ObjectState, ObjectView, ReplicaState, ReplicaView};

use super::show;
use crate::Failure;
use crate::cli::FileArgs;
use crate::exit::Exit;
use crate::table::table_lines;
use crate::time_text::show_time;

/// Runs the command.
pub(crate) fn run(args: &FileArgs) -> Result<Exit, Failure> {
    let path = path_of(&args.path)?;
    show(&args.manager, &ControlRequest::File { path: path.clone() }, |file: &FileView| in_words(&path, file))
}

/// Accepts a URL as well as a path.
fn path_of(said: &str) -> Result<String, Failure> {
    if !client::Url::is_meant(said) {
        return Ok(said.to_owned());
    }
    client::Url::parse(said).map(|url| url.path).map_err(|error| Failure::new(Exit::Usage, error))
}

fn in_words(path: &str, file: &FileView) -> Vec<String> {
    let mut lines = vec![format!("{path}: {}, inode {}, policy {}", file.kind, file.ino, file.policy)];
    let Some(content) = &file.object else { return lines };
    lines.push(of_content(content));
    if let Some(writer) = &content.writer {
        let since = show_time(u64::try_from(writer.since).unwrap_or(0));
        lines.push(format!("written by {} since {since}, epoch {}", writer.client, writer.epoch));
    }
    lines.push(String::new());
    if let Some(chunk) = content.chunk {
        lines.push(format!("striped over {} units in chunks of {}", content.units.len(), show_size(chunk)));
        let rows: Vec<Vec<String>> = (0..).zip(&content.units).flat_map(rows_of_unit).collect();
        lines
            .extend(table_lines(&["unit", "length", "object", "location", "node", "state", "replica", "store"], &rows));
        return lines;
    }
    if content.replicas.is_empty() {
        lines.push("no store of this cluster has it or should have it".into());
        return lines;
    }
    let rows: Vec<Vec<String>> = content.replicas.iter().map(row).collect();
    lines.extend(table_lines(&["location", "node", "state", "replica", "store"], &rows));
    lines
}

fn of_content(content: &ObjectView) -> String {
    let ObjectView { id, group, len, generation, .. } = content;
    let state = match content.state {
        ObjectState::Complete => "complete",
        ObjectState::Writing => "being written",
        ObjectState::Updating => "complete, being changed in place",
        ObjectState::Interrupted => "interrupted: its writer went away",
    };
    let sums = match (&content.adler32, &content.crc32c) {
        (Some(adler32), Some(crc32c)) => format!(", adler32 {adler32}, crc32c {crc32c}"),
        _ => String::new(),
    };
    let len = match content.state {
        ObjectState::Writing => String::new(),
        _ => format!(", {len} bytes ({})", show_size(*len)),
    };
    let group = match content.chunk {
        Some(_) => String::new(),
        None => format!(" of group {group}"),
    };
    format!("{state}{len}, object {:016x}{group}, generation {generation}{sums}", id.0)
}

/// A row for each replica of a unit, or one row that says that it has no replica.
fn rows_of_unit((number, unit): (u8, &ObjectView)) -> Vec<Vec<String>> {
    let len = match unit.state {
        ObjectState::Writing => "being written".to_owned(),
        ObjectState::Interrupted => format!("{}, interrupted", show_size(unit.len)),
        ObjectState::Complete | ObjectState::Updating => show_size(unit.len),
    };
    let begin = [number.to_string(), len, format!("{:016x}", unit.id.0)];
    if unit.replicas.is_empty() {
        return vec![[&begin[..], &["on no store".to_owned()]].concat()];
    }
    unit.replicas.iter().map(|copy| [&begin[..], &row(copy)[..]].concat()).collect()
}

fn row(copy: &ReplicaView) -> Vec<String> {
    let unknown = || "not known any more".to_owned();
    vec![
        copy.location.clone().unwrap_or_else(unknown),
        copy.node.map(|node| node.to_string()).unwrap_or_default(),
        copy.state.map(|state| state.to_string()).unwrap_or_default(),
        match copy.replica {
            ReplicaState::Complete
                if copy.state.is_some_and(|state| state.is_gone() && state != StoreState::Returned) =>
            {
                "not available"
            }
            ReplicaState::Complete => "complete",
            ReplicaState::Damaged => "damaged",
            ReplicaState::Missing => "missing",
            ReplicaState::Copying => "being copied",
            ReplicaState::Primary => "primary of the open write",
            ReplicaState::InSync => "in sync",
            ReplicaState::Pending => "to be made after the close",
        }
        .into(),
        copy.store.to_string(),
    ]
}
