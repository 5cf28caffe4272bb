//! The whole index on real files: threads, SIGKILL, and an engine whose files are removed, truncated or corrupted.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use disk::{Disk, RealDisk};
use journal::{Journal, JournalConfig, StreamId};
use rand::Rng;

use super::world::{Map, content, rng};
use super::{child, seeds};
use crate::{
    Durability, Embedded, EmbeddedConfig, IndexConfig, JournaledIndex, Kv, LsmConfig, LsmEngine, OpOutcome, Read,
    Rebuilt, Recovery, transact,
};

struct Node {
    journal: Arc<Journal>,
    index: Arc<JournaledIndex>,
    kv: Embedded,
    recovery: Recovery,
    set_aside: Option<String>,
}

/// Small bounds, so that flushes, compactions, checkpoints and trims happen all the time.
fn config() -> (JournalConfig, IndexConfig, LsmConfig) {
    (
        JournalConfig { segment_bytes: 256 << 10, streams: vec![StreamId::NAMESPACE], ..JournalConfig::default() },
        IndexConfig {
            overlay_bytes_max: 1 << 20,
            generation_bytes: 64 << 10,
            sweep_interval: Duration::from_millis(20),
            segments_kept_max: 2,
            delta_bytes_max: 256 << 10,
            deltas_max: 3,
            ..IndexConfig::default()
        },
        LsmConfig { cache_bytes: 1 << 20, memtable_bytes: 96 << 10, table_bytes: 128 << 10, ..LsmConfig::default() },
    )
}

fn engine_dir(dir: &Path) -> PathBuf {
    dir.join("namespace/index")
}

fn open(dir: &Path) -> Node {
    let (journal_config, index_config, lsm_config) = config();
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(dir).unwrap());
    let (journal, _) = Journal::open(Arc::clone(&disk), "journal", journal_config).unwrap();
    let journal = Arc::new(journal);
    let engine = LsmEngine::open(&engine_dir(dir), lsm_config).unwrap();
    let set_aside = engine.set_aside();
    let (index, recovery) = JournaledIndex::open(
        Arc::clone(&journal),
        StreamId::NAMESPACE,
        Box::new(engine),
        disk,
        "namespace/checkpoint",
        index_config,
    )
    .unwrap();
    let kv = Embedded::new(Arc::clone(&index), EmbeddedConfig::default()).unwrap();
    Node { journal, index, kv, recovery, set_aside }
}

impl Node {
    fn close(self) {
        self.kv.stop();
        self.index.close().unwrap();
        self.journal.close().unwrap();
    }
}

/// One client's operation: counts up, keeps a window of keys, and overwrites others.
fn operate(kv: &dyn Kv, client: u64, number: u64, durability: Durability) -> Result<(), crate::KvError> {
    transact(kv, durability, move |txn| {
        let count = format!("c{client}").into_bytes();
        let before = txn.get(&count).unwrap().map_or(0, |value| String::from_utf8(value).unwrap().parse().unwrap());
        assert_eq!(before + 1, number, "client {client} sees its own changes");
        txn.put(&count, number.to_string().as_bytes());
        txn.put(format!("k{client}/{number:08}").as_bytes(), &vec![b'v'; usize::try_from(number % 200).unwrap()]);
        if number > 500 {
            txn.delete(format!("k{client}/{:08}", number - 500).as_bytes());
        }
        txn.put(format!("o{client}/{:03}", number * 7 % 300).as_bytes(), number.to_string().as_bytes());
        (OpOutcome::Commit, ())
    })
}

/// The expected keys of a client after `number` operations.
fn expected(client: u64, number: u64) -> Map {
    let mut map = Map::new();
    if number > 0 {
        map.insert(format!("c{client}").into_bytes(), number.to_string().into_bytes());
    }
    for number in number.saturating_sub(499).max(1)..=number {
        let value = vec![b'v'; usize::try_from(number % 200).unwrap()];
        map.insert(format!("k{client}/{number:08}").into_bytes(), value);
    }
    for number in number.saturating_sub(299).max(1)..=number {
        map.insert(format!("o{client}/{:03}", number * 7 % 300).into_bytes(), number.to_string().into_bytes());
    }
    map
}

