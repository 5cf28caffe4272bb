//! All figures in one table: as CSV for programs, as Markdown and LaTeX for papers.

use super::figures::{rate, title_of, took};
use super::{Cell, Row, Summary, Unit};

/// The columns of the CSV, in order.
pub const COLUMNS: [&str; 21] = [
    "work",
    "parameters",
    "phase",
    "system",
    "repeats",
    "unit",
    "median",
    "low",
    "high",
    "ratio",
    "ratio_low",
    "ratio_high",
    "p50_us",
    "p99_us",
    "p999_us",
    "client_cpu",
    "missed",
    "ceiling",
    "ceiling_share",
    "bound_by",
    "flags",
];

/// Returns the table as CSV (RFC 4180): a line for each system of each row, with numbers in plain units. A figure
/// that must not be used is empty; its flags say why.
#[must_use]
pub fn csv(summary: &Summary) -> String {
    let mut out = COLUMNS.join(",") + "\r\n";
    for row in &summary.rows {
        for cell in &row.cells {
            let fields: Vec<String> = fields(row, cell).iter().map(|field| quoted(field)).collect();
            out += &fields.join(",");
            out += "\r\n";
        }
    }
    out
}

fn quoted(field: &str) -> String {
    if field.contains(['"', ',', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

fn fields(row: &Row, cell: &Cell) -> [String; COLUMNS.len()] {
    let usable = cell.usable().is_some();
    let number = |value: Option<f64>| value.filter(|_| usable).map(|value| value.to_string()).unwrap_or_default();
    let latency =
        |place: usize| number(cell.latency_us.map(|us| us[place]).and_then(|us| u32::try_from(us).ok()).map(f64::from));
    let against = cell.against_first;
    let against_interval = against.and_then(|against| against.interval);
    let parameters: Vec<String> = row.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let flags: Vec<String> = cell.flags.iter().map(|flag| flag.name()).collect();
    let ceiling = cell.ceilings.first();
    [
        row.work.clone(),
        parameters.join("; "),
        row.phase.clone(),
        cell.system.clone(),
        cell.values.len().to_string(),
        unit(row.unit).to_owned(),
        number(Some(cell.median)),
        number(cell.interval.map(|interval| interval.low)),
        number(cell.interval.map(|interval| interval.high)),
        number(against.map(|against| against.ratio)),
        number(against_interval.map(|interval| interval.low)),
        number(against_interval.map(|interval| interval.high)),
        latency(0),
        latency(1),
        latency(2),
        number(cell.client_cpu),
        cell.missed.to_string(),
        ceiling.map(|ceiling| ceiling.stage.name().to_owned()).unwrap_or_default(),
        number(ceiling.map(|ceiling| ceiling.share)),
        cell.verdict.as_ref().map(|verdict| verdict.bound.name()).unwrap_or_default(),
        flags.join(" "),
    ]
}

fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "B/s",
        Unit::Operations => "1/s",
        Unit::Efficiency => "share",
    }
}

const TITLES: [&str; 8] = ["phase", "system", "median", "95 % interval", "ratio", "p50", "p99", "n"];

/// The fields of a line in a readable table.
fn words(row: &Row, cell: &Cell) -> [String; TITLES.len()] {
    let letters: String = cell.flags.iter().map(|flag| flag.letter()).collect();
    let notes = if letters.is_empty() { String::new() } else { format!(" [{letters}]") };
    let usable = cell.usable().is_some();
    let shown = |text: Option<String>| text.filter(|_| usable).unwrap_or_else(|| "–".to_owned());
    [
        row.phase.clone(),
        cell.system.clone(),
        shown(Some(rate(cell.median, row.unit))) + &notes,
        shown(cell.interval.map(|i| format!("{} to {}", rate(i.low, row.unit), rate(i.high, row.unit)))),
        shown(cell.against_first.map(|against| format!("{:.2}", against.ratio))),
        shown(cell.latency_us.map(|us| took(us[0]))),
        shown(cell.latency_us.map(|us| took(us[1]))),
        cell.values.len().to_string(),
    ]
}

/// Returns the tables in Markdown, one for each work.
#[must_use]
pub fn markdown(summary: &Summary) -> String {
    let escape = |text: &str| text.replace('\\', "\\\\").replace('|', "\\|").replace('\n', " ").replace('<', "&lt;");
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut out = String::new();
    let mut title = String::new();
    for row in &summary.rows {
        let of = title_of(row);
        if of != title {
            out += &format!("{}**{}**\n\n", if title.is_empty() { "" } else { "\n" }, escape(&of));
            out += &line(&TITLES.map(str::to_owned));
            out += &line(&TITLES.map(|_| "---".to_owned()));
            title = of;
        }
        for cell in &row.cells {
            out += &line(&words(row, cell).map(|word| escape(&word)));
        }
    }
    out
}

/// Returns the table in LaTeX: one `tabular`, with the rules of the package booktabs.
#[must_use]
pub fn latex(summary: &Summary) -> String {
    let line = |cells: &[String]| format!("{} \\\\\n", cells.join(" & "));
    let mut out = String::from("% needs \\usepackage{booktabs}\n\\begin{tabular}{llrrrrrr}\n\\toprule\n");
    out += &line(&TITLES.map(escape_latex));
    let mut title = String::new();
    for row in &summary.rows {
        let of = title_of(row);
        if of != title {
            out += &format!("\\midrule\n\\multicolumn{{{}}}{{l}}{{{}}} \\\\\n", TITLES.len(), escape_latex(&of));
            title = of;
        }
        for cell in &row.cells {
            out += &line(&words(row, cell).map(|word| escape_latex(&word)));
        }
    }
    out + "\\bottomrule\n\\end{tabular}\n"
}

fn escape_latex(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\textbackslash{}"),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '&' | '%' | '$' | '#' | '_' | '{' | '}' => out.extend(['\\', c]),
            'µ' => out.push_str("\\textmu{}"),
            '–' => out.push_str("--"),
            '\n' => out.push(' '),
            // A square bracket at the start of a line would be an argument of the previous line.
            '[' => out.push_str("{[}"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Flag;

    fn summary() -> Summary {
        let cell = |system: &str, flags: &[Flag]| Cell {
            latency_us: Some([1500, 2500, 9999]),
            client_cpu: Some(0.5),
            ..Cell::for_test(system, &[1e6, 3e6], 2e6, flags)
        };
        let row = Row {
            work: "a, \"b\" | 5 % & c_d".to_owned(),
            parameters: vec![("file".to_owned(), "1 MiB".to_owned())],
            phase: "write".to_owned(),
            unit: Unit::Bytes,
            cells: vec![cell("x", &[Flag::FewRepeats]), cell("y", &[Flag::WrongData])],
        };
        Summary { rows: vec![row], remarks: vec![], ..Summary::default() }
    }

    #[test]
    fn the_csv_has_only_usable_figures() {
        let csv = csv(&summary());
        let lines: Vec<&str> = csv.split_terminator("\r\n").collect();
        assert_eq!(lines[0].split(',').count(), COLUMNS.len());
        assert!(
            lines[1].starts_with(
                "\"a, \"\"b\"\" | 5 % & c_d\",file=1 MiB,write,x,2,B/s,2000000,,,,,,1500,2500,9999,0.5,0,"
            )
        );
        assert!(lines[1].ends_with(",few-repeats"));
        assert!(lines[2].ends_with(",y,2,B/s,,,,,,,,,,,0,,,,wrong-data"), "{}", lines[2]);
    }

    #[test]
    fn tables_for_papers_are_escaped() {
        let markdown = markdown(&summary());
        assert!(
            markdown.contains("b\" \\| 5 %")
                && markdown.contains("| write | x | 2.0 MB/s [n] | – | – | 2 ms | 2 ms | 2 |"),
            "{markdown}"
        );
        assert!(markdown.contains("| write | y | – [W] |"));
        let latex = latex(&summary());
        assert!(latex.contains("5 \\% \\& c\\_d") && latex.contains("write & x & 2.0 MB/s {[}n] & --"), "{latex}");
        assert!(latex.contains("\\begin{tabular}") && latex.contains("\\end{tabular}"));
    }
}
