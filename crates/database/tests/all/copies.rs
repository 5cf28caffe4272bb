//! Namespaces on their way into a database and out of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use database::{
    Compared, Copying, DatabaseError, DirectoryMark, IfThere, ImportSource, ImportState, Postgres, Schema, compare,
};
use kv::{Chunks, Kv, OwnedEntry, ScanOrder};
use postgres_server::PostgresServer;
use types::ClusterId;

use crate::harness::{address, config, database, get, init, keys, open, put};

const OURS: ClusterId = ClusterId(7);

/// Sorted entries with odd bytes in their keys and values.
fn entries(count: u32) -> Vec<OwnedEntry> {
    let mut all: Vec<OwnedEntry> = (0..count)
        .map(|number| {
            let mut key = vec![u8::try_from(number % 255).unwrap()];
            key.extend_from_slice(&number.to_be_bytes());
            key.extend_from_slice(if number % 3 == 0 { b"\0'\\\xff\xfe;--" } else { b"" });
            (key, number.to_le_bytes().repeat(usize::try_from(number % 5).unwrap()))
        })
        .collect();
    all.sort();
    all
}

fn source(text: &str) -> ImportSource {
    ImportSource { text: text.into(), cluster: OURS }
}

fn connect(url: &str) -> Copying {
    Copying::connect(&address(url)).unwrap()
}

fn stream(entries: &[OwnedEntry]) -> impl kv::EntrySource {
    let mut entries = entries.to_vec();
    Chunks::new(move |_| Ok(std::mem::take(&mut entries)))
}

fn verify(entries: &[OwnedEntry], copying: &mut Copying) -> Compared {
    compare(&mut stream(entries), &mut copying.entries(), &mut |_| {}).unwrap()
}

/// Copies what is missing, at most `chunks` chunks.
fn copy(copying: &mut Copying, source: &ImportSource, all: &[OwnedEntry], chunks: usize) -> u64 {
    let ImportState::Copying { after, entries } = copying.begin_import(source, IfThere::Refuse, |_| true).unwrap()
    else {
        panic!("it is complete")
    };
    let rest = all.iter().position(|(key, _)| Some(key) > after.as_ref()).unwrap_or(all.len());
    assert_eq!(entries, u64::try_from(rest).unwrap(), "the position is that of the entries");
    for chunk in all[rest..].chunks(1000).take(chunks) {
        copying.put(chunk).unwrap();
    }
    entries
}

fn import(url: &str, text: &str, all: &[OwnedEntry]) {
    let mut copying = connect(url);
    copy(&mut copying, &source(text), all, usize::MAX);
    copying.complete_import().unwrap();
    copying.finish_import(None).unwrap();
}

fn refused<T: std::fmt::Debug>(result: Result<T, DatabaseError>, word: &str) {
    let said = result.unwrap_err().to_string();
    assert!(said.contains(word), "{word} is not in: {said}");
}

/// Begins an export to a directory with the mark of a namespace in the database.
fn begin_export(copying: &mut Copying, target: &str, ours: ClusterId) -> Result<(), DatabaseError> {
    copying.begin_export(target, ours, DirectoryMark::Present)
}

/// Cancels as somebody who knows nothing of data directories.
fn cancel(copying: &mut Copying) -> Result<(), DatabaseError> {
    copying.cancel(|_| false)
}

