//! A manager's namespace from the embedded engine into a real PostgreSQL and back.
#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use console::Exit;
use database::{Copying, DatabaseAddress, DirectoryMark, IfThere, ImportSource, Postgres, PostgresConfig, Schema};
use foundation::{
    Claim, DataDir, DatabaseMark, DatabaseSettings, DirRole, IfNew, IndexFoundation, ManagerFoundation, OpenError,
    Purpose, Settings, disk_of,
};
use kv::{Batch, EntrySource as _, Kv, OwnedEntry};
use namespace::{self as ns, Actor, Durability, Namespace, NamespaceConfig, Operation};
use types::{
    BootGeneration, BootId, ClientIdentity, ClusterId, Group, GroupId, InSyncReplica, Member, NsPath, ObjectId,
    Placement, PrincipalId, StoreId, Timestamp,
};
use weir_maintenance::Error;
use weir_maintenance::backup::restore::{self, RestoreOptions};
use weir_maintenance::backup::{self, BackupOptions};
use weir_maintenance::move_engine::dump::{self, DumpOptions};
use weir_maintenance::move_engine::export::{self, ExportOptions};
use weir_maintenance::move_engine::go_on::{self, ContinueOptions};
use weir_maintenance::move_engine::import::{self, ImportFrom, ImportOptions};

const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);
const CLUSTER: ClusterId = ClusterId(77);
const GROUP: GroupId = GroupId(7);
const MANY: u32 = 50_000;

fn settings() -> Settings {
    Settings {
        segment_bytes: 1 << 20,
        ballast: 1 << 20,
        overlay: 32 << 20,
        cache: 32 << 20,
        floor: Some(0),
        uploads_kept: Duration::from_secs(86_400),
        recent: None,
    }
}

fn path(text: &[u8]) -> NsPath {
    NsPath::parse(text).unwrap()
}

fn database() -> DatabaseAddress {
    let address: DatabaseAddress = postgres_server::shared().database().parse().unwrap();
    Schema::connect(&address).unwrap().init(None).unwrap();
    address
}

fn change<O: Operation + Send + 'static>(namespace: &Namespace, op: O) -> O::Reply {
    let context = namespace.context(NOW, &Actor::admin(), None);
    namespace.change_wait(Durability::Synced, context, op).unwrap()
}

/// Writes an empty object under `at`. Returns its number.
fn file(namespace: &Namespace, at: &[u8]) -> ObjectId {
    let in_sync = [1, 2].map(|store| InSyncReplica { store: StoreId(store), boot_generation: BootGeneration(1) });
    let open = ns::OpenWrite::new(path(at), ns::WriteMode::NewOnly, ClientIdentity::default(), BootId(1));
    let placement = Placement { group: GROUP, in_sync: in_sync.to_vec() };
    let writer = change(namespace, ns::OpenWrite { placement, ..open }).writer;
    let content = ns::Committed { len: 10, sums: None, mtime: None };
    let commit = ns::Commit { writer, content, completion: ns::Completion::ByClient };
    change(namespace, ns::CommitPlaced { commit, group: GROUP, by: StoreId(1), holders: vec![StoreId(1), StoreId(2)] });
    writer.object
}

/// A data directory of a manager.
struct Manager {
    temp: tempfile::TempDir,
}

