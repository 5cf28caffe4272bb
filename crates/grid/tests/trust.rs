//! What authorities may issue, and what they have revoked.

use grid::{Problem, Trust};

use crate::der::*;
use crate::site::*;

fn with_lists(authorities: &[&Holder], lists: &[Vec<u8>]) -> Trust {
    let mut material = material(authorities);
    material.revocation_lists = lists.iter().map(|list| file("list", list)).collect();
    Trust::new(&material)
}

fn numbered(root: &Holder, serial: &[u8]) -> Holder {
    root.issue("/CN=ana", |plan| plan.serial = serial.to_vec())
}

#[test]
fn revoked_certificates_are_refused() {
    let root = Holder::authority("/O=Root");
    let trust = with_lists(&[&root], &[List::of(&[&[9], &[1, 2], &[0, 0x80]]).sign(&root)]);
    assert_eq!(trust.problems(), [""; 0]);
    for revoked in [&[9][..], &[1, 2], &[0, 0x80]] {
        assert_eq!(problem(&[&numbered(&root, revoked)], &trust), Problem::Revoked, "{revoked:?}");
    }
    for other in [&[8][..], &[1, 2, 0], &[2]] {
        verify(&[&numbered(&root, other)], &trust).unwrap();
    }
    // A proxy is what its user is.
    let ana = numbered(&root, &[9]);
    assert_eq!(problem(&[&ana.proxy(), &ana], &trust), Problem::Revoked);
    // The number of a proxy is not one of the authority's.
    let bob = numbered(&root, &[8]);
    verify(&[&bob.proxy_with(|plan| plan.serial = vec![9]), &bob], &trust).unwrap();
}

#[test]
fn revoked_authorities_are_refused() {
    let root = Holder::authority("/O=Root");
    let middle = root.issue("/O=Middle", |plan| {
        plan.serial = vec![7];
        plan.extensions = vec![basic_constraints(true, None)];
    });
    let ana = middle.user("/CN=ana");
    let list = List::of(&[&[7]]).sign(&root);
    assert_eq!(problem(&[&ana, &middle], &with_lists(&[&root], std::slice::from_ref(&list))), Problem::Revoked);
    // That the directory has it does not make it a trusted one.
    assert_eq!(problem(&[&ana], &with_lists(&[&root, &middle], &[list])), Problem::Revoked);
}

#[test]
fn lists_of_authorities_that_only_the_chain_has_count_too() {
    let root = Holder::authority("/O=Root");
    let middle = root.below("/O=Middle");
    let trust = with_lists(&[&root], &[List::of(&[&[9]]).sign(&middle)]);
    assert_eq!(problem(&[&numbered(&middle, &[9]), &middle], &trust), Problem::Revoked);
    verify(&[&numbered(&middle, &[8]), &middle], &trust).unwrap();
}

#[test]
fn the_newest_list_counts_even_when_it_has_ended() {
    let root = Holder::authority("/O=Root");
    let list = |revoked: &[u8], times| {
        let mut list = List::of(&[revoked]);
        list.times = times;
        list.sign(&root)
    };
    let old = list(&[1], (NOW - 9 * DAY, NOW - 5 * DAY));
    let new = list(&[2], (NOW - 6 * DAY, NOW - 2 * DAY));
    for lists in [[old.clone(), new.clone()], [new, old]] {
        let trust = with_lists(&[&root], &lists);
        assert_eq!(problem(&[&numbered(&root, &[2])], &trust), Problem::Revoked);
        verify(&[&numbered(&root, &[1])], &trust).unwrap();
    }
}

