//! Prints attributes.

use std::borrow::Cow;
use std::fmt::Write as _;

use transfer::tree::{Info, Kind};
use types::units::show_size;

/// `drwxr-xr-x`
#[must_use]
pub fn mode_text(info: &Info) -> String {
    let kind = match info.kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Link => 'l',
        Kind::Other => '?',
    };
    let Some(mode) = info.mode else { return format!("{kind}?????????") };
    let mut text = String::with_capacity(10);
    text.push(kind);
    text.extend((0..9).rev().map(|bit| if mode >> bit & 1 == 1 { ['x', 'w', 'r'][bit % 3] } else { '-' }));
    text
}

/// Usual upper bound of a line, so that it is allocated once.
const LINE_BYTES: usize = 128;

/// A line of `ls -l`.
#[must_use]
pub fn long_line(name: &str, info: &Info, human: bool) -> String {
    let owner = info.owner.as_deref().unwrap_or("?");
    let group = info.group.as_deref().unwrap_or("?");
    let mut line = String::with_capacity(LINE_BYTES);
    // Writing to memory does not fail.
    let _ = write!(line, "{} {owner:<8} {group:<8} ", mode_text(info));
    let _ = match human {
        true => write!(line, "{:>12}", show_size(info.size)),
        false => write!(line, "{:>12}", info.size),
    };
    let _ = write!(line, " {} {}", civil_time(info.mtime), printable(name));
    if let Some(note) = info.note {
        let _ = write!(line, "  ({note})");
    }
    line
}

/// A time as `2023-11-14 22:13:20`, in UTC.
#[must_use]
pub fn civil_time(seconds: i64) -> String {
    match jiff::Timestamp::from_second(seconds) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => seconds.to_string(),
    }
}

/// A name with control characters made visible, so that it cannot manipulate a terminal.
#[must_use]
pub fn printable(name: &str) -> Cow<'_, str> {
    if name.chars().any(char::is_control) { name.escape_debug().to_string().into() } else { name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_shows_what_is_known() {
        let mut info = Info {
            kind: Kind::File,
            size: 1536,
            mtime: 1_700_000_000,
            ctime: None,
            mode: Some(0o640),
            owner: Some("ana".into()),
            group: Some("atlas".into()),
            note: None,
        };
        let line = "-rw-r----- ana      atlas            1536 2023-11-14 22:13:20 a";
        assert_eq!(long_line("a", &info, false), line);
        assert!(long_line("a\x1b[2J", &info, true).ends_with("   1.50 KiB 2023-11-14 22:13:20 a\\u{1b}[2J"));
        (info.mode, info.kind) = (None, Kind::Directory);
        assert_eq!(mode_text(&info), "d?????????");
    }
}
