//! Outside text in messages: escaped and cut.

/// Most characters of outside text in a message.
const SHOWN_MAX: usize = 160;

/// `text` as a message may show it.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown
}
