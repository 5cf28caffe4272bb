//! The list of keys.

use std::path::PathBuf;
use std::time::Duration;

use super::Config;
use super::units::{parse_duration, parse_size};

/// A value as it was given.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Given<'a> {
    /// A string.
    Text(&'a str),
    /// A whole number.
    Number(i64),
    /// `true` or `false`.
    Switch(bool),
}

/// One key.
pub struct Key {
    /// Its name; `section.name` for those in a section.
    pub name: &'static str,
    /// What holds when it is not set; `None`: must be set, here or by a flag.
    pub default: Option<Given<'static>>,
    /// Puts a value in its place, or says what would be right.
    pub set: fn(&mut Config, Given<'_>) -> Result<(), String>,
}

/// All keys that a configuration file may hold, in the order of `docs/configure.md`.
pub const KEYS: &[Key] = &[
    Key { name: "data", default: None, set: |c, v| text(v).map(|v| c.data = Some(PathBuf::from(v))) },
    Key {
        name: "listen",
        default: Some(Given::Text("127.0.0.1:1094")),
        set: |c, v| text(v).map(|v| c.listen = v.to_owned()),
    },
    Key { name: "insecure", default: Some(Given::Switch(false)), set: |c, v| switch(v).map(|v| c.insecure = v) },
    Key { name: "existing", default: Some(Given::Switch(false)), set: |c, v| switch(v).map(|v| c.existing = v) },
    Key { name: "log", default: Some(Given::Text("info")), set: |c, v| text(v).map(|v| c.log = v.to_owned()) },
    Key {
        name: "grace_seconds",
        default: Some(Given::Number(60)),
        set: |c, v| number(v, 0, 86_400).map(|v| c.grace = Duration::from_secs(v)),
    },
    Key {
        name: "files.uploads_kept",
        default: Some(Given::Text("1d")),
        set: |c, v| duration(v).map(|v| c.uploads_kept = v),
    },
    Key {
        name: "limits.connections",
        default: Some(Given::Number(4096)),
        set: |c, v| number(v, 1, 100_000).map(|v| c.connections = v),
    },
    Key {
        name: "limits.writers_memory",
        default: Some(Given::Text("512MiB")),
        set: |c, v| size(v, 1 << 20, 1 << 40).map(|v| c.writers_memory = v),
    },
    Key {
        name: "third_party_copy",
        default: Some(Given::Switch(true)),
        set: |c, v| switch(v).map(|v| c.third_party_copy = v),
    },
    Key {
        name: "space.ballast",
        default: Some(Given::Text("64MiB")),
        set: |c, v| size(v, 1 << 20, 1 << 40).map(|v| c.ballast = v),
    },
    Key {
        name: "space.floor",
        default: Some(Given::Text("auto")),
        set: |c, v| {
            c.floor = if v == Given::Text("auto") { None } else { Some(size(v, 0, 1 << 50)?) };
            Ok(())
        },
    },
    Key {
        name: "journal.segment_size",
        default: Some(Given::Text("64MiB")),
        set: |c, v| size(v, 1 << 20, 1 << 30).map(|v| c.segment_size = v),
    },
    Key {
        name: "index.overlay",
        default: Some(Given::Text("32MiB")),
        set: |c, v| size(v, 1 << 20, 1 << 36).map(|v| c.overlay = v),
    },
    Key {
        name: "index.cache",
        default: Some(Given::Text("32MiB")),
        set: |c, v| size(v, 1 << 20, 1 << 40).map(|v| c.cache = v),
    },
    Key {
        name: "scrub.rate",
        default: Some(Given::Text("16MiB")),
        set: |c, v| size(v, 0, 1 << 40).map(|v| c.scrub_rate = v),
    },
    Key {
        name: "scrub.period",
        default: Some(Given::Text("30d")),
        set: |c, v| duration(v).map(|v| c.scrub_period = v),
    },
];

fn text(given: Given<'_>) -> Result<&str, String> {
    match given {
        Given::Text(text) => Ok(text),
        _ => Err("takes a string in quotes".into()),
    }
}

fn switch(given: Given<'_>) -> Result<bool, String> {
    match given {
        Given::Switch(switch) => Ok(switch),
        _ => Err("takes true or false".into()),
    }
}

fn number(given: Given<'_>, min: u64, max: u64) -> Result<u64, String> {
    match given {
        Given::Number(number) => u64::try_from(number)
            .ok()
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| format!("is {number}; it must be from {min} to {max}")),
        _ => Err(format!("takes a whole number from {min} to {max}, without quotes")),
    }
}

fn duration(given: Given<'_>) -> Result<Duration, String> {
    match given {
        Given::Text(text) => parse_duration(text),
        _ => Err("takes a duration with its unit, in quotes, as in \"60s\"".into()),
    }
}

fn size(given: Given<'_>, min: u64, max: u64) -> Result<u64, String> {
    match given {
        Given::Text(text) => {
            let size = parse_size(text)?;
            if (min..=max).contains(&size) {
                Ok(size)
            } else {
                let show = super::units::show_size;
                Err(format!("is {text}; it must be from {} to {}", show(min), show(max)))
            }
        }
        _ => Err("takes a size with its unit, in quotes, as in \"64MiB\"".into()),
    }
}
