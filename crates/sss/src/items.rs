//! What a credential says about its client: items of a type, a length and a text that ends with NUL (`XrdSecsssRR.hh`, and `Unpack`
//! in `XrdOucPup.cc`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Most groups that a client can name.
pub const CLAIMED_GROUPS_MAX: usize = 64;
/// Longest name of a user or a group, in bytes.
pub const NAME_MAX: usize = 255;
/// Most items. The stock client sends a dozen, and two for each attribute.
const ITEMS_MAX: usize = 512;

/// The types of the items that count here.
pub(crate) const NAME: u8 = 0x01;
pub(crate) const GROUPS: u8 = 0x04;
pub(crate) const RANDOM: u8 = 0x07;
pub(crate) const HOST: u8 = 0x20;

/// What a client says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Claims {
    pub(crate) user: Option<String>,
    pub(crate) groups: Vec<String>,
    /// The address that it connects from.
    pub(crate) address: Option<IpAddr>,
}

impl Claims {
    /// Parses items.
    pub(crate) fn parse(mut items: &[u8]) -> Result<Self, &'static str> {
        let mut claims = Self::default();
        let mut groups = None;
        for _ in 0..ITEMS_MAX {
            let [kind, high, low, rest @ ..] = items else {
                return if items.is_empty() { Ok(claims.with(groups)) } else { Err("its last item is cut") };
            };
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            let (content, rest) = rest.split_at_checked(len).ok_or("an item is cut")?;
            items = rest;
            match *kind {
                NAME => set(&mut claims.user, name_of(text_of(content)?)?)?,
                GROUPS => set(&mut groups, groups_of(text_of(content)?)?)?,
                // A name of the host may follow. Nothing proves it.
                HOST => {
                    if let Some(address) = text_of(content)?.strip_prefix('[') {
                        set(&mut claims.address, address_of(address)?)?;
                    }
                }
                _ => {}
            }
        }
        Err("it has too many items")
    }

    fn with(self, groups: Option<Vec<String>>) -> Self {
        Self { groups: groups.unwrap_or_default(), ..self }
    }
}

fn set<T>(place: &mut Option<T>, value: T) -> Result<(), &'static str> {
    if place.replace(value).is_some() { Err("it has an item twice") } else { Ok(()) }
}

fn text_of(content: &[u8]) -> Result<&str, &'static str> {
    let text = content.split(|byte| *byte == 0).next().unwrap_or_default();
    let proper = !text.is_empty() && text.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    std::str::from_utf8(text).ok().filter(|_| proper).ok_or("an item is empty, or no printable ASCII")
}

fn name_of(text: &str) -> Result<String, &'static str> {
    if text.len() > NAME_MAX || text.contains(' ') {
        return Err("a name is too long, or has a blank");
    }
    Ok(text.to_owned())
}

fn groups_of(text: &str) -> Result<Vec<String>, &'static str> {
    // The stock client says `nogroup` if it says nothing about groups.
    let groups = text.split([' ', ',']).filter(|group| !group.is_empty() && *group != "nogroup");
    let groups = groups.map(name_of).take(CLAIMED_GROUPS_MAX + 1).collect::<Result<Vec<_>, _>>()?;
    if groups.len() > CLAIMED_GROUPS_MAX { Err("it has too many groups") } else { Ok(groups) }
}

/// An address after its bracket: `::ffff:192.0.2.1]`, `::192.0.2.1]:1094`, `2001:db8::1]`.
fn address_of(text: &str) -> Result<IpAddr, &'static str> {
    let malformed = "its address is malformed";
    let (address, port) = text.split_once(']').ok_or(malformed)?;
    if !port.is_empty() && port.strip_prefix(':').is_none_or(|port| port.parse::<u16>().is_err()) {
        return Err(malformed);
    }
    Ok(one_form(address.parse::<Ipv6Addr>().map_err(|_| malformed)?.into()))
}

/// IPv4 addresses in their own form, however IPv6 writes them. The stock client uses the one that RFC 4291 has given up,
/// `::192.0.2.1`.
pub(crate) fn one_form(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => match address.segments() {
            [0, 0, 0, 0, 0, 0, high, low] if high != 0 => {
                let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
                Ipv4Addr::new(a, b, c, d).into()
            }
            _ => address.into(),
        },
        address => address,
    }
}

