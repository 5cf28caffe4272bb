//! Whom a service trusts: authorities, what they have revoked, and for whom they may issue.

use std::collections::HashMap;

use crate::certificate::Certificate;
use crate::error::Unreadable;
use crate::limits::CERTIFICATE_BYTES_MAX;
use crate::lsc::{VomsServer, VomsServers};
use crate::name::NameKey;
use crate::revocation::{RevocationList, RevocationProblem, Revocations};
use crate::signing_policy::{SigningPolicy, compared};

/// The contents of a directory of authorities, and of one of VOMS servers.
#[derive(Clone, Debug, Default)]
pub struct TrustMaterial {
    /// Certificates of authorities, in DER.
    pub authorities: Vec<TrustFile>,
    /// Revocation lists, in DER.
    pub revocation_lists: Vec<TrustFile>,
    /// Signing policies, as texts.
    pub signing_policies: Vec<TrustFile>,
    /// The servers whose VOMS attributes count.
    pub voms_servers: Vec<VomsServer>,
    /// The names by which VOMS attributes may be meant for this service alone (targets): its full host names.
    pub own_hosts: Vec<String>,
}

/// A certificate, a list, or a policy.
#[derive(Clone, Debug, Default)]
pub struct TrustFile {
    /// The names of its file without their last part, such as `5168735f`. They say which policy or list belongs to which
    /// authority if the policy or the list itself cannot be read.
    pub stems: Vec<String>,
    /// The name of its file, for messages.
    pub name: String,
    /// The content.
    pub bytes: Vec<u8>,
}

/// Whom a service trusts. It is made once from [`TrustMaterial`], and again when that changes.
#[derive(Debug, Default)]
pub struct Trust {
    authorities: Vec<Authority>,
    by_subject: HashMap<NameKey, Vec<usize>>,
    revocations: Revocations,
    policies: HashMap<String, Vec<SigningPolicy>>,
    voms_servers: VomsServers,
    own_hosts: Vec<String>,
    problems: Vec<String>,
}

#[derive(Debug)]
struct Authority {
    der: Vec<u8>,
    /// The names of its files without their last part.
    stems: Vec<String>,
    /// It has a policy that cannot be read, or that is not about it.
    unusable_policy: bool,
}

impl Trust {
    /// Makes it. What cannot be used is left out, and is in [`Trust::problems`]. Where that could admit somebody who must not
    /// be, everything of the authority is refused instead.
    #[must_use]
    pub fn new(material: &TrustMaterial) -> Self {
        let mut problems = Vec::new();
        let mut trust = Self {
            voms_servers: VomsServers::new(&material.voms_servers, &mut problems),
            own_hosts: material.own_hosts.iter().map(|host| host.to_ascii_lowercase()).collect(),
            problems,
            ..Self::default()
        };
        let of_stems = trust.add_policies(&material.signing_policies);
        for file in &material.authorities {
            trust.add_authority(file, &of_stems);
        }
        for file in &material.revocation_lists {
            trust.add_list(file);
        }
        trust
    }

    /// What was left out, for the log.
    #[must_use]
    pub fn problems(&self) -> &[String] {
        &self.problems
    }

    /// How many authorities there are.
    #[must_use]
    pub fn authorities(&self) -> usize {
        self.authorities.len()
    }

    /// Returns the authorities that each file is about, by the file's stems. One that cannot be read is about none.
    fn add_policies(&mut self, files: &[TrustFile]) -> HashMap<String, Vec<String>> {
        let mut of_stems: HashMap<String, Vec<String>> = HashMap::new();
        for file in files {
            let mut authorities = Vec::new();
            match SigningPolicy::parse(&String::from_utf8_lossy(&file.bytes)) {
                Ok(policies) => {
                    for policy in policies {
                        authorities.push(policy.authority.clone());
                        self.policies.entry(policy.authority.clone()).or_default().push(policy);
                    }
                }
                Err(error) => {
                    let name = file.stems.join(", ");
                    self.problems.push(format!("the signing policy {name} cannot be used: {error}"));
                }
            }
            for stem in &file.stems {
                of_stems.entry(stem.clone()).or_default().extend_from_slice(&authorities);
            }
        }
        of_stems
    }

