//! The startup report: what a start found, in plain words for the log.

use journal::{Loss, Opened, Seq};
use kv::{Rebuilt, Recovery};
use store::StoreRecovery;
use types::units::show_size;

/// A line for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StartupReport {
    /// Whether the operator should look at it.
    pub attention: bool,
    /// The line.
    pub text: String,
}

/// Writes the report to the log.
pub fn say_all(words: Vec<StartupReport>) {
    for words in words {
        if words.attention {
            tracing::warn!("{}", words.text);
        } else {
            tracing::info!("{}", words.text);
        }
    }
}

/// The report of a start that has opened a journal with these indexes, and perhaps a store. The lines are in the order of the events.
#[must_use]
pub(crate) fn of_parts(
    journal: &Opened,
    indexes: &[(&str, &Recovery)],
    store: Option<&StoreRecovery>,
    grace_secs: u64,
) -> Vec<StartupReport> {
    let mut words = Vec::new();
    let mut say = |attention: bool, text: String| words.push(StartupReport { attention, text });
    if journal.created {
        say(false, "a new journal was created: this is the first start".into());
    } else if journal.clean {
        say(false, format!("the last stop was clean; the journal holds {} records", journal.records));
    } else {
        let replayed: Vec<String> =
            indexes.iter().map(|(which, recovery)| format!("{} for the {which}", recovery.replayed)).collect();
        say(
            false,
            format!(
                "the last stop was not clean: all {} records of the journal were checked, and what the indexes did not have yet was replayed ({})",
                journal.records,
                replayed.join(", ")
            ),
        );
    }
    if let Some(loss) = journal.lost {
        say(loss == Loss::Failed, loss_in_words(loss));
    }
    if let Some(cut) = &journal.cut {
        let saved = match &cut.saved {
            Some(file) => format!("saved in {file}"),
            None => "not saved, for want of space".into(),
        };
        say(
            false,
            format!(
                "{} at the end of the journal did not check and were cut: writes that were not synced when the node stopped, never acknowledged as durable ({saved})",
                show_size(cut.bytes)
            ),
        );
    }
    for (which, recovery) in indexes {
        index_in_words(which, recovery, journal.created, &mut say);
    }
    let Some(store) = store else { return words };
    if !store.being_written.is_empty() {
        say(
            false,
            format!(
                "open writes when the node stopped: {}; their writers have {grace_secs} s to come back",
                store.being_written.len()
            ),
        );
    }
    if store.bytes_dropped > 0 {
        say(
            true,
            format!(
                "{} of open writes had been written but not synced, and are gone: the machine stopped, or its disk failed. Their writers are refused when they come back",
                show_size(store.bytes_dropped)
            ),
        );
    }
    if store.orphans_removed > 0 {
        say(
            false,
            format!(
                "{} files of open writes that were never started or were removed are deleted now",
                store.orphans_removed
            ),
        );
    }
    for file in &store.unexplained {
        say(true, format!("store/{file} is not explained by any record and is left alone; `weir fsck` says more"));
    }
    words
}

fn loss_in_words(loss: Loss) -> String {
    const REFUSED: &str = "Clients that were writing then are refused when they come back, and must write their files again; what was acknowledged as durable is there";
    match loss {
        Loss::Failed => format!(
            "a write or a sync had failed before the node stopped, so that bytes that were written and not synced may be gone: look at the disk (dmesg, SMART). {REFUSED}"
        ),
        Loss::Gap => format!(
            "of the records at the end of the journal that were not synced some are gone: the machine stopped, or its disk failed. {REFUSED}"
        ),
        Loss::Unknown => {
            format!(
                "the journal does not say whether bytes that were written and not synced may be gone (an older weir wrote it, or it was started again). {REFUSED}"
            )
        }
    }
}

fn index_in_words(which: &str, recovery: &Recovery, fresh: bool, say: &mut dyn FnMut(bool, String)) {
    if let Some(why) = recovery.rebuilt.filter(|_| !fresh) {
        let because = match why {
            Rebuilt::Empty => "it was empty",
            Rebuilt::AheadOfJournal => "it was further than the journal",
            Rebuilt::OtherJournal => "it belonged to another journal",
            Rebuilt::OtherRun => "a node on another directory had written it; what that node wrote is set aside",
            Rebuilt::BehindJournal => "it was too far behind the journal",
            Rebuilt::Broken => "it could not be read",
            // The repair that requested it reports it.
            Rebuilt::BegunEmpty => return,
        };
        // A node that stops soon after its first start has not written its index yet.
        let young = why == Rebuilt::Empty && recovery.checkpoint == Seq::ZERO;
        say(
            !young,
            format!(
                "the {which}'s index was built from its checkpoint and the journal, because {because}; nothing is lost"
            ),
        );
    }
    for file in &recovery.damaged_checkpoints {
        say(
            true,
            format!("the checkpoint {file} was damaged and is set aside; nothing is lost, a new one will be made"),
        );
    }
    for file in &recovery.stranded_checkpoints {
        say(true, format!("the checkpoint {file} is of no use without those before it; a new one will be made"));
    }
}

#[cfg(test)]
mod tests {
    use journal::{Cut, Opened};
    use store::StoreRecovery;
    use types::{ObjectId, ReplicaId};

    use super::*;

    fn recovery() -> Recovery {
        Recovery {
            last: Seq(9),
            applied: Seq(5),
            checkpoint: Seq(0),
            replayed: 4,
            rebuilt: None,
            damaged_checkpoints: vec![],
            stranded_checkpoints: vec![],
            checkpoint_renewed: false,
        }
    }

    struct Found {
        journal: Opened,
        namespace: Recovery,
        index: Recovery,
        store: StoreRecovery,
    }

    fn in_words(found: &Found, grace_secs: u64) -> Vec<StartupReport> {
        let indexes = [("namespace", &found.namespace), ("store", &found.index)];
        of_parts(&found.journal, &indexes, Some(&found.store), grace_secs)
    }

    fn found() -> Found {
        let journal =
            Opened { last: Seq(9), oldest: Seq(1), records: 9, clean: true, created: false, cut: None, lost: None };
        Found { journal, namespace: recovery(), index: recovery(), store: StoreRecovery::default() }
    }

    #[test]
    fn clean_start_reports_little() {
        let words = in_words(&found(), 60);
        assert_eq!(words.len(), 1);
        assert!(!words[0].attention && words[0].text.contains("clean"), "{words:?}");
    }

    #[test]
    fn lines_for_the_operators_attention_are_marked() {
        let mut found = found();
        found.journal.clean = false;
        found.journal.cut = Some(Cut { segment: "s".into(), offset: 1, bytes: 2048, saved: None });
        found.index.rebuilt = Some(Rebuilt::Broken);
        found.journal.lost = Some(Loss::Failed);
        found.store.being_written = vec![ReplicaId::first(ObjectId(1))];
        found.store.bytes_dropped = 10;
        found.store.unexplained = vec!["objects/x".into()];
        let words = in_words(&found, 60);
        let marked: Vec<_> = words.iter().filter(|word| word.attention).map(|word| word.text.as_str()).collect();
        assert_eq!(marked.len(), 4, "{words:#?}");
        assert!(marked[0].contains("had failed") && marked[0].contains("refused"));
        assert!(marked[1].contains("store's index"));
        assert!(marked[2].contains("10 B"));
        assert!(marked[3].contains("store/objects/x"));
        assert!(words.iter().any(|word| word.text.contains("60 s")));
    }
}
