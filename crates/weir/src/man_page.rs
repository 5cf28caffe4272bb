//! Man pages from the pages in `docs/reference`, so that both say the same. Converts the part of Markdown that these pages use: headings,
//! paragraphs, lists, fenced blocks, tables, and in a line code, bold text and links.

use std::fmt::Write as _;

/// A page of the manual.
pub(crate) struct ManPage {
    /// Its name, without the section.
    pub(crate) name: &'static str,
    pub(crate) section: u8,
    /// What it is about, as `man -k` shows it.
    pub(crate) summary: &'static str,
    /// Its text.
    pub(crate) markdown: &'static str,
}

/// The pages that are not made from the command line.
pub(crate) const PAGES: &[ManPage] = &[
    ManPage {
        name: "weir.toml",
        section: 5,
        summary: "the settings of a weir node",
        markdown: include_str!("../../../docs/reference/configuration.md"),
    },
    ManPage {
        name: "weir.service",
        section: 8,
        summary: "the systemd service of a weir node",
        markdown: include_str!("../../../docs/reference/service.md"),
    },
];

impl ManPage {
    /// The file's name: `weir.toml.5`.
    pub(crate) fn file(&self) -> String {
        format!("{}.{}", self.name, self.section)
    }

    /// The page in roff.
    pub(crate) fn roff(&self) -> String {
        let mut out = format!(
            ".TH {} {} \"\" \"weir {}\" \"weir\"\n.SH NAME\n{} \\- {}\n.SH DESCRIPTION\n",
            self.name,
            self.section,
            env!("CARGO_PKG_VERSION"),
            self.name,
            escaped(self.summary)
        );
        let mut lines = self.markdown.lines().peekable();
        while let Some(line) = lines.next() {
            if line.starts_with("# ") || line.is_empty() {
                continue;
            }
            if let Some(heading) = line.strip_prefix("## ") {
                let _ = writeln!(out, ".SH {}", inline(&heading.to_uppercase()));
            } else if let Some(heading) = line.strip_prefix("### ") {
                let _ = writeln!(out, ".SS {}", inline(heading));
            } else if line.trim_start().starts_with("```") {
                out += ".PP\n.nf\n.RS\n";
                for code in lines.by_ref().take_while(|code| !code.trim_start().starts_with("```")) {
                    let _ = writeln!(out, "{}", text_line(&escaped(code)));
                }
                out += ".RE\n.fi\n";
            } else if line.starts_with("| ") {
                let mut rows = vec![cells(line)];
                while let Some(row) = lines.next_if(|row| row.starts_with('|')) {
                    rows.push(cells(row));
                }
                table(&mut out, &rows);
            } else if let Some(item) = line.trim_start().strip_prefix("- ") {
                let _ = writeln!(out, ".IP \\(bu 2\n{}", text_line(&inline(item)));
            } else if let Some((number, item)) = numbered(line) {
                let _ = writeln!(out, ".IP {number}. 3\n{}", text_line(&inline(item)));
            } else {
                let _ = writeln!(out, ".PP\n{}", text_line(&inline(line)));
            }
        }
        out
    }
}

/// The item of a numbered list.
fn numbered(line: &str) -> Option<(&str, &str)> {
    let (number, item) = line.trim_start().split_once(". ")?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some((number, item))
}

/// The cells of a row. A bar in code separates nothing.
fn cells(row: &str) -> Vec<&str> {
    let row = row.trim().trim_start_matches('|');
    let row = row.strip_suffix('|').unwrap_or(row);
    let mut in_code = false;
    row.split(|c| {
        in_code ^= c == '`';
        c == '|' && !in_code
    })
    .map(str::trim)
    .collect()
}

