//! VOMS attributes.

use grid::{Trust, TrustMaterial, VomsProblem, VomsServer};

use crate::der::*;
use crate::site::*;

const ATTRIBUTES: &str = "1.3.6.1.4.1.8005.100.100.5";

/// A site that trusts the VOMS server of the organization `wlcg`.
struct Site {
    root: Holder,
    server: Holder,
    ana: Holder,
    material: TrustMaterial,
}

fn site() -> Site {
    let root = Holder::authority("/O=Root");
    let server = root.user("/O=x/CN=voms.example.org");
    let ana = root.issue("/O=x/CN=ana", |plan| plan.serial = vec![42]);
    let mut material = material(&[&root]);
    material.voms_servers = vec![lsc("wlcg", "voms.example.org", "/O=x/CN=voms.example.org\n/O=Root\n")];
    material.own_hosts = vec!["se.example.org".into()];
    Site { root, server, ana, material }
}

fn lsc(vo: &str, host: &str, text: &str) -> VomsServer {
    VomsServer { vo: vo.into(), host: host.into(), text: text.into() }
}

/// An attribute certificate to be made.
struct Attributes {
    version: u64,
    holder: Vec<u8>,
    issuer: Vec<u8>,
    inner_algorithm: String,
    outer_algorithm: String,
    times: (i64, i64),
    authority: String,
    fqans: Vec<String>,
    extensions: Vec<Vec<u8>>,
    certificates: Vec<Vec<u8>>,
}

fn issuer_serial(name: &[u8], serial: &[u8]) -> Vec<u8> {
    sequence(&[element(0xa0, &[sequence(&[element(0xa4, name)]), element(2, serial)].concat())])
}

impl Attributes {
    fn sign(&self, key: &Key) -> Vec<u8> {
        let fqans: Vec<_> = self.fqans.iter().map(|fqan| octets(fqan.as_bytes())).collect();
        let authority = element(0xa0, &element(0x86, self.authority.as_bytes()));
        let attribute =
            sequence(&[oid("1.3.6.1.4.1.8005.100.100.4"), set(&[sequence(&[authority, sequence(&fqans)])])]);
        let mut extensions = self.extensions.clone();
        if !self.certificates.is_empty() {
            let list = sequence(&[sequence(&self.certificates)]);
            extensions.push(extension("1.3.6.1.4.1.8005.100.100.10", false, &list));
        }
        let signed = sequence(&[
            integer(self.version),
            self.holder.clone(),
            element(0xa0, &sequence(&[element(0xa4, &self.issuer)])),
            sequence(&[oid(&self.inner_algorithm)]),
            integer(1),
            sequence(&[time(self.times.0), time(self.times.1)]),
            sequence(&[attribute]),
            sequence(&extensions),
        ]);
        sequence(&[signed.clone(), sequence(&[oid(&self.outer_algorithm)]), bits(&key.sign(&signed))])
    }
}

impl Site {
    fn attributes(&self) -> Attributes {
        Attributes {
            version: 1,
            holder: issuer_serial(&self.root.subject, &[42]),
            issuer: self.server.subject.clone(),
            inner_algorithm: SIGNED_WITH.into(),
            outer_algorithm: SIGNED_WITH.into(),
            times: (NOW - 60, NOW + 3600),
            authority: "wlcg://voms.example.org:15000".into(),
            fqans: vec!["/wlcg/Role=test".into(), "/wlcg/Role=NULL/Capability=NULL".into()],
            extensions: vec![
                extension("2.5.29.56", false, &element(5, &[])),
                extension("2.5.29.35", false, &sequence(&[element(0x80, &[7; 20])])),
            ],
            certificates: vec![self.server.der.clone()],
        }
    }

    fn trust(&self) -> Trust {
        Trust::new(&self.material)
    }

    fn proxy(&self, certificates: &[Vec<u8>]) -> Holder {
        self.ana.proxy_with(|plan| {
            plan.extensions.push(extension(ATTRIBUTES, false, &sequence(&[sequence(certificates)])));
        })
    }

    /// The attributes that count, and why others do not.
    fn verify(&self, certificates: &[Vec<u8>]) -> (Vec<String>, Vec<VomsProblem>) {
        let user = verify(&[&self.proxy(certificates), &self.ana], &self.trust()).unwrap();
        assert_eq!(user.subject.as_str(), "/O=x/CN=ana", "the user is known with attributes and without");
        (
            user.fqans.iter().map(ToString::to_string).collect(),
            user.refused_attributes.into_iter().map(|e| e.why).collect(),
        )
    }

