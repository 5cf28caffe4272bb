//! The encoding of an operation's answer, kept for a retry (`R`). It holds the fields of the answer in order, numbers big-endian.

use types::{
    BootGeneration, GroupId, InSyncReplica, Incarnation, Ino, NodeId, ObjectId, Placement, PrincipalId, ReplicaId,
    SessionId, StoreId, TreeId, UploadId,
};

use crate::codec::{BadValue, Decoder};
use crate::context::Answer;
use crate::{
    CommitReply, InterruptReply, MkdirResult, OpenKind, OpenedWrite, Removed, Renamed, WriterKey, WriterToken,
};

fn put(out: &mut Vec<u8>, n: u64) {
    out.extend_from_slice(&n.to_be_bytes());
}

fn put_option(out: &mut Vec<u8>, n: Option<u64>) {
    out.push(u8::from(n.is_some()));
    put(out, n.unwrap_or(0));
}

fn option(from: &mut Decoder<'_>) -> Result<Option<u64>, BadValue> {
    let some = from.u8()? != 0;
    let n = from.u64()?;
    Ok(some.then_some(n))
}

fn whole<T>(bytes: &[u8], read: impl FnOnce(&mut Decoder<'_>) -> Result<T, BadValue>) -> Option<T> {
    let mut from = Decoder::part(bytes, "a remembered answer");
    let value = read(&mut from).ok()?;
    from.rest().is_empty().then_some(value)
}

impl Answer for () {
    fn encode(&self, _out: &mut Vec<u8>) {}
    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.is_empty().then_some(())
    }
}

impl Answer for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        whole(bytes, |from| from.u8().map(|byte| byte != 0))
    }
}

macro_rules! number {
    ($($name:ident),*) => {
        $(impl Answer for $name {
            fn encode(&self, out: &mut Vec<u8>) {
                put(out, self.0);
            }
            fn decode(bytes: &[u8]) -> Option<Self> {
                whole(bytes, |from| from.u64().map($name))
            }
        })*
    };
}
number!(Ino, ObjectId, NodeId, SessionId, TreeId, Incarnation);

impl Answer for WriterToken {
    fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.key.0);
        put(out, self.object.0);
        put(out, u64::from(self.epoch));
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        whole(bytes, |from| {
            let (key, object) = (WriterKey(from.u64()?), ObjectId(from.u64()?));
            let epoch = u32::try_from(from.u64()?).map_err(|_| BadValue::Damaged("the answer does not read back"))?;
            Ok(WriterToken { key, object, epoch })
        })
    }
}

impl Answer for Option<ObjectId> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_option(out, self.map(|object| object.0));
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        whole(bytes, option).map(|n| n.map(ObjectId))
    }
}

impl Answer for Option<u64> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_option(out, *self);
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        whole(bytes, option)
    }
}

impl Answer for Vec<PrincipalId> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|id| put(out, u64::from(id.0)));
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks::<8>();
        let number = |bytes: &[u8; 8]| u32::try_from(u64::from_be_bytes(*bytes)).ok().map(PrincipalId);
        if rest.is_empty() { numbers.iter().map(number).collect() } else { None }
    }
}

impl Answer for MkdirResult {
    fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.ino.0);
        put(out, u64::from(self.made));
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        let (ino, made) = whole(bytes, |from| Ok((from.u64()?, from.u64()?)))?;
        Some(MkdirResult { ino: Ino(ino), made: u32::try_from(made).ok()? })
    }
}

impl Answer for Removed {
    fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.ino.0);
        put_option(out, self.object.map(|object| object.0));
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        whole(bytes, |from| Ok(Removed { ino: Ino(from.u64()?), object: option(from)?.map(ObjectId) }))
    }
}

impl Answer for Renamed {
    fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.ino.0);
        put_option(out, self.replaced.map(|ino| ino.0));
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        whole(bytes, |from| Ok(Renamed { ino: Ino(from.u64()?), replaced: option(from)?.map(Ino) }))
    }
}

fn put_opened(out: &mut Vec<u8>, opened: &OpenedWrite) {
    put(out, opened.writer.key.0);
    put(out, u64::from(opened.writer.epoch));
    put(out, opened.ino.0);
    put(out, opened.object.0);
    put(out, opened.group.0);
    let (kind, upload) = match opened.kind {
        OpenKind::New => (1, None),
        OpenKind::Upload(upload) => (2, Some(upload)),
        OpenKind::Update => (3, None),
        OpenKind::Resumed(upload) => (4, upload),
    };
    out.push(kind);
    put_option(out, upload.map(|upload| upload.0));
    put(out, opened.len);
    put(out, opened.in_sync.len() as u64);
    for in_sync_replica in &opened.in_sync {
        put(out, in_sync_replica.store.0);
        put(out, u64::from(in_sync_replica.boot_generation.0));
    }
    put_option(out, opened.dropped.first().map(|object| object.0));
    opened.dropped.iter().skip(1).for_each(|object| put(out, object.0));
}