    /// `policies` has the authorities that the policies with each stem are about. An authority whose policy is not about it may have
    /// been renamed, or the policy is damaged. Without one it could issue for anybody.
    fn add_authority(&mut self, file: &TrustFile, policies: &HashMap<String, Vec<String>>) {
        let parsed = match Certificate::parse(&file.bytes) {
            _ if file.bytes.len() > CERTIFICATE_BYTES_MAX => Err("it is too long".into()),
            Ok(certificate) if certificate.extensions.authority == Some(false) => {
                Err("it is not one of an authority (basicConstraints)".into())
            }
            Ok(certificate) if certificate.is_proxy() => Err("it is a proxy".into()),
            Ok(certificate) => Ok((certificate.subject.clone(), certificate.distinguished_name().ok())),
            Err(error) => Err(Unreadable::to_string(&error)),
        };
        match parsed {
            Ok((subject, name)) => {
                let name = name.map(|name| compared(name.as_str()));
                let mut beside = file.stems.iter().filter_map(|stem| policies.get(stem));
                let unusable_policy = beside.any(|of| !name.as_ref().is_some_and(|name| of.contains(name)));
                if unusable_policy {
                    let name = file.stems.join(", ");
                    self.problems.push(format!(
                        "the authority {name} is not believed: its signing policy cannot be used, or is about other authorities"
                    ));
                }
                let same = self.by_subject.entry(subject).or_default();
                match same.iter().find(|&&other| self.authorities[other].der == file.bytes) {
                    Some(&known) => self.authorities[known].stems.extend_from_slice(&file.stems),
                    None => {
                        same.push(self.authorities.len());
                        let (der, stems) = (file.bytes.clone(), file.stems.clone());
                        self.authorities.push(Authority { der, stems, unusable_policy });
                    }
                }
            }
            Err(why) => {
                let name = file.stems.join(", ");
                self.problems.push(format!("the certificate {name} of an authority is not used: {why}"));
            }
        }
    }

    fn add_list(&mut self, file: &TrustFile) {
        let name = &file.name;
        match RevocationList::parse(&file.bytes) {
            Ok(list) => {
                let issuer = list.issuer_for_message().to_owned();
                let authorities = certificates(&self.authorities, self.by_subject.get(list.issuer()));
                let authorities: Vec<_> = authorities.map(|(_, certificate)| certificate).collect();
                if let Some(why) = self.revocations.add(list, name, &authorities) {
                    self.problems.push(format!("the revocation list {name} of {issuer} cannot be used: {why}"));
                }
            }
            // Only its name says whose it is. As with a list that cannot be used otherwise, that authority may have revoked anybody.
            Err(_) => {
                let is_of = |authority: &&Authority| authority.stems.iter().any(|stem| file.stems.contains(stem));
                for authority in self.authorities.iter().filter(is_of) {
                    if let Ok(certificate) = Certificate::parse(&authority.der) {
                        self.revocations.add_malformed(&certificate, name);
                    }
                }
                self.problems.push(format!("the revocation list {name} is malformed: its authority is not believed"));
            }
        }
    }

    /// How many authorities are not believed because their signing policy or revocation list cannot be used.
    #[must_use]
    pub fn unusable_authorities(&self) -> usize {
        let is_unusable = |authority: &&Authority| {
            authority.unusable_policy
                || Certificate::parse(&authority.der)
                    .is_ok_and(|certificate| self.revocations.are_unusable(&certificate))
        };
        self.authorities.iter().filter(is_unusable).count()
    }

    /// The authorities of this name.
    pub(crate) fn named(&self, name: &NameKey) -> impl Iterator<Item = (usize, Certificate<'_>)> {
        certificates(&self.authorities, self.by_subject.get(name))
    }

    /// Whether `issuer` has revoked `certificate`.
    pub(crate) fn check_revocation(
        &self,
        certificate: &Certificate<'_>,
        issuer: &Certificate<'_>,
    ) -> Result<(), RevocationProblem> {
        self.revocations.check(certificate, issuer)
    }

    /// Whether the policy of `issuer` allows it to issue `certificate`; `None` if that policy cannot be read. `number` is the
    /// issuer's, if it is one of the trusted authorities.
    pub(crate) fn policy_allows(
        &self,
        certificate: &Certificate<'_>,
        issuer: &Certificate<'_>,
        number: Option<usize>,
    ) -> Option<bool> {
        if number.and_then(|number| self.authorities.get(number)).is_some_and(|authority| authority.unusable_policy) {
            return None;
        }
        let Ok(name) = issuer.distinguished_name() else { return Some(true) };
        let Some(policies) = self.policies.get(&compared(name.as_str())) else { return Some(true) };
        let Ok(subject) = certificate.distinguished_name() else { return Some(false) };
        let subject = compared(subject.as_str());
        Some(policies.iter().any(|policy| policy.allows(&subject)))
    }

    pub(crate) fn voms_servers(&self) -> &VomsServers {
        &self.voms_servers
    }

    pub(crate) fn own_hosts(&self) -> &[String] {
        &self.own_hosts
    }
}

/// Those of `authorities` that have these numbers.
fn certificates<'a>(
    authorities: &'a [Authority],
    numbers: Option<&'a Vec<usize>>,
) -> impl Iterator<Item = (usize, Certificate<'a>)> {
    let numbers = numbers.map_or(&[][..], Vec::as_slice);
    numbers.iter().filter_map(|&number| Some((number, Certificate::parse(&authorities.get(number)?.der).ok()?)))
}
