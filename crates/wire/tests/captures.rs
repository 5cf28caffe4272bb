//! Frames recorded from the stock client and server 5.5.3 (how: `frames/README.md`): understood to the last byte, made
//! again to the last byte, and the same however the stream is cut.

mod common;

use common::captures;

#[test]
fn recordings_are_understood_and_made_again() {
    let names = captures::names();
    assert!(names.len() >= 12, "the recordings are there: {names:?}");
    for name in names {
        let text = captures::understood(&captures::load(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        captures::golden(&name, &text).unwrap();
    }
}

#[test]
fn recordings_may_be_cut_anywhere() {
    for name in captures::names() {
        let lines = captures::load(&name);
        for piece in [1, 7, 24, 25, 1000, usize::MAX / 2] {
            // byte by byte takes long for megabytes
            if piece < 1000 && lines.iter().any(|line| matches!(line, captures::Line::Data(len, _) if *len > 1_000_000))
            {
                continue;
            }
            captures::in_pieces(&lines, piece).unwrap_or_else(|error| panic!("{name} by {piece}: {error}"));
        }
    }
}

#[test]
fn recordings_hold_what_they_are_kept_for() {
    let all: Vec<_> = captures::names().iter().flat_map(|name| captures::load(name)).collect();
    let statuses: Vec<_> = all.iter().filter_map(captures::status_of).collect();
    for status in [0, 4000, 4001, 4003, 4006, 4007].map(wire::ResponseStatus::from_code) {
        assert!(statuses.contains(&status), "no {status:?} among the recordings");
    }
}
