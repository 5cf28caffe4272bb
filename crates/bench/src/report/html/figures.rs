//! The figures of a page. Each is also a file of its own, for papers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::escape::escape;
use super::plot::Picture;
use crate::campaign::Campaign;
use crate::report::{Row, Summary};
use crate::result::{FIGURE_START, FIGURES_FOLDER};

/// The style of a file: ink on paper, with all colours spelled out, because programs that read SVG know no variables.
const STYLE: &str = include_str!("figure.css");
/// The most figures of machines that are files. Those of rows are limited by the rows with plots.
const OF_MACHINES_MAX: usize = 800;
/// The most characters of a part of a file's name, and of all parts.
const PART_MAX: usize = 40;
const NAME_MAX: usize = 140;

/// A figure as a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FigureFile {
    /// Its name: ASCII letters, digits, `-` and `_`, with `.svg` at its end. It is the same whenever the report is
    /// made again.
    pub name: String,
    /// The SVG. It stands alone: it loads nothing and has its own style.
    pub svg: String,
}

/// The figures of a page, in its order.
#[derive(Default)]
pub(super) struct Figures {
    files: Vec<FigureFile>,
    /// Their names in lower case, because some file systems do not distinguish.
    names: BTreeSet<String>,
    of_machines: usize,
    /// The number of figures that are only on the page.
    left_out: usize,
}

impl Figures {
    /// Keeps a picture as a file, and returns it for the page. `name` is a name of [`part`]s, `of` says what the
    /// picture is of.
    pub(super) fn put(&mut self, name: &str, of: &str, picture: &Picture) -> String {
        let name = self.unused(name);
        let link = format!(
            "<a class=\"file screen\" href=\"{FIGURES_FOLDER}/{name}\" title=\"this figure as a file\">{name}</a>"
        );
        self.files.push(FigureFile { svg: file(of, picture), name });
        on_page(picture, &link)
    }

    /// Does the same for a picture of a machine, as long as there are not too many.
    pub(super) fn put_of_machine(&mut self, name: &str, of: &str, picture: &Picture) -> String {
        if self.of_machines >= OF_MACHINES_MAX {
            self.left_out += 1;
            return on_page(picture, "");
        }
        self.of_machines += 1;
        self.put(name, of, picture)
    }

    /// Returns a name that no other file has.
    fn unused(&mut self, name: &str) -> String {
        let name: String = name.chars().take(NAME_MAX).collect();
        let numbered = |number: usize| if number == 1 { name.clone() } else { format!("{name}_{number}") };
        let found = (1..).map(numbered).find(|name| self.names.insert(name.to_ascii_lowercase()));
        found.unwrap_or(name) + ".svg"
    }

    /// Returns the number of files, and of figures that are only on the page.
    pub(super) fn counts(&self) -> (usize, usize) {
        (self.files.len(), self.left_out)
    }

    pub(super) fn into_files(self) -> Vec<FigureFile> {
        self.files
    }
}

fn on_page(picture: &Picture, link: &str) -> String {
    let Picture { caption, label, width, height, inside } = picture;
    format!(
        "<figure><figcaption>{}</figcaption><svg viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-label=\"{}\">{inside}</svg>{link}</figure>",
        escape(caption),
        escape(label)
    )
}

fn file(of: &str, picture: &Picture) -> String {
    let Picture { caption, label, width, height, inside } = picture;
    let mut out = String::from(FIGURE_START);
    let _ = writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height:.0}\" viewBox=\"0 0 {width} {height:.0}\" \
         role=\"img\" aria-label=\"{}\"><title>{}</title><style>{STYLE}</style>\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>{inside}</svg>",
        escape(label),
        escape(&format!("{of}: {caption}")),
    );
    out
}

/// Returns a part of a file's name: only letters, digits and single `-`.
pub(super) fn part(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            c if c.is_ascii_alphanumeric() => out.push(c),
            // `1 MiB` is one word.
            ' ' if out.ends_with(|c: char| c.is_ascii_digit()) => {}
            _ if out.is_empty() || out.ends_with('-') => {}
            _ => out.push('-'),
        }
        if out.len() >= PART_MAX {
            break;
        }
    }
    let out = out.trim_end_matches('-');
    if out.is_empty() { "unnamed".to_owned() } else { out.to_owned() }
}

