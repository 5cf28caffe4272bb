//! Outside text in messages: escaped and cut.

use serde_json::error::Category;

/// Most characters of outside text in a message.
const SHOWN_MAX: usize = 120;

/// `text` as a message may show it: control characters are escaped, and a long text is cut.
pub fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// Several texts, separated by commas. Long lists are cut.
pub(crate) fn shown_list<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    const ITEMS_MAX: usize = 8;
    let mut texts = texts.into_iter();
    let mut list: Vec<String> = texts.by_ref().take(ITEMS_MAX).map(shown).collect();
    let more = texts.count();
    if more > 0 {
        list.push(format!("and {more} more"));
    }
    if list.is_empty() { "nothing".into() } else { list.join(", ") }
}

/// What is wrong with a JSON document, without any of its content: serde's own message repeats values.
pub(crate) fn shown_json(why: &serde_json::Error) -> String {
    let problem = match why.classify() {
        Category::Data => "a value of the wrong kind, or a member that is there twice,",
        Category::Eof => "an unexpected end",
        Category::Syntax | Category::Io => "an error in the syntax",
    };
    format!("{problem} at line {}, column {}", why.line(), why.column())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_and_hostile_texts_are_cut_and_escaped() {
        assert_eq!(shown("a\nb\u{1b}[1m"), "a\\nb\\u{1b}[1m");
        assert_eq!(shown(&"é".repeat(500)).chars().count(), SHOWN_MAX + 1);
        assert_eq!(shown(&"x".repeat(SHOWN_MAX)), "x".repeat(SHOWN_MAX));
        assert_eq!(shown_list([]), "nothing");
        assert_eq!(shown_list(["a"; 10]), "a, a, a, a, a, a, a, a, and 2 more");
    }

    #[test]
    fn problems_of_json_are_told_without_its_content() {
        let why = |text: &str| shown_json(&serde_json::from_str::<Vec<bool>>(text).unwrap_err());
        assert_eq!(
            why(r#"["secret"]"#),
            "a value of the wrong kind, or a member that is there twice, at line 1, column 9"
        );
        assert_eq!(why("[\n  secret]"), "an error in the syntax at line 2, column 3");
        assert_eq!(why("[true"), "an unexpected end at line 1, column 5");
    }
}
