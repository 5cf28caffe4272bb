//! The directories of several managers, and one database with their namespace.

use std::time::{Duration, Instant};

use console::Exit;
use database::{PlaceWatch, Schema, Standing, Vacancy};
use kv::Durability;
use namespace::{Actor, Mkdir};
use types::{ClusterId, NsPath};
use weir_foundation::{
    COMMITTER, Claim, DataDir, DatabaseMark, DatabaseSettings, DirRole, IfNew, ManagerFoundation, OpenError, disk_of,
};

use crate::harness::{CLUSTER, NOW, small};

fn directory(temp: &tempfile::TempDir, name: &str, cluster: ClusterId) -> DataDir {
    DataDir::open_as(&temp.path().join(name), DirRole::Manager, Some(cluster), IfNew::Make, NOW).unwrap()
}

fn mkdir(foundation: &ManagerFoundation, path: &str) {
    let namespace = &foundation.names.namespace;
    let op = Mkdir { path: NsPath::parse(path.as_bytes()).unwrap(), mode: 0o755, parents: false };
    namespace.change_wait(Durability::Synced, namespace.context(NOW, &Actor::admin(), None), op).unwrap();
}

#[test]
fn a_directory_of_the_same_cluster_takes_the_place_when_it_is_free() {
    let url = postgres_server::shared().database();
    let address: database::DatabaseAddress = url.parse().unwrap();
    Schema::connect(&address).unwrap().init(None).unwrap();
    let settings = DatabaseSettings { address: address.clone(), connections: 2, patience: Duration::from_secs(20) };
    let open = |claim, data: &DataDir| ManagerFoundation::open_names_in((&settings, claim), data, &small(), 0, NOW);
    let mut watch = PlaceWatch::new(&address, COMMITTER);
    let mut free = || -> Vacancy {
        match watch.look().unwrap() {
            Standing::Free(vacancy) => vacancy,
            held @ Standing::Held { .. } => panic!("{held:?}"),
        }
    };
    let temp = tempfile::tempdir().unwrap();
    let (first, second) = (directory(&temp, "first", CLUSTER), directory(&temp, "second", CLUSTER));

    let at_first = free();
    let founded = open(Claim::IfFree(&at_first), &first).unwrap();
    mkdir(&founded, "/by-first");
    founded.close().unwrap();

    // It has joined, and never worked on the database.
    assert_eq!(DatabaseMark::read(&*disk_of(&second)).unwrap(), None);
    let vacancy = free();
    let other = directory(&temp, "other", ClusterId(78));
    let refused = open(Claim::IfFree(&vacancy), &other).err().unwrap();
    assert!(matches!(refused, OpenError::OtherDatabase { .. }), "{refused}");
    let taken = open(Claim::IfFree(&vacancy), &second).unwrap();
    assert!(DatabaseMark::read(&*disk_of(&second)).unwrap().is_some());
    for seen in [&vacancy, &at_first] {
        let refused = open(Claim::IfFree(seen), &first).err().unwrap();
        assert!(matches!(refused, OpenError::PlaceTaken { .. }), "{refused}");
        assert_eq!(refused.exit(), Exit::InUse);
    }
    mkdir(&taken, "/by-first/by-second");
    assert!((taken.names.engine.has_lease())());
    taken.close().unwrap();
    assert!(!(taken.names.engine.has_lease())());

    let vacancy = free();
    let again = open(Claim::IfFree(&vacancy), &first).unwrap();
    mkdir(&again, "/by-first/by-second/by-first");
    let has_lost_place = again.names.engine.has_lost_place();
    assert!(!has_lost_place());
    let refused = open(Claim::IfSilent, &second).err().unwrap();
    assert_eq!(refused.exit(), Exit::InUse, "{refused}");
    let give_up = "UPDATE weir.committers SET process = '', fence = fence + 1";
    postgres_server::shared().psql(&url, give_up).unwrap();
    let taken = open(Claim::IfSilent, &second).unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while !has_lost_place() {
        assert!(Instant::now() < until, "it does not notice");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(!(taken.names.engine.has_lost_place())());
}
