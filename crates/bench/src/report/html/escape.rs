//! Text in HTML and SVG.

/// `text` with all that means something in HTML written as what it is. For text between tags and in attributes in double quotes.
pub(in crate::report) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // Control characters are not allowed in HTML, and show nothing.
            c if c.is_control() && c != '\n' && c != '\t' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_a_text() {
        assert_eq!(
            escape("<script a=\"b\" c='d'>&\0\n"),
            "&lt;script a=&quot;b&quot; c=&#39;d&#39;&gt;&amp;\u{fffd}\n"
        );
    }
}