impl Manager {
    /// With directories, files, an ACL, a tree with quotas, and names of odd bytes.
    fn new() -> Self {
        let manager = Self::bare();
        manager.with_names(|namespace| {
            change(namespace, ns::FoundCluster { roles: 3, name: "m".into(), key: [0; 32] });
            for store in 1..=2 {
                let location = format!("s/r/h{store}").parse().unwrap();
                change(namespace, ns::PutStore { store: StoreId(store), node: ns::FIRST_NODE, location, class: None });
            }
            let member = |store| Member { store: StoreId(store), since: ObjectId(1), through: ObjectId(0) };
            change(
                namespace,
                ns::PutGroup { group: Group { group: GROUP, epoch: 1, members: (1..=2).map(member).collect() } },
            );
            let mkdir = |at: &[u8]| {
                change(namespace, ns::Mkdir { path: path(at), mode: 0o755, parents: true });
            };
            mkdir(b"/tree");
            change(namespace, ns::MakeTree { path: path(b"/tree") });
            let quota = ns::SetQuota {
                path: path(b"/tree"),
                of: ns::QuotaOf::Tree,
                hard_bytes: Some(Some(1 << 40)),
                soft_bytes: None,
                hard_files: Some(Some(1000)),
                soft_files: None,
                grace: None,
            };
            change(namespace, quota);
            let entry = ns::AclEntry { tag: ns::AclTag::User(PrincipalId(7)), permissions: ns::Permissions::READ };
            let access = Some(ns::AclEdit::Modify(vec![entry]));
            change(namespace, ns::SetAcl { path: path(b"/tree"), access: access.clone(), default: access });
            for name in [&b"/tree/plain"[..], b"/tree/ ' \" \\ ; -- \n\x01", b"/tree/\xff\xfe\x80"] {
                mkdir(name);
                file(namespace, &[name, b"/file"].concat());
            }
            change(namespace, ns::Symlink { path: path(b"/link"), target: b"/tree/plain/file".to_vec() });
        });
        manager
    }

    /// Without a namespace.
    fn bare() -> Self {
        let manager = Self { temp: tempfile::tempdir().unwrap() };
        drop(manager.data());
        let folder = manager.path().join("cluster");
        std::fs::create_dir(&folder).unwrap();
        let key = "key\n";
        std::fs::write(folder.join("authority"), format!("{key}crc32c {:08x}\n", types::Crc32c::of(key.as_bytes()).0))
            .unwrap();
        manager
    }

    fn path(&self) -> &Path {
        self.temp.path()
    }

    fn data(&self) -> DataDir {
        DataDir::open_as(self.path(), DirRole::Manager, Some(CLUSTER), IfNew::Make, NOW).unwrap()
    }

    /// Starts the manager on its own namespace.
    fn with_names<T>(&self, work: impl FnOnce(&Namespace) -> T) -> T {
        let data = self.data();
        let foundation = ManagerFoundation::open_names(&data, &settings(), Purpose::Serve, 0, NOW).unwrap();
        let done = work(&foundation.names.namespace);
        foundation.close().unwrap();
        done
    }

    /// Starts the manager on `database`.
    fn with_database<T>(&self, database: &DatabaseAddress, work: impl FnOnce(&Namespace) -> T) -> Result<T, OpenError> {
        let data = self.data();
        let settings_in =
            DatabaseSettings { address: database.clone(), connections: 2, patience: Duration::from_secs(10) };
        let foundation = ManagerFoundation::open_names_in((&settings_in, Claim::IfSilent), &data, &settings(), 0, NOW)?;
        let done = work(&foundation.names.namespace);
        foundation.close().unwrap();
        Ok(done)
    }

    fn refuses_to_start(&self) -> bool {
        let opened = ManagerFoundation::open_names(&self.data(), &settings(), Purpose::Serve, 0, NOW);
        matches!(opened, Err(OpenError::InDatabase { .. }))
    }

    fn mark(&self) -> Option<DatabaseMark> {
        DatabaseMark::read(&*disk_of(&self.data())).unwrap()
    }

    /// All entries, without a start, which would change some.
    fn entries(&self) -> Vec<OwnedEntry> {
        let data = self.data();
        let foundation = IndexFoundation::open_index(&data, &settings()).unwrap();
        let found = kv::chunk_of(&*foundation.names.index.snapshot(), None, usize::MAX).unwrap();
        foundation.close().unwrap();
        found
    }

    /// Adds many entries that no manager looks at.
    fn fill(&self) {
        let data = self.data();
        let foundation = IndexFoundation::open_index(&data, &settings()).unwrap();
        for chunk in (0..MANY).collect::<Vec<_>>().chunks(5000) {
            let mut batch = Batch::new();
            chunk
                .iter()
                .for_each(|number| batch.put(&[&b"\xfe"[..], &number.to_be_bytes()].concat(), &number.to_le_bytes()));
            let seq = foundation.names.index.append(&batch).unwrap();
            foundation.journal.sync_to(seq).unwrap();
        }
        foundation.close().unwrap();
    }

