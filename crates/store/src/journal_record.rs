//! The records of the journal's stream `STORE_DATA`: what happens to open writes.
//!
//! One span of writing begins when the replica is created, resumed or updated. It has its own generation, and ends with
//! the index record of the same generation. Records of ended generations are ignored, but a small replica's bytes may
//! still lie in them.

use types::{Incarnation, ReplicaId};

use crate::StoreError;
use crate::checkpoint::Base;
use crate::codec::{Decoder, Encoder};
use crate::ranges::Ranges;

/// Version of all records of this stream.
const VERSION: u8 = 1;

/// How a generation began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Beginning {
    /// The replica was created.
    New,
    /// It was interrupted before.
    Resumed,
    /// It was complete before.
    Update,
}

/// The facts known when a generation begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GenerationStart {
    pub(crate) generation: u64,
    pub(crate) beginning: Beginning,
    pub(crate) incarnation: Incarnation,
    pub(crate) expected_len: Option<u64>,
    pub(crate) path_hint: Vec<u8>,
}

/// The whole state of a generation. Older journal records of the same generation are obsolete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Snapshot {
    pub(crate) birth: GenerationStart,
    pub(crate) len: u64,
    /// Whether the replica has (or will have) its own file.
    pub(crate) large: bool,
    /// Written bytes.
    pub(crate) written: Ranges,
    /// Pages that are synced in the file, with their synced checksums in the sidecar.
    pub(crate) in_file: Ranges,
    /// Pages that are not (only) in the file: the number, whether the file has older contents of the page, 4096 bytes.
    pub(crate) held: Vec<(u64, bool, Vec<u8>)>,
}

/// One record. It borrows its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum JournalRecord<'a> {
    /// A generation begins with nothing written.
    Born(GenerationStart),
    /// Bytes to lay over the present ones. `wrote` is the range of the writer. `bytes`, from `offset`, may be longer: a
    /// whole page, if the file has older contents of it.
    Bytes { wrote: (u64, u64), offset: u64, bytes: &'a [u8] },
    /// Whole pages are in the file (in the kernel, unsynced).
    InFile { first_page: u64, crcs: Vec<u32> },
    /// The length will be this. Durable before the file is truncated.
    Truncate { len: u64 },
    /// The file has been truncated, durably.
    Cut,
    /// The `InFile` pages recorded before journal position `before` are durable in the file, and their checksums in the
    /// sidecar.
    Synced { before: u64 },
    /// The whole state again.
    Snapshot(Snapshot),
    /// The replica was removed: generations up to this one are ignored.
    Gone,
    /// A checkpoint is open from here on. If it was open already, this repeats the state at its start.
    CheckpointBegun(Base),
    /// The contents of these whole pages when the checkpoint began. Durable before the file's pages are overwritten.
    Undo { first_page: u64, bytes: &'a [u8] },
    /// The checkpoint has ended. `kept`: its changes stay, and are durable. Otherwise they are undone.
    CheckpointEnded { kept: bool },
}

/// The replica and generation of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Subject {
    pub(crate) replica: ReplicaId,
    pub(crate) generation: u64,
}

fn encode_birth(out: &mut Encoder, birth: &GenerationStart) {
    let beginning = match birth.beginning {
        Beginning::New => 0,
        Beginning::Resumed => 1,
        Beginning::Update => 2,
    };
    out.u8(beginning).u64(birth.incarnation.0);
    out.u8(u8::from(birth.expected_len.is_some())).u64(birth.expected_len.unwrap_or(0));
    out.short_bytes(&birth.path_hint);
}

fn decode_birth(input: &mut Decoder<'_>, generation: u64) -> Result<GenerationStart, StoreError> {
    let beginning = match input.u8()? {
        0 => Beginning::New,
        1 => Beginning::Resumed,
        2 => Beginning::Update,
        _ => return Err(input.fail("unknown beginning")),
    };
    let incarnation = Incarnation(input.u64()?);
    let expected = (input.u8()? != 0, input.u64()?);
    let path_hint = input.short_bytes()?.to_vec();
    Ok(GenerationStart {
        generation,
        beginning,
        incarnation,
        expected_len: expected.0.then_some(expected.1),
        path_hint,
    })
}

