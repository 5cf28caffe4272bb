//! What the demo shows: numbered steps, a line for each thing that was checked, a table at the end.

use std::io::{self, Write};

use crate::table::table_lines;

/// Where the demo writes. Colours only for a terminal.
pub struct Screen {
    out: Box<dyn Write + Send>,
    colours: bool,
    step: usize,
}

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

    /// Begins the next step.
    pub fn step(&mut self, what: &str) {
        self.step += 1;
        let line = self.coloured(BOLD, &format!("{}. {what}", self.step));
        self.line("");
        self.line(&line);
    }

    /// Something was checked and is as it should be.
    pub fn good(&mut self, what: &str) {
        self.line(&format!("   {} {what}", self.coloured(GREEN, "✓")));
    }

    /// Something is not.
    pub fn bad(&mut self, what: &str) {
        self.line(&format!("   {} {what}", self.coloured(RED, "✗")));
    }

    /// What is being done, or seen on the way.
    pub fn note(&mut self, what: &str) {
        self.line(&format!("     {}", self.coloured(DIM, what)));
    }

    /// The last words.
    pub fn verdict(&mut self, good: bool, what: &str) {
        let colour = if good { GREEN } else { RED };
        let line = self.coloured(colour, what);
        self.line("");
        self.line(&line);
    }

    /// A table with a heading; the first column to the left, the others to the right.
    pub fn table(&mut self, heading: &[&str], rows: &[Vec<String>]) {
        self.line("");
        for (number, line) in table_lines(heading, rows).iter().enumerate() {
            let line = if number == 0 { self.coloured(BOLD, line) } else { line.clone() };
            self.line(&format!("   {line}"));
        }
    }

    fn coloured(&self, colour: &str, text: &str) -> String {
        if self.colours { format!("{colour}{text}{PLAIN}") } else { text.to_owned() }
    }

    fn line(&mut self, line: &str) {
        // Nobody looks any more when this fails; the exit code still tells.
        let _ = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
    }
}