/// A list of terms: of each row the first cell is the term, the last one its text, and those in between are named by their headings.
fn table(out: &mut String, rows: &[Vec<&str>]) {
    let [headings, _, rows @ ..] = rows else { return };
    for row in rows {
        let [term, between @ .., text] = row.as_slice() else { continue };
        let _ = writeln!(out, ".TP\n\\fB{}\\fR", plain(term));
        let facts = headings.iter().skip(1).zip(between).filter(|(_, value)| !value.is_empty());
        let facts: Vec<String> =
            facts.map(|(heading, value)| format!("{}: {}.", inline(&capital(heading)), inline(value))).collect();
        if !facts.is_empty() {
            let _ = writeln!(out, "{}\n.br", text_line(&facts.join(" ")));
        }
        let _ = writeln!(out, "{}", text_line(&inline(text)));
    }
}

fn capital(word: &str) -> String {
    let mut chars = word.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// A line of text is no request, whatever it begins with.
fn text_line(line: &str) -> String {
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-")
}

/// The text without marks, escaped: inside bold text there is no other font.
fn plain(text: &str) -> String {
    escaped(&text.replace("**", "").replace('`', ""))
}

/// Code, bold text and links of a line.
fn inline(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*', '[']) {
        out += &escaped(&rest[..at]);
        rest = &rest[at..];
        let (taken, left) = marked(rest).unwrap_or_else(|| (escaped(&rest[..1]), &rest[1..]));
        out += &taken;
        rest = left;
    }
    out + &escaped(rest)
}

/// What `text` begins with: code, bold text or a link. Returns it in roff, and what follows.
fn marked(text: &str) -> Option<(String, &str)> {
    if let Some(code) = text.strip_prefix('`') {
        let (code, left) = code.split_once('`')?;
        return Some((format!("\\fB{}\\fR", escaped(code)), left));
    }
    if let Some(bold) = text.strip_prefix("**") {
        let (bold, left) = bold.split_once("**")?;
        return Some((format!("\\fB{}\\fR", plain(bold)), left));
    }
    let (shown, left) = text.strip_prefix('[')?.split_once("](")?;
    let (_, left) = left.split_once(')')?;
    // A list of TOML is no link.
    (!shown.contains([']', '"'])).then(|| (inline(shown), left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::keys::{KEYS, STORE_KEYS};

    fn body(markdown: &'static str) -> String {
        let page = ManPage { name: "x", section: 5, summary: "s", markdown };
        page.roff().split_once(".SH DESCRIPTION\n").unwrap().1.to_owned()
    }

    #[test]
    fn marks_become_fonts_and_links_their_text() {
        assert_eq!(
            inline("Run `a-b` or **c `d`**, see [page](x.md#y)."),
            "Run \\fBa\\-b\\fR or \\fBc d\\fR, see page."
        );
        assert_eq!(inline("a list [\"x\"](not) and 2 * 3, `open"), "a list [\"x\"](not) and 2 * 3, `open");
        assert_eq!(inline(r"C:\new"), r"C:\enew");
    }

    #[test]
    fn blocks_become_requests_and_no_text_does() {
        assert_eq!(body("# Title\n\n## A b\n\n.text\n"), ".SH A B\n.PP\n\\&.text\n");
        assert_eq!(body("- one\n1. two\n"), ".IP \\(bu 2\none\n.IP 1. 3\ntwo\n");
        assert_eq!(body("```toml\n.x = 1\n```\nafter\n"), ".PP\n.nf\n.RS\n\\&.x = 1\n.RE\n.fi\n.PP\nafter\n");
        assert_eq!(
            body("| key | default | what |\n| --- | --- | --- |\n| `a` | `1` | Does. |\n| b | | Is. |\n"),
            ".TP\n\\fBa\\fR\nDefault: \\fB1\\fR.\n.br\nDoes.\n.TP\n\\fBb\\fR\nIs.\n"
        );
    }

    #[test]
    fn the_page_of_the_settings_has_every_key() {
        let text = PAGES[0].roff();
        for key in KEYS {
            assert!(text.contains(&format!(".TP\n\\fB{}\\fR\n", escaped(key.name))), "{}", key.name);
        }
        for key in STORE_KEYS {
            assert!(
                text.contains(&format!(".TP\n\\fB{}\\fR\n", key.name.trim_start_matches("store."))),
                "{}",
                key.name
            );
        }
    }
}
