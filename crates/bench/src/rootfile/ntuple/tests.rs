//! A small artificial ntuple, correct and with wrong bytes in each of its envelopes.

use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

use super::super::key::tests::file;
use super::super::{RootFile, RootFileError, Source};
use super::CLASS;

/// A record frame, or with a count a list frame.
fn frame(count: Option<u32>, body: &[u8]) -> Vec<u8> {
    let len = i64::try_from(8 + count.map_or(0, |_| 4) + body.len()).unwrap();
    let size = if count.is_some() { -len } else { len };
    [&size.to_le_bytes()[..], &count.map(u32::to_le_bytes).map_or(vec![], |count| count.to_vec()), body].concat()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    frame(Some(u32::try_from(items.len()).unwrap()), &items.concat())
}

fn text(text: &str) -> Vec<u8> {
    [&u32::try_from(text.len()).unwrap().to_le_bytes()[..], text.as_bytes()].concat()
}

fn field(parent: u32, name: &str) -> Vec<u8> {
    let numbers = [0, 0, parent, 0].map(u32::to_le_bytes).concat();
    frame(None, &[numbers, text(name), text("type"), text(""), text("")].concat())
}

fn column(bits: u16, field: u32) -> Vec<u8> {
    frame(None, &[&7_u16.to_le_bytes()[..], &bits.to_le_bytes(), &field.to_le_bytes(), &[0; 4]].concat())
}

fn envelope(kind: u64, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() + 16) as u64;
    let body = [&(kind | len << 16).to_le_bytes()[..], payload].concat();
    [&body[..], &xxh3_64(&body).to_le_bytes()].concat()
}

fn sum(envelope: &[u8]) -> [u8; 8] {
    envelope[envelope.len() - 8..].try_into().unwrap()
}

fn locator(len: u32, offset: u64) -> Vec<u8> {
    [&len.to_le_bytes()[..], &offset.to_le_bytes()].concat()
}

/// A page of `elements` with a checksum, of `len` bytes.
fn page(elements: i32, len: u32, offset: u64) -> Vec<u8> {
    [&(-elements).to_le_bytes()[..], &locator(len, offset)].concat()
}

/// The pages of a column in a cluster; `None`: the column is suppressed there.
fn pages(pages: Option<&[Vec<u8>]>) -> Vec<u8> {
    let (items, behind) = match pages {
        Some(pages) => (pages, [&0_i64.to_le_bytes()[..], &505_u32.to_le_bytes()].concat()),
        None => (&[][..], i64::MIN.to_le_bytes().to_vec()),
    };
    frame(Some(u32::try_from(items.len()).unwrap()), &[items.concat(), behind].concat())
}

fn header() -> Vec<u8> {
    let fields = [field(0, "muons"), field(0, "_0"), field(1, "pt")];
    let columns = [column(64, 0), column(32, 2), column(1, 2)];
    [&[0; 8][..], &text("t"), &text(""), &text("weir"), &list(&fields), &list(&columns), &list(&[]), &list(&[])]
        .concat()
}

fn page_list(header_sum: [u8; 8]) -> Vec<u8> {
    let cluster = |first: u64, entries: u64| frame(None, &[first.to_le_bytes(), entries.to_le_bytes()].concat());
    let first =
        list(&[pages(Some(&[page(10, 80, 200)])), pages(Some(&[page(30, 50, 300), page(3, 12, 360)])), pages(None)]);
    let second = list(&[pages(Some(&[page(5, 40, 400)])), pages(None), pages(Some(&[page(9, 2, 450)]))]);
    [&header_sum[..], &list(&[cluster(0, 10), cluster(10, 5)]), &list(&[first, second])].concat()
}

fn footer(header_sum: [u8; 8], list_len: u64, list_at: u64) -> Vec<u8> {
    // A locator with a 64-bit length, as in very large page lists.
    let large = [&(-(1_i32 << 24 | 20)).to_le_bytes()[..], &list_len.to_le_bytes(), &list_at.to_le_bytes()].concat();
    let group = frame(None, &[&[0; 20][..], &list_len.to_le_bytes(), &large].concat());
    [&[0; 8][..], &header_sum, &frame(None, &[]), &list(&[group])].concat()
}

