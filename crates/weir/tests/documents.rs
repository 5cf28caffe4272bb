//! The documents agree with the program: keys, defaults, exit codes.
#![allow(clippy::unwrap_used)] // a test may fail this way

use std::path::Path;

use config::keys::{Given, KEYS};
use weir::exit::Exit;

fn document(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name)).unwrap()
}

/// The cells of all table rows whose first cell is in backquotes or a number.
fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines()
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

#[test]
fn configure_lists_every_key_with_its_default() {
    let documented: Vec<(String, String)> = rows(&document("reference/configuration.md"))
        .into_iter()
        .filter(|cells| cells[0].starts_with('`'))
        .map(|cells| (cells[0].trim_matches('`').to_owned(), cells[1].trim_matches('`').to_owned()))
        .collect();
    let known: Vec<(String, String)> = KEYS
        .iter()
        .map(|key| {
            let default = match key.default {
                None => "none".to_owned(),
                Some(Given::Text(text)) => format!("\"{text}\""),
                Some(Given::Number(number)) => number.to_string(),
                Some(Given::Switch(switch)) => switch.to_string(),
                Some(Given::List(list)) => format!("{list:?}"),
                Some(Given::Stores(_) | Given::Issuers(_) | Given::Rules(_) | Given::Administrators(_)) => {
                    unreachable!("tables have no default")
                }
            };
            (key.name.to_owned(), default)
        })
        .collect();
    assert_eq!(documented, known, "docs/reference/configuration.md against the list of keys");
}

#[test]
fn operate_lists_every_exit_code() {
    let documented: Vec<(u8, String)> = rows(&document("reference/exit-codes.md"))
        .into_iter()
        .filter_map(|cells| Some((cells[0].parse().ok()?, cells[1].clone())))
        .collect();
    let known: Vec<(u8, String)> = Exit::ALL.iter().map(|exit| (exit.code(), exit.meaning().to_owned())).collect();
    assert_eq!(documented, known, "docs/reference/exit-codes.md against the exit codes");
}

#[test]
fn formats_names_the_numbers_of_the_code() {
    let size = |bytes: u64| match bytes {
        bytes if bytes.is_multiple_of(1 << 20) => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 64 << 10 && bytes.is_multiple_of(1 << 10) => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    };
    let index = kv::IndexConfig::default();
    let store = store::StoreConfig::default();
    let config = config::Config::defaults();
    let known = [
        ("segment of the journal", size(journal::SEGMENT_BYTES_DEFAULT)),
        ("longest record of the journal", size(journal::PAYLOAD_MAX as u64)),
        ("changes move from memory to the index every", format!("{} s", index.sweep_interval.as_secs())),
        ("the index is on the disk at the latest after", format!("{} s", index.flush_interval.as_secs())),
        ("sealed segments that wait for a checkpoint at most", index.segments_kept_max.to_string()),
        ("small object: up to", size(store.small_max)),
        ("segment of small objects", size(store.segment_bytes)),
        ("page of a checksum", size(types::PAGE_SIZE as u64)),
        ("ballast", size(config.ballast)),
        (
            "numbers of inodes and objects are taken in ranges of",
            namespace::NamespaceConfig::default().id_range.to_string(),
        ),
    ];
    assert_eq!(config.segment_size, journal::SEGMENT_BYTES_DEFAULT);
    let documented = rows(&document("reference/formats.md"));
    for (what, value) in known {
        let row = documented.iter().find(|cells| cells[0] == what);
        assert_eq!(row.map(|cells| cells[1].as_str()), Some(value.as_str()), "docs/reference/formats.md: {what}");
    }
}

/// The example of a FORMAT file is valid.
#[test]
fn the_example_of_a_format_file_is_accepted() {
    let text = document("reference/formats.md");
    let start = text.find("# weir data directory").unwrap();
    let example = &text[start..start + text[start..].find("```").unwrap()];
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("FORMAT"), example).unwrap();
    let data = foundation::DataDir::open(place.path(), foundation::IfNew::Refuse, types::Timestamp(0)).unwrap();
    assert_eq!(data.format.to_text(), example);
}