    fn import(&self, database: &DatabaseAddress, replace: bool) -> Result<Exit, Error> {
        let from = ImportFrom::Directory(self.path().to_owned());
        import::run(&ImportOptions { database: database.clone(), from, replace, json: true }, &settings())
    }

    fn export(&self, database: &DatabaseAddress) -> Result<Exit, Error> {
        let (database, data) = (database.clone(), self.path().to_owned());
        export::run(&ExportOptions { database, data, json: true }, &settings())
    }

    fn folders(&self, prefix: &str) -> usize {
        let names = std::fs::read_dir(self.path()).unwrap().map(|name| name.unwrap().file_name());
        names.filter(|name| name.to_str().unwrap().starts_with(prefix)).count()
    }
}

/// Starts a manager on the database.
fn on_database<T>(database: &DatabaseAddress, work: impl FnOnce(&Namespace) -> T) -> T {
    let engine = Arc::new(Postgres::open(database, "manager", PostgresConfig::default()).unwrap());
    let namespace = Namespace::open(Arc::clone(&engine) as Arc<dyn Kv>, NOW, NamespaceConfig::default()).unwrap();
    let done = work(&namespace);
    engine.stop();
    done
}

fn is_closed(database: &DatabaseAddress, word: &str) {
    let said = Postgres::open(database, "manager", PostgresConfig::default()).err().unwrap().to_string();
    assert!(said.contains(word), "{word} is not in: {said}");
}

fn entries_of(database: &DatabaseAddress) -> Vec<OwnedEntry> {
    let mut copying = Copying::connect(database).unwrap();
    let mut entries = copying.entries();
    let mut found = Vec::new();
    while let Some((key, value)) = entries.next().unwrap() {
        found.push((key.to_vec(), value.unwrap().to_vec()));
    }
    found
}

fn refused(result: Result<Exit, Error>, word: &str) -> Exit {
    let error = result.unwrap_err();
    let said = error.to_string();
    assert!(said.contains(word), "{word} is not in: {said}");
    error.exit()
}

fn is_there(namespace: &Namespace, at: &[u8]) -> bool {
    namespace.read(|read| ns::stat(read, &Actor::admin(), &path(at))).is_ok()
}

fn is_sound(namespace: &Namespace) {
    let mut found = Vec::new();
    namespace.read(|read| ns::check(read, &mut |finding| found.push(finding))).unwrap();
    assert_eq!(found, []);
}

#[test]
fn a_namespace_goes_into_a_database_and_comes_back() {
    let (manager, database) = (Manager::new(), database());
    manager.fill();
    let before = manager.entries();
    assert!(before.len() > MANY as usize);
    assert_eq!(manager.import(&database, false).unwrap(), Exit::Done);
    assert!(entries_of(&database) == before, "the entries differ");
    // Nobody starts on the directory, nor moves it once more.
    assert!(manager.refuses_to_start());
    assert_eq!(manager.mark().unwrap().cluster, CLUSTER);
    assert!(!manager.mark().unwrap().address.contains("p%40ss"), "a password");
    assert_eq!(refused(manager.import(&database, false), "Start the manager with `--database"), Exit::DataDirectory);
    assert_eq!((manager.folders("namespace-moved-"), manager.folders("namespace")), (1, 1));
    assert_eq!((manager.folders("journal-moved-"), manager.folders("journal")), (1, 2));
    on_database(&database, |namespace| {
        assert!(is_there(namespace, b"/tree/\xff\xfe\x80/file"));
        file(namespace, b"/tree/plain/new");
        change(namespace, ns::Remove { path: path(b"/link") });
    });
    let changed = entries_of(&database);

    assert_eq!(manager.export(&database).unwrap(), Exit::Done);
    assert_eq!(manager.mark(), None);
    assert!(manager.entries() == changed, "the entries differ");
    is_closed(&database, "was moved to the data directory");
    refused(manager.export(&database), "has a namespace of its own");
    // Not even if somebody gives the directory's namespace another name: that of the database is old.
    let (name, other) = (manager.path().join("namespace"), manager.path().join("namespace-moved-9"));
    std::fs::rename(&name, &other).unwrap();
    refused(manager.export(&database), "was moved out already");
    assert_eq!(manager.mark(), None);
    std::fs::rename(&other, &name).unwrap();
    manager.with_names(|namespace| {
        assert!(is_there(namespace, b"/tree/plain/new") && !is_there(namespace, b"/link"));
        file(namespace, b"/tree/plain/newer");
    });
    // And again, over what was left in the database.
    refused(manager.import(&database, false), "--replace");
    assert_eq!(manager.import(&database, true).unwrap(), Exit::Done);
    on_database(&database, |namespace| assert!(is_there(namespace, b"/tree/plain/newer")));
}

