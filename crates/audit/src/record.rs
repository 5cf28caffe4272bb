//! One line of the log.

use std::borrow::Cow;

use console::time_text::show_time;
use serde::{Deserialize, Serialize};
use types::{ErrorCode, Timestamp};

/// Bytes of a path, of another text and of an error that a line holds. The rest is cut, and `…` says so.
const PATH_MAX: usize = 8192;
const TEXT_MAX: usize = 256;
const REASON_MAX: usize = 1024;
/// A line is never longer, in bytes with its end: JSON writes a byte as six at most.
pub const LINE_MAX: usize = 6 * (2 * PATH_MAX + REASON_MAX + 12 * TEXT_MAX) + 1024;

/// What a line is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// A client has logged in, or was refused.
    Login,
    /// A client has changed something, or was denied that.
    #[default]
    Change,
    /// A client has read something, or was denied that.
    Read,
    /// An administrator has changed something, or was denied that.
    Admin,
    /// Lines are missing here.
    Lost,
}

impl Event {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("login", Self::Login),
        ("change", Self::Change),
        ("read", Self::Read),
        ("admin", Self::Admin),
        ("lost", Self::Lost),
    ];
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was done.
    #[default]
    Ok,
    /// A rule does not allow it.
    Denied,
    /// It was not done for another reason.
    Failed,
    /// It was allowed, and another node does it. That node writes the next line about it.
    Redirected,
}

impl Outcome {
    /// All of them, with their names.
    pub const ALL: [(&'static str, Self); 4] =
        [("ok", Self::Ok), ("denied", Self::Denied), ("failed", Self::Failed), ("redirected", Self::Redirected)];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, outcome)| *outcome == self).map_or("", |(name, _)| name)
    }
}

/// A text of a line: often one that the program has anyway.
type Text = Cow<'static, str>;

/// One line. Empty fields are left out.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Record {
    /// When, in UTC, as `2026-11-21T09:45:00.123Z`. [`crate::Log::write`] sets it.
    #[serde(default)]
    pub time: String,
    /// What it is about.
    pub event: Event,
    /// What was requested, as in `mkdir`.
    pub operation: Text,
    /// How it ended.
    pub result: Outcome,
    /// The name that it is about. Bytes that are no printable ASCII are escaped as in `\xff`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Text>,
    /// The new name, if there are two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Text>,
    /// What was to be set, as in `mode 0750`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<Text>,
    /// The name of the principal, if it is known here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub principal: Option<Text>,
    /// The number of the principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// How the client has shown who it is, as in `ztn`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mechanism: Option<Text>,
    /// By which credential. It lets nobody in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Text>,
    /// The address that the request came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<Text>,
    /// What the client says about itself: login name and process number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Text>,
    /// The protocol, as in `root`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Text>,
    /// The number of the session on this node, since its start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// The kind of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// Why it was not done: for a denial, the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Text>,
    /// How many lines are lost here, for [`Event::Lost`], or were left out, for the operation `more`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<u64>,
}

/// Cuts a text.
pub(crate) fn cut(text: &mut Text, most: usize) {
    if text.len() <= most {
        return;
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    let kept = text.get(..end).unwrap_or_default();
    *text = Cow::Owned(format!("{kept}…"));
}

impl Record {
    /// The line, with its end. It is never longer than [`LINE_MAX`], and has no line end in its middle.
    #[must_use]
    pub fn line(mut self, now: Timestamp) -> Vec<u8> {
        self.time = time_in_line(now);
        cut(&mut self.operation, TEXT_MAX);
        for path in [&mut self.path, &mut self.to].into_iter().flatten() {
            cut(path, PATH_MAX);
        }
        let others = [
            &mut self.detail,
            &mut self.principal,
            &mut self.mechanism,
            &mut self.credential,
            &mut self.address,
            &mut self.client,
            &mut self.protocol,
        ];
        others.into_iter().flatten().for_each(|text| cut(text, TEXT_MAX));
        if let Some(reason) = &mut self.reason {
            cut(reason, REASON_MAX);
        }
        let mut line = Vec::with_capacity(512);
        // All keys are texts, so this cannot fail.
        if serde_json::to_writer(&mut line, &self).is_err() {
            line.clear();
        }
        line.push(b'\n');
        line
    }

    /// Reads a line. `None`: it is none of this log.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}

/// A time as lines have it, to the millisecond. Their order is that of their text.
#[must_use]
pub fn time_in_line(time: Timestamp) -> String {
    let seconds = show_time(u64::try_from(time.secs()).unwrap_or(0));
    let millis = time.0.rem_euclid(1_000_000_000) / 1_000_000;
    format!("{}.{millis:03}Z", seconds.trim_end_matches('Z').replace(' ', "T"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_795_254_300_123_456_789);

    #[test]
    fn a_line_is_one_object_that_can_be_read_again() {
        let record = Record {
            operation: "rename".into(),
            path: Some("/a".into()),
            to: Some("/b".into()),
            result: Outcome::Denied,
            code: Some(ErrorCode::Denied),
            reason: Some("no".into()),
            number: Some(7),
            ..Record::default()
        };
        let line = record.clone().line(NOW);
        let expected = r#"{"time":"2026-11-21T09:45:00.123Z","event":"change","operation":"rename","result":"denied","path":"/a","to":"/b","number":7,"code":"Denied","reason":"no"}"#;
        assert_eq!(String::from_utf8(line.clone()).unwrap(), format!("{expected}\n"));
        assert_eq!(Record::parse(&line), Some(Record { time: "2026-11-21T09:45:00.123Z".into(), ..record }));
        assert_eq!(Record::parse(b"{\"time\":\"x\"}"), None);
        assert_eq!(Record::parse(b"\xff"), None);
    }

    #[test]
    fn hostile_texts_stay_in_their_line_and_the_line_in_its_bounds() {
        let hostile: String = ['\n', '\u{1}', '"', '\\', 'é', '\u{202e}'].into_iter().cycle().take(30_000).collect();
        let text = || Some(Cow::Owned(hostile.clone()));
        let record = Record {
            operation: hostile.clone().into(),
            path: text(),
            to: text(),
            detail: text(),
            principal: text(),
            mechanism: text(),
            credential: text(),
            address: text(),
            client: text(),
            protocol: text(),
            reason: text(),
            ..Record::default()
        };
        let line = record.line(NOW);
        assert!(line.len() <= LINE_MAX, "{}", line.len());
        assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
        let read = Record::parse(&line).unwrap();
        assert!(hostile.starts_with(read.path.unwrap().trim_end_matches('…')));
        // Also a text of which each byte takes six.
        let longest = Some(Cow::Owned("\u{1}".repeat(10_000)));
        let record = Record {
            path: longest.clone(),
            to: longest.clone(),
            reason: longest.clone(),
            detail: longest.clone(),
            client: longest,
            ..Record::default()
        };
        assert!(record.line(NOW).len() <= LINE_MAX);
    }
}
