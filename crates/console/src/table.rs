//! Tables for terminals.

/// The lines of a table: heading, rule, rows.
#[must_use]
pub fn table_lines(heading: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    spaced_table(heading, rows, 3)
}

/// The same, with so many columns between two cells.
#[must_use]
pub fn spaced_table(heading: &[&str], rows: &[Vec<String>], between: usize) -> Vec<String> {
    let between = " ".repeat(between);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain(heading.get(column).map(|cell| cell.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let line = |cells: Vec<&str>| {
        let mut text = String::new();
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let gap = " ".repeat(width.saturating_sub(cell.chars().count()));
            let cell = if column == 0 { format!("{cell}{gap}") } else { format!("{between}{gap}{cell}") };
            text.push_str(&cell);
        }
        text.trim_end().to_owned()
    };
    let mut lines = vec![line(heading.to_vec())];
    lines.push("─".repeat(widths.iter().sum::<usize>() + between.len() * widths.len().saturating_sub(1)));
    lines.extend(rows.iter().map(|row| line(row.iter().map(String::as_str).collect())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let rows = vec![vec!["écriture".into(), "1.0 s".into()], vec!["b".into(), "12.5 s".into()]];
        assert_eq!(
            table_lines(&["what", "time"], &rows),
            ["what         time", "─────────────────", "écriture    1.0 s", "b          12.5 s"]
        );
        assert_eq!(spaced_table(&["what", "time"], &rows, 1)[..2], ["what       time", "───────────────"]);
    }
}