/// Bytes before the data of a [`JournalRecord::Bytes`].
pub(crate) const BYTES_HEADER: u32 = 2 + 10 + 8 + 24;

impl JournalRecord<'_> {
    /// Encodes the record as two parts to be concatenated. The second is the data of `Bytes`, not copied.
    pub(crate) fn encode(&self, subject: Subject) -> (Vec<u8>, &[u8]) {
        let mut out = Encoder::default();
        let kind = match self {
            JournalRecord::Born(_) => 1,
            JournalRecord::Bytes { .. } => 2,
            JournalRecord::InFile { .. } => 3,
            JournalRecord::Truncate { .. } => 4,
            JournalRecord::Cut => 5,
            JournalRecord::Synced { .. } => 6,
            JournalRecord::Snapshot(_) => 7,
            JournalRecord::Gone => 8,
            JournalRecord::CheckpointBegun(_) => 9,
            JournalRecord::Undo { .. } => 10,
            JournalRecord::CheckpointEnded { .. } => 11,
        };
        out.u8(VERSION).u8(kind).replica(subject.replica).u64(subject.generation);
        match self {
            JournalRecord::Born(birth) => encode_birth(&mut out, birth),
            JournalRecord::Bytes { wrote, offset, bytes } => {
                out.u64(wrote.0).u64(wrote.1).u64(*offset);
                return (out.0, bytes);
            }
            JournalRecord::InFile { first_page, crcs } => {
                out.u64(*first_page).u32s(crcs);
            }
            JournalRecord::Cut | JournalRecord::Gone => {}
            JournalRecord::Truncate { len } => {
                out.u64(*len);
            }
            JournalRecord::Synced { before } => {
                out.u64(*before);
            }
            JournalRecord::Snapshot(snapshot) => {
                encode_birth(&mut out, &snapshot.birth);
                out.u64(snapshot.len).u8(u8::from(snapshot.large)).ranges(&snapshot.written).ranges(&snapshot.in_file);
                out.u32(u32::try_from(snapshot.held.len()).unwrap_or(u32::MAX));
                for (page, image, bytes) in &snapshot.held {
                    out.u64(*page).u8(u8::from(*image)).raw(bytes);
                }
            }
            JournalRecord::CheckpointBegun(base) => {
                out.u64(base.len).ranges(&base.written).ranges(&base.taken);
            }
            JournalRecord::Undo { first_page, bytes } => {
                out.u64(*first_page);
                return (out.0, bytes);
            }
            JournalRecord::CheckpointEnded { kept } => {
                out.u8(u8::from(*kept));
            }
        }
        (out.0, &[])
    }

    pub(crate) fn decode(payload: &[u8]) -> Result<(Subject, JournalRecord<'_>), StoreError> {
        let mut input = Decoder::new(payload, "a record of the journal's store stream");
        let version = input.u8()?;
        let kind = input.u8()?;
        if version != VERSION || !(1..=11).contains(&kind) {
            return Err(StoreError::Unsupported { what: format!("a store record (version {version}, kind {kind})") });
        }
        let subject = Subject { replica: input.replica()?, generation: input.u64()? };
        let record = match kind {
            1 => JournalRecord::Born(decode_birth(&mut input, subject.generation)?),
            2 => {
                let (wrote, offset) = ((input.u64()?, input.u64()?), input.u64()?);
                let bytes = input.rest();
                let end = offset.checked_add(bytes.len() as u64).ok_or_else(|| input.fail("an offset too large"))?;
                if wrote.0 < offset || wrote.1 > end || wrote.0 > wrote.1 || end > crate::config::DECODED_LEN_MAX {
                    return Err(input.fail("bytes outside of their range"));
                }
                JournalRecord::Bytes { wrote, offset, bytes }
            }
            3 => {
                let (first_page, crcs) = (input.u64()?, input.u32s()?);
                if first_page > crate::config::DECODED_LEN_MAX / crate::sums::PAGE {
                    return Err(input.fail("an offset too large"));
                }
                JournalRecord::InFile { first_page, crcs }
            }
            4 => JournalRecord::Truncate { len: input.u64()? },
            5 => JournalRecord::Cut,
            6 => JournalRecord::Synced { before: input.u64()? },
            7 => {
                let birth = decode_birth(&mut input, subject.generation)?;
                let (len, large) = (input.u64()?, input.u8()? != 0);
                let (written, in_file) = (input.ranges()?, input.ranges()?);
                let count = input.count(9 + types::PAGE_SIZE)?;
                let held: Result<Vec<_>, StoreError> = (0..count)
                    .map(|_| Ok((input.u64()?, input.u8()? != 0, input.raw(types::PAGE_SIZE)?.to_vec())))
                    .collect();
                JournalRecord::Snapshot(Snapshot { birth, len, large, written, in_file, held: held? })
            }
            8 => JournalRecord::Gone,
            9 => {
                let (len, written, taken) = (input.u64()?, input.ranges()?, input.ranges()?);
                JournalRecord::CheckpointBegun(Base { len, written, taken })
            }
            10 => {
                let first_page = input.u64()?;
                let bytes = input.rest();
                if first_page > crate::config::DECODED_LEN_MAX / crate::sums::PAGE
                    || !bytes.len().is_multiple_of(types::PAGE_SIZE)
                {
                    return Err(input.fail("pages that are none"));
                }
                JournalRecord::Undo { first_page, bytes }
            }
            _ => JournalRecord::CheckpointEnded { kept: input.u8()? != 0 },
        };
        input.end()?;
        Ok((subject, record))
    }
}

