//! Whether a file is complete, as weir's servers say.

use crate::{Client, ClientError, Kind, Url};

/// The attribute with the state of a file.
const STATE: &str = "weir.state";

/// The state of a file, as far as a reader must know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileState {
    /// Its writer may still add to it.
    BeingWritten,
    /// Its writer has closed it.
    Complete,
    /// Its writer went away.
    Interrupted,
}

impl FileState {
    /// Asks the server for the state of a file. Only weir knows one ([`Client::is_weir`]).
    ///
    /// # Errors
    /// The server refuses, its answer is unknown, or the connection fails.
    pub fn of(client: &mut Client, url: &Url) -> Result<Self, ClientError> {
        Self::parse(&client.xattr(url, STATE)?).ok_or_else(|| {
            let what = format!("a state of {url} that this version of weir does not know");
            ClientError::Unexpected { server: url.server.clone(), what }
        })
    }

    fn parse(word: &[u8]) -> Option<Self> {
        match word {
            b"complete" => Some(Self::Complete),
            b"being written" | b"being changed" => Some(Self::BeingWritten),
            b"interrupted" => Some(Self::Interrupted),
            _ => None,
        }
    }
}

impl Client {
    /// Whether the server is one of weir's. These know whether each file is complete, and which bytes are durable.
    ///
    /// # Errors
    /// The connection fails, or the server refuses for a reason other than that it does not know the question.
    pub fn is_weir(&mut self, url: &Url) -> Result<bool, ClientError> {
        let answer = match self.config(url, &["weir.mtime"]) {
            Err(error) if !matches!(error.kind(), Kind::Unsupported | Kind::Usage) => return Err(error),
            answer => answer.unwrap_or_default(),
        };
        Ok(answer.first().is_some_and(|word| word == "1"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_being_changed_is_not_complete() {
        let state = |word: &str| FileState::parse(word.as_bytes());
        assert_eq!(state("complete"), Some(FileState::Complete));
        assert_eq!([state("being written"), state("being changed")], [Some(FileState::BeingWritten); 2]);
        assert_eq!((state("interrupted"), state("Complete")), (Some(FileState::Interrupted), None));
    }
}
