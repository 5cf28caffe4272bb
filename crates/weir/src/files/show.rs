//! How attributes are printed.

use crate::config::units::show_size;

use super::tree::{Info, Kind};

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
    let bits = (0..9).rev().map(|bit| if mode >> bit & 1 == 1 { ['x', 'w', 'r'][bit % 3] } else { '-' });
    std::iter::once(kind).chain(bits).collect()
}

/// A line of `ls -l`.
#[must_use]
pub fn long_line(name: &str, info: &Info, human: bool) -> String {
    let word = |word: &Option<String>| word.clone().unwrap_or_else(|| "?".to_owned());
    let size = if human { show_size(info.size) } else { info.size.to_string() };
    let note = info.note.map(|note| format!("  ({note})")).unwrap_or_default();
    let (mode, owner, group) = (mode_text(info), word(&info.owner), word(&info.group));
    format!("{mode} {owner:<8} {group:<8} {size:>12} {} {}{note}", civil_time(info.mtime), printable(name))
}

/// `2023-11-14 22:13:20`, in UTC.
#[must_use]
pub fn civil_time(seconds: i64) -> String {
    match jiff::Timestamp::from_second(seconds) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => seconds.to_string(),
    }
}

/// A name with control characters made visible, so that it cannot play with a terminal.
#[must_use]
pub fn printable(name: &str) -> String {
    if name.chars().any(char::is_control) { name.escape_debug().to_string() } else { name.to_owned() }
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
