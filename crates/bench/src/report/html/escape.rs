//! Text in HTML and SVG.

/// Escapes `text` for use between tags, and in attributes in double quotes.
pub(in crate::report) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // HTML does not allow control characters, and they are invisible.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            // Nor does XML allow these two.
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_contains_no_markup() {
        assert_eq!(
            escape("<script a=\"b\" c='d'>&\0\n"),
            "&lt;script a=&quot;b&quot; c=&#39;d&#39;&gt;&amp;\u{fffd}\n"
        );
        assert_eq!(escape("a\u{ffff}\u{fffe}b"), "a\u{fffd}\u{fffd}b");
    }
}
