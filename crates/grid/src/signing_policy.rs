//! Which authority may issue certificates for which subjects: the `.signing_policy` files beside the certificates of
//! authorities.
//!
//! The form is that of the Globus Toolkit ("Extended Access Control Lists"), as the IGTF distributes it:
//!
//! ```text
//! access_id_CA   X509    '/C=CH/O=CERN/CN=CERN Root'
//! pos_rights     globus  CA:sign
//! cond_subjects  globus  '"/DC=ch/DC=cern/*" "/DC=org/*"'
//! ```

use identity::DistinguishedName;

/// Most patterns in one file.
const PATTERNS_MAX: usize = 4096;

/// What one authority may issue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SigningPolicy {
    /// The authority's subject, as it is compared.
    pub authority: String,
    patterns: Vec<String>,
}

/// Why a file cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum SigningPolicyError {
    #[error(
        "line {0} is not of the form `access_id_CA X509 '…'`, `pos_rights globus CA:sign` or `cond_subjects globus '…'`"
    )]
    Line(usize),
    #[error("line {0} has a condition, and no `access_id_CA` and `pos_rights` are before it")]
    NoAuthority(usize),
    #[error("it has more than {PATTERNS_MAX} patterns")]
    TooMany,
    #[error("it names no authority")]
    Empty,
}

impl SigningPolicy {
    /// Reads a file. It may be about several authorities.
    pub fn parse(text: &str) -> Result<Vec<Self>, SigningPolicyError> {
        let mut policies: Vec<Self> = Vec::new();
        let mut may_sign = false;
        let mut patterns = 0;
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = || SigningPolicyError::Line(number);
            let (keyword, rest) = line.split_once(char::is_whitespace).ok_or_else(wrong)?;
            let (of, value) = rest.trim_start().split_once(char::is_whitespace).ok_or_else(wrong)?;
            let value = value.trim();
            match (keyword, of) {
                ("access_id_CA", "X509") => {
                    let authority = compared(&plain(unquoted(value).ok_or_else(wrong)?));
                    policies.push(Self { authority, patterns: Vec::new() });
                    may_sign = false;
                }
                ("pos_rights", "globus") if without_comment(value) == "CA:sign" => may_sign = true,
                // Other rights than to sign are about other things.
                ("pos_rights", _) => {}
                ("cond_subjects", "globus") => {
                    let last = policies.last_mut().filter(|_| may_sign);
                    let last = last.ok_or(SigningPolicyError::NoAuthority(number))?;
                    for pattern in patterns_of(unquoted(value).ok_or_else(wrong)?).ok_or_else(wrong)? {
                        patterns += 1;
                        if patterns > PATTERNS_MAX {
                            return Err(SigningPolicyError::TooMany);
                        }
                        last.patterns.push(compared(&plain(pattern)));
                    }
                }
                _ => return Err(wrong()),
            }
        }
        if policies.is_empty() { Err(SigningPolicyError::Empty) } else { Ok(policies) }
    }

    /// Whether the authority may issue for `subject`, which was prepared with [`compared`].
    pub fn allows(&self, subject: &str) -> bool {
        self.patterns.iter().any(|pattern| matches(pattern, subject))
    }
}

fn without_comment(value: &str) -> &str {
    value.split_once('#').map_or(value, |(value, _)| value).trim()
}

/// What stands between quotes. A comment may follow.
fn unquoted(value: &str) -> Option<&str> {
    let quote = value.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let (inside, after) = value[1..].split_once(quote)?;
    let after = after.trim();
    (after.is_empty() || after.starts_with('#')).then_some(inside)
}

/// The patterns in `"…" "…"`, or the one pattern that stands there without quotes.
fn patterns_of(text: &str) -> Option<Vec<&str>> {
    let text = text.trim();
    if !text.starts_with('"') {
        return (!text.is_empty() && !text.contains('"')).then(|| vec![text]);
    }
    let mut patterns = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (pattern, after) = rest.strip_prefix('"')?.split_once('"')?;
        patterns.push(pattern);
        rest = after.trim_start();
    }
    Some(patterns)
}

