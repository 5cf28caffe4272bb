//! The overview: the best figure of each system for each kind of work, in one look. A study has the kinds of its own
//! table; another campaign has one for each work and phase.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::Page;
use super::escape::escape;
use super::plot::{Picture, class, shortened, width};
use super::view::Colours;
use crate::report::figures::rate;
use crate::report::{Cell, Row};
use crate::study::{Scaled, Study, StudyDescription, best, fits};

/// The width of the picture.
const WIDTH: f64 = 860.0;
/// The distance between the two columns of panels, and between panels above each other.
const GAP: f64 = 36.0;
/// The height of a panel's title, and of a bar with its place.
const TITLE: f64 = 20.0;
const LANE: f64 = 16.0;
const BAR: f64 = 9.0;
/// The most panels, and the most systems in a panel.
const PANELS_MAX: usize = 24;
const SYSTEMS_MAX: usize = 16;
/// The most characters of names and titles.
const NAME_MAX: usize = 18;
const TITLE_MAX: usize = 52;

/// One kind of work.
struct Panel<'a> {
    title: String,
    bars: Vec<Bar<'a>>,
}

/// A system's best figure of it; `None`: it has none.
struct Bar<'a> {
    system: &'a str,
    best: Option<(&'a Row, &'a Cell)>,
}

/// The overview.
pub(super) struct Overview {
    pub(super) picture: Picture,
    /// The number of kinds of work that are not shown.
    pub(super) more: usize,
    /// The values in which the campaign differs from that of the full study.
    pub(super) scaled: Vec<Scaled>,
    /// The parameters of the best figures, as the body of a table.
    pub(super) parameters: String,
}

/// Returns the study whose campaign this is, if it has any of its work.
fn study_of(page: &Page<'_>) -> Option<(Study, StudyDescription)> {
    let study = Study::of_campaign(&page.head.name)?;
    let about = study.about().ok()?;
    let is_of_study = |row: &Row| about.columns.iter().any(|[_, work, phase]| fits(row, work, phase));
    page.summary.rows.iter().any(is_of_study).then_some((study, about))
}

/// Returns the overview; `None`: there are no figures.
pub(super) fn overview(page: &Page<'_>) -> Option<Overview> {
    let study = study_of(page);
    let mut kinds = kinds(page, study.as_ref().map(|(_, about)| about));
    let more = kinds.len().saturating_sub(PANELS_MAX);
    kinds.truncate(PANELS_MAX);
    let colours = Colours(page.campaign);
    let panels: Vec<Panel<'_>> =
        kinds.into_iter().map(|(title, rows)| Panel { title, bars: bars(&rows, colours) }).collect();
    if panels.iter().flat_map(|panel| &panel.bars).all(|bar| bar.best.is_none()) {
        return None;
    }
    let label = "Overview: the best figure of each system";
    let (caption, scaled) = match study {
        None => ("The best figure of each system, for each work and phase".to_owned(), Vec::new()),
        Some((study, about)) => {
            (format!("{}: the best figure of each system", about.title), study.scaled(&page.head.campaign))
        }
    };
    let (inside, height) = draw(&panels, colours);
    let picture = Picture { caption, label: label.to_owned(), width: WIDTH, height, inside };
    Some(Overview { picture, more, scaled, parameters: parameters(&panels) })
}

/// Returns the kinds of work with their rows. The key figure of a study comes first: the one that its demand is for.
fn kinds<'a>(page: &Page<'a>, study: Option<&StudyDescription>) -> Vec<(String, Vec<&'a Row>)> {
    let rows = &page.summary.rows;
    let Some(about) = study else {
        let mut kinds: Vec<(String, Vec<&Row>)> = Vec::new();
        let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for row in rows {
            let place = *places.entry((&row.work, &row.phase)).or_insert(kinds.len());
            match kinds.get_mut(place) {
                Some(kind) => kind.1.push(row),
                None => kinds.push((format!("{}: {}", row.work, row.phase), vec![row])),
            }
        }
        return kinds;
    };
    let is_key =
        |[_, work, phase]: &&[String; 3]| about.rated.as_ref().is_some_and(|[of, at]| of == work && at == phase);
    let (key, others): (Vec<_>, Vec<_>) = about.columns.iter().partition(is_key);
    let of = |[title, work, phase]: &[String; 3]| {
        let rows: Vec<&Row> = rows.iter().filter(|row| fits(row, work, phase)).collect();
        (!rows.is_empty()).then(|| (title.clone(), rows))
    };
    key.into_iter().chain(others).filter_map(of).collect()
}

/// Returns the best figures of all systems of some rows, in the campaign's order.
fn bars<'a>(rows: &[&'a Row], colours: Colours<'_>) -> Vec<Bar<'a>> {
    let mut systems: Vec<&str> = Vec::new();
    for cell in rows.iter().flat_map(|row| &row.cells) {
        if !systems.contains(&cell.system.as_str()) {
            systems.push(&cell.system);
        }
    }
    systems.sort_by_key(|system| colours.of(system));
    systems.truncate(SYSTEMS_MAX);
    systems.into_iter().map(|system| Bar { system, best: best(rows, system) }).collect()
}

