//! `weir missing`.

use std::io::Write as _;

use manager::{MissingPage, ReplicationState, UnderReplicatedFile};

use super::{asked, counted};
use crate::Failure;
use crate::cli::MissingArgs;
use crate::control::ControlRequest;
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
    let UnderReplicatedFile { path, state, units, replicas, target_replicas, stores, .. } = file;
    let units: Vec<String> = units.iter().map(u8::to_string).collect();
    let units = match units.len() {
        0 => String::new(),
        1 => format!(", stripe unit {}", units.join("")),
        _ => format!(", stripe units {}", units.join(", ")),
    };
    let what = match state {
        ReplicationState::Lost => "lost: all stores that had it are removed as lost".to_owned(),
        ReplicationState::Unavailable => "cannot be read: no store that has it is online".to_owned(),
        ReplicationState::UnderReplicated => format!("{replicas} of {target_replicas} replicas"),
    };
    let stores = if stores.is_empty() { "none".to_owned() } else { stores.join(", ") };
    format!("{path}: {what}{units}; without {stores}")
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
            "{} lost, {} that cannot be read until a store comes back",
            counted(self.lost, "file"),
            counted(self.unavailable, "file")
        );
        if !unreadable {
            said.push_str(&format!(", {} under-replicated", counted(self.under_replicated, "file")));
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
        };
        assert_eq!(
            in_words(&file(ReplicationState::UnderReplicated, &[])),
            "/a: 1 of 2 replicas; without store 7 at s/r/h (node 2)"
        );
        assert!(
            in_words(&file(ReplicationState::Lost, &[3]))
                .starts_with("/a: lost: all stores that had it are removed as lost, stripe unit 3;")
        );
        assert!(
            in_words(&file(ReplicationState::Unavailable, &[0, 3])).contains("is online, stripe units 0, 3; without")
        );
        let mut sums = Sums::default();
        for state in [ReplicationState::Lost, ReplicationState::UnderReplicated, ReplicationState::UnderReplicated] {
            sums.add(&file(state, &[]));
        }
        assert_eq!(
            sums.in_words(false),
            "1 file lost, 0 files that cannot be read until a store comes back, 2 files under-replicated"
        );
    }
}
