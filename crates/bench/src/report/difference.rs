//! Compares two runs: the certain differences, and the settings of the machines that may explain them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::figures::{rate, title_of};
use super::settings::differing;
use super::summary::CONFIDENCE;
use super::{Cell, Flag, Row, Summary, Unit};
use crate::sampling::Settings;
use crate::statistics::{Comparison, compare};

/// The most rows of one run only that are listed as text.
const LISTED_MAX: usize = 10;

/// The differences of two runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// Rows of both runs, in the order of the first.
    pub rows: Vec<RowDifference>,
    /// Rows of the first that the second lacks, as text.
    pub only_first: Vec<String>,
    /// Rows of the second that the first lacks.
    pub only_second: Vec<String>,
    /// Settings of the machines that differ.
    pub settings: Vec<SettingDifference>,
}

/// A figure of one system in both runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct RowDifference {
    /// The work's name.
    pub work: String,
    /// Its parameters.
    pub parameters: Vec<(String, String)>,
    /// The phase.
    pub phase: String,
    /// The system.
    pub system: String,
    /// The unit of the figures.
    pub unit: Unit,
    /// The figure of the first run; `None`: it must not be used.
    pub first: Option<f64>,
    /// The figure of the second run.
    pub second: Option<f64>,
    /// The second, divided by the first.
    pub ratio: Option<Comparison>,
    /// The flags of either figure.
    pub flags: BTreeSet<Flag>,
}

/// A setting that differs.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SettingDifference {
    /// Its name.
    pub name: String,
    /// Its value in the first run.
    pub first: Option<String>,
    /// Its value in the second run.
    pub second: Option<String>,
}

impl RowDifference {
    /// Whether the second is certainly slower.
    #[must_use]
    pub fn is_slower(&self) -> bool {
        self.ratio.is_some_and(|ratio| ratio.differs() == Some(true) && ratio.ratio < 1.0)
    }

    /// Whether the second is certainly faster.
    #[must_use]
    pub fn is_faster(&self) -> bool {
        self.ratio.is_some_and(|ratio| ratio.differs() == Some(true) && ratio.ratio > 1.0)
    }
}

/// The key by which figures are compared: work, parameters, phase and system.
type Key<'a> = (&'a str, Vec<(&'a str, String)>, &'a str, &'a str);

fn key<'a>(row: &'a Row, cell: &'a Cell) -> Key<'a> {
    let parameters = row.parameters.iter().map(|(name, value)| (name.as_str(), in_bytes(value))).collect();
    (&row.work, parameters, &row.phase, &cell.system)
}

/// Returns a parameter with its sizes in bytes, because two campaigns may give the same size in different units.
fn in_bytes(value: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    for word in value.split(' ') {
        let (unit, rest) = word.strip_suffix("/s").map_or((word, ""), |unit| (unit, "/s"));
        let size = words.last().and_then(|number| types::units::parse_size(&format!("{number}{unit}")).ok());
        match (size, words.last_mut()) {
            (Some(bytes), Some(number)) => *number = format!("{bytes}B{rest}"),
            _ => words.push(word.to_owned()),
        }
    }
    words.join(" ")
}

fn keyed(summary: &Summary) -> impl Iterator<Item = (Key<'_>, &Row, &Cell)> {
    summary.rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (key(row, cell), row, cell)))
}

/// Compares two runs, and the machines that made them.
#[must_use]
pub fn difference(first: (&Summary, &Settings), second: (&Summary, &Settings)) -> Difference {
    let mut others: BTreeMap<Key<'_>, VecDeque<(&Row, &Cell)>> = BTreeMap::new();
    for (key, row, cell) in keyed(second.0) {
        others.entry(key).or_default().push_back((row, cell));
    }
    let (mut rows, mut only_first) = (Vec::new(), Vec::new());
    for (key, row, cell) in keyed(first.0) {
        let other = others.get_mut(&key).and_then(VecDeque::pop_front).filter(|(other, _)| other.unit == row.unit);
        match other {
            Some((_, other)) => rows.push(of_row(row, cell, other)),
            None => only_first.push(words(row, cell)),
        }
    }
    // In the order of the second run, not of the map.
    let left: BTreeSet<*const Cell> = others.values().flatten().map(|(_, cell)| std::ptr::from_ref(*cell)).collect();
    let only_second = keyed(second.0)
        .filter(|(_, _, cell)| left.contains(&std::ptr::from_ref(*cell)))
        .map(|(_, row, cell)| words(row, cell))
        .collect();
    Difference { rows, only_first, only_second, settings: differing(first.1, second.1) }
}

