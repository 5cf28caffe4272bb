//! `weir fsck --cluster`: compares the namespace with what each store has, while the cluster serves.

use std::io::Write as _;

use control::ControlRequest;
use manager::{AuditFinding, AuditView, ProblemKind, UncheckedStore};

use super::{asked, counted};
use crate::Failure;
use crate::cli::{FsckArgs, TargetArgs};
use crate::exit::Exit;

/// Runs the command.
pub(crate) fn run(args: &FsckArgs) -> Result<Exit, Failure> {
    let ask = ControlRequest::FsckCluster { list: args.list as u64 };
    let found: Result<AuditView, String> =
        asked(&TargetArgs { data: args.data.clone(), ..args.manager.clone() }, &ask)?;
    let found = found.map_err(|why| Failure::message(Exit::Failed, format!("the manager refused: {why}")))?;
    let lines = if args.json {
        vec![serde_json::to_string(&found).map_err(|error| Failure::new(Exit::Failed, error))?]
    } else {
        in_words(&found)
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    match lines.iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush()) {
        // A closed reader (`| head`) is no error.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(Exit::Failed, error)),
        _ => Ok(exit(&found)),
    }
}

/// A store that was not checked may hide a problem.
fn exit(view: &AuditView) -> Exit {
    match (view.problems(), view.unchecked_stores.is_empty()) {
        (0, true) => Exit::Done,
        (0, false) => Exit::Failed,
        _ => Exit::Wrong,
    }
}

fn in_words(view: &AuditView) -> Vec<String> {
    let AuditView { checked_stores, unchecked_stores, compared, counts, findings } = view;
    let mut lines = Vec::new();
    for kind in ProblemKind::ALL {
        let Some(count) = counts.get(&kind) else { continue };
        let listed: Vec<String> = findings.iter().filter(|one| one.kind == kind).map(of_finding).collect();
        let more = count.saturating_sub(listed.len() as u64);
        lines.extend(listed);
        if more > 0 {
            lines.push(format!("and {more} more of this kind; --list N shows more"));
        }
    }
    for UncheckedStore { store, why } in unchecked_stores {
        lines.push(format!("not checked: {store}: {why}"));
    }
    let problems: Vec<String> =
        ProblemKind::ALL.iter().filter_map(|kind| Some(format!("{} {}", counts.get(kind)?, word(*kind)))).collect();
    let problems = if problems.is_empty() { "no problem".to_owned() } else { problems.join(", ") };
    let (replicas, stores) = (counted(*compared, "replica"), counted(*checked_stores, "store"));
    lines.push(format!("{replicas} on {stores} compared with the namespace: {problems}"));
    lines
}

fn word(kind: ProblemKind) -> &'static str {
    match kind {
        ProblemKind::Lost => "lost",
        ProblemKind::Absent => "absent",
        ProblemKind::Stale => "stale",
        ProblemKind::Damaged => "damaged",
        ProblemKind::Extra => "extra",
        ProblemKind::Unchecked => "unchecked",
    }
}

fn of_finding(finding: &AuditFinding) -> String {
    let AuditFinding { kind, path, object, store } = finding;
    let file = path.clone().unwrap_or_else(|| format!("object {object}"));
    let word = word(*kind);
    match kind {
        ProblemKind::Lost if store.is_empty() => format!("{word}: {file}: there is no store that should have it"),
        ProblemKind::Lost => format!("{word}: {file}: no store that should have it does; looked for on {store}"),
        ProblemKind::Absent => format!("{word}: {file}: {store} should have it and does not; another store has it"),
        ProblemKind::Stale => format!("{word}: {file}: {store} has another version of it"),
        ProblemKind::Damaged => format!("{word}: {file}: its bytes on {store} do not match their checksums"),
        ProblemKind::Extra if path.is_some() => {
            format!("{word}: object {object} of {file}: {store} has it, and other stores should have it")
        }
        ProblemKind::Extra => format!("{word}: object {object}: {store} has it, and no name refers to it"),
        ProblemKind::Unchecked => {
            format!("{word}: {file}: {store} does not have it, and its other stores could not be asked")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(kind: ProblemKind, path: Option<&str>) -> AuditFinding {
        let path = path.map(str::to_owned);
        AuditFinding { kind, path, object: "00000000000000ab".into(), store: "store 7 at s/r/h (node 2)".into() }
    }

    #[test]
    fn the_most_serious_come_first_and_the_last_line_sums_up() {
        let mut view = AuditView { checked_stores: 2, compared: 1, ..AuditView::default() };
        assert_eq!(in_words(&view), ["1 replica on 2 stores compared with the namespace: no problem"]);
        assert_eq!(exit(&view), Exit::Done);
        view.unchecked_stores = vec![UncheckedStore { store: "store 9".into(), why: "it is offline".into() }];
        assert_eq!(exit(&view), Exit::Failed);
        view.counts = [(ProblemKind::Extra, 3), (ProblemKind::Lost, 1)].into();
        view.findings = vec![finding(ProblemKind::Extra, None), finding(ProblemKind::Lost, Some("/f"))];
        let nowhere = AuditFinding { store: String::new(), ..finding(ProblemKind::Lost, Some("/g")) };
        assert_eq!(of_finding(&nowhere), "lost: /g: there is no store that should have it");
        assert_eq!(exit(&view), Exit::Wrong);
        assert_eq!(
            in_words(&view),
            [
                "lost: /f: no store that should have it does; looked for on store 7 at s/r/h (node 2)",
                "extra: object 00000000000000ab: store 7 at s/r/h (node 2) has it, and no name refers to it",
                "and 2 more of this kind; --list N shows more",
                "not checked: store 9: it is offline",
                "1 replica on 2 stores compared with the namespace: 1 lost, 3 extra",
            ]
        );
    }
}
