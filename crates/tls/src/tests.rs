#![allow(clippy::unwrap_used)] // a test may fail this way

use std::fs;
use std::io::{self, IoSlice, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber,
};
use tempfile::TempDir;
use time::OffsetDateTime;
use types::Timestamp;

use crate::*;

fn pem(label: &str, der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

fn now() -> Timestamp {
    std::time::SystemTime::now().into()
}

/// An authority, and the directory in which clients and servers have their files.
struct Site {
    folder: TempDir,
    issuer: Issuer<'static, KeyPair>,
    serial: u64,
}

impl Site {
    fn new(name: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        fs::create_dir(folder.path().join("authorities")).unwrap();
        fs::write(folder.path().join("authorities/0a1b2c3d.0"), pem("CERTIFICATE", own.der())).unwrap();
        Self { folder, issuer: Issuer::new(params, key), serial: 0 }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// Makes a certificate for these hosts, which ends after `days`.
    fn issue(&mut self, hosts: &[&str], days: i64) -> CertificateFiles {
        self.serial += 1;
        let mut params =
            CertificateParams::new(hosts.iter().map(|host| (*host).to_owned()).collect::<Vec<_>>()).unwrap();
        params.serial_number = Some(SerialNumber::from(self.serial));
        params.not_before = OffsetDateTime::now_utc() - time::Duration::days(30);
        params.not_after = OffsetDateTime::now_utc() + time::Duration::days(days);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let files = CertificateFiles { certificate: self.path("server.pem"), key: self.path("server.key") };
        fs::write(&files.certificate, pem("CERTIFICATE", certificate.der())).unwrap();
        write_key(&files.key, &key);
        files
    }

    fn revoke(&self, serials: &[u64], file: &str) {
        let date = OffsetDateTime::now_utc() - time::Duration::days(1);
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: date,
            next_update: date + time::Duration::days(30),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).unwrap();
        fs::write(self.path("authorities").join(file), pem("X509 CRL", list.der())).unwrap();
    }

    fn trust(&self) -> Trust {
        Trust::load(&TrustSource::Directory(self.path("authorities"))).unwrap()
    }
}

fn write_key(path: &Path, key: &KeyPair) {
    fs::write(path, pem("PRIVATE KEY", &key.serialize_der())).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// Moves bytes between both sides until neither has anything to send.
fn shake_hands(one: &Channel, other: &Channel) -> Result<(), ChannelError> {
    let mut result = Ok(());
    for _ in 0..10 {
        for (from, to) in [(one, other), (other, one)] {
            let mut sent = Vec::new();
            from.seal(&[], &mut sent)?;
            let mut rest = &sent[..];
            if let Err(error) = to.open(&mut rest, &mut [0]) {
                result = result.and(Err(error));
            }
        }
    }
    result
}

fn connect(certificate: &ServerCertificate, trust: &Trust, host: &str) -> Result<(Channel, Channel), ChannelError> {
    let server = Channel::server(certificate.config(now())).unwrap();
    let client = Channel::client(trust.config(), host)?;
    shake_hands(&client, &server)?;
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok((client, server))
}

/// Takes all that `sealed` says, through a buffer of `size` bytes.
fn opened(channel: &Channel, sealed: &[u8], size: usize) -> Vec<u8> {
    let (mut all, mut rest, mut buffer) = (Vec::new(), sealed, vec![0; size]);
    loop {
        match channel.open(&mut rest, &mut buffer).unwrap() {
            Opened::Bytes(0) => return all,
            Opened::Bytes(count) => all.extend_from_slice(&buffer[..count]),
            Opened::Ended => panic!("it has not ended"),
        }
    }
}

#[test]
fn what_one_side_says_the_other_hears_in_any_pieces() {
    let mut site = Site::new("an authority");
    let certificate = ServerCertificate::load(site.issue(&["localhost", "127.0.0.1"], 90), now()).unwrap();
    let trust = site.trust();
    for host in ["localhost", "127.0.0.1"] {
        let (client, server) = connect(&certificate, &trust, host).unwrap();
        let data: Vec<u8> = (0..1_000_003_u32).map(|number| (number * 7 % 251) as u8).collect();
        for (from, to) in [(&client, &server), (&server, &client)] {
            let mut sealed = Vec::new();
            let (head, tail) = data.split_at(5);
            from.seal(&[IoSlice::new(head), IoSlice::new(&[]), IoSlice::new(tail)], &mut sealed).unwrap();
            assert!(!from.has_to_send());
            assert!(!sealed.windows(64).any(|part| part == &data[1000..1064]), "it is encrypted");
            // It arrives in pieces.
            let mut all = Vec::new();
            for (piece, size) in sealed.chunks(10_007).zip([1, 100, 70_000].into_iter().cycle()) {
                all.extend(opened(to, piece, size));
                assert!(!to.has_opened());
            }
            assert_eq!(all.len(), data.len());
            assert!(all == data);
        }
        // What has no room stays until somebody asks for it.
        let mut sealed = Vec::new();
        client.seal(&[IoSlice::new(b"0123456789")], &mut sealed).unwrap();
        let (mut rest, mut buffer) = (&sealed[..], [0; 4]);
        assert_eq!(server.open(&mut rest, &mut buffer).unwrap(), Opened::Bytes(4));
        assert!(rest.is_empty() && server.has_opened());
        assert_eq!(server.open(&mut rest, &mut buffer).unwrap(), Opened::Bytes(4));
        assert_eq!(server.open(&mut rest, &mut buffer).unwrap(), Opened::Bytes(2));
        assert!(!server.has_opened());
        let mut sealed = Vec::new();
        client.end(&mut sealed).unwrap();
        assert_eq!(server.open(&mut &sealed[..], &mut buffer).unwrap(), Opened::Ended);
    }
}

/// Takes so many bytes without waiting.
struct Room(usize, Vec<u8>);

impl Write for Room {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(self.0);
        if taken == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.0 -= taken;
        self.1.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn what_a_socket_does_not_take_at_once_comes_first_in_the_next_call() {
    let mut site = Site::new("an authority");
    let certificate = ServerCertificate::load(site.issue(&["localhost"], 90), now()).unwrap();
    let data: Vec<u8> = (0..100_003_u32).map(|number| (number * 7 % 251) as u8).collect();
    let (head, tail) = data.split_at(40_000);
    for room in [0, 1, 16_000, 35_000, 1_000_000] {
        let (client, server) = connect(&certificate, &site.trust(), "localhost").unwrap();
        let mut socket = Room(room, Vec::new());
        let all = server.seal_to(&[IoSlice::new(&head[..3]), IoSlice::new(&head[3..])], &mut socket).unwrap();
        assert_eq!(all, room > 40_000);
        assert_eq!(server.has_to_send(), !all);
        let mut sent = socket.1;
        assert!(all || sent.len() == room);
        if room == 1 {
            // Another write of the same kind goes on.
            let mut socket = Room(1_000_000, sent);
            assert!(server.seal_to(&[IoSlice::new(tail)], &mut socket).unwrap());
            sent = socket.1;
        } else {
            server.seal(&[IoSlice::new(tail)], &mut sent).unwrap();
        }
        assert!(!server.has_to_send());
        assert!(opened(&client, &sent, 70_000) == data, "with room for {room}");
    }
}

#[test]
fn a_client_goes_on_only_with_the_host_that_it_wanted() {
    let mut site = Site::new("an authority");
    let stranger = Site::new("an authority");
    let certificate = ServerCertificate::load(site.issue(&["disk1.example.org"], 90), now()).unwrap();
    let trust = site.trust();
    connect(&certificate, &trust, "disk1.example.org").unwrap();
    for (trust, host) in
        [(&trust, "disk2.example.org"), (&trust, "127.0.0.1"), (&stranger.trust(), "disk1.example.org")]
    {
        let error = connect(&certificate, trust, host).unwrap_err().to_string();
        assert!(error.contains("certificate"), "{host}: {error}");
    }
    let error = Channel::client(trust.config(), "no host").unwrap_err().to_string();
    assert!(error.contains("`no host` is neither"), "{error}");
    let certificate = ServerCertificate::load(site.issue(&["disk1.example.org"], -1), now()).unwrap();
    let error = connect(&certificate, &trust, "disk1.example.org").unwrap_err().to_string();
    assert!(error.contains("expired"), "{error}");
}

#[test]
fn a_revoked_certificate_is_refused() {
    let mut site = Site::new("an authority");
    let certificate = ServerCertificate::load(site.issue(&["localhost"], 90), now()).unwrap();
    site.revoke(&[7], "0a1b2c3d.r0");
    connect(&certificate, &site.trust(), "localhost").unwrap();
    site.revoke(&[1], "0a1b2c3d.r0");
    let error = connect(&certificate, &site.trust(), "localhost").unwrap_err().to_string();
    assert!(error.contains("Revoked"), "{error}");
    // One bad list changes nothing about the others.
    fs::write(site.path("authorities/ffffffff.r0"), "no list").unwrap();
    assert!(connect(&certificate, &site.trust(), "localhost").is_err());
    site.revoke(&[7], "0a1b2c3d.r0");
    connect(&certificate, &site.trust(), "localhost").unwrap();
}

/// A revocation list of version 1. Its signature is not right, and nobody checks it here.
const VERSION_1_LIST: &[u8] = &[
    0x30, 0x5c, 0x30, 0x43, 0x30, 0x0a, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02, 0x30, 0x17, 0x31,
    0x15, 0x30, 0x13, 0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, 0x0c, 0x61, 0x6e, 0x20, 0x61, 0x75, 0x74, 0x68, 0x6f, 0x72,
    0x69, 0x74, 0x79, 0x17, 0x0d, 0x32, 0x36, 0x30, 0x31, 0x30, 0x31, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x5a, 0x17,
    0x0d, 0x33, 0x36, 0x30, 0x31, 0x30, 0x31, 0x30, 0x30, 0x30, 0x30, 0x30, 0x30, 0x5a, 0x30, 0x0a, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02, 0x03, 0x09, 0x00, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01, 0x01,
];

/// The list has version 1: no extensions, and no version.
#[test]
fn an_authority_with_a_sound_list_of_another_kind_is_trusted() {
    let mut site = Site::new("an authority");
    let certificate = ServerCertificate::load(site.issue(&["localhost"], 90), now()).unwrap();
    fs::write(site.path("authorities/0a1b2c3d.r0"), VERSION_1_LIST).unwrap();
    assert!(webpki::OwnedCertRevocationList::from_der(VERSION_1_LIST).is_err());
    connect(&certificate, &site.trust(), "localhost").unwrap();
}

#[test]
fn an_authority_with_a_malformed_list_is_not_trusted() {
    let mut site = Site::new("an authority");
    let certificate = ServerCertificate::load(site.issue(&["localhost"], 90), now()).unwrap();
    connect(&certificate, &site.trust(), "localhost").unwrap();
    // Another one is trusted all the same: without any, there would be nothing to trust.
    let other = Site::new("another authority");
    let its = fs::read(other.path("authorities/0a1b2c3d.0")).unwrap();
    fs::write(site.path("authorities/11111111.0"), its).unwrap();
    for list in ["no list", ""] {
        fs::write(site.path("authorities/0a1b2c3d.r0"), list).unwrap();
        let error = connect(&certificate, &site.trust(), "localhost").unwrap_err().to_string();
        assert!(error.contains("UnknownIssuer"), "{error}");
    }
    fs::remove_file(site.path("authorities/0a1b2c3d.r0")).unwrap();
    connect(&certificate, &site.trust(), "localhost").unwrap();
}

#[test]
fn a_list_that_is_damaged_later_neither_lets_the_revoked_in_nor_shuts_everybody_out() {
    let mut site = Site::new("an authority");
    let good = ServerCertificate::load(site.issue(&["localhost"], 90), now()).unwrap();
    let revoked = ServerCertificate::load(site.issue(&["localhost"], 90), now()).unwrap();
    let path = site.path("authorities/0a1b2c3d.r0");
    // Whether it is the only authority or not.
    for with_another in [false, true] {
        if with_another {
            let other = Site::new("another authority");
            let its = fs::read(other.path("authorities/0a1b2c3d.0")).unwrap();
            fs::write(site.path("authorities/11111111.0"), its).unwrap();
        }
        site.revoke(&[2], "0a1b2c3d.r0");
        let whole = fs::read(&path).unwrap();
        let authorities = Authorities::new("tests", vec![TrustSource::Directory(site.path("authorities"))]);
        let at = |secs| authorities.get_at(Duration::from_secs(secs));
        let admitted =
            |certificate, secs| at(secs).is_ok_and(|trust| connect(certificate, &trust, "localhost").is_ok());
        assert!(admitted(&good, 0) && !admitted(&revoked, 0));
        fs::write(&path, &whole[..whole.len() / 2]).unwrap();
        for secs in [3600, 3610, 4199] {
            assert!(admitted(&good, secs) && !admitted(&revoked, secs), "{secs}");
            assert_eq!(authorities.unusable(), 1);
        }
        // Nobody knows what has been revoked since.
        assert!(!admitted(&good, 4210) && !admitted(&revoked, 4210));
        fs::write(&path, &whole).unwrap();
        assert!(!admitted(&good, 4219), "it is not read yet");
        assert!(admitted(&good, 4220) && !admitted(&revoked, 4220));
        assert_eq!(authorities.unusable(), 0);
    }
    fs::write(&path, "").unwrap();
    fs::remove_file(site.path("authorities/11111111.0")).unwrap();
    let authorities = Authorities::new("tests", vec![TrustSource::Directory(site.path("authorities"))]);
    let why = authorities.get().unwrap_err().to_string();
    assert!(why.contains("none of the authorities") && why.contains("0a1b2c3d.r0"), "{why}");
}

#[test]
fn hostile_bytes_end_the_connection() {
    let mut site = Site::new("an authority");
    let certificate = ServerCertificate::load(site.issue(&["localhost"], 90), now()).unwrap();
    let server = Channel::server(certificate.config(now())).unwrap();
    assert!(server.open(&mut &[7; 100][..], &mut []).is_err());
    let (client, server) = connect(&certificate, &site.trust(), "localhost").unwrap();
    let mut sealed = Vec::new();
    client.seal(&[IoSlice::new(&[1; 1000])], &mut sealed).unwrap();
    let last = sealed.len() - 1;
    sealed[last] ^= 1;
    let mut buffer = [0; 2000];
    assert!(server.open(&mut &sealed[..], &mut buffer).is_err());
    // It says why.
    assert!(server.has_to_send());
    // Half a handshake is no connection, and costs nothing more.
    let (client, server) = (
        Channel::client(site.trust().config(), "localhost").unwrap(),
        Channel::server(certificate.config(now())).unwrap(),
    );
    let mut hello = Vec::new();
    client.seal(&[], &mut hello).unwrap();
    assert_eq!(server.open(&mut &hello[..hello.len() / 2], &mut []).unwrap(), Opened::Bytes(0));
    assert!(server.is_handshaking() && !server.has_to_send());
}

#[test]
fn replaced_files_are_used_without_a_restart() {
    let mut site = Site::new("an authority");
    let begin = now();
    let after = |seconds: u64| begin.plus(Duration::from_secs(seconds));
    let certificate = ServerCertificate::load(site.issue(&["old.example.org"], 90), begin).unwrap();
    let shows = |host: &str, now: Timestamp| {
        let server = Channel::server(certificate.config(now)).unwrap();
        let client = Channel::client(site.trust().config(), host).unwrap();
        shake_hands(&client, &server).is_ok()
    };
    assert!(shows("old.example.org", begin));
    let ends = certificate.ends(begin);
    assert!((ends.secs() - begin.secs() - 90 * 86400).abs() < 100, "{ends}");
    let other = Site::new("another");
    // A certificate whose key has not come yet is not used.
    let (old_key, files) = (
        fs::read(site.path("server.key")).unwrap(),
        CertificateFiles { certificate: site.path("server.pem"), key: site.path("server.key") },
    );
    let mut site = site;
    site.issue(&["new.example.org"], 100);
    let new_key = fs::read(&files.key).unwrap();
    fs::write(&files.key, &old_key).unwrap();
    let shows = |host: &str, now: Timestamp| {
        let server = Channel::server(certificate.config(now)).unwrap();
        let client = Channel::client(site.trust().config(), host).unwrap();
        shake_hands(&client, &server).is_ok()
    };
    assert!(shows("old.example.org", after(20)) && !shows("new.example.org", after(20)));
    fs::write(&files.key, &new_key).unwrap();
    assert!(shows("old.example.org", after(21)), "the files are looked at again after some time only");
    assert!(shows("new.example.org", after(40)) && !shows("old.example.org", after(40)));
    assert!(certificate.ends(after(40)) > ends);
    // A clock that was set back does not stop this.
    fs::write(&files.key, "").unwrap();
    assert!(shows("new.example.org", begin));
    drop(other);
}

#[test]
fn files_that_cannot_be_used_are_refused_with_the_reason() {
    let mut site = Site::new("an authority");
    let files = site.issue(&["localhost"], 90);
    let refused = || ServerCertificate::load(files.clone(), now()).unwrap_err().to_string();
    fs::set_permissions(&files.key, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(refused().contains("mode 0640"), "{}", refused());
    write_key(&files.key, &KeyPair::generate().unwrap());
    assert!(refused().contains("cannot be used"), "{}", refused());
    fs::write(&files.key, "nothing").unwrap();
    assert!(refused().contains("has no key"), "{}", refused());
    fs::write(&files.certificate, "nothing").unwrap();
    assert!(refused().contains("has no certificate"), "{}", refused());
    fs::write(&files.certificate, pem("CERTIFICATE", b"nothing")).unwrap();
    assert!(refused().contains("X.509"), "{}", refused());
    fs::write(&files.certificate, vec![b'x'; 2 << 20]).unwrap();
    assert!(refused().contains("longer than"), "{}", refused());
    fs::remove_file(&files.certificate).unwrap();
    assert!(refused().contains("cannot read the certificate"), "{}", refused());
    let trusted = |source| Trust::load(&source).unwrap_err().to_string();
    assert!(trusted(TrustSource::Directory(site.path("none"))).contains("cannot read"));
    assert!(trusted(TrustSource::File(files.key.clone())).contains("no certificate of an authority"));
    fs::create_dir(site.path("empty")).unwrap();
    assert!(trusted(TrustSource::Directory(site.path("empty"))).contains("no certificate of an authority"));
}

#[test]
fn both_versions_of_tls_work_and_older_ones_do_not() {
    let mut site = Site::new("an authority");
    let certificate = ServerCertificate::load(site.issue(&["localhost"], 90), now()).unwrap();
    let mut config = (*site.trust().config()).clone();
    // A client of an earlier version.
    config = {
        let file = fs::read(site.path("authorities/0a1b2c3d.0")).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        use rustls::pki_types::pem::PemObject as _;
        roots.add(rustls::pki_types::CertificateDer::from_pem_slice(&file).unwrap()).unwrap();
        let _ = config;
        rustls::ClientConfig::builder_with_provider(super::provider())
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    };
    let server = Channel::server(certificate.config(now())).unwrap();
    let client = Channel::client(Arc::new(config), "localhost").unwrap();
    shake_hands(&client, &server).unwrap();
    assert!(!server.is_handshaking());
}
