//! The page of a run: one self-contained file, for the screen and for paper. Its figures are files, too.

mod charts;
mod escape;
mod figures;
mod hardware;
mod machines;
mod overview;
mod plot;
mod rows;
mod settings;
mod view;

use std::collections::BTreeSet;
use std::fmt::Write;

use self::escape::escape;
pub use self::figures::FigureFile;
use self::figures::Figures;
use self::view::{Colours, RowView};
use super::figures::title_of;
use super::table::{latex, markdown};
use super::{Flag, Summary};
use crate::campaign::{Campaign, order};
use crate::result::{FIGURES_FOLDER, RunHead, TrialRecord, whole};
use crate::study::Scaled;

const STYLE: &str = include_str!("style.css");
/// The most rows with plots. Later rows are only in the tables.
const ROWS_PLOTTED_MAX: usize = 400;
/// The most remarks on the page.
const REMARKS_MAX: usize = 400;
/// The approximate number of points of all lines together. It limits the page to some megabytes.
const POINTS_MAX: usize = 250_000;
/// The number of points of one line.
const LINE_POINTS: std::ops::RangeInclusive<usize> = 24..=300;
/// The most values of a scaled parameter.
const VALUES_MAX: usize = 8;
/// The lines of a system in a row: for rates and latencies, and for each machine.
const LINES: usize = 2;
const LINES_OF_MACHINE: usize = 12;

/// The data of a page.
#[derive(Debug)]
pub struct Page<'a> {
    /// The common data of all trials.
    pub head: &'a RunHead,
    /// The campaign.
    pub campaign: &'a Campaign,
    /// The trials of `summary`.
    pub trials: &'a [TrialRecord],
    /// The rows.
    pub summary: &'a Summary,
}

/// A page, and its figures as files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rendered {
    /// The page.
    pub html: String,
    /// The files, in the order of the page. It links to them.
    pub figures: Vec<FigureFile>,
}