/// Waits until `what` is so.
fn wait_for(what: &dyn Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !what() {
        assert!(Instant::now() < until, "it does not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Whether a statement that a test runs in the database sleeps: then it holds its locks.
fn sleeps(url: &str) -> bool {
    let asked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    postgres_server::shared().psql(url, asked).unwrap() != "0"
}

fn is_closed(url: &str, word: &str) {
    refused(Postgres::open(&address(url), "test", config()).map(drop), word);
}

#[test]
fn an_interrupted_import_goes_on_where_it_was_and_is_compared() {
    let url = database();
    let all = entries(50_000);
    let from = source("one");
    let mut first = connect(&url);
    assert_eq!(copy(&mut first, &from, &all, 7), 0);
    is_closed(&url, "weir db import");
    // Killed. Another process goes on, and the first one, if it still runs, cannot.
    let mut second = connect(&url);
    assert_eq!(copy(&mut second, &from, &all, 20), 7000);
    refused(first.put(&all[27_000..28_000]), "another process");
    refused(first.complete_import(), "another process");
    drop(second);
    let mut third = connect(&url);
    assert_eq!(copy(&mut third, &from, &all, usize::MAX), 27_000);
    assert_eq!(verify(&all, &mut third), Compared::Equal { entries: 50_000 });
    third.complete_import().unwrap();
    // Complete, but not handed over: it stays closed, and is not copied again.
    drop(third);
    is_closed(&url, "weir db import");
    let mut fourth = connect(&url);
    assert_eq!(fourth.begin_import(&from, IfThere::Refuse, |_| true).unwrap(), ImportState::Complete);
    refused(fourth.begin_import(&source("two"), IfThere::Refuse, |_| true), "another state");
    refused(fourth.put(&all[..1]), "another process");
    refused(cancel(&mut fourth), "add --data");
    assert!(!fourth.continue_complete_import(ClusterId(8)).unwrap());
    assert!(fourth.continue_complete_import(OURS).unwrap());
    fourth.finish_import(None).unwrap();
    assert!(!fourth.continue_complete_import(OURS).unwrap());
    let kv = open(&url);
    assert_eq!(kv.cluster(), Some(OURS));
    let view = kv.snapshot();
    for (key, value) in all.iter().step_by(977) {
        assert_eq!(view.get(key).unwrap().as_ref(), Some(value));
    }
    put(&kv, "n", "1").unwrap();
}

#[test]
fn a_changed_entry_is_noticed() {
    let url = database();
    let all = entries(3000);
    let mut copying = connect(&url);
    copy(&mut copying, &source("one"), &all, usize::MAX);
    let server = postgres_server::shared();
    let key = |at: usize| all[at].0.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let at = (1500..3000).find(|at| !all[*at].1.is_empty()).unwrap();
    let change = |sql: &str| {
        server.psql(&url, &sql.replace("KEY", &format!("'\\x{}'::bytea", key(at)))).unwrap();
    };
    let differs = |what| Compared::Different { key: all[at].0.clone(), what };
    assert_eq!(verify(&all, &mut copying), Compared::Equal { entries: 3000 });
    change("UPDATE weir.entries SET value = set_byte(value, 0, get_byte(value, 0) # 1) WHERE key = KEY");
    assert_eq!(verify(&all, &mut copying), differs("the copy has another value"));
    change("DELETE FROM weir.entries WHERE key = KEY");
    assert_eq!(verify(&all, &mut copying), differs("the copy does not have it"));
    let (without, with) = ([&all[..at], &all[at + 1..]].concat(), [&all[..at - 1], &all[at..]].concat());
    assert_eq!(verify(&without, &mut copying), Compared::Equal { entries: 2999 });
    let found = verify(&with, &mut copying);
    assert_eq!(found, Compared::Different { key: all[at - 1].0.clone(), what: "only the copy has it" });
}

#[test]
fn imports_into_databases_that_are_not_for_them_are_refused() {
    let server = postgres_server::shared();
    let all = entries(2500);
    let import_of = |url: &str, text: &str, if_there| connect(url).begin_import(&source(text), if_there, |_| true);
    let empty = server.database();
    refused(Copying::connect(&address(&empty)).map(drop), "weir db init");
    // Not empty.
    let url = database();
    put(&open(&url), "a", "1").unwrap();
    for if_there in [IfThere::Refuse, IfThere::Replace] {
        refused(import_of(&url, "one", if_there), "has one already");
    }
    assert_eq!(get(&*open(&url).snapshot(), "a").unwrap(), "1", "and it is not closed");
    // Another cluster's.
    let url = database();
    open(&url).claim(ClusterId(8)).unwrap();
    refused(import_of(&url, "one", IfThere::Replace), "belongs to cluster");
    // Closed for another reason.
    let url = database();
    server.psql(&url, "UPDATE weir.schema SET closed = 'it has lost changes'").unwrap();
    refused(import_of(&url, "one", IfThere::Replace), "it has lost changes");
    refused(begin_export(&mut connect(&url), "there", OURS), "has none");
    // A part of another state.
    let url = database();
    copy(&mut connect(&url), &source("one"), &all, 1);
    refused(import_of(&url, "two", IfThere::Refuse), "one was imported, which is another state");
    refused(begin_export(&mut connect(&url), "there", OURS), "import of one");
    refused(connect(&url).begin_repair("why"), "import of one");
    refused(connect(&url).begin_view(), "import of one");
    let begun = ImportState::Copying { after: None, entries: 0 };
    assert_eq!(import_of(&url, "two", IfThere::Replace).unwrap(), begun);
    assert_eq!(connect(&url).chunk(None).unwrap(), []);
    assert_eq!(copy(&mut connect(&url), &source("two"), &all, 2), 0);
    cancel(&mut connect(&url)).unwrap();
    refused(cancel(&mut connect(&url)), "nothing to cancel");
    let kv = open(&url);
    assert_eq!((kv.cluster(), keys(&*kv.snapshot(), "", "\u{7f}", ScanOrder::Ascending, 9)), (None, vec![]));
}

#[test]
fn an_export_closes_the_database_for_good() {
    let all = entries(2500);
    let url = database();
    refused(begin_export(&mut connect(&url), "there", OURS), "has none");
    import(&url, "one", &all);
    let kv = open(&url);
    put(&kv, "n", "1").unwrap();
    let mut export = connect(&url);
    refused(begin_export(&mut export, "there", OURS), "a manager is active");
    put(&kv, "n", "2").unwrap();
    drop(kv);
    refused(begin_export(&mut connect(&url), "there", ClusterId(8)), "belongs to cluster");
    begin_export(&mut export, "there", OURS).unwrap();
    is_closed(&url, "being exported to there");
    refused(begin_export(&mut connect(&url), "elsewhere", OURS), "export to there was not finished");
    refused(connect(&url).begin_repair("why"), "export to there");
    for if_there in [IfThere::Refuse, IfThere::Replace] {
        refused(connect(&url).begin_import(&source("one"), if_there, |_| true), "export of its own");
    }
    // Another process goes on with it, and the first one cannot end it.
    let mut second = connect(&url);
    begin_export(&mut second, "there", OURS).unwrap();
    refused(export.finish_export(), "another process");
    // Cancelled, the database can be used as before.
    cancel(&mut second).unwrap();
    assert_eq!(get(&*open(&url).snapshot(), "n").unwrap(), "2");
    begin_export(&mut second, "there", OURS).unwrap();
    let mut expected = all.clone();
    expected.push((b"n".to_vec(), b"2".to_vec()));
    expected.sort();
    assert_eq!(verify(&expected, &mut second), Compared::Equal { entries: 2501 });
    second.finish_export().unwrap();
    is_closed(&url, "was moved to there");
    refused(cancel(&mut second), "nothing to cancel");
    refused(connect(&url).begin_repair("why"), "was moved");
    refused(begin_export(&mut connect(&url), "elsewhere", OURS), "was moved to there already");
    refused(connect(&url).begin_import(&source("one"), IfThere::Refuse, |_| true), "--replace");
    // The directory has lost its mark, and its namespace has gone on since: what the database has is old.
    refused(connect(&url).begin_export("there", OURS, DirectoryMark::Absent), "was moved out already");
    is_closed(&url, "was moved to there");
    // What interrupted the last step is repeated.
    begin_export(&mut connect(&url), "there", OURS).unwrap();
    begin_export(&mut connect(&url), "there", OURS).unwrap();
    is_closed(&url, "being exported");
    begin_export(&mut second, "there", OURS).unwrap();
    second.finish_export().unwrap();
    // Back again, over what was left there.
    let begun = connect(&url).begin_import(&source("two"), IfThere::Replace, |_| true).unwrap();
    assert_eq!(begun, ImportState::Copying { after: None, entries: 0 });
    import(&url, "two", &all[..10]);
    assert_eq!(get(&*open(&url).snapshot(), "n"), None);
}

/// A view shows one moment, although a manager goes on.
#[test]
fn a_dump_shows_one_moment() {
    let url = database();
    let kv = open(&url);
    for name in ["a", "b", "c"] {
        put(&kv, name, "1").unwrap();
    }
    let mut copying = connect(&url);
    copying.begin_view().unwrap();
    assert_eq!(copying.chunk(None).unwrap().len(), 3);
    for name in ["b", "c", "d"] {
        put(&kv, name, "2").unwrap();
    }
    let expected: Vec<OwnedEntry> = ["a", "b", "c"].map(|name| (name.into(), b"1".to_vec())).into();
    assert_eq!(verify(&expected, &mut copying), Compared::Equal { entries: 3 });
    copying.end_view().unwrap();
    assert_eq!(copying.chunk(None).unwrap().len(), 4);
}

#[test]
fn an_account_with_the_rights_of_a_manager_can_move_the_namespace() {
    let server = postgres_server::shared();
    let url = database();
    let name = url.rsplit('/').next().unwrap().to_owned();
    server.psql("postgres", &format!("CREATE ROLE mover_{name} LOGIN PASSWORD 'secret'")).unwrap();
    Schema::connect(&address(&url)).unwrap().init(Some(&format!("mover_{name}"))).unwrap();
    let theirs = server.url_of(&format!("mover_{name}"), "secret", &name);
    import(&theirs, "one", &entries(10));
    let mut copying = connect(&theirs);
    begin_export(&mut copying, "there", OURS).unwrap();
    copying.finish_export().unwrap();
    is_closed(&theirs, "was moved");
}

#[test]
fn a_database_that_has_lost_changes_opens_after_a_repair() {
    let url = database();
    refused(connect(&url).begin_repair("why"), "has none");
    let first = open(&url);
    put(&first, "a", "1").unwrap();
    postgres_server::shared().psql(&url, "UPDATE weir.schema SET closed = 'it has lost changes'").unwrap();
    let mut copying = connect(&url);
    refused(copying.begin_repair("the repair was not finished"), "a manager is active");
    drop(first);
    copying.begin_repair("the repair was not finished").unwrap();
    is_closed(&url, "the repair was not finished");
    let repair = Postgres::open_closed(&address(&url), "test", config()).unwrap();
    put(&repair, "a", "3").unwrap();
    drop(repair);
    copying.end_repair("the repair was not finished").unwrap();
    assert_eq!(get(&*open(&url).snapshot(), "a").unwrap(), "3");
}

/// What closes the database during a repair must not be passed over by its end.
#[test]
fn the_end_of_a_repair_opens_no_database_that_was_closed_for_another_reason() {
    let url = database();
    put(&open(&url), "a", "1").unwrap();
    let mut copying = connect(&url);
    copying.begin_repair("the repair was not finished").unwrap();
    postgres_server::shared().psql(&url, "UPDATE weir.schema SET closed = 'it has lost changes'").unwrap();
    refused(copying.end_repair("the repair was not finished"), "it has lost changes");
    is_closed(&url, "it has lost changes");
    copying.begin_repair("the repair was not finished").unwrap();
    copying.end_repair("the repair was not finished").unwrap();
    refused(copying.end_repair("the repair was not finished"), "another process has opened it");
    assert_eq!(get(&*open(&url).snapshot(), "a").unwrap(), "1");
}

/// A complete import of which the database has changed an entry since begins again, or is cancelled.
#[test]
fn a_complete_import_can_be_replaced_and_cancelled() {
    let url = database();
    let all = entries(2500);
    let from = source("one");
    let mut copying = connect(&url);
    copy(&mut copying, &from, &all, usize::MAX);
    copying.complete_import().unwrap();
    let remove_last = "DELETE FROM weir.entries WHERE key = (SELECT key FROM weir.entries ORDER BY key DESC LIMIT 1)";
    postgres_server::shared().psql(&url, remove_last).unwrap();
    assert_eq!(copying.begin_import(&from, IfThere::Refuse, |_| true).unwrap(), ImportState::Complete);
    assert_ne!(verify(&all, &mut copying), Compared::Equal { entries: 2500 });
    let begun = ImportState::Copying { after: None, entries: 0 };
    assert_eq!(copying.begin_import(&from, IfThere::Replace, |_| true).unwrap(), begun);
    assert_eq!(connect(&url).chunk(None).unwrap(), []);
    copy(&mut copying, &from, &all, usize::MAX);
    assert_eq!(verify(&all, &mut copying), Compared::Equal { entries: 2500 });
    copying.complete_import().unwrap();
    // It may have been handed over: that is for the caller to know.
    refused(connect(&url).cancel(|source| source == "two"), "cannot cancel the import of one");
    assert_eq!(connect(&url).chunk(None).unwrap().len(), 1000);
    connect(&url).cancel(|source| source == "one").unwrap();
    refused(copying.finish_import(None), "another process");
    let kv = open(&url);
    assert_eq!((kv.cluster(), keys(&*kv.snapshot(), "", "\u{7f}", ScanOrder::Ascending, 9)), (None, vec![]));
}

/// A process that was stopped in the middle of a removal, and goes on after another one has ended it, removes nothing more.
#[test]
fn a_removal_that_was_taken_over_stops() {
    let server = postgres_server::shared();
    let url = database();
    let all = entries(60_000);
    copy(&mut connect(&url), &source("one"), &all, usize::MAX);
    let is_begun = || server.psql(&url, "SELECT count(*) < 60000 FROM weir.entries").unwrap() == "t";
    std::thread::scope(|scope| {
        // The first removal waits in its second step for this lock.
        scope.spawn(|| {
            let hold = "BEGIN;
                SELECT 1 FROM weir.entries WHERE key = (SELECT key FROM weir.entries ORDER BY key OFFSET 15000 LIMIT 1) FOR UPDATE;
                SELECT pg_sleep(4); COMMIT";
            server.psql(&url, hold).unwrap();
        });
        wait_for(&|| sleeps(&url));
        let first = scope.spawn(|| cancel(&mut connect(&url)));
        wait_for(&is_begun);
        // The second one ends: then nothing is left, and a new namespace comes.
        cancel(&mut connect(&url)).unwrap();
        assert_eq!(connect(&url).chunk(None).unwrap(), [], "it has ended before everything was removed");
        import(&url, "two", &all[..3000]);
        refused(first.join().unwrap(), "another process");
    });
    assert_eq!(verify(&all[..3000], &mut connect(&url)), Compared::Equal { entries: 3000 });
}

/// A cancelled import leaves no entries, whoever has put them there.
#[test]
fn a_database_with_entries_is_not_taken_for_empty() {
    let server = postgres_server::shared();
    let url = database();
    copy(&mut connect(&url), &source("one"), &entries(1000), 1);
    // Somebody adds an entry behind the removal, as late as possible.
    server
        .psql(&url, "CREATE FUNCTION weir.more() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                IF OLD.direction = 'import' THEN INSERT INTO weir.entries VALUES ('late', ''); END IF; RETURN OLD; END $$;
             CREATE TRIGGER more BEFORE DELETE ON weir.copy FOR EACH ROW EXECUTE FUNCTION weir.more()")
        .unwrap();
    refused(cancel(&mut connect(&url)), "added entries");
    is_closed(&url, "weir db import");
    server.psql(&url, "DROP TRIGGER more ON weir.copy").unwrap();
    cancel(&mut connect(&url)).unwrap();
    assert_eq!(open(&url).cluster(), None);
}

/// A manager that changes its row all the time does not keep a copy from closing the database.
#[test]
fn a_busy_manager_is_closed_at_once() {
    let server = postgres_server::shared();
    let url = database();
    import(&url, "one", &entries(10));
    put(&open(&url), "n", "1").unwrap();
    std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let work = "DO $$ BEGIN FOR i IN 1..40 LOOP
                UPDATE weir.committers SET batch = batch; PERFORM pg_sleep(0.2); COMMIT; END LOOP; END $$";
            server.psql(&url, work)
        });
        wait_for(&|| sleeps(&url));
        let mut copying = connect(&url);
        begin_export(&mut copying, "there", OURS).unwrap();
        assert!(!busy.is_finished(), "nobody was busy");
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'DO %'";
        server.psql(&url, end).unwrap();
        busy.join().unwrap().unwrap_err();
        cancel(&mut copying).unwrap();
    });
}