    /// The reason for which attributes with this change do not count.
    fn refused(&self, change: impl FnOnce(&mut Attributes)) -> VomsProblem {
        let mut attributes = self.attributes();
        change(&mut attributes);
        let (fqans, mut why) = self.verify(&[attributes.sign(&self.server.key)]);
        assert_eq!((fqans.len(), why.len()), (0, 1), "{fqans:?} {why:?}");
        why.remove(0)
    }
}

#[test]
fn attributes_of_a_known_server_count_in_their_order() {
    let site = site();
    let mut attributes = site.attributes();
    let both = ["/wlcg/Role=test", "/wlcg"];
    assert_eq!(site.verify(&[attributes.sign(&site.server.key)]), (both.map(String::from).to_vec(), vec![]));
    let user = verify(&[&site.proxy(&[attributes.sign(&site.server.key)]), &site.ana], &site.trust()).unwrap();
    assert_eq!(user.not_after.secs(), NOW + 3600, "they end before the proxy does");
    // Some programs write the holder's own name.
    attributes.holder = issuer_serial(&site.ana.subject, &[42]);
    attributes.fqans.reverse();
    let (fqans, _) = site.verify(&[attributes.sign(&site.server.key)]);
    assert_eq!(fqans, ["/wlcg", "/wlcg/Role=test"]);
}

#[test]
fn the_nearest_attributes_count() {
    let site = site();
    let first = site.proxy(&[site.attributes().sign(&site.server.key)]);
    let plain = first.proxy();
    let user = verify(&[&plain, &first, &site.ana], &site.trust()).unwrap();
    assert_eq!(user.fqans.len(), 2);
    let mut other = site.attributes();
    other.fqans = vec!["/wlcg/us".into()];
    let list = sequence(&[sequence(&[other.sign(&site.server.key)])]);
    let second = first.proxy_with(|plan| plan.extensions.push(extension(ATTRIBUTES, false, &list)));
    let user = verify(&[&second, &first, &site.ana], &site.trust()).unwrap();
    assert_eq!(user.fqans.iter().map(ToString::to_string).collect::<Vec<_>>(), ["/wlcg/us"]);
}

#[test]
fn attributes_of_several_organizations_are_judged_one_by_one() {
    let mut site = site();
    site.material.voms_servers.push(lsc("cms", "voms.example.org", "/O=x/CN=voms.example.org\n/O=Root\n"));
    let with = |authority: &str, fqan: &str| {
        let mut attributes = site.attributes();
        attributes.authority = authority.into();
        attributes.fqans = vec![fqan.into()];
        attributes.sign(&site.server.key)
    };
    let all = [
        with("wlcg://voms.example.org:1", "/wlcg"),
        with("atlas://voms.example.org:1", "/atlas"),
        with("cms://voms.example.org:1", "/cms/Role=x"),
        with("wlcg://voms.example.org:1", "/wlcg"),
    ];
    let (fqans, why) = site.verify(&all);
    assert_eq!(fqans, ["/wlcg", "/cms/Role=x"]);
    assert_eq!(why, [VomsProblem::UnknownServer("atlas/voms.example.org.lsc".into())]);
}

#[test]
fn attributes_for_another_user_do_not_count() {
    let site = site();
    let holder = |holder: Vec<u8>| site.refused(|attributes| attributes.holder = holder);
    assert_eq!(holder(issuer_serial(&site.root.subject, &[43])), VomsProblem::Holder);
    assert_eq!(holder(issuer_serial(&name("/O=Other"), &[42])), VomsProblem::Holder);
    assert_eq!(holder(issuer_serial(&name("/O=x/CN=bob"), &[42])), VomsProblem::Holder);
    // Bound to something else than a certificate.
    assert_eq!(holder(sequence(&[element(0xa1, &sequence(&[element(0xa4, &site.ana.subject)]))])), VomsProblem::Holder);
    assert_eq!(holder(sequence(&[])), VomsProblem::Holder);
    let mut two = issuer_serial(&site.root.subject, &[42]);
    two = sequence(&[two[2..].to_vec(), element(0xa1, &sequence(&[element(0xa4, &site.ana.subject)]))]);
    assert_eq!(holder(two), VomsProblem::Holder);
    let with_id =
        element(0xa0, &[sequence(&[element(0xa4, &site.root.subject)]), element(2, &[42]), bits(b"x")].concat());
    assert_eq!(holder(sequence(&[with_id])), VomsProblem::Holder);
    // Bob uses what was given to Ana.
    let bob = site.root.issue("/O=x/CN=bob", |plan| plan.serial = vec![44]);
    let list = sequence(&[sequence(&[site.attributes().sign(&site.server.key)])]);
    let proxy = bob.proxy_with(|plan| plan.extensions.push(extension(ATTRIBUTES, false, &list)));
    let user = verify(&[&proxy, &bob], &site.trust()).unwrap();
    assert!(user.fqans.is_empty());
    assert_eq!(user.refused_attributes[0].why, VomsProblem::Holder);
    assert_eq!(user.refused_attributes[0].organization, "wlcg");
}

