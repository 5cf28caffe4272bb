//! The bearer token, searched like grid tools do (WLCG Bearer Token Discovery): `BEARER_TOKEN`, the file that
//! `BEARER_TOKEN_FILE` names, then `$XDG_RUNTIME_DIR/bt_u<uid>` and `/tmp/bt_u<uid>`.

use std::fmt;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use super::HttpError;

/// The longest accepted token. Servers limit their headers to less.
const TOKEN_MAX: usize = 16 << 10;

/// A token. It is never shown.
#[derive(Clone)]
pub(super) struct Token(String);

impl Token {
    /// Returns the value of the header.
    pub(super) fn value(&self) -> &str {
        &self.0
    }

    fn new(text: &str, place: &str) -> Result<Option<Self>, HttpError> {
        let text = text.trim();
        let wrong = |why: &str| HttpError::Token { place: place.to_owned(), why: why.to_owned() };
        if text.len() > TOKEN_MAX {
            return Err(wrong("is too long"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(wrong("has characters that a token cannot have"));
        }
        Ok((!text.is_empty()).then(|| Self(text.to_owned())))
    }

    /// Returns the first token found.
    ///
    /// # Errors
    /// The token cannot be read, or is not valid.
    pub(super) fn find() -> Result<Option<Self>, HttpError> {
        if let Ok(text) = std::env::var("BEARER_TOKEN") {
            return Self::new(&text, "BEARER_TOKEN");
        }
        if let Some(path) = std::env::var_os("BEARER_TOKEN_FILE") {
            return Self::read(&path.into(), true);
        }
        let name = format!("bt_u{}", rustix::process::geteuid().as_raw());
        let folders = [std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from), Some(PathBuf::from("/tmp"))];
        for folder in folders.into_iter().flatten() {
            if let Some(token) = Self::read(&folder.join(&name), false)? {
                return Ok(Some(token));
            }
        }
        Ok(None)
    }

    fn read(path: &PathBuf, has_to_be_there: bool) -> Result<Option<Self>, HttpError> {
        let place = path.display().to_string();
        let read = || {
            let file = std::fs::File::open(path)?;
            if !has_to_be_there && file.metadata()?.uid() != rustix::process::geteuid().as_raw() {
                // Any user can create a file of that name in /tmp.
                return Ok(String::new());
            }
            let mut text = String::new();
            file.take(TOKEN_MAX as u64 + 1024).read_to_string(&mut text).map(|_| text)
        };
        match read() {
            Ok(text) => Self::new(&text, &place),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !has_to_be_there => Ok(None),
            Err(error) => Err(HttpError::Token { place, why: error.to_string() }),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_line_and_is_never_shown() {
        let token = Token::new("eyJ0.abc.def\n", "x").unwrap().unwrap();
        assert_eq!((token.value(), format!("{token:?}").as_str()), ("eyJ0.abc.def", "Token(..)"));
        assert!(Token::new("  \n", "x").unwrap().is_none());
        let said = Token::new("a\r\nHost: evil", "BEARER_TOKEN").unwrap_err().to_string();
        assert!(said.contains("BEARER_TOKEN") && !said.contains("evil"), "{said}");
        assert!(Token::new(&"x".repeat(20_000), "x").is_err());
    }
}