#[test]
fn an_interrupted_import_goes_on_and_notices_that_the_manager_has_run_since() {
    let (manager, database) = (Manager::new(), database());
    manager.fill();
    // What a killed import leaves: a part of the entries.
    let begin = |count: usize| {
        let data = manager.data();
        let all = {
            let foundation = IndexFoundation::open_index(&data, &settings()).unwrap();
            let snapshot = foundation.names.index.snapshot();
            let session = ns::last_session(&*snapshot).unwrap().unwrap();
            let all = kv::chunk_of(&*snapshot, None, usize::MAX).unwrap();
            drop(snapshot);
            foundation.close().unwrap();
            let at = std::fs::canonicalize(&data.path).unwrap();
            let text = format!("the data directory {} made at {} as of session {session}", at.display(), NOW.0);
            let mut copying = Copying::connect(&database).unwrap();
            copying.begin_import(&ImportSource { text, cluster: CLUSTER }, IfThere::Replace, |_| true).unwrap();
            all[..count].chunks(1000).for_each(|chunk| copying.put(chunk).unwrap());
            all
        };
        assert_eq!(all.len(), entries_of(&database).len() + all.len() - count);
    };
    begin(9000);
    is_closed(&database, "weir db import");
    manager.with_names(|namespace| file(namespace, b"/tree/plain/since"));
    refused(manager.import(&database, false), "which is another state");
    begin(9000);
    // A byte of what was copied before has changed: the comparison notices, and the directory can still be used.
    let change_one = "UPDATE weir.entries SET value = set_byte(value, 0, get_byte(value, 0) # 1)
        WHERE key = (SELECT key FROM weir.entries WHERE length(value) > 0 LIMIT 1)";
    let url = superuser(&database);
    postgres_server::shared().psql(&url, change_one).unwrap();
    assert_eq!(refused(manager.import(&database, false), "the copy has another value"), Exit::Checksum);
    is_closed(&database, "weir db import");
    manager.with_names(|namespace| assert!(is_there(namespace, b"/tree/plain/since")));
    import::cancel(&database, None, true).unwrap();
    begin(9000);
    assert_eq!(manager.import(&database, false).unwrap(), Exit::Done);
    on_database(&database, |namespace| {
        assert!(is_there(namespace, b"/tree/plain/since"));
    });
}

/// Between the last steps neither of the two can be used, and the next run ends them.
#[test]
fn the_last_steps_of_a_move_can_be_repeated() {
    let (manager, database) = (Manager::new(), database());
    manager.import(&database, false).unwrap();
    let url = superuser(&database);
    // The directory has its mark, and the database was not opened.
    let complete = "UPDATE weir.schema SET closed = 'a copy has not ended';
        INSERT INTO weir.copy VALUES ('import', 'one', '', NULL, 0, true)";
    postgres_server::shared().psql(&url, complete).unwrap();
    std::fs::rename(manager.path().join("namespace-moved-1"), manager.path().join("namespace")).unwrap();
    assert!(manager.refuses_to_start());
    for data in [None, Some(manager.path())] {
        refused(import::cancel(&database, data, true), "it is complete");
    }
    let mark = manager.mark();
    manager.import(&database, false).unwrap();
    assert!(!manager.path().join("namespace").exists() && manager.path().join("journal").exists());
    assert_eq!(manager.mark(), mark);
    on_database(&database, |namespace| assert!(is_there(namespace, b"/tree/plain")));
    // The database has noted the export, and the directory still has its mark.
    manager.export(&database).unwrap();
    let before = manager.entries();
    mark.unwrap().write(&*disk_of(&manager.data())).unwrap();
    std::fs::create_dir_all(manager.path().join("namespace.new/checkpoint")).unwrap();
    assert!(manager.refuses_to_start());
    let moved = manager.folders("namespace");
    manager.export(&database).unwrap();
    assert!(manager.entries() == before);
    assert_eq!(manager.folders("namespace"), moved - 1, "the copy of the export before, and what was built, are gone");
    // Cancelled, the database goes on.
    manager.import(&database, true).unwrap();
    let mut copying = Copying::connect(&database).unwrap();
    copying.begin_export("elsewhere", CLUSTER, DirectoryMark::Present).unwrap();
    refused(manager.export(&database), "elsewhere was not finished");
    import::cancel(&database, None, true).unwrap();
    on_database(&database, |namespace| assert!(is_there(namespace, b"/tree/plain")));
}

