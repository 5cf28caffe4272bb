//! `weir status --check`: one line as the Nagios plugin guidelines want it, with performance data.

use super::{Health, Verdict};

/// The exit code if the node cannot be asked.
pub const UNKNOWN: u8 = 3;
/// The most reasons in the line; monitors cut long ones.
const REASONS_MAX: usize = 4;

/// The exit code and the line.
#[must_use]
pub fn check_line(health: &Health) -> (u8, String) {
    let word = match health.verdict {
        Verdict::Healthy => "OK",
        Verdict::Warning => "WARNING",
        Verdict::Critical => "CRITICAL",
    };
    let mut said: Vec<String> = health.reasons.iter().take(REASONS_MAX).map(|finding| plain(&finding.text)).collect();
    let more = health.reasons.len().saturating_sub(REASONS_MAX);
    if more > 0 {
        said.push(format!("and {more} more"));
    }
    let said = if said.is_empty() { health.verdict.word().to_owned() } else { said.join("; ") };
    let figures: Vec<String> =
        health.figures.iter().map(|(name, value)| format!("{name}={value}{}", unit(name))).collect();
    (health.verdict.code(), format!("WEIR {word} - {said} | {}", figures.join(" ")))
}

/// The line for a node that cannot be asked.
#[must_use]
pub fn unknown_line(why: &str) -> String {
    format!("WEIR UNKNOWN - {}", plain(why))
}

/// The unit of measurement, by the end of a figure's name.
fn unit(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("bytes") => "B",
        Some("seconds") => "s",
        _ => "",
    }
}

/// One line without the bar that separates the performance data.
fn plain(text: &str) -> String {
    text.replace(['\n', '\r'], " ").replace('|', "/")
}

#[cfg(test)]
mod tests {
    use super::super::{Finding, Reason};
    use super::*;

    #[test]
    fn a_check_is_one_line_with_figures() {
        let figures = [("available_bytes".to_owned(), 7), ("stores_offline".to_owned(), 1)].into();
        let health = Health { figures, ..Health::default() };
        assert_eq!(check_line(&health), (0, "WEIR OK - healthy | available_bytes=7B stores_offline=1".into()));
        let finding =
            |text: &str| Finding { reason: Reason::StoreOffline, severity: Verdict::Warning, text: text.to_owned() };
        let health = Health { verdict: Verdict::Warning, reasons: vec![finding("a | b\nc"); 6], ..health };
        let (code, line) = check_line(&health);
        assert_eq!(code, 1);
        let said =
            "WEIR WARNING - a / b c; a / b c; a / b c; a / b c; and 2 more | available_bytes=7B stores_offline=1";
        assert_eq!(line, said);
        assert_eq!(check_line(&Health { verdict: Verdict::Critical, ..health }).0, 2);
        assert_eq!(unknown_line("no node\nis running"), "WEIR UNKNOWN - no node is running");
    }
}
