//! A line of an audit log, as `weir audit` reads it: whatever it is, it is a record or none, and a record becomes one bounded line.
#![no_main]

use audit::{Filter, LINE_MAX, Record};
use libfuzzer_sys::fuzz_target;
use types::Timestamp;

fuzz_target!(|data: &[u8]| {
    let Some(record) = Record::parse(data) else { return };
    let _ = Filter { paths: vec!["/a".into()], principals: vec!["7".into()], ..Filter::default() }.wants(&record);
    let line = record.line(Timestamp(0));
    assert!(line.len() <= LINE_MAX);
    assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
    assert!(Record::parse(&line).is_some());
});
