//! Namespaces on their way into a database and out of it.

use database::{Compared, Copying, DatabaseError, IfThere, ImportSource, ImportState, Postgres, Schema, compare};
use kv::{Chunks, Kv, KvError, OwnedEntry, ScanOrder};
use types::ClusterId;

use crate::harness::{address, config, database, get, keys, open, put};

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
    let ImportState::Copying { after, entries } = copying.begin_import(source, IfThere::Refuse).unwrap() else {
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
    for if_there in [IfThere::Refuse, IfThere::Replace] {
        assert_eq!(fourth.begin_import(&from, if_there).unwrap(), ImportState::Complete);
    }
    refused(fourth.begin_import(&source("two"), IfThere::Refuse), "another state");
    refused(fourth.put(&all[..1]), "another process");
    refused(fourth.cancel(), "nothing to cancel");
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
    let import_of = |url: &str, text: &str, if_there| connect(url).begin_import(&source(text), if_there);
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
    refused(connect(&url).begin_export("there", OURS), "has none");
    // A part of another state.
    let url = database();
    copy(&mut connect(&url), &source("one"), &all, 1);
    refused(import_of(&url, "two", IfThere::Refuse), "one was imported, which is another state");
    refused(connect(&url).begin_export("there", OURS), "import of one");
    refused(connect(&url).begin_repair("why"), "import of one");
    refused(connect(&url).begin_view(), "import of one");
    let begun = ImportState::Copying { after: None, entries: 0 };
    assert_eq!(import_of(&url, "two", IfThere::Replace).unwrap(), begun);
    assert_eq!(connect(&url).chunk(None).unwrap(), []);
    assert_eq!(copy(&mut connect(&url), &source("two"), &all, 2), 0);
    connect(&url).cancel().unwrap();
    refused(connect(&url).cancel(), "nothing to cancel");
    let kv = open(&url);
    assert_eq!((kv.cluster(), keys(&*kv.snapshot(), "", "\u{7f}", ScanOrder::Ascending, 9)), (None, vec![]));
}

#[test]
fn an_export_stops_managers_and_closes_the_database_for_good() {
    let all = entries(2500);
    let url = database();
    refused(connect(&url).begin_export("there", OURS), "has none");
    import(&url, "one", &all);
    let kv = open(&url);
    put(&kv, "n", "1").unwrap();
    refused(connect(&url).begin_export("there", ClusterId(8)), "belongs to cluster");
    put(&kv, "n", "2").unwrap();
    let mut export = connect(&url);
    export.begin_export("there", OURS).unwrap();
    let said = put(&kv, "n", "3").unwrap_err();
    assert!(matches!(said, KvError::Stopped { .. }), "{said}");
    drop(kv);
    is_closed(&url, "being exported to there");
    refused(connect(&url).begin_export("elsewhere", OURS), "export to there was not finished");
    refused(connect(&url).begin_repair("why"), "export to there");
    for if_there in [IfThere::Refuse, IfThere::Replace] {
        refused(connect(&url).begin_import(&source("one"), if_there), "export of its own");
    }
    // Another process goes on with it, and the first one cannot end it.
    let mut second = connect(&url);
    second.begin_export("there", OURS).unwrap();
    refused(export.finish_export(), "another process");
    // Cancelled, the database can be used as before.
    second.cancel().unwrap();
    assert_eq!(get(&*open(&url).snapshot(), "n").unwrap(), "2");
    second.begin_export("there", OURS).unwrap();
    let mut expected = all.clone();
    expected.push((b"n".to_vec(), b"2".to_vec()));
    expected.sort();
    assert_eq!(verify(&expected, &mut second), Compared::Equal { entries: 2501 });
    second.finish_export().unwrap();
    is_closed(&url, "was moved to there");
    refused(second.cancel(), "nothing to cancel");
    refused(connect(&url).begin_repair("why"), "was moved");
    refused(connect(&url).begin_export("elsewhere", OURS), "was moved to there already");
    refused(connect(&url).begin_import(&source("one"), IfThere::Refuse), "--replace");
    // What interrupted the last step is repeated.
    connect(&url).begin_export("there", OURS).unwrap();
    connect(&url).begin_export("there", OURS).unwrap();
    is_closed(&url, "being exported");
    second.begin_export("there", OURS).unwrap();
    second.finish_export().unwrap();
    // Back again, over what was left there.
    let begun = connect(&url).begin_import(&source("two"), IfThere::Replace).unwrap();
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
    copying.begin_export("there", OURS).unwrap();
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
    copying.begin_repair("the repair was not finished").unwrap();
    assert!(matches!(put(&first, "a", "2"), Err(KvError::Stopped { .. })));
    drop(first);
    is_closed(&url, "the repair was not finished");
    let repair = Postgres::open_closed(&address(&url), "test", config()).unwrap();
    put(&repair, "a", "3").unwrap();
    drop(repair);
    copying.end_repair().unwrap();
    assert_eq!(get(&*open(&url).snapshot(), "a").unwrap(), "3");
}
