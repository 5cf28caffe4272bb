use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use types::ObjectId;

use super::*;

fn of(recent: &Arc<RecentPages>) -> StorePages {
    StorePages::of(Some(recent), false).unwrap()
}

/// Memory of so many blocks, and a store that has it to itself.
fn memory(blocks: u64) -> (Arc<RecentPages>, StorePages) {
    let recent = Arc::new(RecentPages::new(blocks * BLOCK, FreshMemory::AtOnce));
    let store = of(&recent);
    (recent, store)
}

fn pages(store: &StorePages, object: u64) -> ReplicaPages {
    store.of_replica(ReplicaId::first(ObjectId(object)))
}

fn block(pages: &ReplicaPages, number: u64) -> bool {
    pages.run(number * BLOCK, index(BLOCK)) == index(BLOCK)
}

fn put_block(pages: &ReplicaPages, number: u64) {
    pages.put(number * BLOCK, &vec![1; index(BLOCK)]);
}

#[test]
fn without_memory_there_is_nothing() {
    assert!(StorePages::of(None, false).is_none());
    assert!(StorePages::of(Some(&Arc::new(RecentPages::new(BLOCK - 1, FreshMemory::AtOnce))), false).is_none());
}

#[test]
fn the_replica_that_was_idle_the_longest_loses_its_oldest_block() {
    let (recent, store) = memory(4);
    let (one, two, three) = (pages(&store, 1), pages(&store, 2), pages(&store, 3));
    for number in 0..2 {
        put_block(&one, number);
        put_block(&two, number);
    }
    assert!(block(&one, 1), "it has a reader");
    put_block(&three, 0);
    assert!(!block(&two, 0) && block(&two, 1) && block(&one, 0) && block(&one, 1));
    assert_eq!(recent.stats().bytes, 4 * BLOCK);
}

#[test]
fn a_long_write_takes_its_own_memory() {
    let (recent, store) = memory(4);
    let (one, long) = (pages(&store, 1), pages(&store, 2));
    put_block(&one, 0);
    for number in 0..50 {
        put_block(&long, number);
    }
    assert!(block(&one, 0) && block(&long, 48) && block(&long, 49) && !block(&long, 47));
    assert_eq!(recent.stats().bytes, 3 * BLOCK);
}

#[test]
fn a_forgotten_replica_gives_its_memory_back() {
    let (recent, store) = memory(2);
    let (one, two) = (pages(&store, 1), pages(&store, 2));
    put_block(&one, 0);
    one.forget();
    put_block(&two, 0);
    assert!(!block(&one, 0) && block(&two, 0));
    assert_eq!(recent.stats().bytes, BLOCK);
    recent.forget_all();
    assert!(!block(&two, 0));
    put_block(&one, 1);
    assert_eq!((block(&one, 1), recent.stats().bytes), (true, BLOCK));
}

#[test]
fn lent_bytes_stay_and_nobody_waits_for_them() {
    let (recent, store) = memory(4);
    let (one, two, three) = (pages(&store, 1), pages(&store, 2), pages(&store, 3));
    for number in 0..2 {
        put_block(&one, number);
        put_block(&two, number);
    }
    // Two parts of the same block, as two segments of a read have them.
    let lent = [one.lend(0, 3 * 4096).unwrap(), one.lend(4096, 4096).unwrap()];
    let are_old = || lent.iter().flat_map(LentPages::parts).flatten().all(|byte| *byte == 1);
    one.put(4096, &[2; 4096]);
    assert!(are_old() && one.lend(4096, 4096).is_none(), "what was changed is not here any more");
    assert!(one.lend(0, 4096).is_some() && one.run(0, 9000) == 4096);
    // Another replica needs memory: it gets none that is lent out.
    assert!(block(&two, 0) && block(&two, 1));
    put_block(&three, 0);
    assert!(are_old() && one.lend(0, 4096).is_none() && !block(&three, 0));
    assert_eq!(recent.stats().bytes, 4 * BLOCK, "it counts as in use");
    drop(lent);
    put_block(&three, 0);
    assert!(block(&three, 0) && block(&one, 1) && recent.stats().bytes == 4 * BLOCK);
    // A write to a block that is back stays.
    one.put(BLOCK, &[3; 4096]);
    assert!(one.lend(BLOCK, 4096).unwrap().parts().flatten().all(|byte| *byte == 3));
}

#[test]
fn lent_parts_are_cut_to_the_bytes_that_were_asked_for() {
    let (_recent, store) = memory(4);
    let one = pages(&store, 1);
    let data: Vec<u8> = (0..2 * BLOCK).map(|at| (at / 7).to_le_bytes()[0]).collect();
    one.put(0, &data);
    for (skip, len) in [(0, data.len()), (5, 100), (index(BLOCK) - 3, 6), (index(BLOCK), 9), (3, index(BLOCK) - 3)] {
        let mut lent = one.lend(0, data.len()).unwrap();
        lent.cut(skip, len);
        assert!(lent.parts().flatten().eq(&data[skip..skip + len]), "{len} after {skip}");
        assert!(lent.parts().all(|part| !part.is_empty()));
    }
}

