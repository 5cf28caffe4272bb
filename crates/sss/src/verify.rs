//! What a server does with a credential (`Authenticate` and `Decode` in `XrdSecProtocolsss.cc`).

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use types::Timestamp;

use crate::items::{Claims, one_form};
use crate::packet::{NONCE_LEN, Sealed};
use crate::{KeyGroup, KeyId, KeyUser, Keytab, Now, Replays};

/// How long a credential counts. The stock server has the same unless it is told otherwise.
pub const LIFETIME: Duration = Duration::from_secs(13);
/// How far the clocks of clients may be from that of the server.
pub const CLOCK_SKEW: Duration = Duration::from_secs(10);
/// How long a credential can count, by a clock that runs right: it may be made early and be shown late.
/// That is 33 s, and some more, as the clock of the day can run a little slower than the other one.
pub(crate) const KEEP: Duration = Duration::from_secs(LIFETIME.as_secs() + 2 * CLOCK_SKEW.as_secs() + 2);

/// Stands for the secret of a key that does not count.
const NO_SECRET: [u8; 32] = [0; 32];

/// Who has a secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The name of the key.
    pub key: String,
    /// The user: that of the key, or the one that the client says if the key lets it choose.
    pub user: Option<String>,
    /// The groups, in the same way.
    pub groups: Vec<String>,
    /// From when on the key does not count any more.
    pub expires: Option<Timestamp>,
}

/// What is wrong with the key of a credential. Only the log of the server says it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyProblem {
    /// The keytab does not have it.
    #[error("no key in the keytab has the number {0}")]
    Unknown(KeyId),
    /// The key has another name.
    #[error("the key number {0} has another name than the client says")]
    Name(KeyId),
    /// The key counts no more.
    #[error("the key number {0} has expired")]
    Expired(KeyId),
    /// It was encrypted with another key, or was changed.
    #[error(
        "the credential does not decrypt with the key number {0}: the client has another secret under this number, or the credential was changed"
    )]
    Other(KeyId),
}

/// Why a credential is refused. The texts are for the client: up to the point where it has shown that it has the secret, they do
/// not say which keys there are.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// Not a credential of the protocol.
    #[error("the credential is not one for `sss`: {0}")]
    Malformed(&'static str),
    /// Something is wrong with the key. Count these with [`Failures`](crate::Failures).
    #[error("the shared secret is not accepted")]
    Key(KeyProblem),
    /// Too old.
    #[error("the credential was made {0} s ago, and counts for {life} s: check the clocks of both machines, which may differ by {skew} s", life = LIFETIME.as_secs(), skew = CLOCK_SKEW.as_secs())]
    Late(i64),
    /// From the future.
    #[error("the credential was made {0} s in the future: check the clocks of both machines, which may differ by {skew} s", skew = CLOCK_SKEW.as_secs())]
    Early(i64),
    /// Nobody knows whether it was shown before. In so many seconds, a client has one that counts.
    #[error(
        "the server has just started, or its clock was set back, so it cannot know whether the credential was used before: try again in {0} s"
    )]
    Forgotten(i64),
    /// The server could not write down that it was shown.
    #[error("the server cannot note that the credential was used: try again later")]
    NotNoted,
    /// Too many credentials from the same address were of no known key.
    #[error("too many shared secrets from this address were not accepted: try again in a minute")]
    TooManyFailures,
    /// It was shown before.
    #[error("the credential was used before: each counts once")]
    Replayed,
    /// The memory for replays is full.
    #[error("too many clients log in with shared secrets at this time: try again in some seconds")]
    Busy,
    /// It does not say where its client is.
    #[error(
        "the credential does not say which address its client has; a key whose name ends with `+` does not need that"
    )]
    NoAddress,
    /// It was made at another address.
    #[error(
        "the credential was made for a client at {said}, and this one is at {peer}; a key whose name ends with `+` is for all addresses"
    )]
    Address {
        /// What the credential says.
        said: IpAddr,
        /// Where the client is.
        peer: IpAddr,
    },
    /// The client wants the server to show who it is first.
    #[error(
        "the client asks the server to show first that it has the secret, which this server does not do: use TLS for that"
    )]
    Mutual,
}

impl Refusal {
    /// What the log of the server says.
    #[must_use]
    pub fn detail(&self) -> &dyn fmt::Display {
        match self {
            Self::Key(problem) => problem,
            other => other,
        }
    }
}

