//! The directory of a system, as a path or URL.

use std::path::PathBuf;
use std::sync::Arc;

use client::{Settings, Url, UrlError};

use super::http::{HttpUrl, HttpUrlError};
use super::path::PathTarget;
use super::root::RootTarget;
use super::spread::Spread;
use super::webdav::WebdavTarget;
use super::{RelName, Target};

/// A directory on a system, in which runs make their own folders.
#[derive(Clone, PartialEq, Debug)]
pub enum TargetDir {
    /// A directory on this machine: on a local disk, or on a mounted system.
    Path(PathBuf),
    /// A directory on a server that speaks `root://`.
    Root(Url),
    /// A directory on a server that speaks WebDAV.
    Http(HttpUrl),
}

/// The text is not a path or URL of a directory.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// There is no driver for the protocol.
    #[error("`{text}`: there is no driver for `{scheme}://`; use a path, root://, http:// or https:// (WebDAV)")]
    Scheme {
        /// The text.
        text: String,
        /// The text before `://`.
        scheme: String,
    },
    /// The `root://` URL is not valid.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// The `http://` URL is not valid.
    #[error(transparent)]
    Http(#[from] HttpUrlError),
    /// The text is empty.
    #[error("the directory is empty; give a path, root://HOST[:PORT]//DIRECTORY or http[s]://HOST[:PORT]/DIRECTORY")]
    Empty,
}

impl TargetDir {
    /// Parses a path, `file:PATH`, `root://HOST[:PORT]//PATH`, or `http[s]://HOST[:PORT]/PATH`.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn parse(text: &str) -> Result<Self, PlaceError> {
        if text.is_empty() {
            return Err(PlaceError::Empty);
        }
        if Url::is_meant(text) {
            return Ok(Self::Root(Url::parse(text)?));
        }
        if let Some(error) = UrlError::mistaken(text) {
            return Err(error.into());
        }
        if HttpUrl::is_meant(text) {
            return Ok(Self::Http(HttpUrl::parse(text)?));
        }
        if let Some(path) = text.strip_prefix("file://").or_else(|| text.strip_prefix("file:")) {
            return if path.is_empty() { Err(PlaceError::Empty) } else { Ok(Self::Path(PathBuf::from(path))) };
        }
        if let Some((scheme, _)) = text.split_once("://") {
            return Err(PlaceError::Scheme { text: text.to_owned(), scheme: scheme.to_owned() });
        }
        Ok(Self::Path(PathBuf::from(text)))
    }

    /// Returns several directories as one system, over which files are spread.
    #[must_use]
    pub fn targets(places: &[Self], folder: &RelName, settings: &Settings) -> Arc<dyn Target> {
        match places {
            [place] => place.target(folder, settings),
            places => Arc::new(Spread::new(places.iter().map(|place| place.target(folder, settings)).collect())),
        }
    }

    /// Returns the command that makes it; `None`: there is none that is known.
    #[must_use]
    pub fn how_to_make(&self) -> Option<String> {
        match self {
            Self::Path(path) => Some(format!("mkdir -p {}", path.display())),
            Self::Root(url) => Some(format!("weir mkdir -p {url}")),
            Self::Http(_) => None,
        }
    }

    /// Returns the system of this directory, with `folder` as the run's own folder.
    #[must_use]
    pub fn target(&self, folder: &RelName, settings: &Settings) -> Arc<dyn Target> {
        match self {
            Self::Path(path) => Arc::new(PathTarget::new(path.join(folder.as_str()))),
            Self::Root(url) => Arc::new(RootTarget::new(url.join(folder.as_str()), settings.clone())),
            Self::Http(url) => Arc::new(WebdavTarget::new(url.clone(), folder, settings.clone())),
        }
    }
}

impl std::fmt::Display for TargetDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Root(url) => write!(f, "{url}"),
            Self::Http(url) => write!(f, "{url}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_parsed() {
        assert_eq!(TargetDir::parse("/mnt/lustre").unwrap(), TargetDir::Path("/mnt/lustre".into()));
        assert_eq!(TargetDir::parse("file:///x").unwrap(), TargetDir::Path("/x".into()));
        assert!(matches!(TargetDir::parse("root://h//d"), Ok(TargetDir::Root(_))));
        assert!(matches!(TargetDir::parse("https://h/d"), Ok(TargetDir::Http(_))));
        assert!(TargetDir::parse("gopher://h/d").unwrap_err().to_string().contains("https://"));
        assert!(matches!(TargetDir::parse("webhdfs://h/d"), Err(PlaceError::Scheme { .. })));
        assert!(matches!(TargetDir::parse(""), Err(PlaceError::Empty)));
        assert!(TargetDir::parse("root:/h//d").unwrap_err().to_string().contains("root://HOST"));
        assert!(matches!(TargetDir::parse("h:1094//d"), Err(PlaceError::Url(_))));
    }
}