#[test]
fn memory_is_prepared_as_it_is_used_and_no_more() {
    let recent = Arc::new(RecentPages::new(1000 * BLOCK, FreshMemory::Prepared));
    let pages = pages(&of(&recent), 1);
    let settled = || {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while recent.state.lock().coming.is_some() {
            recent.state.lock().take_prepared();
            assert!(std::time::Instant::now() < until, "{:?}", recent.stats());
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        recent.stats().bytes / BLOCK
    };
    put_block(&pages, 0);
    assert!(!block(&pages, 0), "no memory was ready");
    assert_eq!(settled(), 1);
    for (number, made) in [(0, 2), (1, 4), (2, 6), (3, 8)] {
        put_block(&pages, number);
        assert_eq!((block(&pages, number), settled()), (true, made), "block {number}");
    }
}

/// Random operations beside a plain model: what is there is what was put last.
#[test]
fn what_is_there_is_what_was_put_last() {
    for seed in 0..40 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let recent = Arc::new(RecentPages::new(rng.random_range(1..6) * BLOCK, FreshMemory::AtOnce));
        let stores = [of(&recent), of(&recent)];
        let mut model: HashMap<(usize, u64, u64), u8> = HashMap::new();
        let (mut served, mut last) = (0, (0, 1, 0));
        for turn in 0..300_u32 {
            let anywhere = (rng.random_range(0..2), rng.random_range(1..4), rng.random_range(0..3 * PAGES));
            let (store, object, first) = if rng.random_bool(0.5) { last } else { anywhere };
            let pages = pages(&stores[store], object);
            let count = if rng.random_bool(0.2) { rng.random_range(1..PAGES + 9) } else { rng.random_range(1..5) };
            match rng.random_range(0..20) {
                0 => {
                    pages.forget();
                    model.retain(|(of, replica, _), _| (*of, *replica) != (store, object));
                }
                1..9 => {
                    let value = turn.to_le_bytes()[0];
                    last = (store, object, first);
                    pages.put(first * PAGE, &vec![value; index(count * PAGE)]);
                    model.extend((first..first + count).map(|page| ((store, object, page), value)));
                }
                _ => {
                    let (cut, end) = (rng.random_range(0..PAGE), rng.random_range(0..PAGE));
                    let (start, stop) = (first * PAGE + cut, (first + count) * PAGE - end);
                    let len = index(stop.saturating_sub(start));
                    let run = pages.run(start, len);
                    let mut bytes = vec![0; len];
                    let (head, rest) = bytes.split_at_mut(len.min(3));
                    let filled = pages.fill(&mut [IoSliceMut::new(head), IoSliceMut::new(rest)], start, false);
                    assert_eq!(filled, run == len, "seed {seed}");
                    if !filled {
                        bytes.truncate(run);
                        assert!(pages.fill(&mut [IoSliceMut::new(&mut bytes)], start, false), "seed {seed}");
                    }
                    let lent = pages.lend(start, bytes.len()).unwrap();
                    assert!(lent.parts().flatten().eq(&bytes), "seed {seed}");
                    assert!(filled || pages.lend(start, len).is_none(), "seed {seed}");
                    for (at, byte) in (start..).zip(&bytes) {
                        assert_eq!(Some(byte), model.get(&(store, object, at / PAGE)), "seed {seed}, byte {at}");
                    }
                    served += bytes.len();
                }
            }
            let stats = recent.stats();
            assert!(stats.bytes <= stats.bytes_max);
        }
        assert!(served > 0, "seed {seed}");
    }
}

#[test]
fn one_user_does_not_drive_out_what_another_uses() {
    let (recent, store) = memory(8);
    let of = |object, user| {
        let pages = pages(&store, object);
        pages.set_user(PrincipalId(user));
        pages
    };
    let (few, others) = (of(1, 1), (2..12).map(|object| of(object, 2)).collect::<Vec<_>>());
    put_block(&few, 0);
    // Alone the other user may fill all that is free.
    others.iter().for_each(|pages| put_block(pages, 0));
    assert!(block(&few, 0), "the oldest, but of the user who has less");
    assert_eq!(others.iter().filter(|pages| block(pages, 0)).count(), 7);
    // A user who has little takes from the user who has much.
    let more = of(1, 1);
    (1..4).for_each(|number| put_block(&more, number));
    assert!((0..4).all(|number| block(&few, number)));
    assert_eq!(others.iter().filter(|pages| block(pages, 0)).count(), 4);
    assert_eq!(recent.stats().bytes, 8 * BLOCK);
}

#[test]
fn what_nobody_uses_for_long_is_given_up_whoever_it_belongs_to() {
    let (_recent, store) = memory(8);
    let (old, new) = (pages(&store, 1), (2..40).map(|object| pages(&store, object)).collect::<Vec<_>>());
    new.iter().for_each(|pages| pages.set_user(PrincipalId(2)));
    put_block(&old, 0);
    put_block(&old, 1);
    new[..16].iter().for_each(|pages| put_block(pages, 0));
    assert!(old.run(BLOCK, 1) > 0 && old.run(0, 1) > 0, "used again, so it stays");
    new[16..31].iter().for_each(|pages| put_block(pages, 0));
    let kept = |pages: &[ReplicaPages]| pages.iter().filter(|pages| block(pages, 0)).count();
    assert_eq!(kept(&new), 6);
    new[31..34].iter().for_each(|pages| put_block(pages, 0));
    assert_eq!((kept(&new), old.run(0, 1)), (8, 0));
}
