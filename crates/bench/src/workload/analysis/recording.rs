//! Recordings of XRootD's recorder plug-in (`libXrdClRecorder`), which `xrdreplay` replays. Each operation of a
//! client is a line of comma-separated values, with the offsets and lengths that it read.

use std::collections::HashMap;
use std::time::Duration;

use crate::target::Span;

/// The most operations of a recording.
const OPERATIONS_MAX: usize = 10_000_000;
/// The most spans of all vector reads together.
const SPANS_MAX: usize = 50_000_000;
/// The longest read.
const READ_MAX: u64 = 1 << 30;

/// Why a recording cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct RecordingError {
    line: usize,
    what: String,
}

/// The operations of a client.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Recording {
    /// The files that it read, with the least length of each.
    pub(super) files: Vec<(String, u64)>,
    /// Its operations, ordered by their start.
    pub(super) operations: Vec<Operation>,
}

/// One operation.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Operation {
    /// The number of the open file. One file may be open several times.
    pub(super) handle: u64,
    pub(super) what: OperationKind,
    /// How long the client did something else before it: the time since the last answer for which it could have
    /// been waiting.
    pub(super) gap: Duration,
}

/// The kind of an operation.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum OperationKind {
    /// Open the file with this index.
    Open(usize),
    Read(Span),
    VectorRead(Vec<Span>),
    Close,
}

struct Line<'a> {
    number: usize,
    handle: u64,
    name: &'a str,
    start: f64,
    stop: f64,
    arguments: Vec<&'a str>,
    succeeded: bool,
    answer: &'a str,
}

impl Recording {
    /// Parses a recording. Operations that failed are skipped. Writing and unknown operations are errors.
    pub(super) fn parse(text: &str) -> Result<Self, RecordingError> {
        let mut lines = Vec::new();
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            if lines.len() == OPERATIONS_MAX {
                return Err(wrong(number, format!("more than {OPERATIONS_MAX} operations")));
            }
            lines.push(split(number + 1, line)?);
        }
        // Lines are recorded when answers come. The operation that started first is done first.
        lines.sort_by(|a, b| a.start.total_cmp(&b.start));
        let mut found = Self::default();
        let (mut open, mut spans) = (HashMap::new(), 0);
        let mut answered: Option<f64> = None;
        for line in lines.iter().filter(|line| line.succeeded) {
            found.add(line, &mut open, &mut spans, answered)?;
            answered = Some(answered.map_or(line.stop, |before| before.max(line.stop)));
        }
        if found.operations.is_empty() {
            return Err(wrong(0, "no operation succeeded"));
        }
        Ok(found)
    }

    /// Adds an operation. `open` has the file of each handle; `answered` is when the last answer before it came.
    fn add(
        &mut self,
        line: &Line<'_>,
        open: &mut HashMap<u64, usize>,
        spans: &mut usize,
        answered: Option<f64>,
    ) -> Result<(), RecordingError> {
        let file = open.get(&line.handle).copied();
        let known = || file.ok_or_else(|| wrong(line.number, "the file was not opened before"));
        let what = match line.name {
            "Open" => {
                let url = line.arguments.first().copied().unwrap_or_default();
                let name = url.split('?').next().unwrap_or(url);
                let place = self.files.iter().position(|(known, _)| known == name);
                let place = place.unwrap_or_else(|| {
                    self.files.push((name.to_owned(), 0));
                    self.files.len() - 1
                });
                open.insert(line.handle, place);
                OperationKind::Open(place)
            }
            "Close" => {
                known()?;
                open.remove(&line.handle);
                OperationKind::Close
            }
            "Stat" => {
                // The answer of the open contains it already, so no request is needed.
                self.grow(known()?, line.answer.split(';').next().and_then(|len| len.parse().ok()).unwrap_or(0));
                return Ok(());
            }
            "Read" | "PgRead" => {
                let read = line.reads()?;
                // At the end of a file, fewer bytes are read than requested.
                let got = line.answer.split(';').next().and_then(|len| len.parse::<usize>().ok());
                let Some(span) = read.first().copied() else { return Ok(()) };
                let span = Span { len: span.len.min(got.unwrap_or(span.len)), ..span };
                if span.len == 0 {
                    return Ok(());
                }
                self.grow(known()?, span.offset + span.len as u64);
                OperationKind::Read(span)
            }
            "VectorRead" => {
                let read = line.reads()?;
                *spans += read.len();
                if *spans > SPANS_MAX {
                    return Err(wrong(line.number, format!("more than {SPANS_MAX} places in all vector reads")));
                }
                let end = read.iter().map(|span| span.offset + span.len as u64).max().unwrap_or(0);
                self.grow(known()?, end);
                OperationKind::VectorRead(read)
            }
            other => {
                let what = format!("`{other}`: only reads can be replayed; remove the lines of files that are written");
                return Err(wrong(line.number, what));
            }
        };
        let gap = answered.map_or(0.0, |answered| (line.start - answered).clamp(0.0, 86_400.0));
        self.operations.push(Operation { handle: line.handle, what, gap: Duration::from_secs_f64(gap) });
        Ok(())
    }

    fn grow(&mut self, file: usize, len: u64) {
        if let Some((_, known)) = self.files.get_mut(file) {
            *known = (*known).max(len);
        }
    }
}