#[test]
fn an_authority_whose_list_cannot_be_used_is_not_believed() {
    let root = Holder::authority("/O=Root");
    let impostor = Holder::authority("/O=Root");
    let refused = |list: Vec<u8>| {
        let trust = with_lists(&[&root], &[list]);
        assert_eq!(trust.problems().len(), 1);
        matches!(problem(&[&root.user("/CN=ana")], &trust), Problem::UnusableRevocationList(_))
    };
    let changed = |change: &dyn Fn(&mut List)| {
        let mut list = List::of(&[&[9]]);
        change(&mut list);
        list.sign(&root)
    };
    assert!(refused(List::of(&[]).sign(&impostor)), "signed by another");
    assert!(refused(changed(&|list| list.algorithm = "1.2.840.10045.4.1".into())), "SHA-1");
    assert!(refused(changed(&|list| list.extensions.push(extension("1.2.3", true, b"x")))));
    assert!(refused(changed(&|list| list.entry_extensions.push(extension("2.5.29.29", true, b"x")))), "indirect");
    assert!(refused(changed(&|list| list.extensions.push(extension("2.5.29.27", true, &integer(1))))), "a delta");
    let indirect = sequence(&[element(0x84, &[0xff])]);
    assert!(refused(changed(&|list| list.extensions.push(extension("2.5.29.28", true, &indirect)))));
    // Another list that can be used is enough.
    let trust = with_lists(&[&root], &[List::of(&[]).sign(&impostor), List::of(&[&[9]]).sign(&root)]);
    verify(&[&root.user("/CN=ana")], &trust).unwrap();
    assert_eq!(problem(&[&numbered(&root, &[9])], &trust), Problem::Revoked);
    let mut newer = List::of(&[]);
    newer.times.0 = NOW;
    newer.extensions.push(extension("1.2.3", true, b"x"));
    let trust = with_lists(&[&root], &[List::of(&[&[9]]).sign(&root), newer.sign(&root)]);
    verify(&[&root.user("/CN=ana")], &trust).unwrap();
    assert_eq!(problem(&[&numbered(&root, &[9])], &trust), Problem::Revoked);
    // Nobody is hurt by the list of a stranger, or by one that is no list and has the name of no authority.
    let trust = with_lists(&[&root], &[List::of(&[&[1, 2, 3]]).sign(&Holder::authority("/O=Other")), b"x".to_vec()]);
    assert_eq!(trust.problems().len(), 1);
    verify(&[&root.user("/CN=ana")], &trust).unwrap();
    // A certificate that must not sign lists.
    let root =
        Holder::self_signed("/O=Root", |plan| plan.extensions = vec![basic_constraints(true, None), key_usage(4)]);
    let trust = with_lists(&[&root], &[List::of(&[]).sign(&root)]);
    assert!(matches!(problem(&[&root.user("/CN=ana")], &trust), Problem::UnusableRevocationList(_)));
}

/// Only the name of such a file says whose list it was.
#[test]
fn an_authority_whose_list_is_malformed_is_not_believed() {
    let (root, other) = (Holder::authority("/O=Root"), Holder::authority("/O=Other"));
    let middle = root.below("/O=Middle");
    let good = List::of(&[&[9]]).sign(&root);
    let with = |lists: &[(&str, &[u8])]| {
        let mut material = material(&[&root, &other]);
        material.revocation_lists = lists.iter().map(|(stem, list)| file(stem, list)).collect();
        Trust::new(&material)
    };
    for malformed in [&b""[..], b"x", &good[..good.len() - 1], &[&good[..], b"x"].concat()] {
        let trust = with(&[("ca0", malformed)]);
        let [problem_of_file] = trust.problems() else { panic!("{:?}", trust.problems()) };
        assert!(problem_of_file.contains("ca0.x"), "{problem_of_file}");
        for chain in [&[&root.user("/CN=ana")][..], &[&middle.user("/CN=ana"), &middle]] {
            match problem(chain, &trust) {
                Problem::UnusableRevocationList(why) => assert_eq!(why, "ca0.x is malformed"),
                problem => panic!("{problem}"),
            }
        }
        assert_eq!(trust.unusable_authorities(), 1);
        verify(&[&other.user("/CN=ana")], &trust).unwrap();
    }
    // Another list that can be used is enough, in either order.
    for lists in [[("ca0", &b"x"[..]), ("ca0", &good)], [("ca0", &good), ("ca0", &b"x"[..])]] {
        let trust = with(&lists);
        verify(&[&root.user("/CN=ana")], &trust).unwrap();
        assert_eq!(problem(&[&numbered(&root, &[9])], &trust), Problem::Revoked);
        assert_eq!(trust.unusable_authorities(), 0);
    }
    // A certificate that is in two files has the names of both.
    let mut material = material(&[&root]);
    material.authorities.push(file("old", &root.der));
    material.revocation_lists = vec![file("old", b"x")];
    let trust = Trust::new(&material);
    assert!(matches!(problem(&[&root.user("/CN=ana")], &trust), Problem::UnusableRevocationList(_)));
}

#[test]
fn lists_may_be_about_parts() {
    let root = Holder::authority("/O=Root");
    let part = |name: &[u8], revoked: &[u8], update: i64| {
        let mut list = List::of(&[revoked]);
        list.times.0 = update;
        let place = sequence(&[element(0xa0, &element(0xa0, &element(0x86, name)))]);
        list.extensions.push(extension("2.5.29.28", true, &place));
        list.sign(&root)
    };
    let lists = [part(b"http://a", &[1], NOW - 5), part(b"http://b", &[2], NOW - 7), part(b"http://b", &[3], NOW - 9)];
    let trust = with_lists(&[&root], &lists);
    assert_eq!(problem(&[&numbered(&root, &[1])], &trust), Problem::Revoked);
    assert_eq!(problem(&[&numbered(&root, &[2])], &trust), Problem::Revoked);
    verify(&[&numbered(&root, &[3])], &trust).unwrap();
}