fn words(row: &Row, cell: &Cell) -> String {
    format!("{}, {} on {}", title_of(row), row.phase, cell.system)
}

fn of_row(row: &Row, first: &Cell, second: &Cell) -> RowDifference {
    let both = first.usable().is_some() && second.usable().is_some();
    RowDifference {
        work: row.work.clone(),
        parameters: row.parameters.clone(),
        phase: row.phase.clone(),
        system: first.system.clone(),
        unit: row.unit,
        first: first.usable(),
        second: second.usable(),
        ratio: both.then(|| compare(&second.values, &first.values, CONFIDENCE)).flatten(),
        flags: first.flags.union(&second.flags).copied().collect(),
    }
}

impl Difference {
    /// Whether anything is certainly slower in the second run.
    #[must_use]
    pub fn is_slower(&self) -> bool {
        self.rows.iter().any(RowDifference::is_slower)
    }

    /// Returns the table for a terminal.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        let mut title = String::new();
        for row in &self.rows {
            let parameters: Vec<String> =
                row.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
            let of = format!("{}: {}", row.work, parameters.join(", "));
            if of != title {
                let _ = writeln!(out, "{}{of}", if title.is_empty() { "" } else { "\n" });
                title = of;
            }
            let shown = |figure: Option<f64>| figure.map_or("no figure".to_owned(), |figure| rate(figure, row.unit));
            let letters: String = row.flags.iter().map(|flag| flag.letter()).collect();
            let letters = if letters.is_empty() { letters } else { format!(" [{letters}]") };
            let _ = writeln!(
                out,
                "  {:<14} {:<12} {} -> {}{}{letters}",
                row.phase,
                row.system,
                shown(row.first),
                shown(row.second),
                row.ratio.map(says).unwrap_or_default()
            );
        }
        for flag in self.rows.iter().flat_map(|row| row.flags.iter().copied()).collect::<BTreeSet<_>>() {
            let _ = writeln!(out, "[{}] {flag}", flag.letter());
        }
        if !self.rows.is_empty() {
            self.sum(&mut out);
        }
        for (which, rows) in [("first", &self.only_first), ("second", &self.only_second)] {
            if !rows.is_empty() {
                let _ = writeln!(out, "\nOnly in the {which}:");
                rows.iter().take(LISTED_MAX).for_each(|row| {
                    let _ = writeln!(out, "  {row}");
                });
                if rows.len() > LISTED_MAX {
                    let _ = writeln!(out, "  and {} more (--json lists all)", rows.len() - LISTED_MAX);
                }
            }
        }
        if self.rows.is_empty() {
            let _ = writeln!(
                out,
                "\nThe two runs have no row in common. Rows are compared if work, parameters, phase and system are the same."
            );
            return out;
        }
        if !self.settings.is_empty() {
            let _ = writeln!(out, "\nMachine settings that differ and may explain it:");
            for setting in &self.settings {
                let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "not there".to_owned());
                let _ = writeln!(out, "  {}: {} -> {}", setting.name, shown(&setting.first), shown(&setting.second));
            }
        }
        out
    }

    fn sum(&self, out: &mut String) {
        let (slower, faster) = (
            self.rows.iter().filter(|row| row.is_slower()).count(),
            self.rows.iter().filter(|row| row.is_faster()).count(),
        );
        let tried = self.rows.iter().filter(|row| row.ratio.is_some_and(|ratio| ratio.differs().is_some())).count();
        let _ = writeln!(
            out,
            "\nOf {} rows {slower} are certainly slower and {faster} certainly faster in the second run.",
            self.rows.len()
        );
        #[allow(clippy::cast_precision_loss)] // numbers of rows
        let by_chance = tried as f64 * (1.0 - CONFIDENCE);
        if by_chance >= 1.0 {
            let _ = writeln!(
                out,
                "Of {tried} comparisons about {by_chance:.0} differ by chance alone at {:.0} %.",
                100.0 * CONFIDENCE
            );
        }
    }
}

