//! The places that copies read and write.

use std::fmt;
use std::path::{Path, PathBuf};

use client::{Url, UrlError};

/// A local path, a place on a server, or this process's own input or output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyPath {
    /// On this machine.
    Local(PathBuf),
    /// On a server.
    Remote(Url),
    /// `-`
    Standard,
}

impl CopyPath {
    /// Parses an argument of the command line.
    ///
    /// # Errors
    /// [`UrlError`] if it begins as an address but is invalid.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text == "-" {
            return Ok(Self::Standard);
        }
        if Url::is_meant(text) {
            return Url::parse(text).map(Self::Remote);
        }
        let local = text.strip_prefix("file://").map_or(text, |rest| rest.strip_prefix("localhost").unwrap_or(rest));
        Ok(Self::Local(PathBuf::from(local)))
    }

    /// Whether it is a sequential stream that is never replaced: standard input and output, a pipe, a device.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        match self {
            Self::Local(path) => path.metadata().is_ok_and(|found| !found.is_file() && !found.is_dir()),
            Self::Remote(_) => false,
            Self::Standard => true,
        }
    }

    /// The place `name` below it.
    #[must_use]
    pub fn join(&self, name: &str) -> Self {
        match self {
            Self::Local(path) => Self::Local(path.join(name)),
            Self::Remote(url) => Self::Remote(url.join(name)),
            Self::Standard => Self::Standard,
        }
    }

    /// Its last name; empty if it has none.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Local(path) => match path.file_name() {
                Some(name) => name.to_string_lossy().into_owned(),
                None => real_name(path),
            },
            Self::Remote(url) => url.name().to_owned(),
            Self::Standard => String::new(),
        }
    }
}

/// The real name of `.`, `..` and the like.
fn real_name(path: &Path) -> String {
    let real = path.canonicalize().ok();
    real.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

impl fmt::Display for CopyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local(path) => write!(f, "{}", path.display()),
            Self::Remote(url) => write!(f, "{url}"),
            Self::Standard => f.write_str("-"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn paths_and_addresses_are_told_apart() {
        assert_eq!(CopyPath::parse("-").unwrap(), CopyPath::Standard);
        assert_eq!(CopyPath::parse("a/b").unwrap(), CopyPath::Local("a/b".into()));
        assert_eq!(CopyPath::parse("file:///a/b").unwrap(), CopyPath::Local("/a/b".into()));
        assert!(matches!(CopyPath::parse("root://h//a").unwrap(), CopyPath::Remote(_)));
        assert!(CopyPath::parse("root://").is_err());
        assert!(CopyPath::parse("roots://h//a").is_err());
        assert_eq!(CopyPath::parse("/a/b/").unwrap().name(), "b");
        assert_eq!(CopyPath::parse("root://h//a/b").unwrap().join("c").to_string(), "root://h:1094//a/b/c");
    }
}
