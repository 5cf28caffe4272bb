//! Keytabs: the secrets of a server or a client, one in a line, as `xrdsssadmin` writes them (`XrdSecsssKT.cc`):
//! `0 u:ana g:atlas n:fts N:7713673796607016962 c:1795979635 e:0 f:0 k:8802b010…`.

use std::collections::BTreeSet;
use std::fmt;

use types::Timestamp;

/// Longest keytab, in bytes.
pub const KEYTAB_BYTES_MAX: usize = 1 << 20;
/// Most keys in a keytab.
pub const KEYS_MAX: usize = 4096;
/// Longest name of a key, of a user and of a group, in bytes (`XrdSecsssKT.hh`, without the NUL).
const KEY_NAME_MAX: usize = 191;
const USER_MAX: usize = 127;
const GROUP_MAX: usize = 63;
/// Shortest and longest secret, in bytes. `xrdsssadmin` makes 32 bytes unless told otherwise. Who overhears one credential can try
/// keys on it as fast as machines can, so shorter ones protect nothing.
const SECRET_MIN: usize = 16;
const SECRET_MAX: usize = 128;

/// The number of a key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct KeyId(pub i64);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which user the holder of a key is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyUser {
    /// This one.
    Named(String),
    /// The one that it says it is: `anybody` and `allusers`.
    Any,
}

/// Which groups the holder of a key has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyGroup {
    /// None: `nogroup` and `usrgroup`, which leaves groups to who knows the user.
    Nothing,
    /// This one.
    Named(String),
    /// Those that it says it has: `anygroup`.
    Any,
}

/// The bytes that are the secret. Nothing shows them.
#[derive(Clone, PartialEq, Eq)]
struct Secret(Vec<u8>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}

/// A key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Key {
    /// Its number.
    pub id: KeyId,
    /// Its name.
    pub name: String,
    /// Who its holder is.
    pub user: KeyUser,
    /// Which groups its holder has.
    pub group: KeyGroup,
    /// From when on it does not count any more; `None`: it stays.
    pub expires: Option<Timestamp>,
    secret: Secret,
    /// As they are written, to tell entries of one key from another's.
    written: (String, String),
}

impl Key {
    /// The secret itself.
    pub(crate) fn secret(&self) -> &[u8] {
        &self.secret.0
    }

    /// Whether credentials of this key count from any address: its name ends with `+`.
    #[must_use]
    pub fn is_for_any_address(&self) -> bool {
        self.name.ends_with('+')
    }

    /// Whether it counts no more.
    #[must_use]
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.expires.is_some_and(|expires| expires <= now)
    }

    /// Whether both are versions of one key.
    fn is_version_of(&self, other: &Self) -> bool {
        self.name == other.name && self.written == other.written
    }
}

/// What is wrong with a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LineProblem {
    /// It does not begin with `0` or `1`.
    #[error("it does not begin with the number of a format that is known, 0 or 1")]
    Format,
    /// It has characters that no keytab has.
    #[error("it has characters other than printable ASCII")]
    Character,
    /// A part is missing.
    #[error("it has no `{0}:`")]
    Missing(char),
    /// A part is there twice.
    #[error("it has `{0}:` twice")]
    Twice(char),
    /// A part is not a number.
    #[error("its `{0}:` is not a number")]
    Number(char),
    /// A name is empty or too long.
    #[error("its `{tag}:` is empty or longer than {max} bytes")]
    Length {
        /// The part.
        tag: char,
        /// The limit.
        max: usize,
    },
    /// The secret is not hexadecimal.
    #[error("its `k:` is not a secret in hexadecimal digits")]
    Secret,
    /// The secret is too short or too long.
    #[error(
        "its secret has {0} bytes; {SECRET_MIN} to {SECRET_MAX} are accepted: `xrdsssadmin -l 32 add` makes a good one"
    )]
    SecretLength(usize),
    /// Another key has the number.
    #[error("another line has the same number `N:`")]
    SameId,
}