#[test]
fn what_is_not_for_each_other_is_refused() {
    let database = database();
    let other = Manager::bare();
    refused(other.import(&database, false), "no manager has started on it");
    refused(other.export(&database), "has none");
    let manager = Manager::new();
    // Another cluster's database.
    Postgres::open(&database, "manager", PostgresConfig::default()).unwrap().claim(ClusterId(78)).unwrap();
    refused(manager.import(&database, false), "belongs to cluster");
    assert_eq!(manager.mark(), None);
    assert_eq!(refused(manager.export(&database), "has a namespace of its own"), Exit::DataDirectory);
    // The directory is in use.
    let in_use = manager.data();
    assert_eq!(refused(manager.import(&self::database(), false), ""), Exit::InUse);
    drop(in_use);
    let nobody: DatabaseAddress = "postgres://weir@127.0.0.1:1/weir".parse().unwrap();
    assert_eq!(refused(manager.import(&nobody, false), "cannot reach"), Exit::Unreachable);
    let empty: DatabaseAddress = postgres_server::shared().database().parse().unwrap();
    refused(manager.import(&empty, false), "weir db init");
    manager.with_names(|namespace| assert!(is_there(namespace, b"/tree/plain")));
}

/// The database was restored to an earlier time, or is another copy.
#[test]
fn a_database_that_is_behind_the_directory_is_not_exported_into_it() {
    let (manager, database) = (Manager::new(), database());
    manager.import(&database, false).unwrap();
    let mark = manager.mark().unwrap();
    let progress = ns::Progress { session: types::SessionId(mark.progress.session.0 + 1), ..mark.progress };
    DatabaseMark { progress, ..mark.clone() }.write(&*disk_of(&manager.data())).unwrap();
    assert_eq!(refused(manager.export(&database), "run `weir db continue --after-restore"), Exit::Damaged);
    on_database(&database, |namespace| assert!(is_there(namespace, b"/tree/plain"), "it was not closed"));
    // The start on it was a session more.
    manager.export(&database).unwrap();
}

/// It may have been handed over: then that directory has nothing but what is in the database.
#[test]
fn the_complete_import_of_another_directory_is_not_replaced() {
    let (manager, database) = (Manager::new(), database());
    let complete = "UPDATE weir.schema SET closed = 'a copy has not ended';
        INSERT INTO weir.copy VALUES ('import', 'the data directory /other made at 1 as of session 4', '', NULL, 0, true)";
    postgres_server::shared().psql(&superuser(&database), complete).unwrap();
    refused(
        manager.import(&database, true),
        "the import of the data directory /other made at 1 as of session 4 is complete",
    );
    let own = std::fs::canonicalize(manager.path()).unwrap();
    let text = format!("the data directory {} made at {} as of session 9", own.display(), NOW.0);
    let ours = format!("UPDATE weir.copy SET other = '{text}'");
    postgres_server::shared().psql(&superuser(&database), &ours).unwrap();
    manager.import(&database, true).unwrap();
}

fn dump(database: &DatabaseAddress, target: &Path, data: Option<PathBuf>) {
    let (database, target) = (database.clone(), target.to_owned());
    dump::run(&DumpOptions { database, target, data, keep: None, json: true }).unwrap();
}

