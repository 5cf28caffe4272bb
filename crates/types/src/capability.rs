//! Capabilities: the permission in a redirect that a manager gives a client for one object on one disk server. The disk
//! server asks no other node. It recomputes the code (a hash with a key that only it and the manager have) and then
//! trusts the contents.
//!
//! Both ends of a redirect need this code, and neither should depend on the other: the front end that checks a
//! capability knows no cluster, and the manager that makes it knows no front end. It is therefore here, as plain data
//! and pure functions.
//!
//! `docs/reference/node-protocol.md` describes the bytes. No field of a capability is trusted, or shown in an error,
//! before its code is verified.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::{NodeId, NsPath, ObjectId, PrincipalId, SessionId, Timestamp, units};

/// The key in the opaque part of a URL: `weir.cap=...`.
pub const OPAQUE_KEY: &str = "weir.cap";

/// The key beside it for the object's number, as 16 hexadecimal digits. A client that must open a file again recognises
/// by it whether the object is still the same, even if it has grown meanwhile. It grants nothing.
pub const OBJECT_KEY: &str = "weir.object";
/// The opaque part of a URL with a capability for `object`: the text after the `?`.
#[must_use]
pub fn words(capability: &str, object: ObjectId) -> String {
    format!("{OPAQUE_KEY}={capability}&{OBJECT_KEY}={:016x}", object.0)
}

/// Longest description of the replicas' stores in bytes.
pub const LAYOUT_BYTES_MAX: usize = 336;
/// Longest text in characters, without its key.
pub const TEXT_MAX: usize = (FIXED_BYTES + LAYOUT_BYTES_MAX + CODE_BYTES).div_ceil(3) * 4;

const VERSION: u8 = 3;
const FIXED_BYTES: usize = 68;
const CODE_BYTES: usize = 32;
/// The context in which the key of the hash is derived from the secret.
const CONTEXT: &str = "weir 2026 capability of a redirect";

/// The actions that a capability allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Rights(u8);

impl Rights {
    /// Nothing: a condition that every capability meets.
    pub const NONE: Rights = Rights(0);
    /// Reading.
    pub const READ: Rights = Rights(1);
    /// Writing.
    pub const WRITE: Rights = Rights(2);
    /// Reading and writing.
    pub const READ_WRITE: Rights = Rights(3);

    /// Whether it includes all of `wanted`.
    #[must_use]
    pub fn include(self, wanted: Rights) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "do nothing",
            1 => "read",
            2 => "write",
            _ => "read and write",
        })
    }
}

/// Identifies the path of a capability: the first half of its `blake3` hash. A client opens the same path at both ends
/// of a redirect, whatever its links or later renames lead to. Nobody can find two paths with the same mark. The mark
/// needs no key, because the capability's code covers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct PathHash([u8; 16]);

impl PathHash {
    /// The mark of a path in canonical form. A path that names a directory has the mark of no file.
    #[must_use]
    pub fn of(path: &NsPath) -> Self {
        let mut mark = [0; 16];
        let end: &[u8] = if path.must_be_directory() { b"/" } else { b"" };
        blake3::Hasher::new().update(path.as_bytes()).update(end).finalize_xof().fill(&mut mark);
        Self(mark)
    }
}

/// A key that the managers share with one disk server. Never shown.
#[derive(Clone)]
pub struct CapabilityKey {
    /// Its number, which rises with each new key of this server.
    pub id: u32,
    derived: [u8; 32],
}

impl CapabilityKey {
    /// Makes a key of 32 secret bytes.
    #[must_use]
    pub fn new(id: u32, secret: &[u8; 32]) -> Self {
        Self { id, derived: blake3::derive_key(CONTEXT, secret) }
    }

    /// What another manager needs to sign with it. Whoever has this can make capabilities for the disk server.
    #[must_use]
    pub fn to_secret(&self) -> [u8; 32] {
        self.derived
    }

    /// The key of another manager, from its number and [`CapabilityKey::to_secret`].
    #[must_use]
    pub fn from_secret(id: u32, derived: [u8; 32]) -> Self {
        Self { id, derived }
    }

