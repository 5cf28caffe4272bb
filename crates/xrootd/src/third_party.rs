//! Parses the opaque words about a third-party copy, as the stock client sends them.

use service::{Error, Part};
use types::ErrorCode;
use wire::PathArg;

/// Maximum length of a key, host or name.
const WORD_MAX: usize = 1024;

/// Parses the words of an open.
pub(crate) fn part_of(target: &PathArg) -> Result<Part, Error> {
    // This open only checks whether the source exists.
    if target.get(b"tpc.stage") == Some(b"placement") {
        return Ok(Part::None);
    }
    let Some(key) = target.get(b"tpc.key").filter(|key| !key.is_empty()) else { return Ok(Part::None) };
    let word = |name: &[u8]| match target.get(name) {
        Some(word) if word.len() > WORD_MAX => Err(wrong("a word of it is too long")),
        word => Ok(word.filter(|word| !word.is_empty())),
    };
    let text = |word: &[u8]| std::str::from_utf8(word).map(str::to_owned).map_err(|_| wrong("it is no UTF-8"));
    if key.len() > WORD_MAX {
        return Err(wrong("its key is too long"));
    }
    match (word(b"tpc.src")?, word(b"tpc.dst")?, word(b"tpc.org")?) {
        (Some(source), None, None) => {
            let tls = match word(b"tpc.spr")? {
                None | Some(b"root" | b"xroot") => false,
                Some(b"roots" | b"xroots") => true,
                Some(_) => return Err(Error::unsupported("A third-party copy from anything but a root:// server")),
            };
            let path = word(b"tpc.lfn")?.map(text).transpose()?;
            // Whether the client has delegated a proxy shows at its login.
            let delegates = match word(b"tpc.dlgon")? {
                Some(b"1") => Some(text(word(b"tpc.dlg")?.unwrap_or(source))?),
                _ => None,
            };
            Ok(Part::Target { key: text(key)?, server: text(source)?, tls, path, delegates })
        }
        (None, Some(dst), None) => Ok(Part::Source { key: key.to_vec(), dst: text(dst)? }),
        (None, None, Some(origin)) => Ok(Part::Fetch { key: key.to_vec(), origin: origin.to_vec() }),
        _ => Err(wrong("it has to name exactly one of tpc.src, tpc.dst and tpc.org")),
    }
}

fn wrong(why: &str) -> Error {
    Error::new(ErrorCode::Invalid, format!("Cannot take part in the third-party copy: {why}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn the_roles_are_parsed_from_their_words() {
        let of = |text: &str| part_of(&PathArg::parse(text.as_bytes()).unwrap()).map_err(drop);
        assert!(of("/a") == Ok(Part::None));
        assert!(of("/a?tpc.key=k&tpc.dst=h&tpc.stage=placement") == Ok(Part::None));
        assert!(of("/a?tpc.key=k&tpc.dst=h") == Ok(Part::Source { key: b"k".to_vec(), dst: "h".into() }));
        assert!(of("/a?tpc.key=k&tpc.org=u.1@h") == Ok(Part::Fetch { key: b"k".to_vec(), origin: b"u.1@h".to_vec() }));
        for (scheme, tls) in [("root", false), ("roots", true), ("xroots", true)] {
            let target = |delegates: Option<&str>| Part::Target {
                key: "k".into(),
                server: "h:1".into(),
                tls,
                path: Some("/b".into()),
                delegates: delegates.map(str::to_owned),
            };
            let words = format!("/a?tpc.key=k&tpc.src=h:1&tpc.lfn=/b&tpc.spr={scheme}");
            assert!(of(&words) == Ok(target(None)));
            assert!(of(&format!("{words}&tpc.dlgon=0&tpc.dlg=m:2")) == Ok(target(None)));
            assert!(of(&format!("{words}&tpc.dlgon=1&tpc.dlg=m:2")) == Ok(target(Some("m:2"))));
            assert!(of(&format!("{words}&tpc.dlgon=1")) == Ok(target(Some("h:1"))));
        }
        for bad in ["/a?tpc.key=k", "/a?tpc.key=k&tpc.src=h&tpc.dst=h", "/a?tpc.key=k&tpc.src=h&tpc.spr=http"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert!(of(&format!("/a?tpc.key={}&tpc.dst=h", "k".repeat(2000))).is_err());
    }
}