#[cfg(test)]
#[allow(clippy::cast_possible_truncation)] // small numbers
mod tests {
    use types::ObjectId;

    use super::*;

    fn all() -> Vec<JournalRecord<'static>> {
        let birth = GenerationStart {
            generation: 7,
            beginning: Beginning::Resumed,
            incarnation: Incarnation(3),
            expected_len: Some(99),
            path_hint: b"/a/b".to_vec(),
        };
        let mut written = Ranges::up_to(10);
        written.insert(20, 30);
        vec![
            JournalRecord::Born(birth.clone()),
            JournalRecord::Bytes { wrote: (5, 8), offset: 4, bytes: b"xabcx" },
            JournalRecord::InFile { first_page: 3, crcs: vec![1, 2, 3] },
            JournalRecord::Truncate { len: 5 },
            JournalRecord::Cut,
            JournalRecord::Synced { before: 77 },
            JournalRecord::Snapshot(Snapshot {
                birth,
                len: 30,
                large: true,
                written,
                in_file: Ranges::up_to(1),
                held: vec![(2, true, vec![9; 4096])],
            }),
            JournalRecord::Gone,
            JournalRecord::CheckpointBegun(Base { len: 9, written: Ranges::up_to(9), taken: Ranges::up_to(1) }),
            JournalRecord::Undo { first_page: 7, bytes: &[3; 2 * types::PAGE_SIZE] },
            JournalRecord::CheckpointEnded { kept: true },
        ]
    }

    #[test]
    fn records_round_trip_and_truncated_or_changed_ones_never_panic() {
        let subject = Subject { replica: ReplicaId::first(ObjectId(0x1234)), generation: 7 };
        for record in all() {
            let (head, tail) = record.encode(subject);
            if let JournalRecord::Bytes { .. } = record {
                assert_eq!(head.len(), BYTES_HEADER as usize);
            }
            let payload = [head.as_slice(), tail].concat();
            assert_eq!(JournalRecord::decode(&payload).unwrap(), (subject, record.clone()));
            for cut in 0..payload.len() {
                let _ = JournalRecord::decode(&payload[..cut]);
            }
            for at in 0..payload.len().min(200) {
                let mut changed = payload.clone();
                changed[at] ^= 0xff;
                let _ = JournalRecord::decode(&changed);
            }
        }
        assert!(matches!(JournalRecord::decode(&[2, 1]), Err(StoreError::Unsupported { .. })));
    }
}
