//! Requests of readers that follow a pattern, of readers that do not, and of hostile ones.

use super::*;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const END: u64 = 1 << 40;

/// Numbers that look random (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}

/// A reader whose data is only cached if it was announced: what it had announced, and which part of that it has read.
#[derive(Default)]
struct Reader {
    pattern: Pattern,
    cached: Vec<Range<u64>>,
    announced: u64,
    outstanding: u64,
    used: u64,
    /// Requests, and those that needed no disk.
    requests: u64,
    served: u64,
}

impl Reader {
    fn read(&mut self, request: &[Range<u64>]) {
        self.read_of(request, END, u64::MAX);
    }

    fn read_of(&mut self, request: &[Range<u64>], end: u64, room: u64) {
        let is_cached = |asked: &Range<u64>| {
            asked.start >= asked.end || self.cached.iter().any(|had| had.start <= asked.start && asked.end <= had.end)
        };
        let waited = !request.iter().all(is_cached);
        self.requests += 1;
        self.served += u64::from(!waited);
        let noted = self.pattern.note(request, waited, end, room);
        self.outstanding = self.outstanding + noted.bytes - noted.released;
        self.announced += noted.bytes;
        self.used += noted.used;
        assert_eq!(noted.bytes, total(&noted.next));
        assert!(noted.bytes <= room && self.outstanding <= BYTES_MAX, "{noted:?}");
        assert!(self.used <= self.announced);
        assert!(noted.next.iter().all(|range| range.start < range.end && range.end <= end), "{noted:?}");
        let segments: usize = self.pattern.announced.iter().map(|announced| announced.ranges.len()).sum();
        assert!(self.pattern.last.len() <= SEGMENTS_MAX && segments <= 2 * SEGMENTS_MAX);
        let fewer = self.cached.len().saturating_sub(8 * SEGMENTS_MAX);
        self.cached.drain(..fewer);
        self.cached.extend(noted.next);
    }
}

fn single(start: u64, len: u64) -> Vec<Range<u64>> {
    std::iter::once(start..start + len).collect()
}

#[test]
fn strided_reads_are_announced_in_both_directions() {
    for seed in 0..200 {
        let mut random = Random(seed);
        let len = 1 + random.below(256 * KIB);
        let stride = len + 1 + random.below(4 * MIB);
        let begin = random.below(END / 4);
        let mut forwards = Reader::default();
        let mut backwards = Reader::default();
        for number in 0..100 {
            forwards.read(&single(begin + number * stride, len));
            backwards.read(&single(begin + (99 - number) * stride, len));
        }
        for reader in [&forwards, &backwards] {
            assert_eq!(reader.served, 96, "{len} every {stride}: all but the first four");
            assert_eq!(reader.used, 96 * len);
            assert!(reader.announced - reader.used <= BYTES_MAX);
        }
    }
}

#[test]
fn sequential_reads_and_reads_of_one_place_are_left_alone() {
    let (mut ahead, mut same) = (Reader::default(), Reader::default());
    for number in 0..100 {
        ahead.read(&single(number * 100_000, 100_000));
        same.read(&single(5000, 100_000));
    }
    assert_eq!((ahead.announced, same.announced), (0, 0));
}

/// The columns of an analysis: the parts of each follow each other, and those of all columns lie between them.
fn columns(random: &mut Random, count: usize, variation: u64) -> impl FnMut() -> Vec<Range<u64>> {
    let mut places: Vec<_> = (0..count as u64).map(|at| at * 3 * MIB + random.below(MIB)).collect();
    let steps: Vec<_> = (0..count).map(|_| 40 * KIB + random.below(200 * KIB)).collect();
    let mut random = Random(random.next());
    move || {
        let mut request = Vec::new();
        for (place, step) in places.iter_mut().zip(&steps) {
            request.push(*place..*place + 10 * KIB + random.below(variation / 4 + 1));
            *place += step + random.below(variation + 1) - variation / 2;
        }
        request
    }
}

#[test]
fn vectors_that_repeat_are_announced() {
    for seed in 0..50 {
        let mut random = Random(seed);
        let count = 2 + usize::try_from(random.below(60)).unwrap();
        let mut next = columns(&mut random, count, 0);
        let mut reader = Reader::default();
        (0..60).for_each(|_| reader.read(&next()));
        assert_eq!(reader.served, 56, "{count} columns");
    }
}

#[test]
fn vectors_whose_segments_move_unevenly_are_announced_with_a_margin() {
    let (mut found, mut wanted, mut announced, mut served) = (0, 0, 0, 0);
    for seed in 0..50 {
        let mut random = Random(seed);
        let mut next = columns(&mut random, 40, 2 * KIB);
        let mut reader = Reader::default();
        for _ in 0..60 {
            let request = next();
            wanted += total(&request);
            reader.read(&request);
        }
        found += reader.used;
        announced += reader.announced;
        served += reader.served;
    }
    assert!(served > 50 * 60 / 2, "{served} requests without a wait");
    assert!(found * 10 > wanted * 8, "{found} of {wanted}");
    assert!(announced < found * 2, "{announced} for {found}");
}

