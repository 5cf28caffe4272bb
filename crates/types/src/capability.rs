//! What a redirect carries: the permission that a manager gives a client for one content on one disk server. The disk server asks nobody: it
//! recomputes the code (a hash keyed by what only it and the manager have) and believes what is in it.
//!
//! It stands in this crate, as plain data and pure functions, because both ends of a redirect need it and neither should need the other: the
//! front door that checks it knows no cluster, the manager that makes it no front door.
//!
//! The bytes are in `docs/reference/node-protocol.md`. Nothing of a capability is believed, or told in an error, before its code is found right.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::{NodeId, NsPath, ObjectId, SessionId, Timestamp, units};

/// How it is called in the opaque part of a URL: `weir.cap=...`.
pub const OPAQUE_KEY: &str = "weir.cap";

/// The word beside it that says which content it is for, as 16 hexadecimal digits: a client that has to open a file again knows by it whether that
/// is still the same, also of one that has grown meanwhile. Nothing is granted by it.
pub const CONTENT_KEY: &str = "weir.content";
/// What is said behind the `?` of an address with a permission for `object`.
#[must_use]
pub fn words(capability: &str, object: ObjectId) -> String {
    format!("{OPAQUE_KEY}={capability}&{CONTENT_KEY}={:016x}", object.0)
}

/// Most bytes that describe where the replicas are.
pub const LAYOUT_BYTES_MAX: usize = 336;
/// Most characters of the text, without its key.
pub const TEXT_MAX: usize = (FIXED_BYTES + LAYOUT_BYTES_MAX + CODE_BYTES).div_ceil(3) * 4;

const VERSION: u8 = 2;
const FIXED_BYTES: usize = 64;
const CODE_BYTES: usize = 32;
/// What the hash is keyed with: not the key itself but what is derived from it for this alone.
const CONTEXT: &str = "weir 2026 capability of a redirect";

/// What a capability allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Rights(u8);

impl Rights {
    /// To read.
    pub const READ: Rights = Rights(1);
    /// To write.
    pub const WRITE: Rights = Rights(2);
    /// Both.
    pub const READ_WRITE: Rights = Rights(3);

    /// Whether all of `wanted` is in it.
    #[must_use]
    pub fn include(self, wanted: Rights) -> bool {
        self.0 & wanted.0 == wanted.0
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            1 => "read",
            2 => "write",
            _ => "read and write",
        })
    }
}

/// Which path a capability is good for: the first half of its `blake3`. A client opens the same path at both ends of a redirect, whatever it leads to
/// by links or is renamed to meanwhile. Two paths with one mark cannot be found; the mark needs no key, as it is under the capability's code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct PathMark([u8; 16]);

impl PathMark {
    /// Of a path in its one form.
    #[must_use]
    pub fn of(path: &NsPath) -> Self {
        let mut mark = [0; 16];
        blake3::Hasher::new().update(path.as_bytes()).finalize_xof().fill(&mut mark);
        Self(mark)
    }
}

/// A key that the managers and one disk server have. Shown to nobody.
#[derive(Clone)]
pub struct CapabilityKey {
    /// Its number: raised with each new key of this server.
    pub id: u32,
    derived: [u8; 32],
}

impl CapabilityKey {
    /// From 32 bytes that nobody else knows.
    #[must_use]
    pub fn new(id: u32, secret: &[u8; 32]) -> Self {
        Self { id, derived: blake3::derive_key(CONTEXT, secret) }
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

/// The keys of a disk server that are good at a time: the newest, and the one before it, for redirects that are on their way.
#[derive(Clone, Debug)]
pub struct CapabilityKeys {
    newest: CapabilityKey,
    before: Option<CapabilityKey>,
}

impl CapabilityKeys {
    /// With one key.
    #[must_use]
    pub fn new(key: CapabilityKey) -> Self {
        Self { newest: key, before: None }
    }

    /// A new key comes; the one before the last is worth nothing any more. A key that is here already, or an older one, changes nothing: the
    /// message may have come twice.
    pub fn rotate(&mut self, key: CapabilityKey) {
        if key.id > self.newest.id {
            self.before = Some(std::mem::replace(&mut self.newest, key));
        }
    }

    /// The key to make capabilities with.
    #[must_use]
    pub fn newest(&self) -> &CapabilityKey {
        &self.newest
    }

    fn find(&self, id: u32) -> Option<&CapabilityKey> {
        [Some(&self.newest), self.before.as_ref()].into_iter().flatten().find(|key| key.id == id)
    }
}

/// A permission, as the manager decides it. Its `Debug` form shows ids only: neither layouts nor codes belong into a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Capability {
    /// The disk server that it is for.
    pub server: NodeId,
    /// The content that it is for.
    pub object: ObjectId,
    /// What may be done with it.
    pub rights: Rights,
    /// The path that it is to be shown with.
    pub path: PathMark,
    /// The epoch of the writer.
    pub epoch: u64,
    /// The disk server's session with the manager: in another one it is good for nothing.
    pub session: SessionId,
    /// Until when by the manager's clock; not at this moment any more.
    pub expires: Timestamp,
    /// Where the replicas are, in a form that is the layouts' affair; at most [`LAYOUT_BYTES_MAX`] bytes.
    pub layout: Vec<u8>,
}

impl fmt::Debug for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { server, object, rights, epoch, session, expires, .. } = self;
        write!(
            f,
            "Capability(object {:016x}, server {server}, {rights}, epoch {epoch}, session {session}, until {expires}, ..)",
            object.0
        )
    }
}

