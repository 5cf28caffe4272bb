//! How many requests are under way on one file.

use std::fmt;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The word for an automatic window.
const AUTO: &str = "auto";

/// The requests under way on one file, if the driver supports several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Window {
    /// The same number for each file.
    Fixed(usize),
    /// As many as the round trip of the file's connection needs ([`super::OpenFile::window_for`]).
    Auto,
}

impl Window {
    /// Returns the most requests under way with a driver that supports `driver_max`.
    #[must_use]
    pub fn most(self, driver_max: usize) -> usize {
        match self {
            Self::Fixed(requests) => requests.min(driver_max).max(1),
            Self::Auto => driver_max.max(1),
        }
    }

    /// Whether it allows no request at all.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::Fixed(0)
    }
}

/// The least and the most requests under way that automatic windows allowed on a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutoWindow {
    /// The least.
    pub least: u64,
    /// The most.
    pub most: u64,
}

impl AutoWindow {
    /// Returns that of one file.
    #[must_use]
    pub fn of(requests: usize) -> Self {
        Self { least: requests as u64, most: requests as u64 }
    }

    /// Returns that of several; `None`: no window was automatic.
    #[must_use]
    pub fn of_all(all: impl IntoIterator<Item = Self>) -> Option<Self> {
        all.into_iter().reduce(|a, b| Self { least: a.least.min(b.least), most: a.most.max(b.most) })
    }
}

impl Default for Window {
    fn default() -> Self {
        Self::Fixed(1)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(requests) => write!(f, "{requests}"),
            Self::Auto => f.write_str(AUTO),
        }
    }
}

impl Serialize for Window {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed(requests) => requests.serialize(serializer),
            Self::Auto => serializer.serialize_str(AUTO),
        }
    }
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(WindowVisitor)
    }
}

struct WindowVisitor;

impl Visitor<'_> for WindowVisitor {
    type Value = Window;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a window: a number of requests, or \"{AUTO}\"")
    }

    fn visit_u64<E: de::Error>(self, requests: u64) -> Result<Window, E> {
        let fits = u32::try_from(requests).ok().and_then(|requests| usize::try_from(requests).ok());
        fits.map(Window::Fixed).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(requests), &self))
    }

    fn visit_i64<E: de::Error>(self, requests: i64) -> Result<Window, E> {
        match u64::try_from(requests) {
            Ok(requests) => self.visit_u64(requests),
            Err(_) => Err(E::invalid_value(de::Unexpected::Signed(requests), &self)),
        }
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Window, E> {
        if word == AUTO { Ok(Window::Auto) } else { Err(E::invalid_value(de::Unexpected::Str(word), &self)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_a_number_or_automatic() {
        let read = |text: &str| serde_json::from_str::<Window>(text).map_err(|error| error.to_string());
        for window in [Window::Fixed(0), Window::Fixed(4), Window::Auto] {
            assert_eq!(read(&serde_json::to_string(&window).unwrap()), Ok(window));
        }
        assert_eq!(serde_json::to_string(&[Window::Fixed(4), Window::Auto]).unwrap(), r#"[4,"auto"]"#);
        for wrong in ["-1", "4294967296", "\"fast\"", "\"4\"", "1.5", "null"] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains("expected a window: a number of requests, or \"auto\""), "{error}");
        }
        assert_eq!(AutoWindow::of_all([]), None);
        let windows = [7, 2, 64].map(AutoWindow::of);
        assert_eq!(AutoWindow::of_all(windows), Some(AutoWindow { least: 2, most: 64 }));
        assert_eq!([Window::Fixed(100), Window::Fixed(0), Window::Auto].map(|window| window.most(64)), [64, 1, 64]);
    }
}