/// Why a keytab cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeytabError {
    /// Too long.
    #[error("it has more than {KEYTAB_BYTES_MAX} bytes")]
    TooLong,
    /// Too many keys.
    #[error("it has more than {KEYS_MAX} keys")]
    TooMany,
    /// No keys.
    #[error("it has no key: `xrdsssadmin add` makes one")]
    Empty,
    /// A line is wrong.
    #[error("line {line}: {why}")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// What is wrong.
        why: LineProblem,
    },
}

/// Keys, in the order of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keytab(Vec<Key>);

impl Keytab {
    /// Parses the text of a keytab.
    ///
    /// # Errors
    /// [`KeytabError`], which shows no secret.
    pub fn parse(text: &[u8]) -> Result<Self, KeytabError> {
        if text.len() > KEYTAB_BYTES_MAX {
            return Err(KeytabError::TooLong);
        }
        let mut keys = Vec::new();
        let mut ids = BTreeSet::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            let wrong = |why| KeytabError::Line { line: index + 1, why };
            let key = key_of(line).map_err(wrong)?;
            if !ids.insert(key.id) {
                return Err(wrong(LineProblem::SameId));
            }
            keys.push(key);
            if keys.len() > KEYS_MAX {
                return Err(KeytabError::TooMany);
            }
        }
        if keys.is_empty() { Err(KeytabError::Empty) } else { Ok(Self(keys)) }
    }

    /// The key with this number.
    #[must_use]
    pub fn get(&self, id: KeyId) -> Option<&Key> {
        self.0.iter().find(|key| key.id == id)
    }

    /// All keys.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.0.iter()
    }

    /// The key that a client uses at `now`, which is that of the stock client: of the key that comes last in the file, the
    /// version that counts longest.
    #[must_use]
    pub fn of_client(&self, now: Timestamp) -> Option<&Key> {
        let valid = || self.0.iter().filter(|key| !key.is_expired(now));
        // The stock client puts each new key before the others, and a further version in the place of the first.
        let mut heads: Vec<&Key> = Vec::new();
        for key in valid() {
            if !heads.iter().any(|head| head.is_version_of(key)) {
                heads.push(key);
            }
        }
        let last = heads.last()?;
        let later = |a: &Key, b: &Key| match (a.expires, b.expires) {
            (None, Some(_)) => true,
            (Some(a), Some(b)) => b < a,
            _ => false,
        };
        valid().filter(|key| key.is_version_of(last)).reduce(|best, key| if later(key, best) { key } else { best })
    }
}

fn key_of(line: &[u8]) -> Result<Key, LineProblem> {
    let text = std::str::from_utf8(line).map_err(|_| LineProblem::Character)?;
    if !text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t') {
        return Err(LineProblem::Character);
    }
    let mut words = text.split_ascii_whitespace();
    if !matches!(words.next(), Some("0" | "1")) {
        return Err(LineProblem::Format);
    }
    // In the order of `u g n N e k`.
    let mut parts: [Option<&str>; 6] = [None; 6];
    const TAGS: [char; 6] = ['u', 'g', 'n', 'N', 'e', 'k'];
    for word in words {
        // The time of creation, flags and what later versions add do not matter here.
        let Some((tag, value)) = word.split_once(':') else { continue };
        let Some(place) = TAGS.iter().position(|known| tag.chars().eq([*known])) else { continue };
        if parts[place].replace(value).is_some() {
            return Err(LineProblem::Twice(TAGS[place]));
        }
    }
    let [user, group, name, id, expires, secret] = parts;
    let number = |tag: char, text: &str| text.parse::<i64>().map_err(|_| LineProblem::Number(tag));
    let name_of = |tag: char, given: Option<&str>, default: &str, max: usize| match given {
        None => Ok(default.to_owned()),
        Some(name) if (1..=max).contains(&name.len()) => Ok(name.to_owned()),
        Some(_) => Err(LineProblem::Length { tag, max }),
    };
    // The defaults are those of the stock server.
    let user = name_of('u', user, "nobody", USER_MAX)?;
    let group = name_of('g', group, "nogroup", GROUP_MAX)?;
    let name = name_of('n', name, "nowhere", KEY_NAME_MAX)?;
    let id = KeyId(number('N', id.ok_or(LineProblem::Missing('N'))?)?);
    let expires = number('e', expires.unwrap_or("0"))?;
    let secret = Secret(secret_of(secret.ok_or(LineProblem::Missing('k'))?)?);
    let written = (user.clone(), group.clone());
    let user = match user.as_str() {
        "anybody" | "allusers" => KeyUser::Any,
        _ => KeyUser::Named(user),
    };
    let group = match group.as_str() {
        "anygroup" => KeyGroup::Any,
        "usrgroup" | "nogroup" => KeyGroup::Nothing,
        _ => KeyGroup::Named(group),
    };
    let expires = (expires != 0).then(|| Timestamp::from_secs(expires));
    Ok(Key { id, name, user, group, expires, secret, written })
}

