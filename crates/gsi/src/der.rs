//! Writes DER (X.690).

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const PRINTABLE_STRING: u8 = 0x13;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SET: u8 = 0x31;

/// A value of DER with its head.
pub(crate) fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len().to_be_bytes();
    let len = &len[len.iter().take_while(|byte| **byte == 0).count()..];
    let mut bytes = vec![tag];
    match (content.len(), u8::try_from(len.len())) {
        (0..=0x7f, _) => bytes.push(u8::try_from(content.len()).unwrap_or_default()),
        (_, Ok(count)) => {
            bytes.push(0x80 | count);
            bytes.extend_from_slice(len);
        }
        // Not on a machine whose memory can be addressed with 64 bits.
        (_, Err(_)) => {}
    }
    bytes.extend_from_slice(content);
    bytes
}

/// A sequence of elements.
pub(crate) fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    der(0x30, &parts.concat())
}

/// A number that is not negative.
pub(crate) fn integer(bytes: &[u8]) -> Vec<u8> {
    let bytes = trimmed(bytes);
    let sign: &[u8] = if bytes.first().is_none_or(|byte| *byte >= 0x80) { &[0] } else { &[] };
    der(2, &[sign, bytes].concat())
}

/// Whole bytes as a bit string.
pub(crate) fn bits(bytes: &[u8]) -> Vec<u8> {
    der(BIT_STRING, &[&[0], bytes].concat())
}

/// The bytes without zeros at their beginning.
pub(crate) fn trimmed(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.iter().take_while(|byte| **byte == 0).count()..]
}
