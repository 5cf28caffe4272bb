//! The permission of a redirect from any bytes: nobody makes one without the key, and what one has, no other text is.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use types::capability::{
    Capability, CapabilityConditions, CapabilityKey, CapabilityKeys, LAYOUT_BYTES_MAX, PathHash, Rights,
};
use types::{NodeId, NsPath, ObjectId, PrincipalId, SessionId, Timestamp};

fuzz_target!(|bytes: &[u8]| {
    let keys = CapabilityKeys::new(CapabilityKey::new(1, b"a key that the fuzzer cannot see"));
    let (path, principal) = (PathHash::of(&NsPath::root()), PrincipalId(5));
    let wanted = CapabilityConditions {
        server: NodeId(1),
        principal: Some(principal),
        path,
        rights: Rights::READ,
        now: Timestamp(0),
    };
    assert!(Capability::check(bytes, &keys, &wanted).is_err());
    let sealed = Capability {
        server: NodeId(1),
        object: ObjectId(2),
        rights: Rights::READ,
        principal,
        path,
        epoch: 3,
        session: SessionId(4),
        expires: Timestamp(0).plus(Duration::from_secs(1)),
        layout: bytes.to_vec(),
    };
    let Ok(text) = sealed.seal(keys.newest()) else {
        assert!(bytes.len() > LAYOUT_BYTES_MAX);
        return;
    };
    assert_eq!(Capability::check(text.as_bytes(), &keys, &wanted).as_ref(), Ok(&sealed));
    // Altered at a place, and to a byte, that the input chooses.
    let [at, to, ..] = *bytes else { return };
    let mut altered = text.clone().into_bytes();
    let at = usize::from(at) % altered.len();
    altered[at] = to;
    assert_eq!(Capability::check(&altered, &keys, &wanted).is_ok(), altered == text.as_bytes());
});
