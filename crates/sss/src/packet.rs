//! The message: a header in the clear, and what is encrypted (`XrdSecsssRR.hh`).

use std::net::{IpAddr, SocketAddr};

use types::Timestamp;

use crate::items::{GROUPS, HOST, NAME, RANDOM, one_form, push};
use crate::{Key, KeyId, cipher};

/// Seconds from 1970 to the time from which credentials count their own (`myClock` in `XrdSecProtocolsss.cc`).
const EPOCH: i64 = 1_222_183_880;
/// The header without the name of the key.
const HEADER_LEN: usize = 16;
/// The data before the items.
const DATA_HEADER_LEN: usize = 40;
/// Longest name of a key in the header, with its NUL.
const KEY_NAME_LEN_MAX: usize = 192;
/// The checksum, and the longest items that the stock server takes.
const ITEMS_LEN_MAX: usize = 16_344;
const CHECKSUM_LEN: usize = 4;
/// The stock client makes its data at least this long, so that its length says nothing.
const DATA_LEN_MIN: usize = 128;
/// Longest credential, in bytes.
pub const CREDENTIAL_BYTES_MAX: usize = HEADER_LEN + KEY_NAME_LEN_MAX + DATA_HEADER_LEN + ITEMS_LEN_MAX + CHECKSUM_LEN;
/// Random bytes that tell credentials apart.
pub(crate) const NONCE_LEN: usize = 32;
/// Random bytes that a credential takes.
pub const RANDOM_LEN: usize = NONCE_LEN + DATA_LEN_MIN;

/// A credential that is not decrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Sealed<'a> {
    /// The number of its key.
    pub(crate) id: KeyId,
    /// The name of its key. Clients of the first version of the protocol do not say it.
    pub(crate) key_name: Option<&'a [u8]>,
    data: &'a [u8],
}

/// What is in a credential.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Opened {
    pub(crate) nonce: [u8; NONCE_LEN],
    /// When it was made.
    pub(crate) made: Timestamp,
    /// What its client asks for; 0: to log in.
    pub(crate) option: u8,
    pub(crate) items: Vec<u8>,
}

impl<'a> Sealed<'a> {
    /// Parses the header.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, &'static str> {
        if bytes.len() > CREDENTIAL_BYTES_MAX {
            return Err("it is too long");
        }
        let short = "it is too short";
        let (header, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(short)?;
        let [b's', b's', b's', 0, _, _, name_len, cipher, id @ ..] = *header else {
            return Err("it does not begin with `sss`");
        };
        if cipher != b'0' {
            return Err("it is not encrypted with Blowfish");
        }
        let name_len = usize::from(name_len);
        if name_len % 8 != 0 || name_len > KEY_NAME_LEN_MAX {
            return Err("the name of its key has a wrong length");
        }
        let (name, data) = rest.split_at_checked(name_len).ok_or(short)?;
        if name.last().is_some_and(|last| *last != 0) {
            return Err("the name of its key does not end");
        }
        if data.len() < DATA_HEADER_LEN + CHECKSUM_LEN {
            return Err(short);
        }
        let key_name = (!name.is_empty()).then(|| name.split(|byte| *byte == 0).next().unwrap_or_default());
        Ok(Self { id: KeyId(i64::from_be_bytes(id)), key_name, data })
    }

    /// Decrypts it with a secret; `None`: it was encrypted with another one.
    pub(crate) fn open(&self, secret: &[u8]) -> Option<Opened> {
        let data = cipher::open(secret, self.data)?;
        let (nonce, rest) = data.split_first_chunk::<NONCE_LEN>()?;
        // Clients send zeros that mean nothing. Who puts a credential together from parts of others has to meet them.
        let [a, b, c, d, 0, 0, 0, option, items @ ..] = rest else { return None };
        let made = Timestamp::from_secs(EPOCH + i64::from(i32::from_be_bytes([*a, *b, *c, *d])));
        Some(Opened { nonce: *nonce, made, option: *option, items: items.to_vec() })
    }
}

/// What a client says about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client<'a> {
    /// The user that it says it is. Keys of a user make this meaningless.
    pub user: &'a str,
    /// Its groups, separated by blanks.
    pub groups: &'a str,
    /// The address and the port from which it connects, as its socket has them.
    pub address: SocketAddr,
}

/// The credential that `client` sends. The name of the key is for servers of the second version of the protocol.
#[must_use]
pub fn credential(
    key: &Key,
    client: &Client<'_>,
    with_name: bool,
    now: Timestamp,
    random: &[u8; RANDOM_LEN],
) -> Vec<u8> {
    let name = if with_name { padded(&key.name) } else { Vec::new() };
    // It fits: a keytab has no longer names.
    let name_len = u8::try_from(name.len()).unwrap_or(0);
    let mut bytes = [&b"sss\0\0\0"[..], &[name_len, b'0'], &key.id.0.to_be_bytes(), &name].concat();
    let (nonce, padding) = random.split_at(NONCE_LEN);
    let made = i32::try_from(now.secs() - EPOCH).unwrap_or(i32::MAX);
    let mut data = [nonce, &made.to_be_bytes(), &[0; 4]].concat();
    push(&mut data, HOST, written(client.address).as_bytes());
    for (kind, text) in [(NAME, client.user), (GROUPS, client.groups)] {
        if !text.is_empty() {
            push(&mut data, kind, text.as_bytes());
        }
    }
    // At the end, so that nothing that decides is in the last bytes.
    let missing = DATA_LEN_MIN.saturating_sub(data.len()).max(8);
    push(&mut data, RANDOM, &padding.iter().map(|byte| byte | 1).take(missing).collect::<Vec<_>>());
    bytes.extend_from_slice(&cipher::seal(key.secret(), &data));
    bytes
}