    fn code(&self, bytes: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.derived, bytes)
    }
}

impl fmt::Debug for CapabilityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CapabilityKey({}, not shown)", self.id)
    }
}

/// The valid keys of a disk server: the newest, and the one before it for redirects that are on their way.
#[derive(Clone, Debug)]
pub struct CapabilityKeys {
    newest: CapabilityKey,
    before: Option<CapabilityKey>,
}

impl CapabilityKeys {
    /// Starts with one key.
    #[must_use]
    pub fn new(key: CapabilityKey) -> Self {
        Self { newest: key, before: None }
    }

    /// Adds a new key; only it and the previous one stay valid. A known or an older key changes nothing, because the
    /// message may arrive twice.
    pub fn rotate(&mut self, key: CapabilityKey) {
        if key.id > self.newest.id {
            self.before = Some(std::mem::replace(&mut self.newest, key));
        }
    }

    /// The key for new capabilities.
    #[must_use]
    pub fn newest(&self) -> &CapabilityKey {
        &self.newest
    }

    fn find(&self, id: u32) -> Option<&CapabilityKey> {
        [Some(&self.newest), self.before.as_ref()].into_iter().flatten().find(|key| key.id == id)
    }
}

/// A capability, as the manager grants it. Its `Debug` form shows only ids: layouts and codes must not get into a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Capability {
    /// The disk server that may accept it.
    pub server: NodeId,
    /// The object that it allows access to.
    pub object: ObjectId,
    /// The allowed actions.
    pub rights: Rights,
    /// The principal that the manager gave it to. Another principal cannot use it.
    pub principal: PrincipalId,
    /// The path with which it must be shown.
    pub path: PathHash,
    /// The epoch of the writer.
    pub epoch: u64,
    /// The disk server's session with the manager. It is invalid in any other session.
    pub session: SessionId,
    /// When it expires by the manager's clock; it is invalid from this moment on.
    pub expires: Timestamp,
    /// The stores of the replicas, in a format that the layouts define; at most [`LAYOUT_BYTES_MAX`] bytes.
    pub layout: Vec<u8>,
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, object, rights, principal, epoch, session, expires, .. } = self;
        write!(
            f,
            "Capability(object {:016x}, server {server}, {rights}, principal {principal}, epoch {epoch}, session {session}, until {expires}, ..)",
            object.0
        )
    }
}

/// The conditions for accepting a capability.
#[derive(Clone, Copy, Debug)]
pub struct CapabilityConditions {
    /// The server that checks it.
    pub server: NodeId,
    /// The principal that shows it; `None`: the cluster itself, on behalf of the principal that it was given to.
    pub principal: Option<PrincipalId>,
    /// The path with which it is shown.
    pub path: PathHash,
    /// The requested actions.
    pub rights: Rights,
    /// The time by the clock of the manager that granted it.
    pub now: Timestamp,
}

/// Why a capability is refused, or cannot be made. A client with a refused one must ask the manager again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CapabilityError {
    /// The text has the wrong form.
    #[error(
        "the capability in the redirect ({OPAQUE_KEY}) is malformed: {0}; open the file by the manager's address again"
    )]
    Malformed(&'static str),
    /// It was made with an unknown key.
    #[error(
        "the capability in the redirect was made with key {key}, which this server does not have (any more); open the file by the manager's address again"
    )]
    UnknownKey {
        /// The number of that key.
        key: u32,
    },
    /// Its code is wrong: it was altered or forged.
    #[error(
        "the capability in the redirect is forged or was altered on its way; open the file by the manager's address again"
    )]
    Forged,
    /// It is for another server.
    #[error(
        "the capability in the redirect is for disk server {theirs}, and this is {ours}; open the file by the manager's address again"
    )]
    OtherServer {
        /// The server that it is for.
        theirs: NodeId,
        /// This server.
        ours: NodeId,
    },
    /// It is shown with another path.
    #[error(
        "the capability in the redirect is for another file than the requested one; open this one by the manager's address, which gives it a capability of its own"
    )]
    OtherPath,
    /// Another principal than its own shows it.
    #[error(
        "the capability in the redirect was given to principal {theirs}, and principal {yours} shows it; open the file by the manager's address, which gives you a capability of your own"
    )]
    OtherPrincipal {
        /// The principal that it was given to.
        theirs: PrincipalId,
        /// The principal that shows it.
        yours: PrincipalId,
    },
    /// It does not allow the requested actions.
    #[error("the capability in the redirect is to {has}, not to {wanted}")]
    Rights {
        /// The allowed actions.
        has: Rights,
        /// The requested actions.
        wanted: Rights,
    },
    /// It has expired.
    #[error("the capability in the redirect expired {} ago; open the file by the manager's address again", units::show_duration(*ago))]
    Expired {
        /// The time since it expired.
        ago: Duration,
    },
    /// The layout does not fit into a redirect.
    #[error("a layout of {bytes} bytes does not fit into a redirect, which has room for {LAYOUT_BYTES_MAX}")]
    LayoutTooLong {
        /// Its length.
        bytes: usize,
    },
}

