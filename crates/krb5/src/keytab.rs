//! Keytabs: files with the keys of services, in the format 0x0502.

use crate::encryption::Key;
use crate::{EncryptionType, Principal};

/// The longest keytab that is read.
pub const KEYTAB_BYTES_MAX: usize = 1 << 20;
/// Most keys in a keytab.
pub const KEYS_MAX: usize = 4096;

/// The only version that programs still write. The other one has the byte order of the machine.
const VERSION: [u8; 2] = [5, 2];

/// Why a keytab cannot be used. No message shows a key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeytabError {
    /// It is not a keytab.
    #[error("it is not a keytab of Kerberos (format 0x0502)")]
    Format,
    /// It is too long.
    #[error("it is longer than {} KiB", KEYTAB_BYTES_MAX >> 10)]
    TooLong,
    /// An entry is wrong.
    #[error("its entry number {0} is damaged")]
    Entry(usize),
    /// Too many keys.
    #[error("it has more than {KEYS_MAX} keys")]
    TooManyKeys,
    /// No key can be used.
    #[error(
        "it has no key that can be used here; make one with `ktadd -e aes256-cts-hmac-sha384-192:normal` or another type with AES"
    )]
    NoKey,
}

/// A key of a service.
#[derive(Clone, Debug)]
pub(crate) struct ServiceKey {
    principal: Principal,
    version: u32,
    pub(crate) key: Key,
}

/// The keys of services. It shows none.
#[derive(Clone, Debug)]
pub struct Keytab {
    keys: Vec<ServiceKey>,
}

impl Keytab {
    /// Parses the content of a keytab. Keys for encryption types that are not known here are left out, and so are those of names that no
    /// client of this mechanism can ask for.
    ///
    /// # Errors
    /// [`KeytabError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, KeytabError> {
        if bytes.len() > KEYTAB_BYTES_MAX {
            return Err(KeytabError::TooLong);
        }
        let mut rest = bytes.strip_prefix(&VERSION).ok_or(KeytabError::Format)?;
        let mut keys = Vec::new();
        for number in 1.. {
            let Some((len, behind)) = rest.split_first_chunk::<4>() else { break };
            // A negative length is that of a hole, which an entry has left.
            let len = i32::from_be_bytes(*len);
            if len == 0 {
                break;
            }
            let damaged = KeytabError::Entry(number);
            let size = usize::try_from(len.unsigned_abs()).map_err(|_| damaged.clone())?;
            let (entry, behind) = behind.split_at_checked(size).ok_or(damaged.clone())?;
            rest = behind;
            if len > 0 {
                keys.extend(entry_of(entry).ok_or(damaged)?);
            }
            if keys.len() > KEYS_MAX {
                return Err(KeytabError::TooManyKeys);
            }
        }
        if keys.is_empty() { Err(KeytabError::NoKey) } else { Ok(Self { keys }) }
    }

    /// The principals that have a key, each once.
    #[must_use]
    pub fn principals(&self) -> Vec<&Principal> {
        let mut principals: Vec<_> = self.keys.iter().map(|key| &key.principal).collect();
        principals.sort();
        principals.dedup();
        principals
    }

    /// Whether `principal` has a key.
    #[must_use]
    pub fn has(&self, principal: &Principal) -> bool {
        self.keys.iter().any(|key| key.principal == *principal)
    }

    /// The keys of a principal for an encryption type; only those of the `version` if it is known.
    pub(crate) fn keys<'a>(
        &'a self,
        principal: &'a Principal,
        kind: EncryptionType,
        version: Option<u32>,
    ) -> impl Iterator<Item = &'a Key> {
        let fits = move |key: &&ServiceKey| {
            key.key.kind == kind && key.principal == *principal && version.is_none_or(|version| version == key.version)
        };
        self.keys.iter().filter(fits).map(|key| &key.key)
    }
}

/// The key of an entry, if its encryption type and its name are ones that are known here. `None`: the entry is damaged.
fn entry_of(entry: &[u8]) -> Option<Option<ServiceKey>> {
    let mut rest = entry;
    let count = usize::from(u16_of(&mut rest)?);
    let realm = text(&mut rest)?;
    let parts = (0..count).map(|_| text(&mut rest)).collect::<Option<Vec<_>>>()?;
    // The kind of the name, and the time of the entry.
    let _ = take(&mut rest, 8)?;
    let [short] = *take(&mut rest, 1)?.first_chunk::<1>()?;
    let kind = EncryptionType::of_number(i32::from(u16_of(&mut rest)?));
    let len = usize::from(u16_of(&mut rest)?);
    let bytes = take(&mut rest, len)?;
    // Newer programs write the whole version behind the key.
    let version = match rest.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)) {
        Some(version) if version != 0 => version,
        _ => u32::from(short),
    };
    let Some(kind) = kind else { return Some(None) };
    let key = Key::new(kind, bytes)?;
    // Other programs may have names that no client of this mechanism can ask for.
    let parts = parts.into_iter().collect::<Option<Vec<_>>>();
    let principal = parts.zip(realm).and_then(|(parts, realm)| Principal::new(parts, realm));
    Some(principal.map(|principal| ServiceKey { principal, version, key }))
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, behind) = rest.split_at_checked(count)?;
    *rest = behind;
    Some(taken)
}

fn u16_of(rest: &mut &[u8]) -> Option<u16> {
    take(rest, 2)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}