/// The whole file. `change` may change the payloads of header, page list and footer before their checksums are
/// computed.
fn ntuple(change: impl Fn(usize, &mut Vec<u8>)) -> Vec<u8> {
    let changed = |which: usize, mut payload: Vec<u8>| {
        change(which, &mut payload);
        payload
    };
    let header = envelope(1, &changed(0, header()));
    let list = envelope(3, &changed(1, page_list(sum(&header))));
    // One record holds all three: 100 bytes before it, and its key.
    let begin = 100 + 26 + 3 + 5 + 64;
    let at = |n: usize| (begin + n) as u64;
    let footer = envelope(2, &changed(2, footer(sum(&header), list.len() as u64, at(header.len()))));
    let links = [(at(0), header.len() as u64), (at(header.len() + list.len()), footer.len() as u64)];
    let links: Vec<u8> = links.iter().flat_map(|(at, len)| [*at, *len, *len].map(u64::to_be_bytes).concat()).collect();
    let anchor =
        [&[0x40, 0, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0][..], &links, &(1_u64 << 30).to_be_bytes(), &[0; 8]].concat();
    let blob = [header, list, footer].concat();
    file(&[("RBlob", "", "", &[0; 64], &blob), (CLASS, "t", "", &[], &anchor)])
}

#[test]
fn pages_are_found_by_field_and_cluster() {
    let bytes = ntuple(|_, _| {});
    let found = RootFile::read(&Source::memory(&bytes)).unwrap();
    let tree = &found.trees[0];
    assert_eq!((tree.name.as_str(), tree.entries, tree.head.len(), found.notes.len()), ("t", 15, 4, 0));
    let names: Vec<_> = tree.branches.iter().map(|branch| branch.name.as_str()).collect();
    assert_eq!(names, ["muons", "muons._0.pt"]);
    let parts = |branch: usize| -> Vec<_> {
        let of = |part: &super::Part| (part.offset, part.bytes, part.uncompressed, part.first_entry, part.entries);
        tree.branches[branch].parts.iter().map(of).collect()
    };
    assert_eq!(parts(0), [(200, 88, 80, 0, 10), (400, 48, 40, 10, 5)]);
    assert_eq!(parts(1), [(300, 58, 120, 0, 10), (360, 20, 12, 0, 10), (450, 10, 2, 10, 5)]);
}

#[test]
fn features_of_later_formats_are_refused() {
    let bytes = ntuple(|which, payload| payload[0] = u8::from(which == 0));
    let found = RootFile::read(&Source::memory(&bytes)).unwrap();
    assert!(found.trees.is_empty() && found.notes[0].contains("features"), "{:?}", found.notes);
    let mut damaged = ntuple(|_, _| {});
    damaged[230] ^= 1;
    let error = RootFile::read(&Source::memory(&damaged)).unwrap_err();
    assert!(matches!(error, RootFileError::Checksum { .. }), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_bytes_in_an_envelope_make_it_panic(which in 0..3_usize, at in 0..500_usize, to in proptest::collection::vec(any::<u8>(), 1..9)) {
        let bytes = ntuple(|number, payload| {
            let len = payload.len();
            if number == which {
                to.iter().enumerate().for_each(|(n, byte)| payload[(at + n) % len] = *byte);
            }
        });
        let _ = RootFile::read(&Source::memory(&bytes));
    }

    #[test]
    fn no_bytes_in_a_file_make_it_panic(at in 0..1500_usize, to in proptest::collection::vec(any::<u8>(), 1..9)) {
        let mut bytes = ntuple(|_, _| {});
        let len = bytes.len();
        to.iter().enumerate().for_each(|(n, byte)| bytes[(at + n) % len] = *byte);
        let _ = RootFile::read(&Source::memory(&bytes));
    }
}
