//! Signs requests (`kXR_sigver`), if the server asks for it. The rules are in [`wire::signing`].

use gsi::{SessionKey, hash};
use wire::request::Sigver;
use wire::response::SecurityRequirements;
use wire::signing::{FORCE, NO_DATA, SHA256, SigningRules, has_data, sequence_bytes};
use wire::{REQUEST_HEADER_LEN, Request, RequestHeader, WireError};

use crate::credentials::SystemNumbers;

/// Signs the requests of a session.
#[derive(Debug)]
pub(super) struct Signer {
    rules: SigningRules,
    /// `None`: the login gave no key. The server has asked for the bare hash, which proves nothing.
    key: Option<SessionKey>,
    last: u64,
}

impl Signer {
    /// For what the server asks, after a login that has given `key`. `None`: there is nothing to sign, or nothing to sign it with.
    pub(super) fn new(asked: &SecurityRequirements, key: Option<SessionKey>) -> Option<Self> {
        if key.is_none() && asked.options & FORCE == 0 {
            return None;
        }
        Some(Self { rules: SigningRules::new(asked)?, key, last: 0 })
    }

    /// Puts the signature of the request in front of it. `output` has it from `start` on; the `data` of a write are sent after it.
    ///
    /// # Errors
    /// The system gives no random numbers.
    pub(super) fn sign(&mut self, output: &mut Vec<u8>, start: usize, data: &[&[u8]]) -> Result<(), WireError> {
        let Some((header, payload)) = output[start..].split_first_chunk::<REQUEST_HEADER_LEN>() else { return Ok(()) };
        let parsed = RequestHeader::parse(header);
        if !self.rules.apply_to(&parsed) {
            return Ok(());
        }
        debug_assert!(data.is_empty() || has_data(parsed.kind), "data that no rule speaks of would not be signed");
        self.last += 1;
        let sequence = sequence_bytes(self.last);
        let mut parts: Vec<&[u8]> = vec![&sequence, header];
        let is_covered = !has_data(parsed.kind) || self.rules.cover_data();
        if is_covered {
            parts.push(payload);
            if has_data(parsed.kind) {
                parts.extend_from_slice(data);
            }
        }
        let signature = match &self.key {
            Some(key) => key
                .sign(&parts, &mut SystemNumbers::new())
                .map_err(|_| WireError::Unsendable { what: "signature", why: "the system gives no random numbers" })?,
            None => hash(&parts).to_vec(),
        };
        let sigver = Sigver {
            expect: parsed.kind,
            version: 0,
            flags: if is_covered { 0 } else { NO_DATA },
            sequence: self.last,
            crypto: SHA256,
            signature,
        };
        let request = output.split_off(start);
        Request::Sigver(sigver).encode(parsed.stream, output)?;
        output.extend_from_slice(&request);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use wire::request::{Stat, StatOptions, Target, Write};
    use wire::{FileHandle, PathArg, StreamId};

    use super::*;

    fn asked(level: u8, options: u8) -> SecurityRequirements {
        SecurityRequirements { level, options, ..SecurityRequirements::default() }
    }

    fn stat() -> Request {
        let target = Target::Path(PathArg::parse(b"/a").unwrap());
        Request::Stat(Stat { options: StatOptions::NONE, target })
    }

    fn write() -> Request {
        Request::Write(Write { handle: FileHandle([0, 0, 0, 7]), offset: 0, path_id: 0, len: 4 })
    }

    /// The signature in front of a request, and the request.
    fn signed(signer: &mut Signer, request: &Request, data: &[&[u8]]) -> (Option<Sigver>, Vec<u8>) {
        let mut output = b"before".to_vec();
        request.encode(StreamId([3, 4]), &mut output).unwrap();
        let bare = output[6..].to_vec();
        signer.sign(&mut output, 6, data).unwrap();
        assert_eq!(output[..6], *b"before");
        let signature = output[6..output.len() - bare.len()].to_vec();
        assert_eq!(output[output.len() - bare.len()..], bare);
        let Some((header, payload)) = signature.split_first_chunk::<REQUEST_HEADER_LEN>() else { return (None, bare) };
        let header = RequestHeader::parse(header);
        assert_eq!(header.stream, StreamId([3, 4]));
        let Request::Sigver(sigver) = Request::decode(&header, payload).unwrap() else { panic!("no signature") };
        (Some(sigver), bare)
    }

    #[test]
    fn what_the_server_asks_for_is_signed_with_rising_numbers() {
        assert!(Signer::new(&asked(4, 0), None).is_none(), "no key");
        assert!(Signer::new(&asked(0, FORCE), None).is_none(), "nothing to sign");
        // Without a key the signature is the hash, so that the test can see what it covers.
        let mut pedantic = Signer::new(&asked(4, FORCE), None).unwrap();
        let (first, bare) = signed(&mut pedantic, &stat(), &[]);
        let first = first.unwrap();
        assert_eq!((first.sequence, first.flags, first.crypto, first.version), (1, 0, SHA256, 0));
        assert_eq!(first.expect, wire::RequestKind::Stat);
        assert_eq!(first.signature, hash(&[&sequence_bytes(1), &bare]));
        let (second, bare) = signed(&mut pedantic, &write(), &[b"da", b"ta"]);
        let second = second.unwrap();
        assert_eq!((second.sequence, second.flags), (2, NO_DATA));
        assert_eq!(second.signature, hash(&[&sequence_bytes(2), &bare]));
        assert_eq!(signed(&mut pedantic, &Request::Ping, &[]).0, None);
        let mut standard = Signer::new(&asked(2, FORCE), None).unwrap();
        assert_eq!(signed(&mut standard, &stat(), &[]).0, None);
    }

    #[test]
    fn data_are_signed_where_the_server_asks_for_it() {
        let mut signer = Signer::new(&asked(3, FORCE | wire::signing::SIGN_DATA), None).unwrap();
        let (signature, bare) = signed(&mut signer, &write(), &[b"da", b"ta"]);
        let signature = signature.unwrap();
        assert_eq!(signature.flags, 0);
        assert_eq!(signature.signature, hash(&[&sequence_bytes(1), &bare, b"data"]));
    }
}