/// Returns the beginning of the names of each row's figures: work, phase, and the parameters that differ among the
/// campaign's works of that name. So the names do not depend on how much is done.
pub(super) fn names(campaign: &Campaign, summary: &Summary) -> Vec<String> {
    let mut values: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for work in campaign.works() {
        for (name, value) in work.parameters {
            values.entry((work.name.clone(), name)).or_default().insert(value);
        }
    }
    let varies =
        |row: &Row, name: &String| values.get(&(row.work.clone(), name.clone())).is_some_and(|all| all.len() > 1);
    let of_row = |row: &Row| {
        let mut parts = vec![part(&row.work)];
        let differing = row.parameters.iter().filter(|(name, _)| varies(row, name));
        parts.extend(differing.map(|(name, value)| format!("{}-{}", part(name), part(value))));
        parts.push(part(&row.phase));
        parts.join("_")
    };
    summary.rows.iter().map(of_row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn picture(inside: &str) -> Picture {
        let (caption, label) = ("a < b".to_owned(), "\"x\"".to_owned());
        Picture { caption, label, width: 420.0, height: 210.0, inside: inside.to_owned() }
    }

    #[test]
    fn names_of_files_are_safe_and_different() {
        assert_eq!(part("sizes, streams and chunks"), "sizes-streams-and-chunks");
        assert_eq!(
            (part("1 MiB"), part("1 % of it"), part("4 KiB to 10 kB")),
            ("1MiB".into(), "1-of-it".into(), "4KiB-to-10kB".into())
        );
        for evil in ["../../etc/passwd", ".", "-rf", "a\0b\n", "<b>\"", "\u{202e}gvs", "", &"x".repeat(1000)] {
            let part = part(evil);
            assert!(!part.is_empty() && part.len() <= PART_MAX, "{part}");
            assert!(part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') && !part.starts_with('-'), "{part}");
        }
        let mut figures = Figures::default();
        let long = "x".repeat(1000);
        for name in ["1MB", "1mb", "1MB", &long, &long] {
            figures.put(name, "of", &picture(""));
        }
        let names: Vec<String> = figures.into_files().into_iter().map(|file| file.name).collect();
        assert_eq!(names[..3], ["1MB.svg", "1mb_2.svg", "1MB_3.svg"]);
        assert!(names[3] != names[4] && names[4].len() < 160, "{names:?}");
    }

    #[test]
    fn a_file_stands_alone() {
        let mut figures = Figures::default();
        let page = figures.put("n", "w & p", &picture("<path class=\"l s1\" d=\"M0 0\"/>"));
        assert!(page.contains("href=\"figures/n.svg\"") && page.contains("a &lt; b</figcaption>"), "{page}");
        let svg = figures.into_files().remove(0).svg;
        assert!(
            svg.starts_with("<?xml version=\"1.0\" encoding=\"UTF-8\"?>")
                && svg.contains("xmlns=\"http://www.w3.org/2000/svg\"")
        );
        assert!(svg.contains("<title>w &amp; p: a &lt; b</title>") && svg.contains("class=\"l s1\""), "{svg}");
        for outside in ["var(", "url(", "@import", "<script", "href"] {
            assert!(!svg.contains(outside), "{outside}");
        }
        // The style is text in XML.
        assert!(!STYLE.contains(['<', '&']) && STYLE.contains("stroke-dasharray"));
    }

    #[test]
    fn figures_of_machines_are_files_only_while_they_are_few() {
        let mut figures = Figures::default();
        let all: Vec<String> =
            (0..OF_MACHINES_MAX + 3).map(|_| figures.put_of_machine("m", "of", &picture(""))).collect();
        assert_eq!(figures.counts(), (OF_MACHINES_MAX, 3));
        assert!(all[0].contains("<a ") && !all[OF_MACHINES_MAX].contains("<a "));
    }
}
