//! Pages: any offset and length laid out, any bytes taken as pages.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::page::{self, Layout};

fuzz_target!(|bytes: &[u8]| {
    let Some((head, rest)) = bytes.split_first_chunk::<16>() else { return };
    let [a, b] = [&head[..8], &head[8..]].map(|half| u64::from_be_bytes(half.try_into().unwrap()));
    for layout in [Layout::of_data(a, b), Layout::of_wire(a, b)].into_iter().flatten() {
        assert_eq!(Layout::of_wire(a, layout.wire_len()), Ok(layout));
        assert_eq!(Layout::of_data(a, layout.data_len()), Ok(layout));
        let (mut at, mut wire_at) = (layout.offset(), 0);
        for page in layout.pages().take(1000) {
            assert_eq!((page.offset, page.wire_at, page.data_at), (at, wire_at, at - layout.offset()));
            assert!((1..=4096).contains(&page.len));
            at += page.len as u64;
            wire_at += 4 + page.len as u64;
            assert!(at.is_multiple_of(4096) || at == layout.offset() + layout.data_len());
        }
    }
    // the same bytes as data, and as pages with whatever checksums they hold
    let mut wire = Vec::new();
    if page::encode(a, rest, &mut wire).is_ok() {
        assert_eq!(page::verify(a, &wire).unwrap().offsets.len(), 0);
        if let Some(place) = usize::try_from(b).ok().and_then(|b| b.checked_rem(wire.len())) {
            wire[place] ^= 0x10;
            assert_eq!(page::verify(a, &wire).unwrap().offsets.len(), 1);
        }
    }
    if let Ok(received) = page::received(a, rest) {
        let data: Vec<u8> = received.flat_map(|page| page.data.to_vec()).collect();
        assert_eq!(data.len() as u64, Layout::of_wire(a, rest.len() as u64).unwrap().data_len());
    }
});
