//! Frames recorded from the stock client and server 5.5.3 (how: `frames/README.md`). The tests decode them
//! completely, encode them to the same bytes, and get the same result however the stream is divided.

use crate::common::captures;

#[test]
fn recordings_survive_decoding_and_encoding() {
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
        for part in [1, 7, 24, 25, 1000, usize::MAX / 2] {
            // dividing megabytes into single bytes takes too long
            if part < 1000 && lines.iter().any(|line| matches!(line, captures::Line::Data(len, _) if *len > 1_000_000))
            {
                continue;
            }
            captures::in_parts(&lines, part).unwrap_or_else(|error| panic!("{name} by {part}: {error}"));
        }
    }
}

#[test]
fn recordings_hold_the_expected_messages() {
    let all: Vec<_> = captures::names().iter().flat_map(|name| captures::load(name)).collect();
    let statuses: Vec<_> = all.iter().filter_map(captures::status_of).collect();
    for status in [0, 4000, 4001, 4003, 4006, 4007].map(wire::ResponseStatus::from_code) {
        assert!(statuses.contains(&status), "no {status:?} among the recordings");
    }
}
