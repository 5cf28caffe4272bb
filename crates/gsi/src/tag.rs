//! Random tags: what each side has the other one sign, to see that it is here now.
//!
//! From [`VERSION_TAG_DIGEST`] on, XRootD signs a digest of the tag with the name of this use before it, in place of the bare tag
//! (`XrdSecgsiRtag.hh`): whatever the tag is, the signature then fits nothing else. Each side goes by the version that the other one
//! announces.
//!
//! **Nothing in the handshake of XRootD signs the versions.** So somebody between two peers can lower both, and with a stock peer on either
//! side neither can tell: they sign bare tags, as before this version. What that person gets by it are signatures of 8 bytes of ASCII.
//! If the person lowers one version only, the two sides sign different texts, and the handshake fails.
//!
//! **Between two peers of weir it is noticed**, as in TLS 1.3 (RFC 8446, section 4.1.3). A server that sees an older version than
//! [`VERSION_TAG_DIGEST`] says so in its tag, which the client signs: nobody can change it on the way. A client that has announced this
//! version, and finds that a server has seen an older one, ends the handshake.

use ring::digest::{SHA256, digest};

use crate::{HandshakeError, Random, TAG_LEN, VERSION_TAG_DIGEST};

/// What the tags of servers here begin with. XRootD has letters, digits, `.` and `/` in its own (`XrdSutRndm::GetRndmTag`), and
/// dCache bytes up to 0x7e (`XrdSecgsiRtag.hh`).
const SERVER_MARK: u8 = 0x7f;

/// What is digested before the tag (`kXRSrtagCtx`).
const CONTEXT: &[u8] = b"XRD-GSI-RTAG-v1";

/// What both sides sign of a tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TagForm {
    /// The tag.
    Bare,
    /// Its digest.
    Digest,
}

impl TagForm {
    /// What a peer of this version signs, and wants to be signed.
    pub(crate) fn of(version: u32) -> Self {
        if version >= VERSION_TAG_DIGEST { Self::Digest } else { Self::Bare }
    }

    /// The text that is signed.
    pub(crate) fn text(self, tag: &[u8]) -> Vec<u8> {
        match self {
            Self::Bare => tag.to_vec(),
            Self::Digest => digest(&SHA256, &[CONTEXT, tag].concat()).as_ref().to_vec(),
        }
    }
}

/// A new random tag: printable, as stock peers have it.
pub(crate) fn new(random: &mut dyn Random) -> Result<Vec<u8>, HandshakeError> {
    let mut bytes = [0; TAG_LEN];
    random.fill(&mut bytes)?;
    // ASCII without the first byte and the last, which is the mark.
    Ok(bytes.map(|byte| 1 + byte % (SERVER_MARK - 1)).to_vec())
}

/// A new random tag of a server, for a client that signs tags in this form. No server here signs it: otherwise a stranger could have it
/// signed by another server, and log in with the certificate of that one. If the client is an older one, the tag says that.
pub(crate) fn of_server(client: TagForm, random: &mut dyn Random) -> Result<Vec<u8>, HandshakeError> {
    let mut tag = new(random)?;
    tag[0] = SERVER_MARK;
    if client == TagForm::Bare {
        tag[1] = SERVER_MARK;
    }
    Ok(tag)
}

/// Whether a server here has made the tag.
pub(crate) fn is_of_server(tag: &[u8]) -> bool {
    tag.first() == Some(&SERVER_MARK)
}

/// Whether a server here has made the tag for a client of a version before [`VERSION_TAG_DIGEST`].
pub(crate) fn is_for_older_client(tag: &[u8]) -> bool {
    tag.starts_with(&[SERVER_MARK, SERVER_MARK])
}

/// A tag that may be signed.
pub(crate) fn signable(tag: &[u8]) -> Result<&[u8], HandshakeError> {
    if tag.len() == TAG_LEN && tag.is_ascii() { Ok(tag) } else { Err(HandshakeError::NoTag(tag.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_random::Numbers;

    #[test]
    fn what_is_signed_is_what_xrootd_signs() {
        assert_eq!(TagForm::of(10_699).text(b"Ab./0189"), b"Ab./0189");
        // printf 'XRD-GSI-RTAG-v1Ab./0189' | sha256sum
        let expected = "6e45f9b645babe41d46558404e2559358e2bdd0b918ca949d36e7de9e4d34981";
        let text: String = TagForm::of(10_700).text(b"Ab./0189").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(text, expected);
    }

    #[test]
    fn tags_are_signable_and_say_who_has_made_them() {
        let random = &mut Numbers(1);
        for _ in 0..1000 {
            let (client, server) = (new(random).unwrap(), of_server(TagForm::Digest, random).unwrap());
            let older = of_server(TagForm::Bare, random).unwrap();
            assert!([&client, &server, &older].iter().all(|tag| signable(tag).is_ok() && !tag.contains(&0)));
            assert!(!is_of_server(&client) && is_of_server(&server) && is_of_server(&older));
            assert!(!is_for_older_client(&client) && !is_for_older_client(&server) && is_for_older_client(&older));
        }
        for wrong in [&b""[..], b"1234567", b"123456789", b"1234567\x80"] {
            assert_eq!(signable(wrong), Err(HandshakeError::NoTag(wrong.len())));
        }
    }
}
