//! How much outsiders can make us do.

/// Most certificates in a chain.
pub const CHAIN_MAX: usize = 16;
/// The longest certificate, in bytes. A proxy with VOMS attributes of several organizations has some 10 KiB.
pub const CERTIFICATE_BYTES_MAX: usize = 64 << 10;
/// Most signatures that are checked for one chain. Attribute certificates have a number of their own.
pub(crate) const SIGNATURES_MAX: u32 = 48;