/// A credential that is right, if it was not seen before.
#[derive(Debug)]
pub struct Verified {
    holder: Holder,
    key: KeyId,
    nonce: [u8; NONCE_LEN],
    made: Timestamp,
}

impl Verified {
    /// Who shows it.
    #[must_use]
    pub fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Lets it count. Returns who shows it.
    ///
    /// # Errors
    /// It was seen before, or nobody knows whether it was.
    pub fn admit(self, replays: &mut Replays, now: Now) -> Result<Holder, Refusal> {
        replays.note(self.key, self.nonce, self.made, now)?;
        Ok(self.holder)
    }
}

/// Verifies a credential of a client at `peer`. It counts once [`Verified::admit`] has accepted it.
///
/// # Errors
/// [`Refusal`].
pub fn verify(keytab: &Keytab, credential: &[u8], peer: IpAddr, now: Timestamp) -> Result<Verified, Refusal> {
    let sealed = Sealed::parse(credential).map_err(Refusal::Malformed)?;
    let id = sealed.id;
    let key = match keytab.get(id) {
        None => Err(KeyProblem::Unknown(id)),
        Some(key) if sealed.key_name.is_some_and(|name| name != key.name.as_bytes()) => Err(KeyProblem::Name(id)),
        Some(key) if key.is_expired(now) => Err(KeyProblem::Expired(id)),
        Some(key) => Ok(key),
    };
    // Without a key as well, so that the time that it takes does not say which keys there are.
    let opened = std::hint::black_box(sealed.open(key.as_ref().map_or(&NO_SECRET, |key| key.secret())));
    let key = key.map_err(Refusal::Key)?;
    let opened = opened.ok_or(Refusal::Key(KeyProblem::Other(id)))?;
    let age = now.secs() - opened.made.secs();
    if age >= secs(LIFETIME) + secs(CLOCK_SKEW) {
        return Err(Refusal::Late(age));
    }
    if age < -secs(CLOCK_SKEW) {
        return Err(Refusal::Early(-age));
    }
    if opened.option != 0 {
        return Err(Refusal::Mutual);
    }
    let claims = Claims::parse(&opened.items).map_err(Refusal::Malformed)?;
    if !key.is_for_any_address() {
        let (said, peer) = (claims.address.ok_or(Refusal::NoAddress)?, one_form(peer));
        if said != peer {
            return Err(Refusal::Address { said, peer });
        }
    }
    let user = match &key.user {
        KeyUser::Named(user) => Some(user.clone()),
        KeyUser::Any => claims.user,
    };
    let groups = match &key.group {
        KeyGroup::Nothing => Vec::new(),
        KeyGroup::Named(group) => vec![group.clone()],
        KeyGroup::Any => claims.groups,
    };
    let holder = Holder { key: key.name.clone(), user, groups, expires: key.expires };
    Ok(Verified { holder, key: id, nonce: opened.nonce, made: opened.made })
}

