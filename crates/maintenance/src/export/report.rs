//! The report of an export.

use std::io::Write;
use std::path::Path;

use console::table::table_lines;
use serde_json::json;
use types::units::show_size;

/// Kinds of trouble with one file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExportProblem {
    /// Its pages, or the whole, do not match their checksums.
    Damaged,
    /// The store does not have it.
    Missing,
    /// It could not be written.
    Failed,
    /// It could not get its own name.
    Renamed,
    /// The target's file system rejected one of its extended attributes.
    Attribute,
}

/// Counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct Counts {
    /// Complete files written.
    pub files: u64,
    /// Files that an earlier run has written.
    pub already_there: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Folders.
    pub directories: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Hard links.
    pub hard_links: u64,
    /// Of the files: unfinished by their writers.
    pub interrupted: u64,
    /// Of the files: without a known path.
    pub unnamed: u64,
    /// Of the files: written under another name, because theirs was taken.
    pub renamed: u64,
    /// Damaged files.
    pub damaged: u64,
    /// Of the damaged files: not written.
    pub left_out: u64,
    /// Files whose object the store does not have.
    pub missing: u64,
    /// Files that could not be written.
    pub failed: u64,
    /// Extended attributes that could not be written.
    pub attributes: u64,
    /// Objects without a name in the store. With the namespace they are only counted, not written.
    pub without_a_name: u64,
}

/// The result of an export.
pub struct Report {
    limit: usize,
    /// The counts.
    pub counts: Counts,
    listed: Vec<(ExportProblem, String, String)>,
}

impl Report {
    /// An empty report that lists at most `limit` of each kind.
    pub fn new(limit: usize) -> Self {
        Self { limit, counts: Counts::default(), listed: Vec::new() }
    }

    /// Adds a trouble.
    pub fn trouble(&mut self, trouble: ExportProblem, path: &str, what: &str) {
        match trouble {
            ExportProblem::Damaged => self.counts.damaged += 1,
            ExportProblem::Missing => self.counts.missing += 1,
            ExportProblem::Failed => self.counts.failed += 1,
            ExportProblem::Renamed => self.counts.renamed += 1,
            ExportProblem::Attribute => self.counts.attributes += 1,
        }
        if self.listed.iter().filter(|(kind, ..)| *kind == trouble).count() < self.limit {
            self.listed.push((trouble, path.to_owned(), what.to_owned()));
        }
    }

    /// Whether everything was exported intact.
    pub fn is_good(&self) -> bool {
        self.counts.damaged + self.counts.missing + self.counts.failed + self.counts.attributes == 0
    }

    /// Prints the report for people.
    pub fn print(&self, out: &mut dyn Write, target: &Path) -> std::io::Result<()> {
        for (_, path, what) in &self.listed {
            writeln!(out, "{path}: {what}")?;
        }
        let counts = self.counts;
        let rows = [
            ("files", counts.files),
            ("  already there", counts.already_there),
            ("  unfinished by their writers", counts.interrupted),
            ("  without a path", counts.unnamed),
            ("  under another name, because theirs was taken", counts.renamed),
            ("directories", counts.directories),
            ("symbolic links", counts.symlinks),
            ("further names of files", counts.hard_links),
            ("! damaged", counts.damaged),
            ("!   left out", counts.left_out),
            ("! not in the store", counts.missing),
            ("! could not be written", counts.failed),
            ("! extended attributes that could not be written", counts.attributes),
            ("objects that no name refers to (--without-namespace has them)", counts.without_a_name),
        ];
        let rows: Vec<Vec<String>> = rows
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| vec![(*what).to_owned(), count.to_string()])
            .collect();
        for line in table_lines(&["exported", "number"], &rows) {
            writeln!(out, "{line}")?;
        }
        writeln!(out, "{} written to {}", show_size(counts.bytes), target.display())
    }

    /// The report as JSON, for programs. `docs/how-to/operate.md` describes it.
    pub fn to_json(&self) -> serde_json::Value {
        let mut value = serde_json::to_value(self.counts).unwrap_or_default();
        let listed: Vec<_> =
            self.listed.iter().map(|(kind, path, what)| json!({ "kind": kind, "path": path, "what": what })).collect();
        if let Some(object) = value.as_object_mut() {
            object.insert("listed".into(), listed.into());
        }
        value
    }
}