#[test]
fn attributes_signed_by_a_stranger_do_not_count() {
    let site = site();
    // With the names of the server, but another authority.
    let stranger = Holder::authority("/O=Root");
    let impostor = stranger.user("/O=x/CN=voms.example.org");
    let mut attributes = site.attributes();
    attributes.certificates = vec![impostor.der.clone()];
    let (fqans, why) = site.verify(&[attributes.sign(&impostor.key)]);
    assert!(fqans.is_empty() && matches!(why[..], [VomsProblem::Signer(_)]), "{why:?}");
    // With the server's certificate, but another key.
    let (fqans, why) = site.verify(&[site.attributes().sign(&impostor.key)]);
    assert!(fqans.is_empty() && matches!(why[..], [VomsProblem::Signature(_)]), "{why:?}");
    // By somebody whom the same authority has given a certificate, such as the user.
    let mut attributes = site.attributes();
    attributes.certificates = vec![site.ana.der.clone()];
    attributes.issuer.clone_from(&site.ana.subject);
    let (fqans, why) = site.verify(&[attributes.sign(&site.ana.key)]);
    assert!(fqans.is_empty() && matches!(why[..], [VomsProblem::OtherSigner { .. }]), "{why:?}");
    // By the server, in the name of another.
    assert_eq!(site.refused(|attributes| attributes.issuer = name("/O=x/CN=other")), VomsProblem::Issuer);
    assert_eq!(site.refused(|attributes| attributes.certificates.clear()), VomsProblem::NoSigner);
}

#[test]
fn the_certificate_of_the_signer_must_be_good() {
    let with = |change: &dyn Fn(&mut Plan)| {
        let mut site = site();
        site.server = site.root.issue("/O=x/CN=voms.example.org", change);
        site.refused(|_| ())
    };
    assert!(matches!(with(&|plan| plan.times.1 = NOW), VomsProblem::Signer(_)));
    assert_eq!(with(&|plan| plan.extensions = vec![key_usage(0x20)]), VomsProblem::SignerMustNotSign);
    let mut site = site();
    site.material.revocation_lists = vec![file("list", &List::of(&[&[1, 2, 3]]).sign(&site.root))];
    assert!(matches!(site.refused(|_| ()), VomsProblem::Signer(_)), "revoked");
}

#[test]
fn files_of_servers_name_the_whole_chain() {
    let mut site = site();
    let middle = site.root.below("/O=Middle");
    site.server = middle.user("/O=x/CN=voms.example.org");
    let mut verify = |text: &str| {
        site.material.voms_servers = vec![lsc("wlcg", "VOMS.example.org", text)];
        let mut attributes = site.attributes();
        attributes.certificates.push(middle.der.clone());
        let (fqans, why) = site.verify(&[attributes.sign(&site.server.key)]);
        assert_eq!(fqans.is_empty(), matches!(why[..], [VomsProblem::OtherSigner { .. }]), "{why:?}");
        !fqans.is_empty()
    };
    assert!(verify("/O=x/CN=voms.example.org\n/O=Middle\n"));
    assert!(verify("/O=x/CN=voms.example.org\n/O=Middle\n/O=Root\n"));
    assert!(verify("/O=y\n/O=z\n---\n/O=x/CN=voms.example.org\n/O=Middle\n"));
    assert!(!verify("/O=x/CN=voms.example.org\n/O=Root\n"));
    assert!(!verify("/O=x/CN=voms.example.org\n/O=Middle\n/O=Other\n"));
    assert!(!verify("/O=x/CN=voms.example.org\n"), "without its issuer");
    assert!(!verify(""));
}

/// The signer sends further certificates than those that have issued its own.
#[test]
fn files_of_servers_are_about_the_authorities_that_were_verified() {
    let mut site = site();
    let (middle, other) = (site.root.below("/O=Middle"), site.root.below("/O=Other"));
    site.server = middle.user("/O=x/CN=voms.example.org");
    let mut verify = |text: &str| {
        site.material.voms_servers = vec![lsc("wlcg", "voms.example.org", text)];
        let mut attributes = site.attributes();
        // The issuer of the second one is not in the path.
        attributes.certificates.extend([other.user("/CN=x").der, middle.der.clone()]);
        site.verify(&[attributes.sign(&site.server.key)]).0.len()
    };
    assert_ne!(verify("/O=x/CN=voms.example.org\n/O=Middle\n/O=Root\n"), 0);
    assert_eq!(verify("/O=x/CN=voms.example.org\n/O=Middle\n/O=Other\n"), 0);
}