const CLIENTS: u64 = 4;

/// Compares everything. Returns the position of each client.
fn check(read: &dyn Read) -> BTreeMap<u64, u64> {
    let found = content(read);
    let mut all = Map::new();
    let mut counts = BTreeMap::new();
    for client in 0..CLIENTS {
        let count = found.get(format!("c{client}").as_bytes());
        let number = count.map_or(0, |value| String::from_utf8_lossy(value).parse().unwrap());
        counts.insert(client, number);
        all.extend(expected(client, number));
    }
    assert!(found == all, "{counts:?}: {}", super::world::difference(&found, &all));
    counts
}

#[test]
fn readers_see_consistent_states_during_changes() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path());
    let stop = AtomicBool::new(false);
    let mut checks = 0;
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (node, stop) = (&node, &stop);
            scope.spawn(move || {
                for number in 1.. {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    operate(&node.kv, client, number, Durability::Written).unwrap();
                }
            });
        }
        let (least, most) = (Instant::now() + Duration::from_secs(3), Instant::now() + Duration::from_secs(40));
        let moved = || {
            let stats = node.index.stats();
            stats.sweeps > 20 && stats.checkpoints > 2 && node.journal.oldest() > journal::Seq(1)
        };
        while Instant::now() < least || (!moved() && Instant::now() < most) {
            let snapshot = node.kv.snapshot();
            let counts = check(&*snapshot);
            std::thread::sleep(Duration::from_millis(5));
            assert_eq!(check(&*snapshot), counts, "a snapshot does not change");
            checks += 1;
        }
        stop.store(true, Ordering::SeqCst);
    });
    let (stats, counts) = (node.index.stats(), check(&*node.kv.snapshot()));
    println!("{checks} checks of {counts:?}; {stats:?}; {:?}", node.kv.stats());
    assert!(stats.sweeps > 20 && stats.checkpoints > 2 && node.journal.oldest() > journal::Seq(1), "{stats:?}");
    node.close();
    let node = open(dir.path());
    assert_eq!((check(&*node.kv.snapshot()), &node.recovery.rebuilt), (counts, &None));
}

/// Operates until it is killed, and reports its position after each synced operation.
#[test]
fn child_operates() {
    use std::io::Write;
    let Some(dir) = child::dir("node") else { return };
    let node = open(&dir);
    let counts = check(&*node.kv.snapshot());
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (node, first) = (&node, counts[&client] + 1);
            scope.spawn(move || {
                for number in first.. {
                    operate(&node.kv, client, number, Durability::Written).unwrap();
                    let _ = std::io::stderr().write_all(format!("answered {client} {number}\n").as_bytes());
                }
            });
        }
    });
}

#[test]
fn after_sigkill_all_answered_operations_exist() {
    let dir = tempfile::tempdir().unwrap();
    let mut rng = rng(3);
    let (mut answered, mut reached, mut rebuilt) = (BTreeMap::<u64, u64>::new(), 0, 0);
    let rounds = seeds(10);
    for round in 0..rounds {
        let mut child = child::start_listening("tests::real::child_operates", "node", dir.path());
        let lines = BufReader::new(child.stderr());
        let reader = std::thread::spawn(move || {
            let mut said: Vec<(u64, u64)> = Vec::new();
            for line in lines.lines().map_while(Result::ok) {
                let mut words = line.split(' ').skip_while(|word| *word != "answered").skip(1);
                if let (Some(Ok(client)), Some(Ok(number))) =
                    (words.next().map(str::parse), words.next().map(str::parse))
                {
                    said.push((client, number));
                }
            }
            said
        });
        std::thread::sleep(Duration::from_millis(rng.random_range(100..700)));
        child.kill();
        for (client, number) in reader.join().unwrap() {
            let most = answered.entry(client).or_insert(0);
            *most = number.max(*most);
        }
        // Half of the rounds also damage the engine's files.
        let hurt = round % 2 == 1;
        if hurt {
            hurt_engine(dir.path(), &mut rng);
        }
        let node = open(dir.path());
        rebuilt += u64::from(node.recovery.rebuilt.is_some());
        let counts = check_or_heal(&node);
        for (client, number) in &answered {
            assert!(counts[client] >= *number, "client {client}: {number} was answered, {} is there", counts[client]);
        }
        rebuilt += node.index.stats().healed;
        reached = counts.values().sum();
        assert!(
            node.recovery.rebuilt != Some(Rebuilt::AheadOfJournal)
                && node.recovery.rebuilt != Some(Rebuilt::BehindJournal)
        );
        if round % 3 == 0 {
            node.close();
        }
    }
    println!("{rounds} kills, {reached} operations there, engine built again {rebuilt} times");
    assert!(reached > 200 && rebuilt > 0);
}