#[test]
fn a_dump_is_restored_into_a_directory_and_imported_into_a_database() {
    let (manager, first) = (Manager::new(), database());
    manager.import(&first, false).unwrap();
    let temp = tempfile::tempdir().unwrap();
    let target = temp.path().join("dumps");
    dump(&first, &target, Some(manager.path().to_owned()));
    // Objects and nodes that the dump does not know.
    let lost = on_database(&first, |namespace| file(namespace, b"/tree/plain/lost"));
    // A directory of the manager, which is lost otherwise.
    let directory = temp.path().join("restored");
    let options = RestoreOptions {
        target: target.clone(),
        data: Some(directory.clone()),
        json: true,
        ..RestoreOptions::default()
    };
    assert_eq!(restore::run(&options, &settings()).unwrap(), Exit::Done);
    let data = DataDir::open_as(&directory, DirRole::Manager, Some(CLUSTER), IfNew::Refuse, NOW).unwrap();
    let foundation = ManagerFoundation::open_names(&data, &settings(), Purpose::Serve, 0, NOW).unwrap();
    let namespace = &foundation.names.namespace;
    is_sound(namespace);
    assert!(is_there(namespace, b"/tree/plain/file") && !is_there(namespace, b"/tree/plain/lost"));
    assert!(file(namespace, b"/tree/plain/again") > lost);
    foundation.close().unwrap();
    // Another database.
    let second = database();
    let import = |replace| {
        let from = ImportFrom::Backup(target.clone());
        import::run(&ImportOptions { database: second.clone(), from, replace, json: true }, &settings())
    };
    assert_eq!(import(false).unwrap(), Exit::Done);
    refused(import(true), "has one already");
    on_database(&second, |namespace| {
        is_sound(namespace);
        assert!(is_there(namespace, b"/tree/plain/file") && !is_there(namespace, b"/tree/plain/lost"));
        assert!(file(namespace, b"/tree/plain/again") > lost);
        assert!(namespace.read(ns::restored).unwrap().unwrap().is_held);
    });
}

/// The journal before the move ends before the changes in the database.
#[test]
fn a_backup_from_before_the_move_is_not_taken_for_complete() {
    let (manager, database) = (Manager::new(), database());
    let temp = tempfile::tempdir().unwrap();
    let target = temp.path().join("backups");
    let (data, full) = (manager.path().to_owned(), false);
    let options = BackupOptions { target: target.clone(), data: data.clone(), full, keep: None, json: true };
    backup::run(&options, &settings(), &mut |_| Ok(None)).unwrap();
    manager.import(&database, false).unwrap();
    let options = RestoreOptions { target, data: Some(data), json: true, ..RestoreOptions::default() };
    assert_eq!(refused(restore::run(&options, &settings()), ""), Exit::DataDirectory);
    let lost = on_database(&database, |namespace| file(namespace, b"/tree/plain/lost"));
    manager.export(&database).unwrap();
    assert_eq!(restore::run(&options, &settings()).unwrap(), Exit::Done);
    manager.with_names(|namespace| {
        is_sound(namespace);
        assert!(namespace.read(ns::restored).unwrap().unwrap().is_held);
        assert!(file(namespace, b"/tree/plain/again") > lost);
    });
}

/// As above, if the mark that forbids a restore was removed after the database was lost, as the manual says.
#[test]
fn a_backup_from_before_an_import_is_not_taken_for_complete_either() {
    for directory_was_used in [false, true] {
        let (manager, database) = (Manager::new(), database());
        let temp = tempfile::tempdir().unwrap();
        let target = temp.path().join("backups");
        let (data, full) = (manager.path().to_owned(), false);
        let options = BackupOptions { target: target.clone(), data: data.clone(), full, keep: None, json: true };
        backup::run(&options, &settings(), &mut |_| Ok(None)).unwrap();
        manager.import(&database, false).unwrap();
        let lost = |namespace: &Namespace| file(namespace, b"/tree/plain/lost");
        let lost = if directory_was_used {
            manager.with_database(&database, lost).unwrap()
        } else {
            on_database(&database, lost)
        };
        DatabaseMark::remove(&*disk_of(&manager.data())).unwrap();
        let options = RestoreOptions { target, data: Some(data), json: true, ..RestoreOptions::default() };
        assert_eq!(restore::run(&options, &settings()).unwrap(), Exit::Done);
        manager.with_names(|namespace| {
            is_sound(namespace);
            assert!(namespace.read(ns::restored).unwrap().unwrap().is_held);
            assert!(!is_there(namespace, b"/tree/plain/lost"));
            assert!(file(namespace, b"/tree/plain/again") > lost);
        });
    }
}