impl Capability {
    /// The text for the redirect, to follow `weir.cap=`. Send it only to the client, and never log it.
    ///
    /// # Errors
    /// [`CapabilityError::LayoutTooLong`].
    pub fn seal(&self, key: &CapabilityKey) -> Result<String, CapabilityError> {
        let layout_len = u16::try_from(self.layout.len())
            .ok()
            .filter(|_| self.layout.len() <= LAYOUT_BYTES_MAX)
            .ok_or(CapabilityError::LayoutTooLong { bytes: self.layout.len() })?;
        let mut bytes = Vec::with_capacity(FIXED_BYTES + self.layout.len() + CODE_BYTES);
        bytes.push(VERSION);
        bytes.push(self.rights.0);
        bytes.extend(layout_len.to_le_bytes());
        bytes.extend(key.id.to_le_bytes());
        bytes.extend(self.principal.0.to_le_bytes());
        bytes.extend(self.server.0.to_le_bytes());
        bytes.extend(self.object.0.to_le_bytes());
        bytes.extend(self.path.0);
        bytes.extend(self.epoch.to_le_bytes());
        bytes.extend(self.session.0.to_le_bytes());
        bytes.extend(self.expires.0.to_le_bytes());
        bytes.extend(&self.layout);
        let code = key.code(&bytes);
        bytes.extend(code.as_bytes());
        Ok(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Verifies `text` (from after `weir.cap=`) with `keys`, and that it allows what is `wanted`. Returns the
    /// capability.
    ///
    /// # Errors
    /// Any error except [`CapabilityError::LayoutTooLong`].
    pub fn check(text: &[u8], keys: &CapabilityKeys, wanted: &CapabilityConditions) -> Result<Self, CapabilityError> {
        let capability = Self::open(text, keys)?;
        if capability.server != wanted.server {
            return Err(CapabilityError::OtherServer { theirs: capability.server, ours: wanted.server });
        }
        if let Some(yours) = wanted.principal.filter(|yours| *yours != capability.principal) {
            return Err(CapabilityError::OtherPrincipal { theirs: capability.principal, yours });
        }
        if capability.path != wanted.path {
            return Err(CapabilityError::OtherPath);
        }
        if wanted.now >= capability.expires {
            let ago = wanted.now.0.saturating_sub(capability.expires.0);
            return Err(CapabilityError::Expired { ago: Duration::from_nanos(ago.unsigned_abs()) });
        }
        if !capability.rights.include(wanted.rights) {
            return Err(CapabilityError::Rights { has: capability.rights, wanted: wanted.rights });
        }
        Ok(capability)
    }

    /// The object and the epoch that `text` names, without a proof that it is genuine. A client that comes back says with its capability what it has
    /// written. Nothing may be granted on this.
    #[must_use]
    pub fn unproven_epoch(text: &[u8]) -> Option<(ObjectId, u64)> {
        let bytes = URL_SAFE_NO_PAD.decode(text.get(..TEXT_MAX.min(text.len()))?).ok()?;
        let mut reader = Reader(&bytes);
        // Version, rights, length of the layout, key, principal, server.
        let [version, ..] = reader.take::<20>().ok()?;
        let object = ObjectId(u64::from_le_bytes(reader.take().ok()?));
        let _: PathHash = PathHash(reader.take().ok()?);
        let epoch = u64::from_le_bytes(reader.take().ok()?);
        (version == VERSION).then_some((object, epoch))
    }

    /// Decodes the text if its code is right.
    fn open(text: &[u8], keys: &CapabilityKeys) -> Result<Self, CapabilityError> {
        let malformed = CapabilityError::Malformed;
        if text.len() > TEXT_MAX {
            return Err(malformed("it is too long"));
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| malformed("it is no base64url"))?;
        let (signed, code) = bytes.split_last_chunk::<CODE_BYTES>().ok_or(malformed("it is too short"))?;
        let mut reader = Reader(signed);
        let [version] = reader.take()?;
        if version != VERSION {
            return Err(malformed("it is of a version that this server does not know"));
        }
        let [rights] = reader.take()?;
        let layout_len = usize::from(u16::from_le_bytes(reader.take()?));
        let key = u32::from_le_bytes(reader.take()?);
        let key = keys.find(key).ok_or(CapabilityError::UnknownKey { key })?;
        // Compared in constant time.
        if key.code(signed) != *code {
            return Err(CapabilityError::Forged);
        }
        let capability = Self {
            rights: Rights(rights),
            principal: PrincipalId(u32::from_le_bytes(reader.take()?)),
            server: NodeId(u64::from_le_bytes(reader.take()?)),
            object: ObjectId(u64::from_le_bytes(reader.take()?)),
            path: PathHash(reader.take()?),
            epoch: u64::from_le_bytes(reader.take()?),
            session: SessionId(u64::from_le_bytes(reader.take()?)),
            expires: Timestamp(i64::from_le_bytes(reader.take()?)),
            layout: reader.0.to_vec(),
        };
        if capability.layout.len() != layout_len {
            return Err(malformed("its length is not what it says"));
        }
        Ok(capability)
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], CapabilityError> {
        let (taken, rest) =
            self.0.split_first_chunk().ok_or(CapabilityError::Malformed("it ends within one of its fields"))?;
        self.0 = rest;
        Ok(*taken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000_000);
    const SERVER: NodeId = NodeId(7);
    const OBJECT: ObjectId = ObjectId(0x1234);
    const PRINCIPAL: PrincipalId = PrincipalId(0x0102_0304);

    #[test]
    fn a_capability_names_its_object_and_epoch_to_those_who_cannot_check_it() {
        let text = capability().seal(&key(1)).unwrap();
        assert_eq!(Capability::unproven_epoch(text.as_bytes()), Some((OBJECT, capability().epoch)));
        for bad in [&text[..40], "", "%%%"] {
            assert_eq!(Capability::unproven_epoch(bad.as_bytes()), None, "{bad}");
        }
        let long = "A".repeat(1 << 20);
        assert_eq!(Capability::unproven_epoch(long.as_bytes()), None, "it is cut, and of no known version");
    }

    fn key(id: u32) -> CapabilityKey {
        CapabilityKey::new(id, &[u8::try_from(id).unwrap(); 32])
    }

    fn keys() -> CapabilityKeys {
        CapabilityKeys::new(key(3))
    }

    fn capability() -> Capability {
        Capability {
            server: SERVER,
            object: OBJECT,
            principal: PRINCIPAL,
            path: mark("/a/file"),
            rights: Rights::READ,
            epoch: 5,
            session: SessionId(99),
            expires: NOW.plus(Duration::from_secs(60)),
            layout: b"two pieces".to_vec(),
        }
    }

    fn mark(path: &str) -> PathHash {
        PathHash::of(&NsPath::parse(path.as_bytes()).unwrap())
    }

    fn reading() -> CapabilityConditions {
        let principal = Some(PRINCIPAL);
        CapabilityConditions { server: SERVER, principal, path: mark("/a/file"), rights: Rights::READ, now: NOW }
    }

    fn check(text: &str, wanted: &CapabilityConditions) -> Result<Capability, CapabilityError> {
        Capability::check(text.as_bytes(), &keys(), wanted)
    }

    #[test]
    fn a_sealed_capability_is_valid_at_its_server_until_it_expires() {
        let text = capability().seal(&key(3)).unwrap();
        assert_eq!(check(&text, &reading()), Ok(capability()));
        let last = Timestamp(capability().expires.0 - 1);
        assert_eq!(check(&text, &CapabilityConditions { now: last, ..reading() }), Ok(capability()));
        let late = check(
            &text,
            &CapabilityConditions { now: capability().expires.plus(Duration::from_secs(90)), ..reading() },
        );
        assert_eq!(late, Err(CapabilityError::Expired { ago: Duration::from_secs(90) }));
        assert!(late.unwrap_err().to_string().contains("expired 90.0 s ago"));
        let at_the_moment = check(&text, &CapabilityConditions { now: capability().expires, ..reading() });
        assert_eq!(at_the_moment, Err(CapabilityError::Expired { ago: Duration::ZERO }));
    }

    #[test]
    fn a_capability_is_valid_only_for_its_purpose() {
        let text = capability().seal(&key(3)).unwrap();
        let elsewhere = check(&text, &CapabilityConditions { server: NodeId(8), ..reading() });
        assert_eq!(elsewhere, Err(CapabilityError::OtherServer { theirs: SERVER, ours: NodeId(8) }));
        for path in ["/a/other", "/a", "/a/file/b", "/", "/a/File", "/a/file/", "/a/file/."] {
            let other = check(&text, &CapabilityConditions { path: mark(path), ..reading() });
            assert_eq!(other, Err(CapabilityError::OtherPath), "{path}");
        }
        // However it is written.
        for path in ["//a///file", "/./a/./file"] {
            assert_eq!(
                check(&text, &CapabilityConditions { path: mark(path), ..reading() }),
                Ok(capability()),
                "{path}"
            );
        }
        for rights in [Rights::WRITE, Rights::READ_WRITE] {
            let more = check(&text, &CapabilityConditions { rights, ..reading() });
            assert_eq!(more, Err(CapabilityError::Rights { has: Rights::READ, wanted: rights }));
        }
        let both = Capability { rights: Rights::READ_WRITE, ..capability() }.seal(&key(3)).unwrap();
        for rights in [Rights::READ, Rights::WRITE, Rights::READ_WRITE] {
            assert!(check(&both, &CapabilityConditions { rights, ..reading() }).is_ok());
        }
    }

    #[test]
    fn it_is_valid_for_its_principal_and_for_the_cluster_itself() {
        for rights in [Rights::READ, Rights::WRITE, Rights::READ_WRITE] {
            let text = Capability { rights, ..capability() }.seal(&key(3)).unwrap();
            for yours in [PrincipalId(0), PrincipalId(PRINCIPAL.0 + 1), PrincipalId(u32::MAX)] {
                let other = check(&text, &CapabilityConditions { principal: Some(yours), rights, ..reading() });
                assert_eq!(other, Err(CapabilityError::OtherPrincipal { theirs: PRINCIPAL, yours }));
            }
            let own = check(&text, &CapabilityConditions { rights, ..reading() }).unwrap();
            assert_eq!(check(&text, &CapabilityConditions { principal: None, rights, ..reading() }), Ok(own));
        }
    }

    #[test]
    fn two_keys_are_valid_at_a_time() {
        let made_with = |id| capability().seal(&key(id)).unwrap();
        let mut keys = keys();
        let mut is_good = |rotated: Option<u32>, id| {
            rotated.into_iter().for_each(|id| keys.rotate(key(id)));
            Capability::check(made_with(id).as_bytes(), &keys, &reading())
        };
        assert!(is_good(None, 3).is_ok());
        assert_eq!(is_good(None, 4), Err(CapabilityError::UnknownKey { key: 4 }));
        assert!(is_good(Some(4), 3).is_ok() && is_good(None, 4).is_ok());
        // The message with a key may arrive twice, or late.
        assert!(is_good(Some(4), 3).is_ok() && is_good(Some(2), 4).is_ok());
        assert_eq!(is_good(None, 2), Err(CapabilityError::UnknownKey { key: 2 }));
        assert_eq!(is_good(Some(5), 3), Err(CapabilityError::UnknownKey { key: 3 }));
        assert!(is_good(None, 4).is_ok() && is_good(None, 5).is_ok());
    }

    #[test]
    fn the_same_number_with_another_key_is_a_forgery() {
        let text = capability().seal(&CapabilityKey::new(3, &[9; 32])).unwrap();
        assert_eq!(check(&text, &reading()), Err(CapabilityError::Forged));
    }

    #[test]
    fn unknown_versions_and_fields_are_refused() {
        let altered = |at: usize, to: u8| {
            let mut bytes = URL_SAFE_NO_PAD.decode(capability().seal(&key(3)).unwrap()).unwrap();
            bytes[at] = to;
            let signed = bytes.len() - CODE_BYTES;
            let code = key(3).code(&bytes[..signed]);
            bytes[signed..].copy_from_slice(code.as_bytes());
            check(&URL_SAFE_NO_PAD.encode(bytes), &reading())
        };
        assert_eq!(altered(2, 10), Ok(capability()));
        for (at, to) in [(0, 0), (0, 2), (0, 4), (2, 9), (2, 11), (3, 1)] {
            assert!(matches!(altered(at, to), Err(CapabilityError::Malformed(_))), "byte {at} as {to}");
        }
    }

    #[test]
    fn the_text_is_bounded() {
        let longest = Capability { layout: vec![0xff; LAYOUT_BYTES_MAX], ..capability() };
        let text = longest.seal(&key(3)).unwrap();
        assert!(OPAQUE_KEY.len() + 1 + text.len() <= 600 && text.len() <= TEXT_MAX, "{}", text.len());
        assert!(text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_'));
        assert_eq!(check(&text, &reading()), Ok(longest.clone()));
        let longer = Capability { layout: vec![0; LAYOUT_BYTES_MAX + 1], ..longest };
        assert_eq!(longer.seal(&key(3)), Err(CapabilityError::LayoutTooLong { bytes: LAYOUT_BYTES_MAX + 1 }));
        assert!(matches!(check(&"A".repeat(100_000), &reading()), Err(CapabilityError::Malformed(_))));
    }

    #[test]
    fn the_bytes_are_pinned() {
        let text = capability().seal(&key(3)).unwrap();
        assert_eq!(
            text,
            "AwEKAAMAAAAEAwIBBwAAAAAAAAA0EgAAAAAAAOnV5jV8Fk_vrfX1dXKDmhcFAAAAAAAAAGMAAAAAAAAAAFj7i4Ti-hh0d28gcGllY2Vz2hjGd7VBoBVnuiVrRUpADx9RBAa-x-C0H8GDpbFPWPs"
        );
    }

    #[test]
    fn neither_codes_nor_keys_are_shown() {
        let text = capability().seal(&key(3)).unwrap();
        let shown = format!("{:?} {:?}", capability(), keys());
        assert!(shown.contains("1234") && shown.contains("server 7"), "{shown}");
        assert!(!shown.contains("pieces") && !shown.contains(&text[text.len() - 20..]), "{shown}");
        assert!(!shown.contains("3, 3") && !shown.contains("[3"), "{shown}");
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_refused(bit in 0usize.., layout in prop::collection::vec(any::<u8>(), 0..60)) {
            let text = Capability { layout, ..capability() }.seal(&key(3)).unwrap();
            let mut bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
            let bit = bit % (bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(check(&URL_SAFE_NO_PAD.encode(&bytes), &reading()).is_err());
            // This holds for the text too: it has one form.
            let mut altered = text.into_bytes();
            let bit = bit % (altered.len() * 8);
            altered[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Capability::check(&altered, &keys(), &reading()).is_err());
        }

        #[test]
        fn any_text_does_no_harm(text: Vec<u8>, bytes: Vec<u8>) {
            let _ = Capability::check(&text, &keys(), &reading());
            prop_assert!(check(&URL_SAFE_NO_PAD.encode(bytes), &reading()).is_err());
        }
    }
}
