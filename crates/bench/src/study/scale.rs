//! Divides the values that make a study long or large, and records that.

use std::collections::BTreeSet;

use toml::{Table, Value};

use types::units::parse_size;

use crate::units::{Family, SizeUnit, show_sum};

/// Scaled sizes are multiples of this and at least this, because requests must fit in.
const SIZE_STEP: u64 = 1 << 20;
/// Smaller sizes are left unchanged.
const SIZE_MIN: u64 = 1 << 20;

/// A scaled value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scaled {
    /// The key.
    pub key: String,
    /// Its original values, of all sections.
    pub was: Vec<String>,
    /// Its scaled values.
    pub is: Vec<String>,
}

/// Divides the values of `keys` by `by`.
///
/// # Errors
/// The text names the value that cannot be divided.
pub fn scale(campaign: &mut Table, keys: &[String], by: f64) -> Result<Vec<Scaled>, String> {
    let mut all = Vec::new();
    for key in keys {
        let mut scaled = Scaled { key: key.clone(), was: Vec::new(), is: Vec::new() };
        match key.split_once('.') {
            None => one(campaign, key, by, &mut scaled)?,
            Some((section, inner)) => {
                let sections = campaign.get_mut(section).and_then(Value::as_array_mut);
                for table in sections.into_iter().flatten().filter_map(Value::as_table_mut) {
                    one(table, inner, by, &mut scaled)?;
                }
            }
        }
        all.push(scaled);
    }
    Ok(all)
}

fn one(table: &mut Table, key: &str, by: f64, scaled: &mut Scaled) -> Result<(), String> {
    if let Some((inner, key)) = key.split_once('.') {
        return table.get_mut(inner).and_then(Value::as_table_mut).map_or(Ok(()), |table| one(table, key, by, scaled));
    }
    let Some(value) = table.get_mut(key) else { return Ok(()) };
    let values = match &mut *value {
        Value::Array(values) => std::mem::take(values),
        single => vec![single.clone()],
    };
    let mut divided: Vec<Value> = Vec::new();
    for value in &values {
        let new = divide(value, by).ok_or_else(|| format!("{key} = {value} cannot be divided"))?;
        // Sizes that have become equal are the same work. A least and a most size remain two values.
        if key == "sizes" || !divided.contains(&new) {
            divided.push(new);
        }
    }
    for (into, from) in [(&mut scaled.was, &values), (&mut scaled.is, &divided)] {
        for text in from.iter().map(text_of) {
            if !into.contains(&text) {
                into.push(text);
            }
        }
    }
    *value = match divided.as_slice() {
        [single] => single.clone(),
        _ => Value::Array(divided),
    };
    Ok(())
}

#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)] // smaller than what it was
fn divide(value: &Value, by: f64) -> Option<Value> {
    match value {
        Value::Integer(count) => Some(Value::Integer(((*count as f64 / by).round() as i64).max(1))),
        Value::String(text) => {
            let size = parse_size(text).ok()?;
            if size <= SIZE_MIN || by <= 1.0 {
                return Some(value.clone());
            }
            let divided = (size as f64 / by) as u64;
            let size = if divided < SIZE_STEP { SIZE_STEP } else { divided / SIZE_STEP * SIZE_STEP };
            Some(Value::String(format!("{}MiB", size / SIZE_STEP)))
        }
        _ => None,
    }
}

/// Returns the values of `keys` that differ between a study's campaign and one that was made from it.
pub(super) fn differing(full: &Table, made: &Table, keys: &[String]) -> Vec<Scaled> {
    let scaled = |key: &String| Scaled { key: key.clone(), was: values(full, key), is: values(made, key) };
    keys.iter().map(scaled).filter(|scaled| !scaled.is.is_empty() && scaled.is != scaled.was).collect()
}

/// Returns the values of a key, of all sections, each once.
fn values(table: &Table, key: &str) -> Vec<String> {
    let found: Vec<String> = match key.split_once('.') {
        None => match table.get(key) {
            None => Vec::new(),
            Some(Value::Array(values)) => values.iter().map(text_of).collect(),
            Some(value) => vec![text_of(value)],
        },
        Some((section, inner)) => match table.get(section) {
            Some(Value::Table(table)) => values(table, inner),
            Some(Value::Array(all)) => {
                all.iter().filter_map(Value::as_table).flat_map(|table| values(table, inner)).collect()
            }
            _ => Vec::new(),
        },
    };
    let mut seen = BTreeSet::new();
    found.into_iter().filter(|value| seen.insert(value.clone())).collect()
}

