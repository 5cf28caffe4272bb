//! The error that ends a run: its message and its exit code.

use std::error::Error;
use std::fmt;

use crate::exit::Exit;

/// The error that ended a run. Its message stands on its own: what was attempted, what went wrong, what would help.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What was being done when it went wrong, the widest view first.
    doing: Vec<String>,
    error: Box<dyn Error + Send + Sync>,
}

impl Failure {
    /// A failure with `exit` because of `error`. Prints the whole chain of causes.
    pub fn new(exit: Exit, error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { exit, doing: Vec::new(), error: error.into() }
    }

    /// A failure with `exit` and only a message.
    pub fn message(exit: Exit, message: impl Into<String>) -> Self {
        Self::new(exit, message.into())
    }

    /// Adds what was being done when it went wrong.
    #[must_use]
    pub fn while_doing(mut self, what: impl fmt::Display) -> Self {
        self.doing.insert(0, what.to_string());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts = self.doing.clone();
        let mut cause: Option<&dyn Error> = Some(&*self.error);
        while let Some(error) = cause {
            texts.push(error.to_string());
            cause = error.source();
        }
        let mut said = String::new();
        for (number, text) in texts.into_iter().enumerate() {
            // Many errors print their source themselves, so do not repeat it.
            if number == 0 {
                write!(f, "{text}")?;
            } else if !said.contains(&text) {
                write!(f, "\n  because: {text}")?;
            }
            said = text;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(std::num::ParseIntError);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the number does not read")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn every_cause_is_printed_once() {
        let Err(cause) = "x".parse::<u8>() else { return assert!("x".parse::<u8>().is_err()) };
        let failure = Failure::new(Exit::Usage, Outer(cause)).while_doing("cannot take --jobs").while_doing("weir cp");
        assert_eq!(
            failure.to_string(),
            "weir cp\n  because: cannot take --jobs\n  because: the number does not read\n  because: invalid digit found in string"
        );
        let repeated = Failure::message(Exit::Failed, "no room").while_doing("cannot write: no room");
        assert_eq!(repeated.to_string(), "cannot write: no room");
    }
}
