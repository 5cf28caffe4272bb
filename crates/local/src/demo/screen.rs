//! The demo's output: numbered steps, a line for each check, a table at the end.

use std::io::{self, Write};

use console::table::table_lines;

/// Where the demo writes. It uses colours only on a terminal.
pub struct Screen {
    out: Box<dyn Write + Send>,
    colours: bool,
    step: usize,
}

/// Characters of a line behind its mark. With it, a line fits into 80 columns.
const WIDTH: usize = 75;
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

impl Screen {
    /// Standard output, in colours if it is a terminal and `NO_COLOR` is not set.
    #[must_use]
    pub fn stdout() -> Self {
        use std::io::IsTerminal as _;
        let colours = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { out: Box::new(io::stdout()), colours, step: 0 }
    }

    /// The first line.
    pub fn title(&mut self, title: &str, rest: &str) {
        self.line(&format!("{} {}", self.coloured(BOLD, title), self.coloured(DIM, rest)));
    }

    /// Starts the next step.
    pub fn step(&mut self, what: &str) {
        self.step += 1;
        self.line("");
        for (number, line) in wrapped(what).iter().enumerate() {
            let mark = if number == 0 { format!("{}. ", self.step) } else { "   ".to_owned() };
            let line = self.coloured(BOLD, &format!("{mark}{line}"));
            self.line(&line);
        }
    }

    /// Prints a check that succeeded.
    pub fn good(&mut self, what: &str) {
        self.marked(&self.coloured(GREEN, "✓"), what);
    }

    /// Prints a check that failed.
    pub fn bad(&mut self, what: &str) {
        self.marked(&self.coloured(RED, "✗"), what);
    }

    fn marked(&mut self, mark: &str, what: &str) {
        for (number, line) in wrapped(what).iter().enumerate() {
            let mark = if number == 0 { mark } else { " " };
            self.line(&format!("   {mark} {line}"));
        }
    }

    /// Prints what the demo does, or notices on the way.
    pub fn note(&mut self, what: &str) {
        for line in wrapped(what) {
            self.line(&format!("     {}", self.coloured(DIM, &line)));
        }
    }

    /// Prints the verdict.
    pub fn verdict(&mut self, good: bool, what: &str) {
        let colour = if good { GREEN } else { RED };
        let line = self.coloured(colour, what);
        self.line("");
        self.line(&line);
    }

    /// A table with a heading. The first column is aligned left, the others right.
    pub fn table(&mut self, heading: &[&str], rows: &[Vec<String>]) {
        for (number, line) in table_lines(heading, rows).iter().enumerate() {
            let line = if number == 0 { self.coloured(BOLD, line) } else { line.clone() };
            self.line(&format!("   {line}"));
        }
        self.line("");
    }

    fn coloured(&self, colour: &str, text: &str) -> String {
        if self.colours { format!("{colour}{text}{PLAIN}") } else { text.to_owned() }
    }

    fn line(&mut self, line: &str) {
        // If this fails, nobody is watching; the exit code still tells.
        let _ = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
    }
}

/// Lines of at most [`WIDTH`] characters, broken at spaces. Keeps leading spaces, which align columns.
fn wrapped(text: &str) -> Vec<String> {
    let words = text.trim_start_matches(' ');
    let mut lines = vec![text[..text.len() - words.len()].to_owned()];
    for (number, word) in words.split(' ').enumerate() {
        let len = lines.last().map_or(0, |line| line.chars().count());
        if number > 0 && len + 1 + word.chars().count() > WIDTH {
            lines.push(word.to_owned());
        } else if let Some(line) = lines.last_mut() {
            if number > 0 {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_broken_at_spaces() {
        assert_eq!(wrapped("short"), ["short"]);
        assert_eq!(wrapped("  0.4 s: x"), ["  0.4 s: x"]);
        let long = "word ".repeat(60);
        let lines = wrapped(&long);
        assert!(lines.len() > 2 && lines.iter().all(|line| line.chars().count() <= WIDTH), "{lines:?}");
        assert_eq!(lines.join(" ").trim_end(), long.trim_end());
    }
}
