//! Remarks on trials: why one ended early, and what it could not remove.

use serde::{Deserialize, Serialize};

use super::figures::titled;
use crate::result::TrialRecord;

/// A remark on one trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Remark {
    /// The system.
    pub system: String,
    /// The work's name.
    pub work: String,
    /// Its parameters.
    pub parameters: Vec<(String, String)>,
    /// The repeat, from 0.
    pub repeat: u32,
    /// The text.
    pub text: String,
    /// Whether a part of the trial was not done because of it. Otherwise its figures are valid.
    pub not_done: bool,
}

impl Remark {
    /// Returns all remarks on a trial.
    pub(super) fn of(trial: &TrialRecord) -> impl Iterator<Item = Self> {
        let remark = |text: &String, not_done| Self {
            system: trial.system.clone(),
            work: trial.work.clone(),
            parameters: trial.parameters.clone(),
            repeat: trial.trial.repeat,
            text: text.clone(),
            not_done,
        };
        let ended = trial.ended.as_ref().map(|text| remark(text, true));
        ended.into_iter().chain(trial.left.as_ref().map(|text| remark(text, false)))
    }

    /// Returns the remark as one line.
    #[must_use]
    pub fn line(&self) -> String {
        let what = if self.not_done { "ended early: " } else { "" };
        let work = titled(&self.work, &self.parameters);
        format!("repeat {} of {work} on {}: {what}{}", self.repeat + 1, self.system, plain(&self.text))
    }
}

/// The most characters of a system's or tool's text.
const CHARACTERS_MAX: usize = 300;

/// Makes one line of foreign text, without control characters.
pub(super) fn plain(text: &str) -> String {
    text.chars().take(CHARACTERS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