fn text_of(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Returns a readable list of the scaled values.
#[must_use]
pub(super) fn text(scaled: &[Scaled]) -> String {
    let line = |scaled: &Scaled| {
        format!("  {}: {} instead of {}\n", scaled.key, scaled.shown().join(", "), scaled.was.join(", "))
    };
    scaled.iter().filter(|scaled| scaled.is != scaled.was).map(line).collect()
}

impl Scaled {
    /// Returns the scaled values for people. Scaled sizes are whole MiB; beside decimal originals they are decimal,
    /// too.
    #[must_use]
    pub fn shown(&self) -> Vec<String> {
        let is_decimal = |text: &String| SizeUnit::of(text).and_then(SizeUnit::family) == Some(Family::Decimal);
        let shown = |text: &String| match parse_size(text) {
            Ok(bytes) if !self.was.contains(text) && self.was.iter().any(is_decimal) => {
                show_sum(bytes, Family::Decimal)
            }
            _ => text.clone(),
        };
        self.is.iter().map(shown).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_counts_and_times_are_divided_and_recorded() {
        let mut table: Table = r#"
            repeats = 20
            [[streams]]
            file = ["100MB", "1GB", "64KiB"]
            streams = 8
            [[streams]]
            file = "20GB"
        "#
        .parse()
        .unwrap();
        let keys = ["repeats", "streams.file", "small.files"].map(str::to_owned);
        let scaled = scale(&mut table, &keys, 100.0).unwrap();
        assert_eq!(scaled[0].is, ["1"]);
        assert_eq!(scaled[1].was, ["100MB", "1GB", "64KiB", "20GB"]);
        assert_eq!(scaled[1].is, ["1MiB", "9MiB", "64KiB", "190MiB"]);
        assert!(scaled[2].was.is_empty());
        assert_eq!(table["streams"][0]["streams"].as_integer(), Some(8));
        assert_eq!(table["streams"][1]["file"].as_str(), Some("190MiB"));
        let told = text(&scaled);
        assert!(told.contains("repeats: 1 instead of 20"));
        assert!(
            told.contains("streams.file: 1.05 MB, 9.44 MB, 64KiB, 199 MB instead of 100MB, 1GB, 64KiB, 20GB"),
            "{told}"
        );
    }

    #[test]
    fn a_scaled_campaign_shows_what_was_scaled() {
        let full: Table =
            "repeats = 6\n[[streams]]\nfile = [\"1GB\", \"2GB\"]\n[[streams]]\nfile = \"1GB\"".parse().unwrap();
        let keys = ["repeats", "streams.file", "small.files"].map(str::to_owned);
        assert_eq!(differing(&full, &full, &keys), []);
        let mut made = full.clone();
        scale(&mut made, &keys[1..], 100.0).unwrap();
        let was = ["1GB", "2GB"].map(str::to_owned).to_vec();
        let is = ["9MiB", "19MiB"].map(str::to_owned).to_vec();
        assert_eq!(differing(&full, &made, &keys), [Scaled { key: "streams.file".to_owned(), was, is }]);
    }

    #[test]
    fn values_that_become_equal_are_done_once() {
        let mut table: Table = "[[streams]]\nfile = [\"2MB\", \"3MB\"]".parse().unwrap();
        scale(&mut table, &["streams.file".to_owned()], 1000.0).unwrap();
        assert_eq!(table["streams"][0]["file"].as_str(), Some("1MiB"));
    }

    #[test]
    fn a_scale_of_one_changes_nothing() {
        let mut table: Table = "repeats = 20\n[[streams]]\nfile = [\"100MB\"]".parse().unwrap();
        let scaled = scale(&mut table, &["repeats".to_owned(), "streams.file".to_owned()], 1.0).unwrap();
        assert!(text(&scaled).is_empty());
    }
}
