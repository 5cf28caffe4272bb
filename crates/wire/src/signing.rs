//! Which requests a client must sign (`kXR_sigver`), and what a signature covers.
//!
//! The levels, and the requests that each of them has, are those of the stock server: `secTable` and `Screen` in `XrdSecProtect.cc`
//! of xrootd 5.5 to 6.1. Requests that this table lacks need no signature at any level, as there; among them are writev and clone, which
//! stock clients never sign: a server should refuse them where writes must be signed ([`SigningRules::cover_writes`]). Two requests are weir's own: [`RequestKind::Batch`] is never signed, because its payload comes as a
//! stream, and a server must refuse it where it takes signed requests. A query for an opaque file carries weir's own changes (as chown
//! does), so that it must be signed wherever chmod must.

use crate::request::{OpenOptions, QueryKind};
use crate::response::SecurityRequirements;
use crate::{RequestHeader, RequestKind, StreamId};

/// The flag of [`crate::request::Sigver`]: the signature does not cover the payload (`kXR_nodata`).
pub const NO_DATA: u8 = 1;
/// The only hash of a signature: SHA-256 (`kXR_SHA256`).
pub const SHA256: u8 = 1;
/// The bits of [`crate::request::Sigver::crypto`] that name the hash (`kXR_HashMask`).
pub const HASH_MASK: u8 = 0x0f;
/// The bit of [`crate::request::Sigver::crypto`] that says that an RSA key has signed (`kXR_rsaKey`). Nobody uses it.
pub const RSA_KEY: u8 = 0x80;
/// The longest signature that is read. Stock servers take 64 bytes.
pub const SIGNATURE_BYTES_MAX: u32 = 256;

/// The option of [`SecurityRequirements`]: data are signed too (`kXR_secOData`).
pub const SIGN_DATA: u8 = 1;
/// The option of [`SecurityRequirements`]: clients without a key send the bare hash (`kXR_secOFrce`).
pub const FORCE: u8 = 2;

/// The request code of the first entry of [`SecurityRequirements::overrides`].
const FIRST: u16 = 3000;
/// As many codes have an entry.
const KINDS: usize = 33;

/// Whether a request needs a signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Need {
    /// No.
    #[default]
    No,
    /// If it changes something.
    ToChange,
    /// Yes.
    Yes,
}

use Need::{No, ToChange, Yes};
use RequestKind as K;

/// For each kind its need at the levels compatible, standard, intense, and pedantic.
const TABLE: &[(RequestKind, [Need; 4])] = &[
    (K::Bind, [No, No, Yes, Yes]),
    (K::Chkpoint, [Yes; 4]),
    (K::Chmod, [Yes; 4]),
    (K::Close, [No, No, Yes, Yes]),
    (K::Dirlist, [No, No, No, Yes]),
    (K::Endsess, [No, No, Yes, Yes]),
    (K::Fattr, [Yes; 4]),
    (K::Gpfile, [Yes; 4]),
    (K::Locate, [No, No, No, Yes]),
    (K::Mkdir, [No, Yes, Yes, Yes]),
    (K::Mv, [Yes; 4]),
    (K::Open, [ToChange, Yes, Yes, Yes]),
    (K::Pgread, [No, No, Yes, Yes]),
    (K::Pgwrite, [No, No, Yes, Yes]),
    (K::Prepare, [No, No, No, Yes]),
    (K::Query, [No, No, ToChange, Yes]),
    (K::Read, [No, No, No, Yes]),
    (K::Readv, [No, No, No, Yes]),
    (K::Rm, [Yes; 4]),
    (K::Rmdir, [Yes; 4]),
    (K::Set, [ToChange, ToChange, Yes, Yes]),
    (K::Stat, [No, No, No, Yes]),
    (K::Statx, [No, No, No, Yes]),
    (K::Sync, [No, No, No, Yes]),
    (K::Truncate, [Yes; 4]),
    (K::Write, [No, No, Yes, Yes]),
];

/// Which requests of a session need a signature.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SigningRules {
    needs: [Need; KINDS],
    signs_data: bool,
}