/// What a capability is to be good for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// The server that is asked.
    pub server: NodeId,
    /// The path that it is shown with.
    pub path: PathMark,
    /// What is to be done.
    pub rights: Rights,
    /// By the clock of the manager, which gave it.
    pub now: Timestamp,
}

/// Why a capability is refused, or cannot be made. A client that shows it gains no more than that it has to ask the manager again.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CapabilityError {
    /// It cannot be one of ours.
    #[error(
        "the capability in the redirect ({OPAQUE_KEY}) is malformed: {0}; open the file by the manager's address again"
    )]
    Malformed(&'static str),
    /// Made with a key that is not known here.
    #[error(
        "the capability in the redirect was made with key {key}, which this server does not have (any more); open the file by the manager's address again"
    )]
    UnknownKey {
        /// The number that it names.
        key: u32,
    },
    /// Its code is wrong: it was altered, or made by somebody else.
    #[error(
        "the capability in the redirect is forged or was altered on its way; open the file by the manager's address again"
    )]
    Forged,
    /// For another server.
    #[error(
        "the capability in the redirect is for disk server {theirs}, and this is {ours}; open the file by the manager's address again"
    )]
    OtherServer {
        /// The one that it is for.
        theirs: NodeId,
        /// This one.
        ours: NodeId,
    },
    /// Shown with another path than it was given for.
    #[error(
        "the capability in the redirect is for another file than the one that is asked for; open this one by the manager's address to get a capability for it"
    )]
    OtherPath,
    /// It does not allow this.
    #[error("the capability in the redirect is to {has}, not to {wanted}")]
    Rights {
        /// What it allows.
        has: Rights,
        /// What was asked for.
        wanted: Rights,
    },
    /// Its time is over.
    #[error("the capability in the redirect expired {} ago; open the file by the manager's address again", units::show_duration(*ago))]
    Expired {
        /// For how long it has been over.
        ago: Duration,
    },
    /// More than fits into a redirect.
    #[error("a layout of {bytes} bytes does not fit into a redirect, which has room for {LAYOUT_BYTES_MAX}")]
    LayoutTooLong {
        /// How many there are.
        bytes: usize,
    },
}

impl Capability {
    /// The text for the redirect, to be put behind `weir.cap=`. It goes to the client alone, never into a log.
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

    /// What `text` (from behind `weir.cap=`) allows, if it was made with one of `keys` and is good for what is `wanted`.
    ///
    /// # Errors
    /// Any but [`CapabilityError::LayoutTooLong`].
    pub fn check(text: &[u8], keys: &CapabilityKeys, wanted: &Wanted) -> Result<Self, CapabilityError> {
        let capability = Self::open(text, keys)?;
        if capability.server != wanted.server {
            return Err(CapabilityError::OtherServer { theirs: capability.server, ours: wanted.server });
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

    /// What is in it, if its code is right.
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
            server: NodeId(u64::from_le_bytes(reader.take()?)),
            object: ObjectId(u64::from_le_bytes(reader.take()?)),
            path: PathMark(reader.take()?),
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
            path: mark("/a/file"),
            rights: Rights::READ,
            epoch: 5,
            session: SessionId(99),
            expires: NOW.plus(Duration::from_secs(60)),
            layout: b"two pieces".to_vec(),
        }
    }

    fn mark(path: &str) -> PathMark {
        PathMark::of(&NsPath::parse(path.as_bytes()).unwrap())
    }