/// A commit whose confirmation by a standby somebody has cancelled may be lost with the primary: the copy must not go on.
#[test]
fn a_copy_does_not_rely_on_commits_that_no_standby_has() {
    let server = PostgresServer::start_with(&[("synchronous_standby_names", "nobody")]).unwrap();
    let all = entries(1000);
    let is_over = AtomicBool::new(false);
    let began = Instant::now();
    let (begun, put, complete) = std::thread::scope(|scope| {
        // There is no standby: each commit waits until this cancels its wait. Not more often: one wait must not be cancelled twice.
        scope.spawn(|| {
            let cancel = "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
            while !is_over.load(Ordering::SeqCst) && began.elapsed() < Duration::from_secs(120) {
                let _ = server.psql("postgres", cancel);
                std::thread::sleep(Duration::from_millis(200));
            }
        });
        let url = server.database();
        init(&url);
        // Each step takes effect at the primary, so the next one can be tried.
        let mut copying = connect(&url);
        let begun = copying.begin_import(&source("one"), IfThere::Refuse, |_| true).map(drop);
        let put = copying.put(&all);
        let complete = copying.complete_import();
        is_over.store(true, Ordering::SeqCst);
        (begun, put, complete)
    });
    for step in [begun, put, complete] {
        refused(step, "the wait for a standby was cancelled");
    }
}