#[test]
fn a_vector_that_has_a_segment_more_or_less_is_still_expected() {
    let mut reader = Reader::default();
    for number in 0..40 {
        let missing = if number % 5 == 4 { 7 } else { u64::MAX };
        let of = |at: u64| number * 30 * MIB + at * MIB..number * 30 * MIB + at * MIB + 20 * KIB;
        let request: Vec<_> = (0..20).filter(|at| *at != missing).map(of).collect();
        reader.read(&request);
    }
    assert!(reader.served > 25, "{}", reader.served);
}

#[test]
fn random_reads_are_not_announced() {
    let (mut announced, mut wanted) = (0, 0);
    for seed in 0..200 {
        let mut random = Random(seed);
        let len = 1 + random.below(128 * KIB);
        let count = if seed % 2 == 0 { 1 } else { 1 + random.below(512) };
        let mut reader = Reader::default();
        for _ in 0..50 {
            let mut request: Vec<_> =
                (0..count).map(|_| random.below(8 << 30)).map(|start| start..start + len).collect();
            if seed % 4 < 2 {
                request.sort_by_key(|range| range.start);
            }
            wanted += total(&request);
            reader.read(&request);
        }
        announced += reader.announced;
    }
    assert!(announced * 1000 < wanted, "{announced} of {wanted}");
}

#[test]
fn single_bytes_at_random_are_not_announced() {
    let (mut random, mut reader) = (Random(1), Reader::default());
    for _ in 0..1000 {
        let start = random.below(1 << 30);
        reader.read(&single(start, 1 + random.below(4)));
    }
    assert_eq!(reader.announced, 0);
}

#[test]
fn a_reader_that_often_turns_is_given_up_on() {
    // Five steps, then another place: what is announced is of no use.
    let (mut random, mut reader, mut early) = (Random(3), Reader::default(), 0);
    for round in 0..2000 {
        let begin = random.below(END / 2);
        (0..5).for_each(|step| reader.read(&single(begin + step * MIB, 64 * KIB)));
        if round == 19 {
            early = reader.announced;
        }
    }
    assert!(early > 0 && reader.announced == early, "{early} {}", reader.announced);
}

#[test]
fn cached_requests_change_nothing() {
    let mut reader = Reader::default();
    (0..10).for_each(|number| reader.read(&single(number * MIB, 64 * KIB)));
    let (before, ahead) = (reader.served, reader.announced);
    // The directory of the file, between two requests.
    reader.cached.push(END - MIB..END);
    (0..5).for_each(|_| reader.read(&single(END - MIB, 8 * KIB)));
    assert_eq!(reader.announced, ahead);
    (10..20).for_each(|number| reader.read(&single(number * MIB, 64 * KIB)));
    assert_eq!(reader.served - before, 15);
    // Nobody who waits for nothing is looked at.
    let mut pattern = Pattern::default();
    (0..20).for_each(|number| assert_eq!(pattern.note(&single(number * MIB, KIB), false, END, MIB), Noted::default()));
    assert!(pattern.last.is_empty());
}

#[test]
fn the_end_of_the_file_and_the_room_are_bounds() {
    let mut reader = Reader::default();
    let end = 20 * MIB + 10;
    (0..21).for_each(|number| reader.read_of(&single(number * MIB, 64 * KIB), end, 100 * KIB));
    assert!(reader.served >= 16);
    let mut large = Reader::default();
    for number in 0..10 {
        large.read(
            &(0..50).map(|at| (number * 60 + at) * MIB..(number * 60 + at) * MIB + 900 * KIB).collect::<Vec<_>>(),
        );
    }
    assert_eq!(large.announced, 7 * BYTES_MAX);
}

#[test]
fn hostile_requests_break_nothing() {
    for seed in 0..300 {
        let mut random = Random(seed);
        let mut reader = Reader::default();
        let edges = [0, 1, 4096, END, i64::MAX as u64, u64::MAX / 2, u64::MAX - 1, u64::MAX];
        for _ in 0..40 {
            let count = [0, 1, 2, 40, 1024, 1025][usize::try_from(random.below(6)).unwrap()];
            let request: Vec<_> = (0..count)
                .map(|_| {
                    let start = edges[usize::try_from(random.below(8)).unwrap()].saturating_sub(random.below(9000));
                    start
                        ..start.saturating_add(
                            [0, 1, 70_000, u64::from(u32::MAX), u64::MAX][usize::try_from(random.below(5)).unwrap()],
                        )
                })
                .collect();
            let end = [0, 1, END, u64::MAX][usize::try_from(random.below(4)).unwrap()];
            reader.read_of(&request, end, random.below(20 * MIB));
        }
        // The largest steps there are, and vectors that overlap themselves.
        for number in 0..10 {
            reader.read_of(&single(if number % 2 == 0 { 0 } else { u64::MAX - 5 }, 5), u64::MAX, MIB);
            reader.read_of(&vec![number * 5000..number * 5000 + 100_000; 1024], u64::MAX, MIB);
        }
    }
}
