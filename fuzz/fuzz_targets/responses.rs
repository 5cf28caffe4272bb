//! One response, and each kind of object, from any bytes: taken or refused; what is taken can be encoded, and decodes to
//! the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::response::*;
use wire::{HandshakeReply, Response, ResponseHeader};

macro_rules! again {
    ($object:expr, $($reply:ident),*) => {$(
        if let Ok(reply) = $reply::decode($object) {
            let mut again = Vec::new();
            let _ = reply.encode(&mut again);
            assert_eq!($reply::decode(&again).as_ref(), Ok(&reply));
        }
    )*};
}

fuzz_target!(|bytes: &[u8]| {
    if let Some(head) = bytes.first_chunk() {
        let _ = HandshakeReply::decode(head);
    }
    if let Some((head, object)) = bytes.split_first_chunk::<8>() {
        if let Ok(header) = ResponseHeader::parse(head) {
            if let Ok(response) = Response::decode(&header, object) {
                let mut again = Vec::new();
                if response.encode(header.stream, &mut again).is_ok() {
                    let (head, object) = again.split_first_chunk::<8>().unwrap();
                    let header = ResponseHeader::parse(head).unwrap();
                    let decoded = Response::decode(&header, object);
                    // texts are cut where the protocol's buffers end
                    if bytes.len() < 4000 {
                        assert_eq!(decoded, Ok(response));
                    }
                }
            }
        }
    }
    again!(bytes, LoginReply, BindReply, OpenReply, LocateReply, ChecksumReply, ChkpointReply, BadPages, VfsReply);
    // these clean what they write, or have more than one way to say a thing: no panic is all that is asked
    let _ =
        (ProtocolReply::decode(bytes), StatReply::decode(bytes), SpaceReply::decode(bytes), ConfigReply::decode(bytes));
    let _ = (FattrReply::decode(bytes, true), FattrReply::decode(bytes, false));
    let _ = (FattrList::decode(bytes, true), FattrList::decode(bytes, false), ReadvSegment::decode_all(bytes));
    if let Ok(listing) = Dirlisting::decode(bytes) {
        let mut again = DirlistBody::new(listing.with_stat);
        for entry in &listing.entries {
            again
                .push(&entry.name, entry.stat.as_ref(), entry.checksum.as_deref())
                .expect("a listed name can be listed");
        }
        let again = Dirlisting::decode(&again.finish()).expect("our own listing");
        assert_eq!(again.entries.len(), listing.entries.len());
        assert!(again.entries.iter().zip(&listing.entries).all(|(a, b)| a.name == b.name));
    }
});
