//! What a proxy says about itself: the extension `proxyCertInfo` (RFC 3820, section 3.8).

use x509_parser::prelude::X509Certificate;

use crate::HandshakeError;
use crate::der::{OID, der, integer, sequence};
use crate::proxy_key::critical;

/// `keyUsage`, 2.5.29.15.
const KEY_USAGE: &[u8] = &[0x55, 0x1d, 15];

/// What a certificate says about proxies below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProxyInfo {
    /// How many proxies may be below it.
    pub(crate) path_length: Option<u32>,
    /// What it signs is limited, too.
    pub(crate) is_limited: bool,
}

/// Reads it from a certificate. The certificate of a user has no such extension, and limits nothing.
pub(crate) fn read(certificate: &X509Certificate<'_>) -> Result<ProxyInfo, HandshakeError> {
    let mut extensions = certificate.extensions().iter();
    let Some(extension) = extensions.find(|extension| extension.oid.as_bytes() == grid::ProxyInfo::EXTENSION) else {
        return Ok(ProxyInfo { path_length: None, is_limited: false });
    };
    parse(extension.value, extension.critical)
}

fn parse(value: &[u8], is_critical: bool) -> Result<ProxyInfo, HandshakeError> {
    let why = |problem| {
        HandshakeError::CannotDelegate(match problem {
            grid::ProxyInfoProblem::NotCritical => {
                "the proxyCertInfo of its proxy is not critical, as RFC 3820 wants it"
            }
            grid::ProxyInfoProblem::Malformed => "the proxyCertInfo of its proxy is malformed",
        })
    };
    grid::ProxyInfo::parse(value, is_critical).map(|info| ProxyInfo::of(&info)).map_err(why)
}

impl ProxyInfo {
    /// An unknown policy gives no more rights than a limited proxy has.
    fn of(info: &grid::ProxyInfo) -> Self {
        Self { path_length: info.path_length, is_limited: !info.has_all_rights() }
    }

    /// What a proxy of it says: never more than it.
    pub(crate) fn below(self) -> Self {
        Self { path_length: self.path_length.map(|length| length.saturating_sub(1)), ..self }
    }

    /// The extension, which is critical.
    pub(crate) fn extension(self) -> Vec<u8> {
        let language = if self.is_limited { grid::ProxyInfo::LIMITED } else { grid::ProxyInfo::INHERIT_ALL };
        let length = self.path_length.map(|length| integer(&length.to_be_bytes())).unwrap_or_default();
        critical(grid::ProxyInfo::EXTENSION, &sequence(&[length, sequence(&[der(OID, language)])]))
    }
}

/// `keyUsage` of a proxy: `digitalSignature` and `keyEncipherment`.
pub(crate) fn key_usage() -> Vec<u8> {
    critical(KEY_USAGE, &[3, 2, 5, 0xa0])
}

#[cfg(test)]
mod tests {
    use x509_parser::asn1_rs::{Any, FromDer as _};

    use super::*;

    fn parse(value: &[u8]) -> Option<ProxyInfo> {
        super::parse(value, true).ok()
    }

    #[test]
    fn what_is_written_is_read_again() {
        for path_length in [None, Some(0), Some(1), Some(127), Some(128), Some(70_000)] {
            for is_limited in [false, true] {
                let info = ProxyInfo { path_length, is_limited };
                let extension = info.extension();
                // The value is behind the identifier and the mark that it is critical.
                let (_, extension) = Any::from_der(&extension).unwrap();
                let (rest, _) = Any::from_der(extension.data).unwrap();
                let (rest, _) = Any::from_der(rest).unwrap();
                let (_, value) = Any::from_der(rest).unwrap();
                assert_eq!(parse(value.data), Some(info));
            }
        }
        assert_eq!(ProxyInfo { path_length: Some(2), is_limited: true }.below().path_length, Some(1));
    }

    #[test]
    fn what_is_not_critical_is_called_so() {
        let good = [0x30, 6, 0x30, 4, 6, 2, 0x2b, 6];
        let why = |value: &[u8], is_critical| super::parse(value, is_critical).unwrap_err().to_string();
        assert!(why(&good, false).contains("is not critical"), "{}", why(&good, false));
        assert!(why(&good[..7], true).contains("is malformed"), "{}", why(&good[..7], true));
    }

    #[test]
    fn garbage_is_no_information() {
        let negative = [0x30, 9, 2, 1, 0x80, 0x30, 4, 6, 2, 0x2b, 6];
        for wrong in [&[][..], &[0x30, 0], &[0x30, 2, 0x30, 0], &negative, &[0x30, 3, 2, 1, 0]] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(parse(&[0x30, 6, 0x30, 4, 6, 2, 0x2b, 6]), Some(ProxyInfo { path_length: None, is_limited: true }));
    }
}