#[test]
fn attributes_count_between_their_times() {
    let site = site();
    let times = |times| site.refused(|attributes| attributes.times = times);
    assert_eq!(times((NOW - 9, NOW)), VomsProblem::Expired { ended: NOW, now: NOW });
    assert_eq!(times((NOW + 61, NOW + 99)), VomsProblem::NotYetValid { from: NOW + 61, now: NOW });
    let mut attributes = site.attributes();
    attributes.times = (NOW + 60, NOW + 99);
    assert_eq!(site.verify(&[attributes.sign(&site.server.key)]).1, []);
}

#[test]
fn attributes_are_of_the_organization_that_gives_them() {
    let site = site();
    let fqan = |fqan: &str| site.refused(|attributes| attributes.fqans = vec!["/wlcg".into(), fqan.into()]);
    assert_eq!(fqan("/atlas/Role=production"), VomsProblem::OtherOrganization("/atlas/Role=production".into()));
    assert_eq!(fqan("/wlcgx"), VomsProblem::OtherOrganization("/wlcgx".into()));
    assert!(matches!(fqan("wlcg"), VomsProblem::Attribute(_)));
    let many = site.refused(|attributes| attributes.fqans = vec!["/wlcg".into(); 257]);
    assert_eq!(many, VomsProblem::TooManyAttributes);
    let server = site.refused(|attributes| attributes.authority = "wlcg://other.example.org:1".into());
    assert_eq!(server, VomsProblem::UnknownServer("wlcg/other.example.org.lsc".into()));
}

#[test]
fn the_form_of_attribute_certificates_is_checked() {
    let site = site();
    assert_eq!(site.refused(|attributes| attributes.version = 0), VomsProblem::Version);
    assert_eq!(
        site.refused(|attributes| attributes.extensions.truncate(1)),
        VomsProblem::MissingExtension("authorityKeyIdentifier")
    );
    let without = site.refused(|attributes| drop(attributes.extensions.remove(0)));
    assert_eq!(without, VomsProblem::MissingExtension("noRevAvail"));
    let twice = site.refused(|attributes| attributes.extensions.push(attributes.extensions[0].clone()));
    assert_eq!(twice, VomsProblem::Malformed);
    let critical = site.refused(|attributes| attributes.extensions.push(extension("1.2.3", true, b"x")));
    assert_eq!(critical, VomsProblem::Critical("1.2.3".into()));
    let two = site.refused(|attributes| attributes.outer_algorithm = "1.2.840.10045.4.3.3".into());
    assert!(matches!(two, VomsProblem::Signature(_)));
    let broken = site.refused(|attributes| {
        attributes.inner_algorithm = "1.2.840.10045.4.1".into();
        attributes.outer_algorithm = attributes.inner_algorithm.clone();
    });
    assert_eq!(broken, VomsProblem::Signature("it is signed with SHA-1, which is broken".into()));
    assert_eq!(site.refused(|attributes| attributes.authority = "wlcg".into()), VomsProblem::Malformed);
    let proxy = site.ana.proxy_with(|plan| plan.extensions.push(extension(ATTRIBUTES, false, b"x")));
    let user = verify(&[&proxy, &site.ana], &site.trust()).unwrap();
    assert_eq!(user.refused_attributes[0].why, VomsProblem::Malformed);
    let good = site.attributes().sign(&site.server.key);
    assert_eq!(site.verify(&vec![good.clone(); 17]), (vec![], vec![VomsProblem::TooManyCertificates]));
    for position in 0..good.len() {
        let mut altered = good.clone();
        altered[position] ^= 1;
        let (fqans, why) = site.verify(&[altered]);
        assert_eq!((fqans.len(), why.len()), (0, 1), "byte {position}");
    }
}

#[test]
fn attributes_for_some_services_count_there_alone() {
    let site = site();
    let target = |value: Vec<u8>| extension("2.5.29.55", true, &value);
    let uri = |host: &str| element(0xa0, &element(0x86, host.as_bytes()));
    let verify = |value: Vec<u8>| {
        let mut attributes = site.attributes();
        attributes.extensions.push(target(value));
        site.verify(&[attributes.sign(&site.server.key)]).1
    };
    assert_eq!(verify(sequence(&[sequence(&[uri("other.org"), uri("SE.example.org")])])), []);
    assert_eq!(verify(sequence(&[uri("se.example.org")])), [], "as VOMS writes it");
    assert_eq!(verify(sequence(&[sequence(&[uri("other.org")])])), [VomsProblem::Target]);
    assert_eq!(verify(sequence(&[])), [VomsProblem::Target]);
}