/// A name with one to eight NUL behind it, so that eight divide its length.
fn padded(name: &str) -> Vec<u8> {
    let mut bytes = name.as_bytes().to_vec();
    bytes.resize((name.len() + 8) & !7, 0);
    bytes
}

/// An address as the stock server writes that of a client, which it compares as a text.
fn written(address: SocketAddr) -> String {
    let port = address.port();
    match one_form(address.ip()) {
        IpAddr::V4(address) => format!("[::ffff:{address}]:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Keytab;
    use crate::items::Claims;

    fn keytab() -> Keytab {
        Keytab::parse(b"0 n:seven77 u:anybody g:anygroup N:258 k:00112233445566778899aabbccddeeff").unwrap()
    }

    fn made(with_name: bool) -> Vec<u8> {
        let client = Client { user: "ana", groups: "atlas", address: ([192, 0, 2, 1], 4000).into() };
        credential(
            keytab().get(KeyId(258)).unwrap(),
            &client,
            with_name,
            Timestamp::from_secs(EPOCH + 77),
            &[9; RANDOM_LEN],
        )
    }

    #[test]
    fn a_server_reads_what_a_client_makes() {
        for with_name in [true, false] {
            let bytes = made(with_name);
            let sealed = Sealed::parse(&bytes).unwrap();
            assert_eq!((sealed.id, sealed.key_name), (KeyId(258), with_name.then_some(&b"seven77"[..])));
            let opened = sealed.open(keytab().get(sealed.id).unwrap().secret()).unwrap();
            assert_eq!((opened.nonce, opened.made, opened.option), ([9; 32], Timestamp::from_secs(EPOCH + 77), 0));
            let claims = Claims::parse(&opened.items).unwrap();
            assert_eq!(
                claims,
                Claims { user: Some("ana".into()), groups: vec!["atlas".into()], address: Some([192, 0, 2, 1].into()) }
            );
            assert!(opened.items.len() + DATA_HEADER_LEN >= DATA_LEN_MIN);
        }
    }

    #[test]
    fn the_header_is_that_of_the_stock_client() {
        let bytes = made(true);
        assert_eq!(bytes[..24], *b"sss\0\0\0\x080\0\0\0\0\0\0\x01\x02seven77\0");
        assert_eq!(padded("eight888").len(), 16);
        assert_eq!(padded("").len(), 8);
        assert_eq!(written("[::1]:5".parse().unwrap()), "[::1]:5");
        assert_eq!(written(([127, 0, 0, 1], 6).into()), "[::ffff:127.0.0.1]:6");
    }

    #[test]
    fn what_the_stock_client_leaves_zero_must_be_zero() {
        let keytab = keytab();
        let secret = keytab.get(KeyId(258)).unwrap().secret();
        let opened = |at: usize| {
            let mut data = [&[9; NONCE_LEN][..], &[0; 8]].concat();
            data[at] = 1;
            let sealed = cipher::seal(secret, &data);
            Sealed { id: KeyId(258), key_name: None, data: &sealed }.open(secret).is_some()
        };
        assert_eq!([35, 36, 37, 38, 39].map(opened), [true, false, false, false, true]);
    }

    #[test]
    fn malformed_headers_are_refused() {
        let good = made(true);
        let refused = |bytes: &[u8], why: &str| {
            let found = Sealed::parse(bytes).unwrap_err();
            assert!(found.contains(why), "{found}");
        };
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        for end in 0..24 + DATA_HEADER_LEN + CHECKSUM_LEN {
            assert!(Sealed::parse(&good[..end]).is_err(), "{end}");
        }
        refused(&with(0, b'x'), "sss");
        refused(&with(3, b'x'), "sss");
        refused(&with(7, b'1'), "Blowfish");
        refused(&with(6, 7), "length");
        refused(&with(6, 200), "length");
        refused(&with(23, b'x'), "end");
        refused(&vec![0; CREDENTIAL_BYTES_MAX + 1], "long");
    }

    proptest! {
        #[test]
        fn outside_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), header in any::<bool>()) {
            let bytes = if header { [&b"sss\0\0\0\x080"[..], &bytes].concat() } else { bytes };
            if let Ok(sealed) = Sealed::parse(&bytes) {
                let _ = sealed.open(keytab().get(KeyId(258)).unwrap().secret());
            }
        }
    }
}
