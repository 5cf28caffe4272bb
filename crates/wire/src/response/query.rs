//! Answers to queries, which are texts.

use super::stat::push;
use crate::WireError;
use crate::reader::text;

/// Formats a checksum as tools of the field do: eight lower-case hexadecimal digits.
#[must_use]
pub fn checksum_text(sum: u32) -> String {
    format!("{sum:08x}")
}

/// The answer to the checksum query: `adler32 0a1b2c3d`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChecksumReply {
    /// `adler32`, `crc32c`, …
    pub algorithm: Vec<u8>,
    /// The value in hexadecimal ([`checksum_text`]).
    pub value: Vec<u8>,
}

impl ChecksumReply {
    /// Appends the body to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.algorithm);
        out.push(b' ');
        out.extend_from_slice(&self.value);
        out.push(0);
    }

    /// Parses the body.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut words = text("checksum answer", body)?.split(|&b| b == b' ').filter(|word| !word.is_empty());
        match (words.next(), words.next(), words.next()) {
            (Some(algorithm), Some(value), None) => Ok(Self { algorithm: algorithm.to_vec(), value: value.to_vec() }),
            _ => Err(WireError::Malformed { what: "checksum answer", why: "it is not two words" }),
        }
    }
}

/// The answer to the space query.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SpaceReply {
    /// The space's name (`public` at the stock server).
    pub name: String,
    /// The total in bytes.
    pub total: u64,
    /// The free bytes.
    pub free: u64,
    /// The free bytes of the largest part, which bound the size of a file.
    pub largest_free: u64,
    /// The used bytes.
    pub used: u64,
    /// The quota in bytes; `None`: no quota.
    pub quota: Option<u64>,
}

impl SpaceReply {
    /// Appends the body to `out`: `oss.cgroup=…&oss.space=…&oss.free=…&oss.maxf=…&oss.used=…&oss.quota=…`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"oss.cgroup=");
        out.extend(self.name.bytes().map(|b| if b <= b' ' || b == b'&' { b'_' } else { b }));
        let Self { total, free, largest_free, used, .. } = self;
        push(
            out,
            format_args!("&oss.space={total}&oss.free={free}&oss.maxf={largest_free}&oss.used={used}&oss.quota="),
        );
        match self.quota {
            Some(quota) => push(out, format_args!("{quota}\0")),
            None => out.extend_from_slice(b"-1\0"),
        }
    }

    /// Parses the body. Unknown keys are skipped, missing ones are 0.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut reply = Self::default();
        for part in text("space answer", body)?.split(|&b| b == b'&') {
            let Some(at) = part.iter().position(|&b| b == b'=') else { continue };
            let (key, value) = (&part[..at], &part[at + 1..]);
            let number = || {
                let value = crate::reader::decimal("space answer", value)?;
                Ok::<_, WireError>(u64::try_from(value).ok())
            };
            match key {
                b"oss.cgroup" => reply.name = String::from_utf8_lossy(value).into_owned(),
                b"oss.space" => reply.total = number()?.unwrap_or(0),
                b"oss.free" => reply.free = number()?.unwrap_or(0),
                b"oss.maxf" => reply.largest_free = number()?.unwrap_or(0),
                b"oss.used" => reply.used = number()?.unwrap_or(0),
                b"oss.quota" => reply.quota = number()?,
                _ => {}
            }
        }
        Ok(reply)
    }
}

/// The answer to the config query: one line for each word of the query, in order. The answer to an unknown word or
/// an unset value is the word itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ConfigReply {
    /// The lines, without line ends.
    pub values: Vec<Vec<u8>>,
}

impl ConfigReply {
    /// Appends the body to `out`. Each value ends with a line end; no NUL follows.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for value in &self.values {
            out.extend(value.iter().map(|&b| if b == b'\n' || b == 0 { b' ' } else { b }));
            out.push(b'\n');
        }
    }

    /// Parses the body.
    pub fn decode(body: &[u8]) -> Result<Self, WireError> {
        let text = text("config answer", body)?;
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        if text.is_empty() {
            return Ok(Self::default());
        }
        Ok(Self { values: text.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect() })
    }
}
