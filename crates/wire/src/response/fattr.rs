//! Answers to fattr.

use crate::WireError;
use crate::reader::Reader;
use crate::request::{FATTR_NAME_MAX, FATTR_VALUE_MAX, FATTR_VARS_MAX};

/// The answer to del, get and set, with a result for each name of the request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FattrReply {
    /// The results in the order of the request.
    pub results: Vec<FattrResult>,
}

/// The result for one attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FattrResult {
    /// 0, or an [`crate::ErrorNumber`].
    pub number: u16,
    /// Its name.
    pub name: Vec<u8>,
    /// For get: its value (empty if it failed).
    pub value: Option<Vec<u8>>,
}

impl FattrReply {
    /// Appends the body to `out`: number of errors, number of attributes, the names with their results, then (for
    /// get) the values.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        const WHAT: &str = "fattr answer";
        if self.results.len() > FATTR_VARS_MAX {
            return Err(WireError::Unsendable { what: WHAT, why: "more than 16 attributes" });
        }
        let bad = |result: &FattrResult| {
            result.name.is_empty()
                || result.name.len() > FATTR_NAME_MAX
                || result.name.contains(&0)
                || result.value.as_ref().is_some_and(|value| value.len() > FATTR_VALUE_MAX)
        };
        if self.results.iter().any(bad) {
            return Err(WireError::Unsendable { what: WHAT, why: "a name or value has no legal form" });
        }
        let errors = self.results.iter().filter(|result| result.number != 0).count();
        out.push(u8::try_from(errors).unwrap_or(u8::MAX));
        out.push(u8::try_from(self.results.len()).unwrap_or(u8::MAX));
        for result in &self.results {
            out.extend_from_slice(&result.number.to_be_bytes());
            out.extend_from_slice(&result.name);
            out.push(0);
        }
        for value in self.results.iter().filter_map(|result| result.value.as_ref()) {
            out.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
            out.extend_from_slice(value);
        }
        Ok(())
    }

    /// Parses the body. `with_values`: it answers a get.
    pub fn decode(body: &[u8], with_values: bool) -> Result<Self, WireError> {
        const WHAT: &str = "fattr answer";
        let mut reader = Reader::new(WHAT, body);
        let (errors, count) = (usize::from(reader.u8()?), usize::from(reader.u8()?));
        if count > FATTR_VARS_MAX {
            return Err(WireError::TooMany { what: WHAT, count, limit: FATTR_VARS_MAX });
        }
        let mut results = Vec::with_capacity(count);
        for _ in 0..count {
            let number = reader.u16()?;
            results.push(FattrResult { number, name: name(WHAT, reader.until_nul()?)?, value: None });
        }
        if with_values {
            for result in &mut results {
                result.value = Some(value(&mut reader)?);
            }
        }
        reader.end()?;
        if results.iter().filter(|result| result.number != 0).count() != errors {
            return Err(WireError::Malformed { what: WHAT, why: "its number of errors is wrong" });
        }
        Ok(Self { results })
    }
}

/// The answer to list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FattrList {
    /// The names, and the values if the client asked for them.
    pub attributes: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl FattrList {
    /// Appends the body to `out`: each name with its NUL, then its value if there is one.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for (name, value) in &self.attributes {
            out.extend_from_slice(name);
            out.push(0);
            if let Some(value) = value {
                out.extend_from_slice(&u32::try_from(value.len()).unwrap_or(u32::MAX).to_be_bytes());
                out.extend_from_slice(value);
            }
        }
    }

    /// Parses the body.
    pub fn decode(body: &[u8], with_values: bool) -> Result<Self, WireError> {
        const WHAT: &str = "fattr list";
        let mut reader = Reader::new(WHAT, body);
        let mut attributes = Vec::new();
        while reader.left() > 0 {
            let name = name(WHAT, reader.until_nul()?)?;
            let value = if with_values { Some(value(&mut reader)?) } else { None };
            attributes.push((name, value));
        }
        Ok(Self { attributes })
    }
}

fn name(what: &'static str, bytes: &[u8]) -> Result<Vec<u8>, WireError> {
    match bytes.len() {
        0 => Err(WireError::Missing { what: "name of an attribute" }),
        1..=FATTR_NAME_MAX => Ok(bytes.to_vec()),
        count => Err(WireError::TooMany { what, count, limit: FATTR_NAME_MAX }),
    }
}

fn value(reader: &mut Reader<'_>) -> Result<Vec<u8>, WireError> {
    let len = usize::try_from(reader.u31("length of an attribute")?).unwrap_or(usize::MAX);
    if len > FATTR_VALUE_MAX {
        return Err(WireError::TooMany { what: "bytes of an attribute", count: len, limit: FATTR_VALUE_MAX });
    }
    Ok(reader.take(len)?.to_vec())
}