fn secs(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Before, Client, RANDOM_LEN, credential};

    const NOW: i64 = 1_800_000_000;
    const HERE: [u8; 4] = [192, 0, 2, 1];

    fn keytab() -> Keytab {
        let line = |rest: &str, digit: char| format!("0 {rest} k:{}\n", digit.to_string().repeat(32));
        let text = [
            line("N:1 n:daq u:daq g:online", '1'),
            line("N:2 n:any u:anybody g:anygroup", '2'),
            line("N:3 n:all u:allusers g:usrgroup", '3'),
            line("N:4 n:farm+ u:farm", '4'),
            line(&format!("N:5 n:old e:{NOW}"), '5'),
            line(&format!("N:6 n:soon e:{}", NOW + 1), '6'),
        ];
        Keytab::parse(text.concat().as_bytes()).unwrap()
    }

    fn of(id: i64, address: [u8; 4], made: i64) -> Vec<u8> {
        let keytab = keytab();
        let client = Client { user: "ana", groups: "atlas cms", address: (address, 4000).into() };
        credential(keytab.get(KeyId(id)).unwrap(), &client, true, Timestamp::from_secs(made), &[7; RANDOM_LEN])
    }

    fn verified(bytes: &[u8]) -> Result<Holder, Refusal> {
        verify(&keytab(), bytes, HERE.into(), Timestamp::from_secs(NOW)).map(|verified| verified.holder)
    }

    #[test]
    fn a_key_says_who_its_holder_is_or_lets_it_choose() {
        let who = |id| {
            let Holder { key, user, groups, .. } = verified(&of(id, HERE, NOW)).unwrap();
            (key, user.unwrap(), groups.join(" "))
        };
        let texts = |key: &str, user: &str, groups: &str| (key.to_owned(), user.to_owned(), groups.to_owned());
        assert_eq!(who(1), texts("daq", "daq", "online"));
        assert_eq!(who(2), texts("any", "ana", "atlas cms"));
        assert_eq!(who(3), texts("all", "ana", ""));
        assert_eq!(who(4), texts("farm+", "farm", ""));
        assert_eq!(verified(&of(6, HERE, NOW)).unwrap().expires, Some(Timestamp::from_secs(NOW + 1)));
    }

    #[test]
    fn keys_that_do_not_fit_are_all_refused_alike() {
        let good = of(1, HERE, NOW);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        let mut texts = Vec::new();
        for (bytes, problem) in [
            (with(15, 99), KeyProblem::Unknown(KeyId(99))),
            (with(16, b'x'), KeyProblem::Name(KeyId(1))),
            (with(15, 2), KeyProblem::Name(KeyId(2))),
            (with(40, good[40] ^ 1), KeyProblem::Other(KeyId(1))),
            (of(5, HERE, NOW), KeyProblem::Expired(KeyId(5))),
        ] {
            let refused = verified(&bytes).unwrap_err();
            assert_eq!(refused, Refusal::Key(problem.clone()));
            assert_eq!(refused.detail().to_string(), problem.to_string());
            texts.push(refused.to_string());
        }
        texts.dedup();
        assert_eq!(texts, ["the shared secret is not accepted"]);
        // Without a name, the number alone selects the key.
        let keytab = keytab();
        let client = Client { user: "x", groups: "", address: (HERE, 4000).into() };
        let bytes =
            credential(keytab.get(KeyId(1)).unwrap(), &client, false, Timestamp::from_secs(NOW), &[7; RANDOM_LEN]);
        assert_eq!(verified(&bytes).unwrap().key, "daq");
    }

    #[test]
    fn a_credential_counts_for_its_lifetime_and_the_skew_of_clocks() {
        let made = |made| verified(&of(1, HERE, made)).map(drop);
        assert_eq!(made(NOW - 22), Ok(()));
        assert_eq!(made(NOW - 23), Err(Refusal::Late(23)));
        assert_eq!(made(NOW + 10), Ok(()));
        assert_eq!(made(NOW + 11), Err(Refusal::Early(11)));
        assert!(KEEP.as_secs() > 10 + 23);
    }

    #[test]
    fn a_credential_counts_from_the_address_that_it_names() {
        let there = [192, 0, 2, 2];
        let refused = Refusal::Address { said: there.into(), peer: HERE.into() };
        assert_eq!(verified(&of(1, there, NOW)), Err(refused));
        assert!(verified(&of(4, there, NOW)).is_ok());
        // However the address is written.
        let mapped = "::ffff:192.0.2.1".parse().unwrap();
        assert!(verify(&keytab(), &of(1, HERE, NOW), mapped, Timestamp::from_secs(NOW)).is_ok());
    }

    #[test]
    fn it_counts_once() {
        let now = Now { wall: Timestamp::from_secs(NOW), steady: Duration::from_secs(100) };
        let mut replays = Replays::new(now, Before::None);
        let mut admitted = |bytes: &[u8]| {
            verify(&keytab(), bytes, HERE.into(), now.wall)
                .and_then(|verified| verified.admit(&mut replays, now))
                .map(drop)
        };
        let bytes = of(1, HERE, NOW);
        assert_eq!(admitted(&bytes), Ok(()));
        assert_eq!(admitted(&bytes), Err(Refusal::Replayed));
        // In the header, bytes that mean nothing can be changed by everybody.
        let mut other = bytes.clone();
        other[4] = 1;
        assert_eq!(admitted(&other), Err(Refusal::Replayed));
        assert_eq!(admitted(&of(2, HERE, NOW)), Ok(()));
    }

    proptest! {
        #[test]
        fn outside_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), id in 1u8..7) {
            let bytes = [&b"sss\0\0\0\x000\0\0\0\0\0\0\0"[..], &[id], &bytes].concat();
            prop_assert!(verified(&bytes).is_err());
        }
    }
}