fn says(ratio: Comparison) -> String {
    let sure = match ratio.differs() {
        Some(true) if ratio.ratio > 1.0 => ", certainly faster",
        Some(true) => ", certainly slower",
        Some(false) => ", maybe no difference",
        None => ", too few repeats",
    };
    let range =
        ratio.interval.map(|interval| format!(" ({:.2} to {:.2})", interval.low, interval.high)).unwrap_or_default();
    format!(", x {:.2}{range}{sure}", ratio.ratio)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(figures: &[(&str, &[f64])]) -> Summary {
        let cell = |values: &[f64], flags: &[Flag]| Cell::for_test("s", values, values[values.len() / 2], flags);
        let row = |(phase, values): &(&str, &[f64])| Row {
            work: "w".into(),
            parameters: vec![("file".into(), "1 MiB".into())],
            phase: (*phase).to_owned(),
            unit: Unit::Bytes,
            cells: vec![cell(values, if *phase == "bad" { &[Flag::WrongData] } else { &[] })],
        };
        Summary { rows: figures.iter().map(row).collect(), remarks: vec![], ..Summary::default() }
    }

    fn settings(pairs: &[(&str, &str)]) -> Settings {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    const LOW: [f64; 6] = [98e6, 99e6, 100e6, 101e6, 102e6, 103e6];
    const HIGH: [f64; 6] = [198e6, 199e6, 200e6, 201e6, 202e6, 203e6];

    #[test]
    fn certain_differences_are_shown_with_possible_explanations() {
        let before = summary(&[("write", &LOW), ("read", &HIGH), ("stat", &LOW), ("bad", &LOW), ("list", &LOW)]);
        let after = summary(&[("read", &LOW), ("write", &HIGH), ("stat", &LOW), ("bad", &HIGH), ("remove", &LOW)]);
        let machine = settings(&[("kernel", "6.1"), ("cpu scaling governor", "performance"), ("memory", "1 GiB")]);
        let other = settings(&[("kernel", "6.1"), ("cpu scaling governor", "powersave"), ("bios version", "2")]);
        let found = difference((&before, &machine), (&after, &other));
        let ways: Vec<_> =
            found.rows.iter().map(|row| (row.phase.as_str(), row.is_faster(), row.is_slower())).collect();
        assert_eq!(
            ways,
            [("write", true, false), ("read", false, true), ("stat", false, false), ("bad", false, false)]
        );
        assert!(found.is_slower() && found.rows[3].ratio.is_none() && found.rows[3].first.is_none());
        assert!((found.rows[0].ratio.unwrap().ratio - 2.0).abs() < 0.05);
        assert_eq!((found.only_first.len(), found.only_second.len()), (1, 1));
        let names: Vec<_> = found.settings.iter().map(|setting| setting.name.as_str()).collect();
        assert_eq!(names, ["bios version", "cpu scaling governor", "memory"]);
        let text = found.text();
        for part in [
            "101.0 MB/s -> 201.0 MB/s",
            "certainly faster",
            "certainly slower",
            "maybe no difference",
            "no figure",
            "performance -> powersave",
            "memory: 1 GiB -> not there",
            "1 are certainly slower and 1 certainly faster",
            "Only in the first:",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn equal_sizes_in_different_units_are_the_same_row() {
        let mut before = summary(&[("write", &LOW)]);
        let mut after = before.clone();
        for (summary, file) in [(&mut before, "1024 KiB"), (&mut after, "1 MiB")] {
            summary.rows[0].parameters = vec![("file".into(), file.into()), ("rate".into(), "flat out".into())];
        }
        let none = Settings::new();
        assert_eq!(difference((&before, &none), (&after, &none)).rows.len(), 1);
        assert_eq!(in_bytes("4 KiB to 10 kB"), "4096B to 10000B");
        assert_eq!(in_bytes("300 MB/s each"), "300000000B/s each");
        assert_eq!(in_bytes("n1 of 3 branches"), "n1 of 3 branches");
    }

    #[test]
    fn few_repeats_and_disjoint_runs_are_reported() {
        let (before, after) = (summary(&[("write", &LOW[..2])]), summary(&[("write", &HIGH[..2])]));
        let none = Settings::new();
        let found = difference((&before, &none), (&after, &none));
        assert!(!found.is_slower() && found.text().contains("too few repeats"));
        let found = difference((&before, &none), (&Summary::default(), &none));
        assert!(found.text().contains("no row in common"), "{}", found.text());
        // The reason is the last line, and the list before it is short.
        let phases: Vec<String> = (0..30).map(|number| format!("p{number}")).collect();
        let many: Vec<(&str, &[f64])> = phases.iter().map(|phase| (phase.as_str(), &LOW[..])).collect();
        let found = difference((&summary(&many), &none), (&before, &none)).text();
        assert!(found.lines().last().unwrap().contains("no row in common") && found.lines().count() < 20, "{found}");
        assert!(found.contains("and 20 more (--json lists all)"), "{found}");
        // A repeated row is compared in order.
        let twice = summary(&[("read", &LOW), ("read", &HIGH)]);
        assert!(difference((&twice, &none), (&twice, &none)).rows.iter().all(|row| row.first == row.second));
    }
}