#[test]
fn authorities_of_one_name_have_lists_of_their_own() {
    let old = Holder::authority("/O=Root");
    let new = Holder::authority("/O=Root");
    let trust = with_lists(&[&old, &new], &[List::of(&[&[1]]).sign(&old), List::of(&[&[2]]).sign(&new)]);
    assert_eq!(problem(&[&numbered(&old, &[1])], &trust), Problem::Revoked);
    assert_eq!(problem(&[&numbered(&new, &[2])], &trust), Problem::Revoked);
    verify(&[&numbered(&old, &[2])], &trust).unwrap();
    verify(&[&numbered(&new, &[1])], &trust).unwrap();
}

const POLICY: &str = "access_id_CA X509 '/DC=ch/O=Root'\npos_rights globus CA:sign\n\
                      cond_subjects globus '\"/DC=ch/DC=cern/*\" \"/DC=ch/O=Middle\"'\n";

#[test]
fn authorities_issue_for_the_subjects_of_their_policy_only() {
    let root = Holder::authority("/DC=ch/O=Root");
    let mut material = material(&[&root]);
    material.signing_policies = vec![file("ca0", POLICY.as_bytes())];
    let trust = Trust::new(&material);
    verify(&[&root.user("/DC=ch/DC=cern/CN=ana")], &trust).unwrap();
    assert!(matches!(problem(&[&root.user("/DC=org/CN=ana")], &trust), Problem::SigningPolicy(_)));
    // What a proxy adds is not the authority's.
    let ana = root.user("/DC=ch/DC=cern/CN=ana");
    verify(&[&ana.proxy(), &ana], &trust).unwrap();
    // An authority below has no policy: its own name is one that the root may issue for.
    let middle = root.below("/DC=ch/O=Middle");
    verify(&[&middle.user("/DC=org/CN=ana"), &middle], &trust).unwrap();
    let other = root.below("/DC=ch/O=Other");
    assert!(matches!(problem(&[&other.user("/DC=ch/DC=cern/CN=ana"), &other], &trust), Problem::SigningPolicy(_)));
}

#[test]
fn an_authority_whose_policy_cannot_be_read_is_not_believed() {
    let root = Holder::authority("/O=Root");
    let mut material = material(&[&root]);
    material.signing_policies = vec![file("ca0", b"access_id_CA X509 'x"), file("other", b"x")];
    let trust = Trust::new(&material);
    assert_eq!(trust.problems().len(), 3);
    assert!(matches!(problem(&[&root.user("/CN=ana")], &trust), Problem::UnusableSigningPolicy(_)));
}

#[test]
fn an_authority_whose_policy_is_about_another_is_not_believed() {
    let root = Holder::authority("/DC=ch/O=Root new");
    let mut material = material(&[&root]);
    material.signing_policies = vec![file("ca0", POLICY.as_bytes())];
    let ana = root.user("/DC=ch/DC=cern/CN=ana");
    assert!(matches!(problem(&[&ana], &Trust::new(&material)), Problem::UnusableSigningPolicy(_)));
    // The policy of another file does not matter.
    material.signing_policies = vec![file("other", POLICY.as_bytes())];
    verify(&[&ana], &Trust::new(&material)).unwrap();
    material.signing_policies = vec![file("ca0", POLICY.replace("Root", "Root new").as_bytes())];
    verify(&[&ana], &Trust::new(&material)).unwrap();
}

fn constrained(permitted: &[Vec<u8>], excluded: &[Vec<u8>]) -> (Trust, Holder, Holder) {
    let subtrees = |tag: u8, bases: &[Vec<u8>]| {
        let bases: Vec<_> = bases.iter().map(|base| sequence(std::slice::from_ref(base))).collect();
        if bases.is_empty() { Vec::new() } else { element(tag, &bases.concat()) }
    };
    let constraints = sequence(&[subtrees(0xa0, permitted), subtrees(0xa1, excluded)]);
    let root = Holder::authority("/O=Root");
    let middle = root.issue("/O=Middle", |plan| {
        plan.extensions = vec![basic_constraints(true, None), extension("2.5.29.30", true, &constraints)];
    });
    (trust(&[&root]), root, middle)
}

