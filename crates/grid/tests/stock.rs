//! Files that other programs have made: OpenSSL, VOMS, and the Grid Community Toolkit.

use grid::{
    GridError, PemError, Problem, Trust, TrustMaterial, UserCredential, VomsServer, certificates_from_pem, verify_user,
};
use types::Timestamp;

use crate::site::file;

/// 20:00 UTC on the day on which the files were made.
const MADE: Timestamp = Timestamp(1_795_982_400_000_000_000);
const CA: &[u8] = include_bytes!("stock/ca.pem");
const PROXY: &[u8] = include_bytes!("stock/proxy.pem");
const LIMITED: &[u8] = include_bytes!("stock/limited.pem");
const REVOKED: &[u8] = include_bytes!("stock/revoked.pem");

/// What is in the one section of a PEM text.
fn der(pem: &str) -> Vec<u8> {
    use base64::Engine as _;
    let text: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

fn trust() -> Trust {
    let server = VomsServer {
        vo: "wlcg".into(),
        host: "voms.example.org".into(),
        text: "/DC=org/O=Test/CN=voms.example.org\n/DC=org/O=Test/CN=Test CA\n".into(),
    };
    let trust = Trust::new(&TrustMaterial {
        authorities: vec![file("ca", &certificates_from_pem(CA).unwrap()[0])],
        revocation_lists: vec![file("ca", &der(include_str!("stock/crl.pem")))],
        voms_servers: vec![server],
        ..TrustMaterial::default()
    });
    assert_eq!(trust.problems(), [""; 0]);
    trust
}

#[test]
fn proxies_with_attributes_of_voms_are_verified() {
    let user = verify_user(&certificates_from_pem(PROXY).unwrap(), &trust(), MADE).unwrap();
    assert_eq!(user.subject.as_str(), "/DC=org/O=Test/CN=Ana Lee");
    assert_eq!(user.fqans.iter().map(ToString::to_string).collect::<Vec<_>>(), ["/wlcg/Role=test", "/wlcg"]);
    assert_eq!((user.limited, user.refused_attributes), (false, vec![]));
}

#[test]
fn limited_proxies_of_globus_are_verified() {
    let user = verify_user(&certificates_from_pem(LIMITED).unwrap(), &trust(), MADE).unwrap();
    assert_eq!(user.subject.as_str(), "/DC=org/O=Test/CN=Ana Lee");
    assert!(user.limited);
}

#[test]
fn lists_of_openssl_revoke() {
    let refused = verify_user(&certificates_from_pem(REVOKED).unwrap(), &trust(), MADE);
    assert!(matches!(refused, Err(GridError::Certificate { why: Problem::Revoked, .. })), "{refused:?}");
}

#[test]
fn texts_without_what_is_needed_are_refused() {
    assert_eq!(certificates_from_pem(b"x"), Err(PemError::NoCertificate));
    assert_eq!(UserCredential::from_pem(PROXY).unwrap_err(), PemError::NoKey);
    let many = CA.repeat(17);
    assert_eq!(certificates_from_pem(&many), Err(PemError::TooMany));
    assert!(certificates_from_pem(&CA.repeat(16)).is_ok());
    let long = vec![b'x'; grid::PEM_BYTES_MAX + 1];
    assert_eq!(certificates_from_pem(&long), Err(PemError::TooLong(long.len())));
    for (label, head) in [("ENCRYPTED PRIVATE KEY", ""), ("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\n")] {
        let key = format!("-----BEGIN {label}-----\n{head}\nAAAA\n-----END {label}-----\n");
        let text = [CA, key.as_bytes()].concat();
        assert_eq!(UserCredential::from_pem(&text).unwrap_err(), PemError::EncryptedKey);
    }
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert_eq!(UserCredential::from_files(CA, key.as_bytes()).unwrap_err(), PemError::Key);
    assert_eq!(certificates_from_pem(b"-----BEGIN CERTIFICATE-----\nAA"), Err(PemError::Form));
    assert_eq!(
        certificates_from_pem(b"-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n"),
        Err(PemError::Form)
    );
}