/// Appends an item. Longer texts than an item can have are cut.
pub(crate) fn push(items: &mut Vec<u8>, kind: u8, text: &[u8]) {
    let text = &text[..text.len().min(usize::from(u16::MAX) - 1)];
    // It fits: the text was cut.
    let len = u16::try_from(text.len() + 1).unwrap_or(u16::MAX);
    items.push(kind);
    items.extend_from_slice(&len.to_be_bytes());
    items.extend_from_slice(text);
    items.push(0);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn items(list: &[(u8, &str)]) -> Vec<u8> {
        let mut items = Vec::new();
        list.iter().for_each(|(kind, text)| push(&mut items, *kind, text.as_bytes()));
        items
    }

    #[test]
    fn a_client_says_who_it_is_and_where() {
        let list = [
            (HOST, "[::127.0.0.1]:40000"),
            (HOST, "pc.example.org"),
            (NAME, "ana"),
            (GROUPS, "atlas cms"),
            (RANDOM, "\u{1}\u{ff}"),
            (0x08, "sss"),
        ];
        let claims = Claims::parse(&items(&list)).unwrap();
        let groups = vec!["atlas".to_owned(), "cms".to_owned()];
        assert_eq!(claims, Claims { user: Some("ana".into()), groups, address: Some(Ipv4Addr::LOCALHOST.into()) });
        assert_eq!(Claims::parse(b""), Ok(Claims::default()));
        // Without a NUL, and with more behind it.
        assert_eq!(Claims::parse(b"\x01\0\x03ana").unwrap().user.as_deref(), Some("ana"));
        assert_eq!(Claims::parse(b"\x01\0\x05ana\0x").unwrap().user.as_deref(), Some("ana"));
        assert_eq!(Claims::parse(&items(&[(GROUPS, "nogroup")])).unwrap().groups, Vec::<String>::new());
    }

    #[test]
    fn addresses_are_compared_in_one_form() {
        let address =
            |text: &str| Claims::parse(&items(&[(HOST, text)])).map(|claims| claims.address.unwrap().to_string());
        for (text, one) in [
            ("[::192.0.2.1]", "192.0.2.1"),
            ("[::ffff:192.0.2.1]:1", "192.0.2.1"),
            ("[::c000:201]", "192.0.2.1"),
            ("[2001:DB8:0::1]:65535", "2001:db8::1"),
            ("[::1]", "::1"),
            ("[::]", "::"),
            ("[fe80::c000:201]", "fe80::c000:201"),
        ] {
            assert_eq!(address(text).as_deref(), Ok(one), "{text}");
        }
        for text in ["[", "[]", "[::1", "[::1]x", "[::1]:x", "[::1]:65536", "[192.0.2.1]", "[::1]:", "[pc]"] {
            assert!(address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn malformed_items_are_refused() {
        let long = "x".repeat(256);
        let many = "g ".repeat(65);
        for (bad, why) in [
            (b"\x01".to_vec(), "cut"),
            (b"\x01\0".to_vec(), "cut"),
            (b"\x01\0\x04ana".to_vec(), "cut"),
            (b"\x01\0\x00".to_vec(), "empty"),
            (items(&[(NAME, "")]), "empty"),
            (items(&[(NAME, "a\nb")]), "ASCII"),
            (items(&[(NAME, "é")]), "ASCII"),
            (items(&[(NAME, "a b")]), "blank"),
            (items(&[(NAME, &long)]), "long"),
            (items(&[(GROUPS, &many)]), "many"),
            (items(&[(NAME, "a"), (NAME, "b")]), "twice"),
            (items(&[(GROUPS, "a"), (GROUPS, "b")]), "twice"),
            (items(&[(HOST, "[::1]"), (HOST, "[::2]")]), "twice"),
            (items(&[(RANDOM, "x"); ITEMS_MAX + 1]), "many"),
        ] {
            let found = Claims::parse(&bad).unwrap_err();
            assert!(found.contains(why), "{}: {found}", bad.escape_ascii());
        }
        assert!(Claims::parse(&items(&[(GROUPS, "g ".repeat(64).as_str())])).is_ok());
    }

    proptest! {
        #[test]
        fn outside_items_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Claims::parse(&bytes);
        }
    }
}
