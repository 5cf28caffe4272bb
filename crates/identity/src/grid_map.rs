//! The grid-mapfile: certificate subjects and their accounts, as Globus and its successors have it.

use std::collections::BTreeMap;

use types::{PrincipalKind, PrincipalName, PrincipalNameError};

use crate::{DistinguishedName, DistinguishedNameError};

/// Longest grid-mapfile, in bytes.
pub const GRID_MAP_BYTES_MAX: usize = 16 << 20;
/// Most entries in a grid-mapfile.
pub const GRID_MAP_ENTRIES_MAX: usize = 100_000;

/// Why a grid-mapfile is refused. One bad line refuses all of it, so that nobody is mapped by half a file. A server that reads
/// a changed file keeps the last good one in use, and reports the line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GridMapError {
    /// More than [`GRID_MAP_BYTES_MAX`] bytes.
    #[error("the grid-mapfile is {0} bytes long; {GRID_MAP_BYTES_MAX} is the limit")]
    TooLong(usize),
    /// More than [`GRID_MAP_ENTRIES_MAX`] entries.
    #[error("the grid-mapfile has more than {GRID_MAP_ENTRIES_MAX} entries")]
    TooManyEntries,
    /// A line is malformed.
    #[error("line {line} of the grid-mapfile is not of the form \"/DC=ch/DC=cern/CN=Ana Lee\" ana: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        why: LineProblem,
    },
}

/// What is wrong with a line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LineProblem {
    /// Not UTF-8.
    #[error("it is not UTF-8")]
    Utf8,
    /// No quote at the end of the subject.
    #[error("the quote before the subject has no second one")]
    Quote,
    /// No account.
    #[error("there is no account after the subject")]
    NoAccount,
    /// Something after the account.
    #[error("there is something after the account; a subject with blanks must be in quotes")]
    Rest,
    /// The subject is malformed.
    #[error(transparent)]
    Subject(#[from] DistinguishedNameError),
    /// The account is malformed.
    #[error("its account cannot be used: {0}")]
    Account(#[from] PrincipalNameError),
}

/// What a subject is mapped to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GridMapEntry {
    /// The account.
    pub account: PrincipalName,
    /// The number of the line, from 1.
    pub line: usize,
}

/// A parsed grid-mapfile.
///
/// Each line has a subject, in quotes if it contains blanks, and an account. Of several accounts with commas between
/// them the first one counts, and of several lines with the same subject the first one. Empty lines, and what follows a `#`
/// at the beginning of a line or after the account, are ignored. In subjects, with quotes or without, `\"`, `\\` and `\x41`
/// stand for what they name ([`DistinguishedName::parse_escaped`]). Pool accounts (`.atlas`) are not supported.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GridMap(BTreeMap<DistinguishedName, GridMapEntry>);

impl GridMap {
    /// Parses the bytes of a file.
    ///
    /// # Errors
    ///
    /// [`GridMapError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, GridMapError> {
        if bytes.len() > GRID_MAP_BYTES_MAX {
            return Err(GridMapError::TooLong(bytes.len()));
        }
        let mut entries = BTreeMap::new();
        for (index, line) in bytes.split(|&byte| byte == b'\n').enumerate() {
            let number = index + 1;
            let Some((subject, account)) = parse_line(line).map_err(|why| GridMapError::Line { line: number, why })?
            else {
                continue;
            };
            if entries.len() == GRID_MAP_ENTRIES_MAX {
                return Err(GridMapError::TooManyEntries);
            }
            entries.entry(subject).or_insert(GridMapEntry { account, line: number });
        }
        Ok(Self(entries))
    }

    /// What `subject` is mapped to.
    #[must_use]
    pub fn get(&self, subject: &DistinguishedName) -> Option<&GridMapEntry> {
        self.0.get(subject)
    }

    /// How many subjects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The subject and the account of a line; `None` if it has neither.
fn parse_line(line: &[u8]) -> Result<Option<(DistinguishedName, PrincipalName)>, LineProblem> {
    let line = std::str::from_utf8(line).map_err(|_| LineProblem::Utf8)?.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    let (subject, rest) = match line.strip_prefix('"') {
        Some(quoted) => unquote(quoted)?,
        None => line.split_once(char::is_whitespace).ok_or(LineProblem::NoAccount)?,
    };
    let subject = DistinguishedName::parse_escaped(subject)?;
    let mut words = rest.split_whitespace();
    let accounts = words.next().filter(|word| !word.starts_with('#')).ok_or(LineProblem::NoAccount)?;
    if words.next().is_some_and(|word| !word.starts_with('#')) {
        return Err(LineProblem::Rest);
    }
    let account = accounts.split(',').next().unwrap_or_default();
    let account = PrincipalName::parse(PrincipalKind::User, account)?;
    Ok(Some((subject, account)))
}

/// The text up to the quote that ends it, with its escapes, and what follows that quote and a blank.
fn unquote(quoted: &str) -> Result<(&str, &str), LineProblem> {
    let mut escaped = false;
    let end = quoted.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    let (subject, rest) = quoted.split_at(end.ok_or(LineProblem::Quote)?);
    let rest = rest.strip_prefix('"').unwrap_or(rest);
    if rest.is_empty() || rest.starts_with(char::is_whitespace) { Ok((subject, rest)) } else { Err(LineProblem::Rest) }
}
