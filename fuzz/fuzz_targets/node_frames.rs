//! What a peer node may send, of any bytes: headers of frames and hellos. What is taken is bounded, and written again it is the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use link::{BULK_BYTES_MAX, FrameHeader, HEADER_BYTES, HELLO_BYTES, Hello, JoinToken, Kind, MESSAGE_BYTES_MAX};
use types::Crc32c;

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = bytes.first_chunk::<HEADER_BYTES>() {
        let mut header = *header;
        let _ = FrameHeader::from_bytes(&header);
        // Few find a CRC32C by themselves.
        let sum = Crc32c::of(&header[..28]).0;
        header[28..].copy_from_slice(&sum.to_le_bytes());
        if let Ok(frame) = FrameHeader::from_bytes(&header) {
            assert!(frame.message_len <= MESSAGE_BYTES_MAX && frame.bulk_len <= BULK_BYTES_MAX);
            assert!(frame.answer_bulk_max == 0 || frame.kind == Kind::Request);
            assert_eq!(frame.to_bytes(), header);
        }
    }
    if let Some(hello) = bytes.first_chunk::<HELLO_BYTES>()
        && let Ok(hello) = Hello::from_bytes(hello)
    {
        assert!(!hello.software.chars().any(char::is_control));
        let _ = hello.check(&hello, &hello.name, link::Expect::default());
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(token) = JoinToken::parse(text)
    {
        assert_eq!(token.text().as_deref(), Ok(text.trim()));
    }
    let _ = link::decode::<(u64, String, Vec<u16>, Option<[u8; 4]>, Vec<Vec<u8>>)>(bytes);
});