/// The text beside a bar.
fn value(bar: &Bar<'_>) -> String {
    let Some((row, cell)) = bar.best else { return "no figure".to_owned() };
    let letters: String = cell.flags.iter().map(|flag| flag.letter()).collect();
    let letters = if letters.is_empty() { letters } else { format!(" [{letters}]") };
    rate(cell.median, row.unit) + &letters
}

fn parameters_of(row: &Row) -> String {
    let all: Vec<String> = row.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
    all.join(", ")
}

/// Returns a line for each best figure: the kind of work, the system, the figure, and its parameters.
fn parameters(panels: &[Panel<'_>]) -> String {
    let mut out = String::new();
    for panel in panels {
        for (number, bar) in panel.bars.iter().enumerate() {
            let title = if number == 0 { panel.title.as_str() } else { "" };
            let parameters = bar.best.map(|(row, _)| parameters_of(row)).unwrap_or_default();
            let cells = [title, bar.system, &value(bar), &parameters].map(|text| format!("<td>{}</td>", escape(text)));
            let _ = write!(out, "<tr>{}</tr>", cells.concat());
        }
    }
    out
}

/// Draws the panels in two columns. Names are left of the bars, figures right of them.
#[allow(clippy::cast_precision_loss)] // some bars
fn draw(panels: &[Panel<'_>], colours: Colours<'_>) -> (String, f64) {
    let bars = || panels.iter().flat_map(|panel| &panel.bars);
    let longest = |texts: &mut dyn Iterator<Item = usize>| width(texts.max().unwrap_or(0)) + 10.0;
    let left = longest(&mut bars().map(|bar| bar.system.chars().count().min(NAME_MAX)));
    let right = longest(&mut bars().map(|bar| value(bar).chars().count()));
    let columns = panels.len().clamp(1, 2);
    let wide = (WIDTH - GAP * (columns as f64 - 1.0)) / columns as f64;
    let frame = (wide - left - right).max(60.0);
    let (mut out, mut top) = (String::new(), 4.0);
    for pair in panels.chunks(columns) {
        for (column, panel) in pair.iter().enumerate() {
            put_panel(&mut out, panel, colours, (column as f64 * (wide + GAP), top), (left, frame));
        }
        let most = pair.iter().map(|panel| panel.bars.len()).max().unwrap_or(0);
        top += TITLE + LANE * most as f64 + 14.0;
    }
    (out, top)
}

fn put_panel(
    out: &mut String,
    panel: &Panel<'_>,
    colours: Colours<'_>,
    (x, top): (f64, f64),
    (left, frame): (f64, f64),
) {
    let high = |(_, cell): (&Row, &Cell)| cell.interval.map_or(cell.median, |interval| interval.high.max(cell.median));
    let most = panel.bars.iter().filter_map(|bar| bar.best).map(high).fold(0.0, f64::max);
    let start = x + left;
    let at = |value: f64| {
        let share = value / most;
        start + if share.is_finite() { share.clamp(0.0, 1.0) * frame } else { 0.0 }
    };
    let _ = write!(
        out,
        "<text class=\"strong\" x=\"{:.1}\" y=\"{:.1}\">{}<title>{}</title></text>",
        x + 2.0,
        top + 12.0,
        escape(&shortened(&panel.title, TITLE_MAX)),
        escape(&panel.title)
    );
    let mut middle = top + TITLE + LANE / 2.0;
    for bar in &panel.bars {
        let _ = write!(
            out,
            "<text class=\"lane end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            start - 8.0,
            middle + 4.0,
            escape(&shortened(bar.system, NAME_MAX))
        );
        if let Some((row, cell)) = bar.best {
            let _ = write!(
                out,
                "<rect class=\"b {}\" x=\"{start:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\"><title>{}</title></rect>",
                class(colours.of(bar.system)),
                middle - BAR / 2.0,
                at(cell.median) - start,
                escape(&format!("{}, {}, {}", row.work, row.phase, parameters_of(row)))
            );
            if let Some(interval) = cell.interval {
                let (low, high, top) = (at(interval.low), at(interval.high), middle - 3.0);
                let ends = format!("M{low:.1} {top:.1}v6M{high:.1} {top:.1}v6");
                let _ = write!(out, "<path class=\"w\" d=\"{ends}M{low:.1} {middle:.1}H{high:.1}\"/>");
            }
        }
        let _ = write!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            start + frame + 8.0,
            middle + 4.0,
            escape(&value(bar))
        );
        middle += LANE;
    }
    let (from, to) = (top + TITLE - 1.0, middle - LANE / 2.0 + 1.0);
    let _ = write!(out, "<path class=\"axis\" d=\"M{start:.1} {from:.1}V{to:.1}\"/>");
}
