//! Texts in PEM form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use x509_parser::pem::Pem;
use zeroize::Zeroizing;

/// The longest text that is read.
pub(crate) const TEXT_BYTES_MAX: usize = 256 << 10;
/// Most blocks in a text.
const BLOCKS_MAX: usize = 64;
/// Characters in a line, as OpenSSL writes them: peers compare such texts.
const LINE: usize = 64;

/// A block: what it is, and its bytes.
pub(crate) struct Block {
    pub(crate) label: String,
    /// It may be a key.
    pub(crate) der: Zeroizing<Vec<u8>>,
}

/// The blocks of `text`. What is between them does not count, and nothing counts after a malformed one.
pub(crate) fn blocks(text: &[u8]) -> Vec<Block> {
    if text.len() > TEXT_BYTES_MAX {
        return Vec::new();
    }
    let blocks = Pem::iter_from_buffer(text).take(BLOCKS_MAX).map_while(Result::ok);
    blocks.map(|Pem { label, contents }| Block { label, der: contents.into() }).collect()
}

/// The certificates in `text`, each in DER form.
pub(crate) fn certificates(text: &[u8]) -> Vec<Vec<u8>> {
    let certificates = blocks(text).into_iter().filter(|block| block.label == "CERTIFICATE");
    certificates.map(|mut block| std::mem::take(&mut *block.der)).collect()
}

/// The text for `der`, as OpenSSL writes it.
pub(crate) fn encode(label: &str, der: &[u8]) -> String {
    // It may be a key, of which no copies should stay behind: neither of this, nor of a text that grows.
    let encoded = Zeroizing::new(STANDARD.encode(der));
    let mut text = String::with_capacity(encoded.len() + encoded.len() / LINE + 2 * label.len() + 64);
    text.push_str(&format!("-----BEGIN {label}-----\n"));
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        // The text is ASCII.
        let (line, after) = rest.split_at(rest.len().min(LINE));
        text.push_str(line);
        text.push('\n');
        rest = after;
    }
    text.push_str(&format!("-----END {label}-----\n"));
    text
}