fn superuser(database: &DatabaseAddress) -> String {
    format!("postgres://postgres:p%40ss@{}", database.to_string().split_once('@').unwrap().1)
}

/// Gives the database the entries of an earlier time, as a restore does it.
fn set_back(database: &DatabaseAddress, old: &[OwnedEntry]) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let rows: Vec<String> = old.iter().map(|(key, value)| format!("('\\x{}','\\x{}')", hex(key), hex(value))).collect();
    let change = format!("DELETE FROM weir.entries; INSERT INTO weir.entries VALUES {}", rows.join(","));
    postgres_server::shared().psql(&superuser(database), &change).unwrap();
}

#[test]
fn a_database_that_is_older_than_the_directory_is_refused_until_it_is_continued() {
    let (manager, database) = (Manager::new(), database());
    manager.import(&database, false).unwrap();
    let imported = manager.mark().unwrap();
    let old = entries_of(&database);
    let lost = manager.with_database(&database, |namespace| file(namespace, b"/tree/lost")).unwrap();
    let first = manager.mark().unwrap();
    assert!(first.progress > imported.progress);
    manager.with_database(&database, |namespace| assert!(is_there(namespace, b"/tree/lost"))).unwrap();
    assert!(manager.mark().unwrap().progress > first.progress);
    for _ in 0..2 {
        set_back(&database, &old);
        // A refused start changes nothing, so that no number of them makes up for what is lost.
        for _ in 0..3 {
            let error = manager.with_database(&database, |_| ()).err().unwrap();
            assert!(matches!(error, OpenError::OlderDatabase { .. }), "{error}");
            assert_eq!(error.exit(), Exit::Damaged);
        }
        assert!(entries_of(&database) == old);
        // Incarnations have the time in seconds, so the same state can be continued again.
        std::thread::sleep(Duration::from_millis(1100));
        let options = ContinueOptions { database: database.clone(), as_of: None, json: true };
        assert_eq!(go_on::run(&options).unwrap(), Exit::Done);
        manager.with_database(&database, |namespace| assert!(file(namespace, b"/tree/new") > lost)).unwrap();
    }
}

#[test]
fn a_database_that_was_restored_continues_above_all_numbers() {
    let (manager, database) = (Manager::new(), database());
    let go_on = |as_of: Option<&str>| {
        go_on::run(&ContinueOptions { database: database.clone(), as_of: as_of.map(str::to_owned), json: true })
    };
    refused(go_on(None), "has none");
    manager.import(&database, false).unwrap();
    let temp = tempfile::tempdir().unwrap();
    dump(&database, &temp.path().join("old"), None);
    let old = entries_of(&database);
    let lost = on_database(&database, |namespace| {
        (0..3).map(|number| file(namespace, format!("/tree/lost{number}").as_bytes())).max().unwrap()
    });
    // As a restore of the database to an earlier time does it.
    set_back(&database, &old);
    let close = "UPDATE weir.schema SET closed = 'it has lost changes'";
    postgres_server::shared().psql(&superuser(&database), close).unwrap();
    is_closed(&database, "it has lost changes");
    refused(go_on(Some("yesterday")), "--as-of");
    assert_eq!(go_on(Some("2020-01-01 00:00")).unwrap(), Exit::Done);
    on_database(&database, |namespace| {
        is_sound(namespace);
        assert!(file(namespace, b"/tree/new") > lost);
        let record = namespace.read(ns::restored).unwrap().unwrap();
        assert!(record.is_held && record.taken < record.restored);
    });
}