/// A text; within the result `None`: it is not UTF-8.
fn text(rest: &mut &[u8]) -> Option<Option<String>> {
    let len = usize::from(u16_of(rest)?);
    Some(String::from_utf8(take(rest, len)?.to_vec()).ok())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An entry as `ktadd` writes it.
    pub(crate) fn entry(principal: &str, version: u32, kind: u16, key: &[u8]) -> Vec<u8> {
        let (name, realm) = principal.split_once('@').unwrap();
        let parts: Vec<&str> = name.split('/').collect();
        let counted = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
        let mut entry = u16::try_from(parts.len()).unwrap().to_be_bytes().to_vec();
        entry.extend(counted(realm.as_bytes()));
        parts.iter().for_each(|part| entry.extend(counted(part.as_bytes())));
        entry.extend([0, 0, 0, 1, 0, 0, 0, 0, version.to_be_bytes()[3]]);
        entry.extend(kind.to_be_bytes());
        entry.extend(counted(key));
        entry.extend(version.to_be_bytes());
        [&u32::try_from(entry.len()).unwrap().to_be_bytes()[..], &entry].concat()
    }

    pub(crate) fn keytab(entries: &[Vec<u8>]) -> Vec<u8> {
        [&VERSION[..], &entries.concat()].concat()
    }

    const SERVICE: &str = "xrootd/se.example.org@EXAMPLE.ORG";

    #[test]
    fn keys_are_found_by_principal_type_and_version() {
        let hole = [&(-5_i32).to_be_bytes()[..], &[9; 5]].concat();
        let bytes = keytab(&[
            entry(SERVICE, 3, 18, &[3; 32]),
            hole,
            entry(SERVICE, 300, 18, &[4; 32]),
            entry(SERVICE, 3, 17, &[5; 16]),
            // An old type, which is left out.
            entry(SERVICE, 3, 23, &[6; 16]),
            entry("host/se.example.org@EXAMPLE.ORG", 3, 20, &[7; 32]),
        ]);
        let keytab = Keytab::parse(&bytes).unwrap();
        let service = Principal::parse(SERVICE).unwrap();
        let count = |kind, version| keytab.keys(&service, kind, version).count();
        assert_eq!(count(EncryptionType::Aes256Sha1, Some(3)), 1);
        assert_eq!(count(EncryptionType::Aes256Sha1, Some(300)), 1);
        assert_eq!(count(EncryptionType::Aes256Sha1, Some(44)), 0, "the short version of 300 does not count");
        assert_eq!(count(EncryptionType::Aes256Sha1, None), 2);
        assert_eq!(count(EncryptionType::Aes256Sha384, None), 0);
        assert_eq!(keytab.principals().len(), 2);
        assert!(keytab.has(&service) && !keytab.has(&Principal::parse("x@EXAMPLE.ORG").unwrap()));
        assert!(!format!("{keytab:?}").contains("[3, 3"));
        // A zero ends the keytab; what an older program has written has no whole version.
        let mut old = entry(SERVICE, 9, 17, &[5; 16]);
        old.truncate(old.len() - 4);
        let len = u32::try_from(old.len() - 4).unwrap();
        old[..4].copy_from_slice(&len.to_be_bytes());
        let old = Keytab::parse(&super::tests::keytab(&[old, vec![0; 4], vec![1; 9]])).unwrap();
        assert_eq!(old.keys(&service, EncryptionType::Aes128Sha1, Some(9)).count(), 1);
    }

    #[test]
    fn odd_names_of_other_programs_do_no_harm() {
        let long = format!("{}@A", "x".repeat(crate::TEXT_BYTES_MAX + 1));
        let many = format!("{}@A", ["x"; crate::NAME_PARTS_MAX + 1].join("/"));
        let mut foreign = entry("abc@A", 1, 18, &[7; 32]);
        let place = foreign.windows(3).position(|bytes| bytes == b"abc").unwrap();
        foreign[place] = 0xff;
        for odd in [entry(&long, 1, 18, &[7; 32]), entry(&many, 1, 18, &[7; 32]), entry("x@", 1, 18, &[7; 32]), foreign]
        {
            let both = Keytab::parse(&keytab(&[odd.clone(), entry(SERVICE, 3, 18, &[3; 32])])).unwrap();
            assert_eq!(both.principals(), [&Principal::parse(SERVICE).unwrap()]);
            assert_eq!(Keytab::parse(&keytab(&[odd])).unwrap_err(), KeytabError::NoKey);
        }
    }

    #[test]
    fn what_is_no_keytab_is_refused() {
        let why = |bytes: &[u8]| Keytab::parse(bytes).unwrap_err();
        assert_eq!(why(b""), KeytabError::Format);
        assert_eq!(why(b"0 N:1 k:00"), KeytabError::Format);
        assert_eq!(why(&[5, 1, 0, 0]), KeytabError::Format);
        assert_eq!(why(&VERSION), KeytabError::NoKey);
        assert_eq!(why(&keytab(&[entry(SERVICE, 1, 23, &[6; 16])])), KeytabError::NoKey);
        assert_eq!(why(&keytab(&[entry(SERVICE, 1, 18, &[6; 16])])), KeytabError::Entry(1), "a key of a wrong length");
        assert_eq!(why(&vec![5; KEYTAB_BYTES_MAX + 1]), KeytabError::TooLong);
        let many = vec![entry("a@A", 1, 17, &[0; 16]); KEYS_MAX + 1];
        assert_eq!(why(&keytab(&many)), KeytabError::TooManyKeys);
        let good = keytab(&[entry(SERVICE, 3, 18, &[3; 32])]);
        for end in 6..good.len() {
            assert_eq!(why(&good[..end]), KeytabError::Entry(1), "{end}");
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let _ = Keytab::parse(&bytes);
            let _ = Keytab::parse(&[&VERSION[..], &bytes].concat());
        }
    }
}