/// A name or a pattern without the escapes with which OpenSSL prints what is not ASCII. A star that was escaped stays escaped: it would
/// stand for any characters.
fn plain(text: &str) -> String {
    let stars = |text: &str| text.matches('*').count();
    DistinguishedName::unescaped(text).filter(|plain| stars(plain) == stars(text)).unwrap_or_else(|| text.to_owned())
}

/// A subject or a pattern as it is compared. Globus ignores case, and takes several names of the same attribute as one.
pub(crate) fn compared(text: &str) -> String {
    let mut compared = text.to_ascii_lowercase();
    for (name, one) in [("/email=", "/emailaddress="), ("/e=", "/emailaddress="), ("/userid=", "/uid=")] {
        compared = compared.replace(name, one);
    }
    compared
}

/// Whether `text` is like `pattern`, in which `*` stands for any characters.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(start) => rest = &rest[start + part.len()..],
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_whole_subjects() {
        for (pattern, text, is) in [
            ("/o=a/*", "/o=a/cn=b", true),
            ("/o=a/*", "/o=ab/cn=b", false),
            ("/o=a/*", "/o=a/", true),
            ("/o=a", "/o=a/cn=b", false),
            ("/o=a", "/o=a", true),
            ("*", "/anything", true),
            ("/o=*/cn=*", "/o=a/cn=b", true),
            ("/o=*/cn=b", "/o=a/cn=bc", false),
            ("*b*c", "/abxc", true),
            ("*b*c", "/acb", false),
            ("", "", true),
            ("", "/o=a", false),
            ("a*a", "a", false),
        ] {
            assert_eq!(matches(pattern, text), is, "{pattern} {text}");
        }
    }

    #[test]
    fn names_are_read_without_escapes() {
        let text = r#"access_id_CA X509 '/C=HU/O=K\xC3\xB6zpont/CN=Root'
            pos_rights globus CA:sign
            cond_subjects globus '"/C=HU/O=K\xC3\xB6zpont/*" "/O=\x2a"'
        "#;
        let policies = SigningPolicy::parse(text).unwrap();
        assert_eq!(policies[0].authority, compared("/C=HU/O=Központ/CN=Root"));
        assert!(policies[0].allows(&compared("/C=HU/O=Központ/CN=ana")));
        assert!(!policies[0].allows(&compared("/O=x")));
    }

    #[test]
    fn files_of_the_igtf_are_read() {
        let text = "# a comment\n\
            access_id_CA      X509         '/C=CH/O=CERN/CN=Root'\n\
            pos_rights        globus       CA:sign # may sign\n\
            cond_subjects     globus       '\"/DC=ch/DC=cern/*\" \"/E=a@b\"'\n\n\
            access_id_CA      X509         \"/O=b\"\n\
            pos_rights        globus       CA:sign\n\
            cond_subjects     globus       '/O=b/*'\n";
        let policies = SigningPolicy::parse(text).unwrap();
        assert_eq!(policies.len(), 2);
        assert_eq!(policies[0].authority, "/c=ch/o=cern/cn=root");
        assert!(policies[0].allows(&compared("/DC=ch/DC=CERN/CN=ana")));
        assert!(policies[0].allows(&compared("/emailAddress=a@b")));
        assert!(!policies[0].allows(&compared("/O=b/CN=ana")));
        assert!(policies[1].allows(&compared("/O=b/CN=ana")));
        let error = |text: &str| SigningPolicy::parse(text).unwrap_err();
        assert_eq!(error(""), SigningPolicyError::Empty);
        assert_eq!(error("access_id_CA X509 '/O=a\n"), SigningPolicyError::Line(1));
        assert_eq!(error("neg_rights globus CA:sign"), SigningPolicyError::Line(1));
        assert_eq!(error("cond_subjects globus '*'"), SigningPolicyError::NoAuthority(1));
        assert_eq!(error("access_id_CA X509 '/O=a'\ncond_subjects globus '*'"), SigningPolicyError::NoAuthority(2));
        let many = format!(
            "access_id_CA X509 '/O=a'\npos_rights globus CA:sign\n{}",
            "cond_subjects globus '*'\n".repeat(PATTERNS_MAX + 1)
        );
        assert_eq!(error(&many), SigningPolicyError::TooMany);
    }
}
