//! An error that ends the run: what to say, and the exit code.

use std::fmt;

use crate::exit::Exit;

/// What ended the run. The message stands on its own: what was attempted, what went wrong, what would help.
#[derive(Debug)]
pub struct Failure {
    /// The code to end with.
    pub exit: Exit,
    error: anyhow::Error,
}

impl Failure {
    /// With `exit`, because of `error`; its whole chain of causes is printed.
    pub fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }

    /// With `exit` and a message alone.
    pub fn message(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, error: anyhow::Error::msg(message.into()) }
    }

    /// Says what was being done when it went wrong.
    #[must_use]
    pub fn while_doing(self, what: impl fmt::Display + Send + Sync + 'static) -> Self {
        Self { exit: self.exit, error: self.error.context(what) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        let mut said = self.error.to_string();
        for cause in self.error.chain().skip(1) {
            // Many errors print their source themselves; saying it twice helps nobody.
            let text = cause.to_string();
            if !said.contains(&text) {
                write!(f, "\n  because: {text}")?;
            }
            said = text;
        }
        Ok(())
    }
}
