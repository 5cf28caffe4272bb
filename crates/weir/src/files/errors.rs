//! Commands that treat several places report each error and go on with the rest.

use std::io::Write as _;

use transfer::TransferError;

use crate::exit::Exit;

/// The errors of one run.
#[derive(Debug)]
pub struct Errors {
    command: &'static str,
    exit: Option<Exit>,
    has_changed: bool,
}

impl Errors {
    /// No errors of `command` yet.
    #[must_use]
    pub fn of(command: &'static str) -> Self {
        Self { command, exit: None, has_changed: false }
    }

    /// Something was changed: from now on no error is one of usage, which says that nothing was.
    pub fn has_changed(&mut self) {
        self.has_changed = true;
    }

    /// Does `each` for all `items` and prints the errors.
    ///
    /// # Errors
    /// [`TransferError::Stopped`]: the rest cannot be done, because nobody reads the output any more.
    pub fn each<T>(
        &mut self,
        items: impl IntoIterator<Item = T>,
        mut each: impl FnMut(&mut Self, T) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        for item in items {
            match each(self, item) {
                Ok(()) => {}
                Err(TransferError::Stopped) => return Err(TransferError::Stopped),
                Err(error) => self.say(&error),
            }
        }
        Ok(())
    }

    /// Prints an error and notes its exit code.
    pub fn say(&mut self, error: &TransferError) {
        // Stderr may be closed.
        let _ = writeln!(std::io::stderr(), "weir {}: {error}", self.command);
        self.note(error.exit());
    }

    /// Notes an exit code.
    pub fn note(&mut self, exit: Exit) {
        self.exit = Some(exit.after(self.exit));
    }

    /// The exit code of the run.
    #[must_use]
    pub fn exit(&self) -> Exit {
        match self.exit {
            Some(Exit::Usage) if self.has_changed => Exit::Failed,
            exit => exit.unwrap_or(Exit::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    fn usage() -> TransferError {
        TransferError::NotADirectory { path: "/f".into() }
    }

    #[test]
    fn the_rest_is_done_after_an_error() {
        let (mut errors, mut done) = (Errors::of("mkdir"), Vec::new());
        let each = |errors: &mut Errors, number| {
            done.push(number);
            if number == 2 {
                return Err(usage());
            }
            errors.has_changed();
            Ok(())
        };
        errors.each([2, 2], each).unwrap();
        assert_eq!(errors.exit(), Exit::Usage, "nothing was touched");
        let (mut errors, mut done) = (Errors::of("mkdir"), Vec::new());
        errors
            .each([1, 2, 3], |errors: &mut Errors, number| {
                done.push(number);
                if number == 2 {
                    return Err(usage());
                }
                errors.has_changed();
                Ok(())
            })
            .unwrap();
        assert_eq!((done, errors.exit()), (vec![1, 2, 3], Exit::Failed));
        assert!(errors.each([1], |_, _| Err(TransferError::Stopped)).is_err());
    }

    #[test]
    fn different_failures_have_the_general_code() {
        let mut errors = Errors::of("ls");
        assert_eq!(errors.exit(), Exit::Done);
        errors.note(Exit::NotFound);
        errors.note(Exit::NotFound);
        assert_eq!(errors.exit(), Exit::NotFound);
        errors.note(Exit::Denied);
        assert_eq!(errors.exit(), Exit::Failed);
    }
}