fn opened(from: &mut Decoder<'_>) -> Result<OpenedWrite, BadValue> {
    let bad = || BadValue::Damaged("the answer does not read back");
    let key = WriterKey(from.u64()?);
    let epoch = u32::try_from(from.u64()?).map_err(|_| bad())?;
    let ino = Ino(from.u64()?);
    let object = ObjectId(from.u64()?);
    let group = GroupId(from.u64()?);
    let kind = from.u8()?;
    let upload = option(from)?.map(UploadId);
    let kind = match (kind, upload) {
        (1, _) => OpenKind::New,
        (2, Some(upload)) => OpenKind::Upload(upload),
        (3, _) => OpenKind::Update,
        (4, upload) => OpenKind::Resumed(upload),
        _ => return Err(bad()),
    };
    let len = from.u64()?;
    let mut in_sync = Vec::new();
    for _ in 0..from.u64()?.min(Placement::IN_SYNC_MAX as u64) {
        let store = StoreId(from.u64()?);
        in_sync.push(InSyncReplica {
            store,
            boot_generation: BootGeneration(u32::try_from(from.u64()?).map_err(|_| bad())?),
        });
    }
    // Reads to the end: nothing follows this list in any answer that contains it.
    let mut dropped: Vec<_> = option(from)?.map(ObjectId).into_iter().collect();
    while let Ok(further) = from.u64() {
        dropped.push(ObjectId(further));
    }
    let writer = WriterToken { key, object, epoch };
    let replica = ReplicaId::first(object);
    // Who repeats a request returns to what the first one has opened. Before its first write it asks how far it may go.
    Ok(OpenedWrite {
        writer,
        ino,
        object,
        replica,
        group,
        kind,
        len,
        dropped,
        in_sync,
        returns: true,
        may_reach: Some(0),
    })
}

impl Answer for OpenedWrite {
    fn encode(&self, out: &mut Vec<u8>) {
        put_opened(out, self);
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        whole(bytes, opened)
    }
}

impl Answer for Option<OpenedWrite> {
    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(opened) = self {
            put_opened(out, opened);
        }
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() { Some(None) } else { whole(bytes, opened).map(Some) }
    }
}

impl Answer for CommitReply {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            CommitReply::Complete { ino, replaced, upload } => {
                out.push(1);
                put(out, ino.0);
                put_option(out, replaced.map(|object| object.0));
                put_option(out, upload.map(|upload| upload.0));
            }
            CommitReply::Unlinked => out.push(2),
        }
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        whole(bytes, |from| match from.u8()? {
            1 => Ok(CommitReply::Complete {
                ino: Ino(from.u64()?),
                replaced: option(from)?.map(ObjectId),
                upload: option(from)?.map(UploadId),
            }),
            2 => Ok(CommitReply::Unlinked),
            _ => Err(BadValue::Damaged("the answer does not read back")),
        })
    }
}

impl Answer for InterruptReply {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            InterruptReply::Marked => 1,
            InterruptReply::UploadKept => 2,
            InterruptReply::Unlinked => 3,
        });
    }
    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [1] => Some(InterruptReply::Marked),
            [2] => Some(InterruptReply::UploadKept),
            [3] => Some(InterruptReply::Unlinked),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<T: Answer + PartialEq + std::fmt::Debug>(value: &T) {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        assert_eq!(T::decode(&bytes).as_ref(), Some(value));
        bytes.push(9);
        assert_eq!(T::decode(&bytes), None, "bytes behind the end are damage");
    }

    #[test]
    fn answers_read_back() {
        there_and_back(&());
        there_and_back(&Ino(7));
        there_and_back(&Some(ObjectId(8)));
        there_and_back(&None::<ObjectId>);
        there_and_back(&MkdirResult { ino: Ino(1), made: 3 });
        there_and_back(&Removed { ino: Ino(1), object: None });
        there_and_back(&Renamed { ino: Ino(1), replaced: Some(Ino(2)) });
        there_and_back(&CommitReply::Unlinked);
        there_and_back(&Vec::<PrincipalId>::new());
        there_and_back(&vec![PrincipalId(0), PrincipalId(u32::MAX)]);
        let upload = Some(UploadId(3));
        there_and_back(&CommitReply::Complete { ino: Ino(1), replaced: Some(ObjectId(2)), upload });
        there_and_back(&InterruptReply::UploadKept);
        there_and_back(&WriterToken { key: WriterKey(1), object: ObjectId(2), epoch: 3 });
        for kind in [
            OpenKind::New,
            OpenKind::Upload(UploadId(4)),
            OpenKind::Update,
            OpenKind::Resumed(None),
            OpenKind::Resumed(upload),
        ] {
            let object = ObjectId(4);
            let opened = |dropped| OpenedWrite {
                writer: WriterToken { key: WriterKey(1), object, epoch: 2 },
                ino: Ino(3),
                object,
                replica: ReplicaId::first(object),
                group: GroupId(1),
                kind,
                len: 6,
                dropped,
                in_sync: vec![
                    InSyncReplica { store: StoreId(8), boot_generation: BootGeneration(2) };
                    usize::from(kind == OpenKind::Update)
                ],
                returns: true,
                may_reach: Some(0),
            };
            for count in 0..4 {
                let opened = opened((9..9 + count).map(ObjectId).collect());
                there_and_back(&opened);
                there_and_back(&Some(opened));
            }
        }
    }
}
