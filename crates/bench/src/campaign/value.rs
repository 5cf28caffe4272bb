//! Values in a readable form: sizes with units, rates, and single values or lists.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// One value or several.
#[derive(Clone, PartialEq, Debug)]
pub enum OneOrMany<T> {
    /// One value.
    One(T),
    /// Several values, which are all used.
    All(Vec<T>),
}

impl<T: Clone> OneOrMany<T> {
    /// Returns all values.
    pub fn all(&self) -> Vec<T> {
        match self {
            Self::One(value) => vec![value.clone()],
            Self::All(values) => values.clone(),
        }
    }

    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        match self {
            Self::One(_) => 1,
            Self::All(values) => values.len() as u64,
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for OneOrMany<T> {
    /// Decides by the form of the input, so that an error names the problem of the value itself.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = toml::Value::deserialize(deserializer)?;
        let read = if value.is_array() { value.try_into().map(Self::All) } else { value.try_into().map(Self::One) };
        read.map_err(|error: toml::de::Error| serde::de::Error::custom(error.message()))
    }
}

/// A size in the form `4KiB`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(pub u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        types::units::parse_size(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// Bytes a second, or `flat-out` for as fast as possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub Option<u64>);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "flat-out" {
            return Ok(Self(None));
        }
        types::units::parse_size(&text).map(|rate| Self(Some(rate))).map_err(serde::de::Error::custom)
    }
}