#[test]
fn name_constraints_bound_subjects() {
    let (trust, _, middle) =
        constrained(&[element(0xa4, &name("/DC=ch/DC=cern"))], &[element(0xa4, &name("/DC=ch/DC=cern/OU=x"))]);
    let at = |line: &str| middle.user(line);
    verify(&[&at("/DC=ch/DC=cern/CN=ana"), &middle], &trust).unwrap();
    let outside = |holder: &Holder| matches!(problem(&[holder, &middle], &trust), Problem::NameConstraints { .. });
    assert!(outside(&at("/DC=ch/CN=ana")));
    assert!(outside(&at("/DC=org/DC=cern/CN=ana")));
    assert!(outside(&at("/DC=ch/DC=cern/OU=x/CN=ana")));
    // Authorities below are bound as well.
    let low = middle.below("/O=Low");
    let ana = low.user("/DC=ch/DC=cern/CN=ana");
    assert!(matches!(problem(&[&ana, &low, &middle], &trust), Problem::NameConstraints { .. }));
    // What a proxy adds is not bound: it is not the authority's.
    let ana = at("/DC=ch/DC=cern/CN=ana");
    verify(&[&ana.proxy(), &ana, &middle], &trust).unwrap();
}

#[test]
fn name_constraints_bound_other_names() {
    let with = |permitted: &[Vec<u8>], excluded: &[Vec<u8>], own: Vec<u8>| {
        let (trust, _, middle) = constrained(permitted, excluded);
        let ana = middle.issue("/CN=ana", |plan| plan.extensions = vec![alternative_names(&[own])]);
        match verify(&[&ana, &middle], &trust) {
            // Whether hosts are users is another question, which comes later.
            Ok(_) | Err(grid::GridError::Certificate { why: Problem::HostCertificate(_), .. }) => true,
            Err(grid::GridError::Certificate { why: Problem::NameConstraints { .. }, .. }) => false,
            Err(other) => panic!("{other}"),
        }
    };
    let dns = |host: &str| element(0x82, host.as_bytes());
    let email = |address: &str| element(0x81, address.as_bytes());
    let uri = |text: &str| element(0x86, text.as_bytes());
    assert!(with(&[dns("example.org")], &[], dns("a.example.org")));
    assert!(!with(&[dns("example.org")], &[], dns("a.example.com")));
    assert!(!with(&[], &[dns("example.org")], dns("a.example.org")));
    assert!(with(&[dns("example.org")], &[], email("ana@b.org")), "another form");
    assert!(with(&[email("b.org")], &[], email("ana@b.org")));
    assert!(!with(&[email("b.org")], &[], email("ana@c.org")));
    let network = element(0x87, &[10, 0, 0, 0, 255, 0, 0, 0]);
    assert!(with(std::slice::from_ref(&network), &[], element(0x87, &[10, 1, 2, 3])));
    assert!(!with(&[network], &[], element(0x87, &[11, 1, 2, 3])));
    assert!(!with(&[uri("a.org")], &[], uri("http://a.org/")), "of a form that is not understood");
    assert!(with(&[dns("a.org")], &[], uri("http://b.org/")));
    // An address in the subject.
    let (trust, _, middle) = constrained(&[email("b.org")], &[]);
    let ana = middle.user("/emailAddress=ana@c.org");
    assert!(matches!(problem(&[&ana, &middle], &trust), Problem::NameConstraints { .. }));
}

#[test]
fn only_certificates_of_authorities_are_trusted() {
    let root = Holder::authority("/O=Root");
    let ana = root.user("/CN=ana");
    let mut material = material(&[&root, &ana]);
    material.authorities.push(file("x", b"x"));
    let trust = Trust::new(&material);
    assert_eq!(trust.problems().len(), 2);
    assert_eq!(trust.authorities(), 1);
    // A root of version 1 cannot say what it is.
    let old = Holder::self_signed("/O=Old", |plan| {
        plan.version = 0;
        plan.extensions.clear();
    });
    verify(&[&old.user("/CN=ana")], &crate::site::trust(&[&old])).unwrap();
    // The signature of a root proves nothing, so it may be an old one.
    let old = Holder::self_signed("/O=Old", |plan| {
        plan.inner_algorithm = sequence(&[oid("1.2.840.113549.1.1.5")]);
        plan.outer_algorithm = plan.inner_algorithm.clone();
    });
    verify(&[&old.user("/CN=ana")], &crate::site::trust(&[&old])).unwrap();
}