fn secret_of(digits: &str) -> Result<Vec<u8>, LineProblem> {
    let digits = digits.as_bytes();
    if digits.len() > 2 * SECRET_MAX {
        return Err(LineProblem::SecretLength(digits.len() / 2));
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        b'A'..=b'F' => Ok(byte - b'A' + 10),
        _ => Err(LineProblem::Secret),
    };
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(LineProblem::Secret);
    }
    let secret: Vec<u8> =
        pairs.iter().map(|[high, low]| Ok(digit(*high)? << 4 | digit(*low)?)).collect::<Result<_, LineProblem>>()?;
    if secret.len() < SECRET_MIN { Err(LineProblem::SecretLength(secret.len())) } else { Ok(secret) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECRET: &str = "00112233445566778899aabbccddeeff";

    fn keytab(text: &str) -> Keytab {
        Keytab::parse(text.as_bytes()).unwrap()
    }

    fn why(text: &str) -> LineProblem {
        match Keytab::parse(text.as_bytes()) {
            Err(KeytabError::Line { why, .. }) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keys_are_as_xrdsssadmin_writes_them() {
        let text = format!(
            "0 u:ana g:atlas n:fts N:7713673796607016962 c:1795979635 e:1795979700 f:0 k:{SECRET}\n\n1 N:1 k:{SECRET}\n\
             0 u:anybody g:anygroup n:farm+ N:2 e:0 x:later k:{}\n0 u:allusers g:usrgroup N:3 k:{SECRET}",
            SECRET.to_uppercase()
        );
        let keytab = keytab(&text);
        let key = keytab.get(KeyId(7713673796607016962)).unwrap();
        assert_eq!(
            (key.name.as_str(), &key.user, &key.group),
            ("fts", &KeyUser::Named("ana".into()), &KeyGroup::Named("atlas".into()))
        );
        assert_eq!(key.secret()[..3], [0, 0x11, 0x22]);
        assert!(!key.is_for_any_address());
        assert!(key.is_expired(Timestamp::from_secs(1795979700)) && !key.is_expired(Timestamp::from_secs(1795979699)));
        let key = keytab.get(KeyId(1)).unwrap();
        assert_eq!(
            (key.name.as_str(), &key.user, &key.group),
            ("nowhere", &KeyUser::Named("nobody".into()), &KeyGroup::Nothing)
        );
        assert!(!key.is_expired(Timestamp(i64::MAX)));
        let key = keytab.get(KeyId(2)).unwrap();
        assert!(key.is_for_any_address() && key.user == KeyUser::Any && key.group == KeyGroup::Any);
        assert_eq!(key.secret().last(), Some(&0xff));
        assert_eq!(keytab.get(KeyId(3)).unwrap().group, KeyGroup::Nothing);
        assert!(keytab.get(KeyId(4)).is_none());
        assert!(!format!("{keytab:?}").contains("34"), "{keytab:?}");
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_without_the_secret() {
        let good = format!("0 n:a N:1 k:{SECRET}");
        for (text, problem) in [
            (format!("2 N:1 k:{SECRET}"), LineProblem::Format),
            (format!("N:1 k:{SECRET}"), LineProblem::Format),
            (format!("0 k:{SECRET}"), LineProblem::Missing('N')),
            ("0 N:1".into(), LineProblem::Missing('k')),
            (format!("0 N:x k:{SECRET}"), LineProblem::Number('N')),
            (format!("0 N:1 e:x k:{SECRET}"), LineProblem::Number('e')),
            (format!("0 N:1 N:2 k:{SECRET}"), LineProblem::Twice('N')),
            (format!("0 N:1 n: k:{SECRET}"), LineProblem::Length { tag: 'n', max: 191 }),
            (format!("0 N:1 u:{} k:{SECRET}", "x".repeat(128)), LineProblem::Length { tag: 'u', max: 127 }),
            (format!("0 N:1 g:{} k:{SECRET}", "x".repeat(64)), LineProblem::Length { tag: 'g', max: 63 }),
            (format!("0 N:1 k:{SECRET}0"), LineProblem::Secret),
            (format!("0 N:1 k:x{}", &SECRET[1..]), LineProblem::Secret),
            (format!("0 N:1 k:{}", &SECRET[2..]), LineProblem::SecretLength(15)),
            (format!("0 N:1 k:{}", "00".repeat(129)), LineProblem::SecretLength(129)),
            ("0 N:1 k:é".into(), LineProblem::Character),
            (format!("{good}\n{good}"), LineProblem::SameId),
        ] {
            assert_eq!(why(&text), problem, "{text}");
            let message = Keytab::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(message.starts_with("line ") && !message.contains("1122"), "{message}");
        }
        assert_eq!(Keytab::parse(b" \n"), Err(KeytabError::Empty));
        assert_eq!(Keytab::parse(&vec![b'\n'; KEYTAB_BYTES_MAX + 1]), Err(KeytabError::TooLong));
        let many: String = (0..=KEYS_MAX).map(|id| format!("0 N:{id} k:{SECRET}\n")).collect();
        assert_eq!(Keytab::parse(many.as_bytes()), Err(KeytabError::TooMany));
        assert!(matches!(
            Keytab::parse(format!("\n\n0 N:x k:{SECRET}").as_bytes()),
            Err(KeytabError::Line { line: 3, .. })
        ));
    }

    #[test]
    fn a_client_uses_the_key_that_the_stock_client_uses() {
        let now = Timestamp::from_secs(100);
        let used = |lines: &[&str]| {
            let text: String = lines.iter().map(|line| format!("0 {line} k:{SECRET}\n")).collect();
            keytab(&text).of_client(now).map(|key| key.id.0)
        };
        // The last one that is new.
        assert_eq!(used(&["n:a N:1", "n:b N:2", "n:a N:3"]), Some(2));
        // Of versions of it, the one that counts longest; among equals the first.
        assert_eq!(used(&["n:a N:1", "n:b N:2 e:200", "n:b N:3 e:300", "n:b N:4 e:250"]), Some(3));
        assert_eq!(used(&["n:b N:2 e:200", "n:b N:3 e:0", "n:b N:4 e:300"]), Some(3));
        assert_eq!(used(&["n:b N:2", "n:b N:3"]), Some(2));
        // Another user or group makes another key.
        assert_eq!(used(&["n:b N:2", "n:b u:x N:3"]), Some(3));
        // Expired ones do not count.
        assert_eq!(used(&["n:a N:1", "n:b N:2 e:100"]), Some(1));
        assert_eq!(used(&["n:a N:1 e:1"]), None);
    }

    proptest! {
        #[test]
        fn outside_text_does_not_panic(text in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Keytab::parse(&text);
        }

        #[test]
        fn outside_words_do_not_panic(words in prop::collection::vec("[0-2uguNnek:]{0,6}", 0..12)) {
            let _ = Keytab::parse(words.join(" ").as_bytes());
        }
    }
}
