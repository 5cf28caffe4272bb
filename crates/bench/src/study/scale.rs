//! Divides the values that make a study long or large, and records that.

use toml::{Table, Value};

use types::units::parse_size;

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
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    for (into, from) in [(&mut scaled.was, &values), (&mut scaled.is, &divided)] {
        for text in from.iter().map(text) {
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

/// Returns a readable list of the scaled values.
#[must_use]
pub(super) fn text(scaled: &[Scaled]) -> String {
    let line =
        |scaled: &Scaled| format!("  {}: {} instead of {}\n", scaled.key, scaled.is.join(", "), scaled.was.join(", "));
    scaled.iter().filter(|scaled| scaled.is != scaled.was).map(line).collect()
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
        assert!(text(&scaled).contains("repeats: 1 instead of 20"));
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