impl SigningRules {
    /// The rules that a server announces. `None`: nothing needs a signature. A level beyond the last one is the last one, as in stock
    /// clients.
    #[must_use]
    pub fn new(announced: &SecurityRequirements) -> Option<Self> {
        let mut needs = [No; KINDS];
        if let Some(level) = usize::from(announced.level).min(4).checked_sub(1) {
            for (kind, by_level) in TABLE {
                if let Some(need) = place(*kind).and_then(|place| needs.get_mut(place)) {
                    *need = by_level[level];
                }
            }
        }
        for &(index, need) in &announced.overrides {
            if let Some(place) = needs.get_mut(usize::from(index)) {
                *place = match need {
                    0 => No,
                    1 => ToChange,
                    _ => Yes,
                };
            }
        }
        let rules = Self { needs, signs_data: announced.options & SIGN_DATA != 0 };
        rules.needs.iter().any(|need| *need != No).then_some(rules)
    }

    /// Whether this request needs a signature.
    #[must_use]
    pub fn apply_to(&self, header: &RequestHeader) -> bool {
        let need = place(header.kind).and_then(|place| self.needs.get(place)).copied().unwrap_or_default();
        match need {
            Yes => true,
            No | ToChange if is_own_change(header) => true,
            ToChange => may_change(header),
            No => false,
        }
    }

    /// Whether writes need a signature, which says where they go. The ranges of writev and clone are in payloads that nobody signs.
    #[must_use]
    pub fn cover_writes(&self) -> bool {
        self.needs.get(usize::from(K::Write.code() - FIRST)) == Some(&Yes)
    }

    /// Whether the signature of a write covers its data. That of another request always covers its payload.
    #[must_use]
    pub fn cover_data(&self) -> bool {
        self.signs_data
    }
}

/// Whether a request's payload is data of a file, which a signature does not cover without [`SIGN_DATA`].
#[must_use]
pub fn has_data(kind: RequestKind) -> bool {
    matches!(kind, K::Write | K::Pgwrite)
}

/// The first part of what a signature covers: the sequence number. The header and the payload follow.
#[must_use]
pub fn sequence_bytes(sequence: u64) -> [u8; 8] {
    sequence.to_be_bytes()
}

/// Why a signature does not count for the request that follows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SignatureError {
    /// There is none.
    #[error("the request must be signed, and it is not")]
    Missing,
    /// It is not newer than the last one.
    #[error("its number is {given}, and the last one was {last}: somebody may have sent it again")]
    Sequence {
        /// The last one.
        last: u64,
        /// The one of the signature.
        given: u64,
    },
    /// It is for another request under way.
    #[error("it is for another request under way")]
    OtherStream,
    /// It is for another kind of request.
    #[error("it is for a request {}", .0.name())]
    OtherRequest(RequestKind),
    /// An unknown version.
    #[error("its version is {0}, and 0 is known here")]
    Version(u8),
    /// Another hash.
    #[error("its hash has the number {0}, and only SHA-256 (1) is known here")]
    Hash(u8),
    /// Another key.
    #[error("it was made with an RSA key, and only the key of the session is known here")]
    RsaKey,
    /// The payload is not covered.
    #[error("it does not cover the payload")]
    Uncovered,
    /// Data of a file are covered, which nobody can verify before they are stored.
    #[error("it covers the data of a write, and this server has not asked for that")]
    CoversData,
    /// The key or what was signed are others.
    #[error("it does not fit: the request has changed on its way, or another key has signed it")]
    Wrong,
}

