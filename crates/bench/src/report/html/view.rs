//! A row with its records.

use crate::campaign::Campaign;
use crate::report::Row;
use crate::result::{PhaseRecord, TrialRecord};

/// The colour of each system, the same in all rows.
#[derive(Clone, Copy)]
pub(super) struct Colours<'a>(pub(super) &'a Campaign);

impl Colours<'_> {
    /// Returns the colour by the position in the campaign. Names that are not systems of the campaign (the client
    /// alone) come after all.
    pub(super) fn of(self, system: &str) -> usize {
        let systems = &self.0.systems;
        systems.iter().position(|of| of.name == system).unwrap_or(systems.len())
    }
}

/// A row, and for each of its systems the phases of all repeats.
pub(super) struct RowView<'a> {
    pub(super) row: &'a Row,
    pub(super) colours: Colours<'a>,
    pub(super) phases: Vec<Vec<&'a PhaseRecord>>,
}

impl<'a> RowView<'a> {
    pub(super) fn new(row: &'a Row, trials: &'a [TrialRecord], colours: Colours<'a>) -> Self {
        let phases = |cell: &'a crate::report::Cell| {
            let found = cell.sources.iter().filter_map(|source| trials.get(source.trial)?.phases.get(source.phase));
            found.collect()
        };
        Self { row, colours, phases: row.cells.iter().map(phases).collect() }
    }

    /// Returns the names of the systems, with their colours.
    pub(super) fn systems(&self) -> impl Iterator<Item = (usize, &'a str)> {
        self.row.cells.iter().map(|cell| (self.colours.of(&cell.system), cell.system.as_str()))
    }

    /// Returns the colour of a system, by its number in the row.
    pub(super) fn colour(&self, number: usize) -> usize {
        self.row.cells.get(number).map_or(number, |cell| self.colours.of(&cell.system))
    }

    /// For each system with a figure, returns the repeat whose figure is nearest to the median.
    pub(super) fn typical(&self) -> impl Iterator<Item = (usize, &'a PhaseRecord)> {
        self.row.cells.iter().zip(&self.phases).enumerate().filter_map(|(number, (cell, phases))| {
            let away = |value: &f64| (value - cell.median).abs();
            let nearest = cell.values.iter().zip(phases).min_by(|a, b| away(a.0).total_cmp(&away(b.0)))?.1;
            Some((number, *nearest))
        })
    }
}
