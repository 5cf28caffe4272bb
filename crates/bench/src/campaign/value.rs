//! Values in a readable form: sizes with units, rates, and single values or lists.

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::units::SizeUnit;

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

/// A size in the form `4KiB`. It is shown in the unit in which it was given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// The size in bytes.
    pub bytes: u64,
    unit: SizeUnit,
}

impl Size {
    /// A size that was not given by a person.
    #[must_use]
    pub fn of(bytes: u64) -> Self {
        Self { bytes, unit: SizeUnit::whole(bytes) }
    }

    /// Returns its unit.
    #[must_use]
    pub fn unit(self) -> SizeUnit {
        self.unit
    }

    fn parse(text: &str) -> Result<Self, String> {
        let bytes = types::units::parse_size(text)?;
        Ok(Self { bytes, unit: SizeUnit::of(text).unwrap_or_else(|| SizeUnit::whole(bytes)) })
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.unit.show(self.bytes))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// Bytes a second, or `flat-out` for as fast as possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rate(pub Option<Size>);

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "flat-out" {
            return Ok(Self(None));
        }
        Size::parse(&text).map(|rate| Self(Some(rate))).map_err(serde::de::Error::custom)
    }
}