impl Page<'_> {
    /// Returns the page with its figures. It loads nothing and runs no scripts. Texts of systems and campaigns are
    /// escaped. The same records always give the same page and files.
    #[must_use]
    pub fn render(&self) -> Rendered {
        let mut out = String::with_capacity(1 << 20);
        let mut figures = Figures::default();
        let name = escape(&self.head.name);
        let _ = write!(
            out,
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{name}</title>\
             <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\
             <style>{STYLE}</style></head><body><h1>{name}</h1>"
        );
        self.about(&mut out);
        hardware::put(&mut out, self);
        self.overview(&mut out, &mut figures);
        self.contents(&mut out);
        self.rows(&mut out, &mut figures);
        self.flags(&mut out);
        self.remarks(&mut out);
        settings::put(&mut out, self.summary);
        self.all_figures(&mut out, &figures);
        self.provenance(&mut out);
        out.push_str("</body></html>\n");
        Rendered { html: out, figures: figures.into_files() }
    }

    fn overview(&self, out: &mut String, figures: &mut Figures) {
        let Some(overview) = overview::overview(self) else { return };
        out.push_str("<h2 id=\"overview\">Overview</h2><div class=\"overview\">");
        out.push_str(&figures.put("overview", &self.head.name, &overview.picture));
        out.push_str(
            "</div><p class=\"soft\">Each bar is the best median of a system over all parameters; a line across its end is the interval at \
             95 %. The bars of one kind of work have a common scale from 0. The rows below have all parameters, and the letters are explained \
             <a href=\"#flags\">below the figures</a>.</p>",
        );
        if !overview.scaled.is_empty() {
            let shown =
                |scaled: &Scaled| format!("{}: {} instead of {}", scaled.key, some(&scaled.shown()), some(&scaled.was));
            let all: Vec<String> = overview.scaled.iter().map(shown).collect();
            let _ = write!(
                out,
                "<p>The study is scaled down, and these are the figures of the scaled work: {}.</p>",
                escape(&all.join("; "))
            );
        }
        let _ = write!(
            out,
            "<details><summary>Parameters of the best figures</summary><div class=\"wide\"><table class=\"all\"><thead><tr><th>kind</th>\
             <th>system</th><th>best</th><th>parameters</th></tr></thead><tbody>{}</tbody></table></div></details>",
            overview.parameters
        );
        if overview.more > 0 {
            let _ = write!(out, "<p class=\"soft\">{} more kinds of work are only below.</p>", overview.more);
        }
    }

    fn about(&self, out: &mut String) {
        let began =
            jiff::Timestamp::from_second(self.head.began).map(|time| time.strftime("%Y-%m-%d %H:%M UTC").to_string());
        let done = whole(self.trials).len();
        let _ = write!(
            out,
            "<dl class=\"about\"><dt>Begun</dt><dd>{}</dd><dt>Measured by</dt><dd>{}</dd><dt>Trials done</dt><dd>{} of {}</dd>",
            escape(&began.unwrap_or_default()),
            escape(&self.head.program),
            done,
            order(self.campaign).len(),
        );
        for (number, system) in self.campaign.systems.iter().enumerate() {
            let _ = write!(
                out,
                "<dt>{}{}</dt><dd>{}{}</dd>",
                rows::key(number),
                escape(&system.name),
                escape(&system.place.all().join(", ")),
                system.disk.as_ref().map(|disk| format!(", on the disk of {}", escape(disk))).unwrap_or_default()
            );
        }
        out.push_str("</dl>");
        out.push_str(
            "<p class=\"soft\">A figure is the median over the repeats, with the interval in which the true median lies at 95 % (by order \
             statistics: no distribution is supposed). A ratio is to the first system of the row. Letters say what speaks against a figure; \
             they are explained <a href=\"#flags\">below the figures</a>.</p>",
        );
    }

    fn contents(&self, out: &mut String) {
        let mut titles: Vec<(usize, String)> = Vec::new();
        for (number, row) in self.summary.rows.iter().enumerate() {
            let title = title_of(row);
            if titles.last().is_none_or(|last| last.1 != title) {
                titles.push((number, title));
            }
        }
        if titles.len() < 2 {
            return;
        }
        out.push_str("<nav><ul>");
        for (number, title) in titles {
            let _ = write!(out, "<li><a href=\"#r{number}\">{}</a></li>", escape(&title));
        }
        out.push_str("</ul></nav>");
    }

    fn rows(&self, out: &mut String, figures: &mut Figures) {
        let names = figures::names(self.campaign, self.summary);
        let plotted = self.summary.rows.len().min(ROWS_PLOTTED_MAX);
        let of_phase = |(_, phase)| LINES + LINES_OF_MACHINE * rows::machines_shown(phase);
        let of_row =
            |row| RowView::new(row, self.trials, Colours(self.campaign)).typical().map(of_phase).sum::<usize>();
        let lines: usize = self.summary.rows.iter().take(plotted).map(of_row).sum();
        let points_max = (POINTS_MAX / lines.max(1)).clamp(*LINE_POINTS.start(), *LINE_POINTS.end());
        let mut title = String::new();
        for (number, row) in self.summary.rows.iter().enumerate() {
            let of = title_of(row);
            if of != title {
                let _ = write!(out, "<h2 id=\"r{number}\">{}</h2>", escape(&of));
                title = of;
            }
            if number == plotted {
                let _ = write!(
                    out,
                    "<p class=\"soft\">Plots are of the first {plotted} rows only, so that this page stays small.</p>"
                );
            }
            let view = RowView::new(row, self.trials, Colours(self.campaign));
            let name = names.get(number).map_or("row", String::as_str);
            rows::put(out, &view, (number < plotted).then_some(points_max), (figures, name));
        }
        if self.summary.rows.is_empty() {
            out.push_str("<p>This run has no measurements.</p>");
        }
    }

    fn flags(&self, out: &mut String) {
        let found: BTreeSet<Flag> =
            self.summary.rows.iter().flat_map(|row| &row.cells).flat_map(|cell| cell.flags.clone()).collect();
        if found.is_empty() {
            return;
        }
        out.push_str("<h2 id=\"flags\">Flags of figures</h2><dl class=\"about\">");
        for flag in found {
            let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", rows::flag(flag), escape(&flag.to_string()));
        }
        out.push_str("</dl>");
    }

    fn remarks(&self, out: &mut String) {
        let remarks = &self.summary.remarks;
        if remarks.is_empty() {
            return;
        }
        out.push_str("<h2>Remarks</h2><ul>");
        for remark in remarks.iter().take(REMARKS_MAX) {
            let _ = write!(out, "<li>{}</li>", escape(&remark.line()));
        }
        if remarks.len() > REMARKS_MAX {
            let _ = write!(out, "<li>{} more are in summary.json.</li>", remarks.len() - REMARKS_MAX);
        }
        out.push_str("</ul>");
    }

    fn all_figures(&self, out: &mut String, figures: &Figures) {
        out.push_str("<h2>All figures</h2>");
        rows::all(out, self.summary, Colours(self.campaign));
        out.push_str("<p class=\"soft\">The same in full precision is in <a href=\"table.csv\">table.csv</a> beside this page.</p>");
        let (files, left_out) = figures.counts();
        if files > 0 {
            let _ = write!(
                out,
                "<p class=\"soft\">Each figure is also a file (SVG) in the folder <code>{FIGURES_FOLDER}</code> beside this page."
            );
            if left_out > 0 {
                let _ = write!(out, " {left_out} figures of machines are only on this page.");
            }
            out.push_str("</p>");
        }
        for (name, text) in [("Markdown", markdown(self.summary)), ("LaTeX", latex(self.summary))] {
            let _ = write!(
                out,
                "<details class=\"screen\"><summary>As {name}</summary><pre>{}</pre></details>",
                escape(&text)
            );
        }
    }

    fn provenance(&self, out: &mut String) {
        let _ = write!(out, "<h2>The campaign</h2><pre>{}</pre>", escape(&self.head.campaign));
        if self.head.machine.is_empty() {
            return;
        }
        out.push_str("<details><summary>Settings of the machine that measured</summary><dl class=\"about settings\">");
        for (name, value) in &self.head.machine {
            let _ = write!(out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
        }
        out.push_str("</dl></details>");
    }
}

/// Returns the first of several values as a text.
fn some(values: &[String]) -> String {
    let shown = values.iter().take(VALUES_MAX).cloned().collect::<Vec<_>>().join(", ");
    if values.len() > VALUES_MAX { format!("{shown} and {} more", values.len() - VALUES_MAX) } else { shown }
}

#[cfg(test)]
mod tests;