impl Line<'_> {
    /// Pairs of offset and length; the last argument is a timeout.
    fn reads(&self) -> Result<Vec<Span>, RecordingError> {
        let (pairs, rest) = self.arguments.split_at(self.arguments.len().saturating_sub(1) / 2 * 2);
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let span = |pair: &[&str]| match pair {
            [offset, len] => {
                let (offset, len) = (number(offset)?, number(len).filter(|len| *len <= READ_MAX)?);
                offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok())?;
                Some(Span { offset, len: usize::try_from(len).ok()? })
            }
            _ => None,
        };
        let spans: Option<Vec<Span>> = pairs.chunks(2).map(span).collect();
        spans.filter(|spans| rest.len() == 1 && !spans.is_empty()).ok_or_else(|| {
            wrong(self.number, "expected offsets and lengths of a read, and then a timeout; lengths are at most 1 GiB")
        })
    }
}

/// Handle, name, start, arguments, end, status, answer. Some versions put each into quotes.
fn split(number: usize, line: &str) -> Result<Line<'_>, RecordingError> {
    let line = line.trim();
    let quoted = line.strip_prefix('"').and_then(|line| line.strip_suffix('"'));
    let fields: Vec<&str> =
        quoted.map_or_else(|| line.splitn(7, ',').collect(), |line| line.splitn(7, "\",\"").collect());
    let [handle, name, start, arguments, stop, status, ..] = fields[..] else {
        return Err(wrong(number, format!("{} fields, where a recording has 7", fields.len())));
    };
    let time = |text: &str| text.trim().parse::<f64>().ok().filter(|time| time.is_finite());
    let (Ok(handle), Some(start), Some(stop)) = (handle.trim().parse(), time(start), time(stop)) else {
        return Err(wrong(number, "fields 1, 3 and 5 must be a number and two times"));
    };
    let succeeded = status.contains("SUCCESS");
    let answer = fields.get(6).copied().unwrap_or_default();
    Ok(Line {
        number,
        handle,
        name: name.trim(),
        start,
        stop,
        arguments: arguments.split(';').collect(),
        succeeded,
        answer,
    })
}

fn wrong(line: usize, what: impl Into<String>) -> RecordingError {
    RecordingError { line, what: what.into() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RECORDING: &str = "\
94,Open,1000.000000000,root://h//a.root?x=1;16;0;0,1000.100000000,[SUCCESS],
94,VectorRead,1001.000000000,100;10;500;20;0,1001.100000000,[SUCCESS],30;100;10;500;20
94,Read,1000.200000000,4000;1000;0,1000.300000000,[SUCCESS],500
94,Stat,1000.150000000,false;0,1000.160000000,[SUCCESS],9000;0;0;0;0;0;;;
94,Read,1001.500000000,0;10;0,1001.600000000,[ERROR] Operation expired,
94,Close,1002.000000000,0,1002.000100000,[SUCCESS],
";

    #[test]
    fn operations_come_in_the_order_in_which_they_began() {
        let found = Recording::parse(RECORDING).unwrap();
        assert_eq!(found.files, [("root://h//a.root".to_owned(), 9000)]);
        let whats: Vec<_> = found.operations.iter().map(|operation| operation.what.clone()).collect();
        let read = OperationKind::Read(Span { offset: 4000, len: 500 });
        let vector = OperationKind::VectorRead(vec![Span { offset: 100, len: 10 }, Span { offset: 500, len: 20 }]);
        assert_eq!(whats, [OperationKind::Open(0), read, vector, OperationKind::Close]);
        let gaps: Vec<_> = found.operations.iter().map(|operation| operation.gap.as_millis()).collect();
        assert_eq!(gaps, [0, 40, 700, 900]);
    }

    #[test]
    fn fields_may_be_in_quotes() {
        let quoted = |line: &str| line.splitn(7, ',').map(|field| format!("\"{field}\"")).collect::<Vec<_>>().join(",");
        let text: Vec<String> = RECORDING.lines().map(quoted).collect();
        assert_eq!(Recording::parse(&text.join("\n")).unwrap(), Recording::parse(RECORDING).unwrap());
    }

    #[test]
    fn operations_that_cannot_be_replayed_are_reported_with_their_line() {
        let said = |text: &str| Recording::parse(text).unwrap_err().to_string();
        assert!(said("").contains("no operation"));
        assert!(said("1,Open,2").contains("line 1: 3 fields"));
        assert!(said(&RECORDING.replace("94,Close", "94,Write")).contains("`Write`"));
        assert!(said(&RECORDING.replace("94,Open", "95,Open")).contains("not opened"));
        assert!(said(&RECORDING.replace("4000;1000;0", "4000;9999999999999;0")).contains("line 3"));
        assert!(said(&RECORDING.replace("4000;1000;0", "18446744073709551615;1;0")).contains("line 3"));
        assert!(said(&RECORDING.replace("100;10;500;20;0", "100;10;500;0")).contains("line 2"));
        assert!(said(&RECORDING.replace("1000.20", "x1000.20")).contains("two times"));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "([0-9]{1,3},(Open|Read|VectorRead|Close|Stat),[0-9.e]{1,6},[0-9;]{0,20},[0-9]{1,3},.SUCCESS.,[0-9;]{0,5}\n){0,5}") {
            let _ = Recording::parse(&text);
        }
    }
}