/// Checks everything about a signature but the hash. `last`: the number of the last good one.
///
/// # Errors
/// [`SignatureError`].
pub fn check(
    signature: Option<&(StreamId, crate::request::Sigver)>,
    header: &RequestHeader,
    last: u64,
) -> Result<(), SignatureError> {
    let Some((stream, sigver)) = signature else { return Err(SignatureError::Missing) };
    if sigver.sequence <= last {
        return Err(SignatureError::Sequence { last, given: sigver.sequence });
    }
    if *stream != header.stream {
        return Err(SignatureError::OtherStream);
    }
    if sigver.expect != header.kind {
        return Err(SignatureError::OtherRequest(sigver.expect));
    }
    if sigver.version != 0 {
        return Err(SignatureError::Version(sigver.version));
    }
    if sigver.crypto & HASH_MASK != SHA256 {
        return Err(SignatureError::Hash(sigver.crypto & HASH_MASK));
    }
    if sigver.crypto & RSA_KEY != 0 {
        return Err(SignatureError::RsaKey);
    }
    let covers_payload = sigver.flags & NO_DATA == 0;
    match (has_data(header.kind), covers_payload) {
        _ if header.dlen == 0 => Ok(()),
        (true, true) => Err(SignatureError::CoversData),
        (false, false) => Err(SignatureError::Uncovered),
        _ => Ok(()),
    }
}

fn place(kind: RequestKind) -> Option<usize> {
    kind.code().checked_sub(FIRST).map(usize::from)
}

/// What changes something, in requests that can be both. The stock server does not look at `kXR_open_wrto`, so stock clients do not sign an
/// open with nothing else at the level compatible; it opens for writing all the same.
fn may_change(header: &RequestHeader) -> bool {
    let [a, b, c, d, .., modifier] = header.params;
    match header.kind {
        K::Open => {
            let options = OpenOptions(u16::from_be_bytes([c, d]));
            let changes = [
                OpenOptions::DELETE,
                OpenOptions::NEW,
                OpenOptions::UPDATE,
                OpenOptions::APPEND,
                OpenOptions::WRITE_ONLY,
            ];
            changes.into_iter().any(|option| options.has(option))
        }
        K::Query => {
            let kind = QueryKind::from_code(u16::from_be_bytes([a, b]));
            matches!(kind, QueryKind::Opaque | QueryKind::OpaqueFile | QueryKind::OpaqueHandle)
        }
        K::Set => modifier != 0,
        _ => true,
    }
}

