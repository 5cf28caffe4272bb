//! A row with the records that it was made from.

use crate::campaign::Campaign;
use crate::report::Row;
use crate::result::{PhaseRecord, TrialRecord};

/// Which colour a system has: the same in all rows.
#[derive(Clone, Copy)]
pub(super) struct Colours<'a>(pub(super) &'a Campaign);

impl Colours<'_> {
    /// By its place in the campaign; what is no system of the campaign (the client alone) comes after all.
    pub(super) fn of(self, system: &str) -> usize {
        let systems = &self.0.systems;
        systems.iter().position(|of| of.name == system).unwrap_or(systems.len())
    }
}

/// A row, and of each of its systems the phases of all repeats.
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

    /// Names of the systems, with their colours.
    pub(super) fn systems(&self) -> impl Iterator<Item = (usize, &'a str)> {
        self.row.cells.iter().map(|cell| (self.colours.of(&cell.system), cell.system.as_str()))
    }

    /// The colour of a system, by its number in the row.
    pub(super) fn colour(&self, number: usize) -> usize {
        self.row.cells.get(number).map_or(number, |cell| self.colours.of(&cell.system))
    }

    /// Of each system the repeat whose figure is nearest to the median; none of a system without a figure.
    pub(super) fn typical(&self) -> impl Iterator<Item = (usize, &'a PhaseRecord)> {
        self.row.cells.iter().zip(&self.phases).enumerate().filter_map(|(number, (cell, phases))| {
            let away = |value: &f64| (value - cell.median).abs();
            let nearest = cell.values.iter().zip(phases).min_by(|a, b| away(a.0).total_cmp(&away(b.0)))?.1;
            Some((number, *nearest))
        })
    }
}