    fn reading() -> Wanted {
        Wanted { server: SERVER, path: mark("/a/file"), rights: Rights::READ, now: NOW }
    }

    fn check(text: &str, wanted: &Wanted) -> Result<Capability, CapabilityError> {
        Capability::check(text.as_bytes(), &keys(), wanted)
    }

    #[test]
    fn what_was_sealed_is_believed_by_its_server_until_it_expires() {
        let text = capability().seal(&key(3)).unwrap();
        assert_eq!(check(&text, &reading()), Ok(capability()));
        let last = Timestamp(capability().expires.0 - 1);
        assert_eq!(check(&text, &Wanted { now: last, ..reading() }), Ok(capability()));
        let late = check(&text, &Wanted { now: capability().expires.plus(Duration::from_secs(90)), ..reading() });
        assert_eq!(late, Err(CapabilityError::Expired { ago: Duration::from_secs(90) }));
        assert!(late.unwrap_err().to_string().contains("expired 90.0 s ago"));
        let at_the_moment = check(&text, &Wanted { now: capability().expires, ..reading() });
        assert_eq!(at_the_moment, Err(CapabilityError::Expired { ago: Duration::ZERO }));
    }

    #[test]
    fn it_is_worth_nothing_elsewhere() {
        let text = capability().seal(&key(3)).unwrap();
        let elsewhere = check(&text, &Wanted { server: NodeId(8), ..reading() });
        assert_eq!(elsewhere, Err(CapabilityError::OtherServer { theirs: SERVER, ours: NodeId(8) }));
        for path in ["/a/other", "/a", "/a/file/b", "/", "/a/File"] {
            let other = check(&text, &Wanted { path: mark(path), ..reading() });
            assert_eq!(other, Err(CapabilityError::OtherPath), "{path}");
        }
        // However it is written.
        assert_eq!(check(&text, &Wanted { path: mark("//a///file/"), ..reading() }), Ok(capability()));
        for rights in [Rights::WRITE, Rights::READ_WRITE] {
            let more = check(&text, &Wanted { rights, ..reading() });
            assert_eq!(more, Err(CapabilityError::Rights { has: Rights::READ, wanted: rights }));
        }
        let both = Capability { rights: Rights::READ_WRITE, ..capability() }.seal(&key(3)).unwrap();
        for rights in [Rights::READ, Rights::WRITE, Rights::READ_WRITE] {
            assert!(check(&both, &Wanted { rights, ..reading() }).is_ok());
        }
    }

    #[test]
    fn two_keys_are_good_at_a_time() {
        let made_with = |id| capability().seal(&key(id)).unwrap();
        let mut keys = keys();
        let mut is_good = |rotated: Option<u32>, id| {
            rotated.into_iter().for_each(|id| keys.rotate(key(id)));
            Capability::check(made_with(id).as_bytes(), &keys, &reading())
        };
        assert!(is_good(None, 3).is_ok());
        assert_eq!(is_good(None, 4), Err(CapabilityError::UnknownKey { key: 4 }));
        assert!(is_good(Some(4), 3).is_ok() && is_good(None, 4).is_ok());
        // The message that brings a key may come twice, or late.
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
    fn what_a_later_manager_may_make_is_not_guessed_at() {
        let altered = |at: usize, to: u8| {
            let mut bytes = URL_SAFE_NO_PAD.decode(capability().seal(&key(3)).unwrap()).unwrap();
            bytes[at] = to;
            let signed = bytes.len() - CODE_BYTES;
            let code = key(3).code(&bytes[..signed]);
            bytes[signed..].copy_from_slice(code.as_bytes());
            check(&URL_SAFE_NO_PAD.encode(bytes), &reading())
        };
        assert_eq!(altered(2, 10), Ok(capability()));
        for (at, to) in [(0, 0), (0, 1), (0, 3), (2, 9), (2, 11), (3, 1)] {
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
    fn the_bytes_stay_as_they_are() {
        let text = capability().seal(&key(3)).unwrap();
        assert_eq!(
            text,
            "AgEKAAMAAAAHAAAAAAAAADQSAAAAAAAA6dXmNXwWT--t9fV1coOaFwUAAAAAAAAAYwAAAAAAAAAAWPuLhOL6GHR3byBwaWVjZXN_7vlMgCBqvXX_eBz3okPtNZEZLBbYbX3qIrxeTI2fNw"
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
            // Of the text, too: it has one form.
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
