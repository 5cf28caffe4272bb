//! Tables of the file whose structure is defined elsewhere: `[[issuer]]`, `[[identity]]` and `[[administrator]]`.

use std::path::Path;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeValue, ValueDeserializer};

use crate::file::{ConfigError, Nearest, Position};

/// A list of tables: what they are called, and their keys, with the name before them.
pub(crate) struct Tables<'a> {
    pub(crate) path: &'a Path,
    pub(crate) text: &'a str,
    pub(crate) name: &'static str,
    pub(crate) keys: &'static [&'static str],
}

impl Tables<'_> {
    fn wrong(&self, at: usize, key: &'static str, reason: String) -> ConfigError {
        ConfigError::WrongValue { path: self.path.to_owned(), place: Position::of(self.text, at), key, reason }
    }

    /// Reads all tables.
    pub(crate) fn read<T: DeserializeOwned>(&self, value: &Spanned<DeValue<'_>>) -> Result<Vec<T>, ConfigError> {
        match value.get_ref() {
            DeValue::Array(list) => list.iter().map(|table| self.one(table)).collect(),
            _ => Err(self.no_table(value)),
        }
    }

    fn no_table(&self, value: &Spanned<DeValue<'_>>) -> ConfigError {
        let name = self.name;
        self.wrong(value.span().start, name, format!("takes tables: write [[{name}]] above the keys of each"))
    }

    fn one<T: DeserializeOwned>(&self, table: &Spanned<DeValue<'_>>) -> Result<T, ConfigError> {
        let DeValue::Table(entries) = table.get_ref() else { return Err(self.no_table(table)) };
        let mut entries: Vec<_> = entries.iter().collect();
        entries.sort_by_key(|(key, _)| key.span().start);
        let mut known = Vec::new();
        for (key, value) in entries {
            let name = format!("{}.{}", self.name, key.get_ref());
            let Some(key_name) = self.keys.iter().find(|known| **known == name) else {
                let (nearest, place) = (Nearest::to(&name), Position::of(self.text, key.span().start));
                return Err(ConfigError::UnknownKey { path: self.path.to_owned(), place, key: name, nearest });
            };
            known.push((*key_name, value.span()));
        }
        T::deserialize(ValueDeserializer::from(table.clone())).map_err(|error| {
            let at = error.span().map_or(table.span().start, |span| span.start);
            let key = known.iter().find(|(_, span)| span.contains(&at)).map_or(self.name, |(key, _)| key);
            self.wrong(at, key, format!("cannot be used: {}", error.message()))
        })
    }
}
