//! The part of the page about settings that differ between machines, or have changed.

use std::fmt::Write;

use super::escape::escape;
use crate::report::{MachinesWithValue, Summary};

/// The most settings of each kind on the page.
const SETTINGS_MAX: usize = 400;
/// The most machines that are named beside a value.
const MACHINES_MAX: usize = 8;

/// Adds the settings of `summary`.
pub(super) fn put(out: &mut String, summary: &Summary) {
    if !summary.unlike.is_empty() {
        out.push_str(
            "<h2>Settings that differ</h2><p class=\"soft\">Of machines that did the same: what may explain figures that \
             scatter, and machines that are unlike the others.</p><table><thead><tr><th>setting</th><th>of</th><th>value</th>\
             <th>machines</th></tr></thead><tbody>",
        );
        for unlike in summary.unlike.iter().take(SETTINGS_MAX) {
            let whose = unlike.system.as_ref().map_or("agents".to_owned(), |system| format!("servers of {system}"));
            for (number, having) in unlike.values.iter().enumerate() {
                let (name, whose) = if number == 0 { (unlike.name.as_str(), whose.as_str()) } else { ("", "") };
                let value = having.value.as_deref().unwrap_or("not shown");
                let cells = [name, whose, value, &machines(having)].map(|text| format!("<td>{}</td>", escape(text)));
                let _ = write!(out, "<tr>{}</tr>", cells.concat());
            }
        }
        out.push_str("</tbody></table>");
        more(out, summary.unlike.len());
    }
    if !summary.changed.is_empty() {
        out.push_str("<h2>Settings that changed during the run</h2><ul>");
        for changed in summary.changed.iter().take(SETTINGS_MAX) {
            let _ = write!(out, "<li>{}.</li>", escape(&changed.words()));
        }
        out.push_str("</ul>");
        more(out, summary.changed.len());
    }
}

fn more(out: &mut String, all: usize) {
    if let Some(more) = all.checked_sub(SETTINGS_MAX).filter(|more| *more > 0) {
        let _ = write!(out, "<p>{more} more are in summary.json.</p>");
    }
}

fn machines(having: &MachinesWithValue) -> String {
    let named = having.machines.iter().take(MACHINES_MAX).cloned().collect::<Vec<_>>().join(", ");
    match having.machines.len().saturating_sub(MACHINES_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}
