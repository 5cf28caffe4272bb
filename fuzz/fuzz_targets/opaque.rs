//! A path argument from any bytes: split, searched, and put together again without a change.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{OPAQUE_PAIRS_MAX, PathArg};

fuzz_target!(|bytes: &[u8]| {
    let Ok(arg) = PathArg::parse(bytes) else { return };
    assert!(!arg.path.is_empty() && !arg.path.contains(&b'?') && !arg.path.contains(&0));
    let mut again = Vec::new();
    arg.write(&mut again);
    assert_eq!(again, &bytes[..again.len()], "only trailing NULs may go");
    assert!(bytes[again.len()..].iter().all(|&b| b == 0));
    assert_eq!(PathArg::parse(&again).as_ref(), Ok(&arg));
    let Some(opaque) = &arg.opaque else { return };
    assert!(opaque.pairs().count() <= OPAQUE_PAIRS_MAX);
    for (key, _) in opaque.pairs() {
        let first = opaque.pairs().find(|(other, _)| *other == key).map(|(_, value)| value);
        assert_eq!(arg.get(key), first);
    }
});
