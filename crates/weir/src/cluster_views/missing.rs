//! `weir missing`.

use std::io::Write as _;

use control::ControlRequest;
use manager::{MissingPage, ReplicationState, UnderReplicatedFile};

use super::{asked, counted};
use crate::Failure;
use crate::cli::MissingArgs;
use crate::exit::Exit;

/// How many files there are of each kind.
#[derive(Default)]
struct Sums {
    lost: u64,
    unavailable: u64,
    under_replicated: u64,
}

/// Runs the command. Prints each file as it arrives, because there may be millions.
pub(crate) fn run(args: &MissingArgs) -> Result<Exit, Failure> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match print(args, &mut out).and_then(|()| out.flush().map_err(Stopped::Printing)) {
        Ok(()) => Ok(Exit::Done),
        // A closed reader (`| head`) is no error.
        Err(Stopped::Printing(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(Exit::Done),
        Err(Stopped::Printing(error)) => Err(Failure::new(Exit::Failed, error)),
        Err(Stopped::Request(failure)) => Err(failure),
    }
}

enum Stopped {
    Request(Failure),
    Printing(std::io::Error),
}

impl From<std::io::Error> for Stopped {
    fn from(error: std::io::Error) -> Self {
        Self::Printing(error)
    }
}

fn print(args: &MissingArgs, out: &mut impl std::io::Write) -> Result<(), Stopped> {
    let (mut sums, mut after, mut is_first) = (Sums::default(), None, true);
    if args.manager.json {
        write!(out, "[")?;
    }
    loop {
        let ask = ControlRequest::Missing { after, unreadable: args.unreadable };
        let page: MissingPage = asked(&args.manager.data, &ask).map_err(Stopped::Request)?;
        for file in &page.files {
            sums.add(file);
            if args.manager.json {
                let comma = if std::mem::take(&mut is_first) { "" } else { "," };
                write!(out, "{comma}\n{}", serde_json::to_string(file).map_err(std::io::Error::other)?)?;
            } else {
                writeln!(out, "{}", in_words(file))?;
            }
        }
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if args.manager.json {
        writeln!(out, "]")?;
    } else {
        writeln!(out, "{}", sums.in_words(args.unreadable))?;
    }
    Ok(())
}

fn in_words(file: &UnderReplicatedFile) -> String {
    let UnderReplicatedFile { path, state, units, replicas, target_replicas, locations, .. } = file;
    let units: Vec<String> = units.iter().map(u8::to_string).collect();
    let units = match units.len() {
        0 => String::new(),
        1 => format!(", stripe unit {}", units.join("")),
        _ => format!(", stripe units {}", units.join(", ")),
    };
    let what = match state {
        ReplicationState::Lost => "lost, no store that is left has it".to_owned(),
        ReplicationState::Unavailable => "not readable now".to_owned(),
        ReplicationState::UnderReplicated => format!("{replicas} of {target_replicas} replicas"),
    };
    let without = if locations.is_empty() { String::new() } else { format!("; without {}", locations.join(", ")) };
    format!("{path}: {what}{units}{without}")
}

impl Sums {
    fn add(&mut self, file: &UnderReplicatedFile) {
        match file.state {
            ReplicationState::Lost => self.lost += 1,
            ReplicationState::Unavailable => self.unavailable += 1,
            ReplicationState::UnderReplicated => self.under_replicated += 1,
        }
    }

    fn in_words(&self, unreadable: bool) -> String {
        let mut said = format!(
            "{} lost, {} not readable until a store returns",
            counted(self.lost, "file"),
            counted(self.unavailable, "file")
        );
        if !unreadable {
            said.push_str(&format!(", {} under-replicated", self.under_replicated));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_shows_the_missing_replicas_of_a_file() {
        let file = |state, units: &[u8]| UnderReplicatedFile {
            path: "/a".into(),
            len: 5,
            state,
            units: units.to_vec(),
            replicas: 1,
            target_replicas: 2,
            stores: vec!["store 7 at s/r/h (node 2)".into()],
            locations: vec!["s/r/h".into()],
        };
        let said = |state, units| in_words(&file(state, units));
        assert_eq!(said(ReplicationState::UnderReplicated, &[]), "/a: 1 of 2 replicas; without s/r/h");
        assert!(
            said(ReplicationState::Lost, &[3]).starts_with("/a: lost, no store that is left has it, stripe unit 3;")
        );
        assert!(said(ReplicationState::Unavailable, &[0, 3]).contains("not readable now, stripe units 0, 3; without"));
        let mut sums = Sums::default();
        for state in [ReplicationState::Lost, ReplicationState::UnderReplicated, ReplicationState::UnderReplicated] {
            sums.add(&file(state, &[]));
        }
        assert_eq!(sums.in_words(false), "1 file lost, 0 files not readable until a store returns, 2 under-replicated");
    }
}