/// Whether it may be one of weir's own changes.
fn is_own_change(header: &RequestHeader) -> bool {
    let [a, b, ..] = header.params;
    header.kind == K::Query && QueryKind::from_code(u16::from_be_bytes([a, b])) == QueryKind::OpaqueFile
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Sigver;

    fn rules(level: u8) -> SigningRules {
        SigningRules::new(&SecurityRequirements { level, ..SecurityRequirements::default() }).unwrap()
    }

    fn header(kind: RequestKind, params: &[u8], dlen: i32) -> RequestHeader {
        let mut all = [0; 16];
        all[..params.len()].copy_from_slice(params);
        RequestHeader { stream: StreamId([1, 2]), kind, params: all, dlen }
    }

    fn signed(level: u8, kind: RequestKind, params: &[u8]) -> bool {
        rules(level).apply_to(&header(kind, params, 0))
    }

    #[test]
    fn each_level_has_the_requests_of_the_stock_server() {
        let at = |kind| [1, 2, 3, 4].map(|level| signed(level, kind, &[]));
        let names = |level: u8| {
            let all = RequestKind::ALL.iter().filter(move |kind| signed(level, **kind, &[]));
            all.map(|kind| kind.name()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(1), "chmod gpfile mv chkpoint rm rmdir fattr truncate");
        assert_eq!(names(2), "chmod gpfile mkdir mv open chkpoint rm rmdir fattr truncate");
        assert_eq!(
            names(3),
            "chmod close gpfile mkdir mv open chkpoint rm rmdir set write fattr endsess bind pgwrite truncate pgread"
        );
        let never = ["auth", "protocol", "login", "ping", "sigver", "writev", "clone", "batch"];
        let pedantic = RequestKind::ALL.iter().map(|kind| kind.name()).filter(|name| !never.contains(name));
        assert_eq!(names(4), pedantic.collect::<Vec<_>>().join(" "));
        assert_eq!([1, 2, 3, 4].map(|level| rules(level).cover_writes()), [false, false, true, true]);
        assert_eq!(at(RequestKind::Unknown(2999)), [false; 4]);
        assert_eq!(at(RequestKind::Unknown(65_000)), [false; 4]);
    }

    #[test]
    fn what_can_be_both_is_signed_if_it_changes_something() {
        let open = |options: u16| signed(1, K::Open, &[&[0, 0][..], &options.to_be_bytes()].concat());
        assert!(open(0x02) && open(0x08) && open(0x20) && open(0x200) && open(0x28));
        assert!(open(0x8000), "kXR_open_wrto");
        assert!(!open(0x10) && !open(0));
        let query = |level, kind: u16| signed(level, K::Query, &kind.to_be_bytes());
        assert!(query(3, 16) && query(3, 32) && query(3, 64) && !query(3, 3) && !query(3, 7));
        assert!(!query(2, 16) && query(1, 32), "weir's own changes are always signed");
        assert!(query(4, 3));
        let set = |modifier: u8| signed(1, K::Set, &[&[0; 15][..], &[modifier]].concat());
        assert!(set(1) && !set(0));
    }

    #[test]
    fn a_server_may_make_exceptions() {
        let announced = SecurityRequirements {
            level: 1,
            options: SIGN_DATA,
            overrides: vec![(13, 2), (2, 0), (10, 0), (200, 2), (27, 9)],
            ..SecurityRequirements::default()
        };
        let rules = SigningRules::new(&announced).unwrap();
        let at = |kind| rules.apply_to(&header(kind, &[], 0));
        assert!(at(K::Read) && !at(K::Chmod) && !at(K::Open) && at(K::Rm) && at(K::Locate));
        assert!(rules.cover_data());
        let nothing = SecurityRequirements::default();
        assert_eq!(SigningRules::new(&nothing), None);
        let one = SecurityRequirements { overrides: vec![(13, 2)], ..nothing.clone() };
        assert!(SigningRules::new(&one).unwrap().apply_to(&header(K::Read, &[], 0)));
        let high = SecurityRequirements { level: 200, ..nothing };
        assert_eq!(SigningRules::new(&high), Some(super::tests::rules(4)));
    }

    #[test]
    fn a_signature_is_for_one_request_and_counts_once() {
        let good = || Sigver { expect: K::Stat, version: 0, flags: 0, sequence: 8, crypto: SHA256, signature: vec![1] };
        let stat = header(K::Stat, &[], 5);
        let of = |sigver: Sigver| check(Some(&(stat.stream, sigver)), &stat, 7);
        assert_eq!(of(good()), Ok(()));
        assert_eq!(check(None, &stat, 7), Err(SignatureError::Missing));
        for sequence in [0, 6, 7] {
            let why = SignatureError::Sequence { last: 7, given: sequence };
            assert_eq!(of(Sigver { sequence, ..good() }), Err(why));
        }
        assert_eq!(of(Sigver { sequence: u64::MAX, ..good() }), Ok(()));
        let other = check(Some(&(StreamId([9, 9]), good())), &stat, 7);
        assert_eq!(other, Err(SignatureError::OtherStream));
        assert_eq!(of(Sigver { expect: K::Rm, ..good() }), Err(SignatureError::OtherRequest(K::Rm)));
        assert_eq!(of(Sigver { version: 1, ..good() }), Err(SignatureError::Version(1)));
        assert_eq!(of(Sigver { crypto: 2, ..good() }), Err(SignatureError::Hash(2)));
        assert_eq!(of(Sigver { crypto: SHA256 | RSA_KEY, ..good() }), Err(SignatureError::RsaKey));
        assert_eq!(of(Sigver { flags: NO_DATA, ..good() }), Err(SignatureError::Uncovered));
        // Without a payload, the flag says nothing; stock clients set it.
        let bare = header(K::Stat, &[], 0);
        assert_eq!(check(Some(&(bare.stream, Sigver { flags: NO_DATA, ..good() })), &bare, 7), Ok(()));
        let write = header(K::Write, &[], 5);
        let of_write = |flags| check(Some(&(write.stream, Sigver { flags, expect: K::Write, ..good() })), &write, 7);
        assert_eq!(of_write(NO_DATA), Ok(()));
        assert_eq!(of_write(0), Err(SignatureError::CoversData));
    }
}