/// Reads everything. If it meets damage, rebuilds the open index.
fn check_or_heal(node: &Node) -> BTreeMap<u64, u64> {
    let damaged = {
        let snapshot = node.kv.snapshot();
        snapshot
            .scan(b"", b"\xff", crate::ScanOrder::Ascending, &mut |_, _| std::ops::ControlFlow::Continue(()))
            .is_err()
    };
    if damaged {
        let until = Instant::now() + Duration::from_secs(20);
        while node.index.stats().healed == 0 {
            assert!(Instant::now() < until, "the index heals by itself: {:?}", node.index.stats());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    check(&*node.kv.snapshot())
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn hurt_engine(dir: &Path, rng: &mut rand::rngs::SmallRng) -> String {
    // The tree in use has the highest number.
    let number =
        |path: &PathBuf| path.to_str().unwrap().rsplit_once("live-").map_or(0, |(_, n)| n.parse::<u64>().unwrap());
    let folders = std::fs::read_dir(engine_dir(dir)).unwrap().map(|entry| entry.unwrap().path());
    let live = folders.filter(|path| path.is_dir()).max_by_key(number).unwrap();
    let files = files(&live);
    let victim = &files[rng.random_range(0..files.len())];
    let mut bytes = std::fs::read(victim).unwrap();
    let at = rng.random_range(0..bytes.len().max(1));
    let how = match rng.random_range(0..5) {
        0 => {
            std::fs::remove_dir_all(&live).unwrap();
            return "all removed".into();
        }
        1 => {
            std::fs::remove_file(victim).unwrap();
            return format!("{} removed", victim.display());
        }
        2 => {
            bytes.truncate(at);
            "cut"
        }
        3 => {
            bytes.iter_mut().skip(at).take(5000).for_each(|byte| *byte = rng.random());
            "overwritten"
        }
        _ => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 4;
            }
            "rotten"
        }
    };
    std::fs::write(victim, bytes).unwrap();
    format!("{} {how} at {at}", victim.display())
}

#[test]
fn an_engine_with_damaged_files_is_rebuilt() {
    let dir = tempfile::tempdir().unwrap();
    let node = open(dir.path());
    for number in 1..=1500 {
        for client in 0..CLIENTS {
            operate(&node.kv, client, number, Durability::Written).unwrap();
        }
    }
    node.index.sweep_now().unwrap();
    node.index.checkpoint_now().unwrap();
    assert!(node.journal.oldest() > journal::Seq(1), "only the checkpoint has it all");
    node.close();
    let mut rng = rng(11);
    let (mut at_opening, mut while_open, mut unhurt) = (0, 0, 0);
    for _ in 0..seeds(25) {
        let how = hurt_engine(dir.path(), &mut rng);
        let node = open(dir.path());
        let counts = check_or_heal(&node);
        assert!(counts.values().all(|count| *count == 1500), "{how}: {counts:?}");
        if node.recovery.rebuilt.is_some() {
            at_opening += 1;
            assert!(
                node.recovery.rebuilt == Some(Rebuilt::Empty) || node.set_aside.is_some(),
                "{how}: {:?}",
                node.recovery
            );
        } else if node.index.stats().healed > 0 {
            while_open += 1;
        } else {
            unhurt += 1;
        }
        node.close();
    }
    println!("built again at opening {at_opening}, while open {while_open}; not hurt {unhurt}");
    assert!(at_opening > 3 && while_open > 0);
}
