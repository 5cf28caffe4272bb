//! Sentences on a terminal of 80 columns.

/// The columns of the narrowest usual terminal.
pub(crate) const WIDTH: usize = 80;
/// Before each further line of a sentence.
const INDENT: usize = 2;

/// Breaks lines between words so that each fits, unless a single word does not.
pub(crate) fn wrapped(lines: Vec<String>) -> Vec<String> {
    lines.iter().flat_map(|line| wrapped_line(line, INDENT)).collect()
}

/// Breaks a line between words so that each line fits, unless a single word does not. Further lines begin at column
/// `indent`.
pub(crate) fn wrapped_line(line: &str, indent: usize) -> Vec<String> {
    let mut all = Vec::new();
    let mut current = String::new();
    let mut is_empty = true;
    // Spaces at the beginning stay.
    for word in line.split(' ') {
        if !is_empty && current.chars().count() + 1 + word.chars().count() > WIDTH {
            all.push(std::mem::replace(&mut current, format!("{:indent$}{word}", "")));
            continue;
        }
        if !is_empty {
            current.push(' ');
        }
        current.push_str(word);
        is_empty = false;
    }
    all.push(current);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_broken_between_words() {
        let short = vec!["store 7 is online".to_owned(), "  /a b".to_owned(), String::new()];
        assert_eq!(wrapped(short.clone()), short);
        let long = vec!["word ".repeat(40).trim_end().to_owned()];
        let lines = wrapped(long.clone());
        assert!(lines.len() == 3 && lines.iter().all(|line| line.len() <= WIDTH), "{lines:?}");
        assert!(lines[1].starts_with("  word"));
        let joined: Vec<&str> = lines.iter().flat_map(|line| line.split_whitespace()).collect();
        assert_eq!(joined.join(" "), long[0]);
        let path = vec![format!("/{}", "x".repeat(200))];
        assert_eq!(wrapped(path.clone()), path, "a path is not broken");
    }
}
