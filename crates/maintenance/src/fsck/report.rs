//! The report of fsck. People get findings as they come and a table at the end; programs get one JSON object.

use std::collections::BTreeMap;
use std::io::Write;

use console::table::table_lines;
use serde_json::json;
use types::units::show_size;

use super::check::Counts;
use super::finding::{Finding, ProblemKind};

/// Counts all findings and keeps the first few of each kind.
#[derive(Default)]
pub struct Report {
    limit: usize,
    kinds: BTreeMap<ProblemKind, Tally>,
    listed: Vec<Finding>,
}

#[derive(Clone, Copy, Default)]
struct Tally {
    found: u64,
    repaired: u64,
}

impl Report {
    /// An empty report that lists at most `limit` findings of each kind.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Adds a finding.
    pub fn add(&mut self, finding: Finding) {
        let tally = self.kinds.entry(finding.problem.kind()).or_default();
        tally.found += 1;
        tally.repaired += u64::from(finding.repaired.is_some());
        if tally.found <= self.limit as u64 {
            self.listed.push(finding);
        }
    }

    /// The first few findings of each kind.
    #[must_use]
    pub fn listed(&self) -> &[Finding] {
        &self.listed
    }

    /// The number of all findings.
    #[must_use]
    pub fn found(&self) -> u64 {
        self.kinds.values().map(|tally| tally.found).sum()
    }

    /// The number of findings that are not repaired.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.kinds.values().map(|tally| tally.found - tally.repaired).sum()
    }

    /// Prints the report for people.
    pub fn print(&self, out: &mut dyn Write, counts: &Counts, quick: bool) -> std::io::Result<()> {
        for finding in &self.listed {
            let subject = finding.subject();
            let colon = if subject.is_empty() { "" } else { ": " };
            writeln!(out, "{subject}{colon}{}", finding.problem.in_words())?;
            if let Some(repaired) = &finding.repaired {
                writeln!(out, "    repaired: {repaired}")?;
            }
        }
        for (kind, tally) in &self.kinds {
            if tally.found > self.limit as u64 {
                writeln!(out, "… and {} more {}", tally.found - self.limit as u64, kind.title())?;
            }
        }
        if !self.listed.is_empty() {
            writeln!(out)?;
        }
        let row = |what: &str, count: u64, bytes: Option<u64>| {
            vec![what.to_owned(), count.to_string(), bytes.map(show_size).unwrap_or_default()]
        };
        let mut rows = vec![
            row("directories", counts.directories, None),
            row("names of files and links", counts.names, None),
            row("objects", counts.replicas, Some(counts.bytes)),
            row("  complete", counts.complete, None),
            row("  interrupted", counts.interrupted, None),
            row("open writes", counts.being_written, None),
            row("uploads", counts.uploads, None),
            row("objects to be deleted", counts.deletions, None),
        ];
        if !quick {
            rows.push(row("bytes read and compared", counts.bytes_read, Some(counts.bytes_read)));
        }
        for (kind, tally) in &self.kinds {
            let title = match tally.repaired {
                0 => format!("! {}", kind.title()),
                all if all == tally.found => format!("! {} (repaired)", kind.title()),
                some => format!("! {} ({some} repaired)", kind.title()),
            };
            rows.push(row(&title, tally.found, None));
        }
        for line in table_lines(&["checked", "number", "size"], &rows) {
            writeln!(out, "{line}")?;
        }
        let quick = if quick { " (the bytes were not read: --quick)" } else { "" };
        match (self.found(), self.remaining()) {
            (0, _) => writeln!(out, "nothing wrong{quick}"),
            (found, 0) => writeln!(out, "{found} found, all repaired{quick}"),
            (found, left) => writeln!(out, "{found} found, {left} still there{quick}"),
        }
    }

    /// The report as JSON, for programs. `docs/how-to/operate.md` describes it.
    #[must_use]
    pub fn to_json(&self, counts: &Counts, quick: bool) -> serde_json::Value {
        let mut object = serde_json::to_value(counts).unwrap_or_default();
        let kinds: serde_json::Map<String, serde_json::Value> = self
            .kinds
            .iter()
            .map(|(kind, tally)| {
                let name = serde_json::to_value(kind).unwrap_or_default();
                let name = name.as_str().unwrap_or_default().to_owned();
                (name, json!({ "found": tally.found, "repaired": tally.repaired }))
            })
            .collect();
        let listed: Vec<_> = self
            .listed
            .iter()
            .map(|finding| {
                json!({
                    "kind": finding.problem.kind(),
                    "path": finding.path.as_ref().map(|path| path.escape_ascii().to_string()),
                    "object": finding.object.map(|object| format!("{:016x}", object.0)),
                    "what": finding.problem.in_words(),
                    "repaired": finding.repaired,
                })
            })
            .collect();
        if let Some(object) = object.as_object_mut() {
            object.insert("quick".into(), quick.into());
            object.insert("findings".into(), self.found().into());
            object.insert("remaining".into(), self.remaining().into());
            object.insert("kinds".into(), kinds.into());
            object.insert("listed".into(), listed.into());
        }
        object
    }
}

#[cfg(test)]
mod tests {
    use types::ObjectId;

    use super::super::finding::Problem;
    use super::*;

    fn finding(repaired: bool) -> Finding {
        Finding {
            path: Some(b"/a\n".to_vec()),
            object: Some(ObjectId(7)),
            problem: Problem::ObjectMissing { len: 5 },
            repaired: repaired.then(|| "marked".into()),
        }
    }

    #[test]
    fn all_findings_are_counted_and_few_are_listed() {
        let mut report = Report::new(2);
        for number in 0..5 {
            report.add(finding(number == 0));
        }
        assert_eq!((report.found(), report.remaining()), (5, 4));
        let mut text = Vec::new();
        report.print(&mut text, &Counts::default(), false).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("/a\\n: its object of 5 bytes is not on the disk"), "{text}");
        assert!(
            text.contains("repaired: marked") && text.contains("… and 3 more files whose object is gone"),
            "{text}"
        );
        assert!(text.ends_with("5 found, 4 still there\n"), "{text}");
        let json = report.to_json(&Counts { replicas: 9, ..Counts::default() }, true);
        assert_eq!(json["findings"], 5);
        assert_eq!(json["replicas"], 9);
        assert_eq!(json["kinds"]["object-missing"]["repaired"], 1);
        assert_eq!(json["listed"][0]["object"], "0000000000000007");
    }

    #[test]
    fn report_without_findings_says_so() {
        let mut text = Vec::new();
        Report::new(2).print(&mut text, &Counts::default(), true).unwrap();
        assert!(String::from_utf8(text).unwrap().ends_with("nothing wrong (the bytes were not read: --quick)\n"));
    }
}
