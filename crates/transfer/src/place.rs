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
    /// [`UrlError`] if it looks like an address but is none that can be used; the text says what would be right.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        if text == "-" {
            return Ok(Self::Standard);
        }
        if Url::is_meant(text) {
            return Url::parse(text).map(Self::Remote);
        }
        if let Some(error) = UrlError::mistaken(text) {
            return Err(error);
        }
        Ok(Self::Local(PathBuf::from(local_path(text)?)))
    }

    /// Whether a server can have it under this name. In a `root://` request, `?` ends the path, and nothing escapes it.
    pub(crate) fn has_mark(&self) -> bool {
        matches!(self, Self::Remote(url) if url.path.contains('?'))
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

/// The path in `text`, which may be a `file:` address.
fn local_path(text: &str) -> Result<&str, UrlError> {
    let wrong = |why| UrlError { text: text.chars().take(200).collect(), why };
    let Some(rest) = text.strip_prefix("file:") else {
        return match text.split_once("://") {
            Some((scheme, _)) if is_scheme(scheme) => Err(wrong(match scheme.to_ascii_lowercase().as_str() {
                "http" | "https" | "dav" | "davs" => {
                    "this command reaches servers by root:// only; most have such an address too, at port 1094"
                }
                "root" | "xroot" | "roots" | "xroots" => "write root:// in lower case",
                _ => "this command knows root:// and paths only; for a path that looks like this, write ./ before it",
            })),
            _ => Ok(text),
        };
    };
    match rest.strip_prefix("//") {
        None if rest.starts_with('/') => Ok(rest),
        // A relative path that only begins like an address.
        None => Ok(text),
        Some(rest) => {
            let path = rest.strip_prefix("localhost").unwrap_or(rest);
            if path.starts_with('/') {
                Ok(path)
            } else {
                Err(wrong("a file:// address names a file of this machine, as in file:///path"))
            }
        }
    }
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
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
        assert!(matches!(CopyPath::parse("roots://h//a").unwrap(), CopyPath::Remote(url) if url.tls));
        assert_eq!(CopyPath::parse("file://localhost/a").unwrap(), CopyPath::Local("/a".into()));
        assert_eq!(CopyPath::parse("file:/a").unwrap(), CopyPath::Local("/a".into()));
        for text in ["./http://h/a", "a b://c", "a:b", "file:a", "1://x", "./root:/h", "a/root://h//b", "rooted"] {
            assert_eq!(CopyPath::parse(text).unwrap(), CopyPath::Local(text.into()), "{text}");
        }
        for (text, right) in [
            ("root:/h//a", "root://HOST[:PORT]//PATH"),
            ("root:h", "root://HOST[:PORT]//PATH"),
            ("xroot:/h", "root://HOST[:PORT]//PATH"),
            ("http://h/a", "root:// only"),
            ("davs://h/a", "root:// only"),
            ("s3://b/k", "./"),
            ("ROOT://h//a", "lower case"),
            ("file://other/a", "file:///path"),
            ("h.example.org:1094//a", "root://"),
            ("[::1]:1094//a", "root://"),
        ] {
            let error = CopyPath::parse(text).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(right), "{error}");
        }
        assert_eq!(CopyPath::parse("/a/b/").unwrap().name(), "b");
        assert_eq!(CopyPath::parse("root://h//a/b").unwrap().join("c").to_string(), "root://h:1094//a/b/c");
    }
}
