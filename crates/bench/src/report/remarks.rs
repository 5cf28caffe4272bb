//! What is to be said of trials beside their figures: why one ended early, and what it could not remove.

use serde::{Deserialize, Serialize};

use super::figures::titled;
use crate::result::TrialRecord;

/// Of one trial.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Remark {
    /// The system.
    pub system: String,
    /// The work's name.
    pub work: String,
    /// Its parameters.
    pub parameters: Vec<(String, String)>,
    /// Which repeat, from 0.
    pub repeat: u32,
    /// What happened.
    pub text: String,
    /// Whether something of the trial was not done for it; otherwise its figures are as good as any.
    pub not_done: bool,
}

impl Remark {
    /// All that is to be said of a trial.
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

    /// On one line.
    #[must_use]
    pub fn line(&self) -> String {
        let what = if self.not_done { "ended early: " } else { "" };
        let work = titled(&self.work, &self.parameters);
        format!("repeat {} of {work} on {}: {what}{}", self.repeat + 1, self.system, plain(&self.text))
    }
}

/// Most characters of what a system, or a tool, has said.
const CHARACTERS_MAX: usize = 300;

/// Text of others on one line: nothing in it moves the cursor.
pub(super) fn plain(text: &str) -> String {
    text.chars().take(CHARACTERS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
