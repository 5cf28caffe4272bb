//! What a person shows to a cluster that has given it no certificate of its own: a token, or a certificate of the grid. The first of these that is there:
//!
//! 1. the token of `BEARER_TOKEN` or `BEARER_TOKEN_FILE`
//! 2. the certificate of `X509_USER_PROXY` or `X509_USER_CERT`
//! 3. the token in `$XDG_RUNTIME_DIR` or `/tmp`
//! 4. the proxy in `/tmp`, or the certificate in the home directory
//!
//! They are searched for at each request, because both are renewed.

use ::client as client_library;
use client_library::{Token, UserCertificate};
use control::ControlRequest;
use control::client::AskError;
use control::remote::{self, Answered};
use link::admin::TrustedCluster;

/// What is shown.
#[derive(Debug)]
enum Credential {
    Token(Token),
    Certificate(UserCertificate),
}

/// What was found of a kind, or why there is nothing.
type Found<T> = Result<T, String>;

/// The credential to show. `is_set`: whether a variable of the environment is set, and not empty.
fn choose<T, C>(
    is_set: impl Fn(&str) -> bool,
    token: impl FnOnce() -> Found<T>,
    certificate: impl FnOnce() -> Found<C>,
) -> Result<Result<T, C>, String> {
    if is_set("BEARER_TOKEN") || is_set("BEARER_TOKEN_FILE") {
        return token().map(Ok);
    }
    if is_set("X509_USER_PROXY") || is_set("X509_USER_CERT") {
        return certificate().map(Err);
    }
    let no_token = match token() {
        Ok(token) => return Ok(Ok(token)),
        Err(why) => why,
    };
    certificate().map(Err).map_err(|no_certificate| format!("{no_token}; {no_certificate}"))
}

/// Whether a variable of the environment is set, and not empty.
fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

/// What somebody should know whose credential was refused: which one was shown, and how to show the other kind. The user may have both.
fn hint(is_set: impl Fn(&str) -> bool, is_token: bool) -> String {
    let first = |names: [&'static str; 2], else_at: &'static str| {
        names.into_iter().find(|name| is_set(name)).map_or(else_at.to_owned(), |name| format!("of {name}"))
    };
    if is_token {
        let at = first(["BEARER_TOKEN", "BEARER_TOKEN_FILE"], "in $XDG_RUNTIME_DIR or /tmp");
        format!(
            "the command has shown the token {at}: to show a certificate instead, unset BEARER_TOKEN and BEARER_TOKEN_FILE, and name it in X509_USER_PROXY, or in X509_USER_CERT and X509_USER_KEY"
        )
    } else {
        let at = first(["X509_USER_PROXY", "X509_USER_CERT"], "in /tmp or ~/.globus");
        format!(
            "the command has shown the certificate {at}: to show a token instead, name its file in BEARER_TOKEN_FILE"
        )
    }
}

impl Credential {
    fn find() -> Result<Self, String> {
        let found = choose(is_set, Token::usual, UserCertificate::usual)?;
        Ok(found.map_or_else(Self::Certificate, Self::Token))
    }
}

/// The certificate, as a request shows it.
struct Shown<'a>(&'a UserCertificate);

impl remote::Certificates for Shown<'_> {
    fn chain(&self) -> &[Vec<u8>] {
        self.0.chain()
    }

    fn sign(&self, binding: &[u8; 32]) -> Result<Vec<u8>, String> {
        self.0.sign(binding)
    }
}

/// Sends a request to a manager of `cluster`, which `name` stands for, and shows who asks.
pub(super) fn ask(name: &str, cluster: &TrustedCluster, what: &ControlRequest) -> Result<Answered, AskError> {
    match Credential::find().map_err(AskError::Denied)? {
        Credential::Token(token) => remote::ask_with_token(name, cluster, token.as_str(), what, &hint(is_set, true)),
        Credential::Certificate(certificate) => {
            remote::ask_with_certificates(name, cluster, &Shown(&certificate), what, &hint(is_set, false))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_refused_learns_what_was_shown_and_how_to_show_the_other() {
        let said = |set: &[&str], is_token| hint(|name| set.contains(&name), is_token);
        for (set, is_token, shown, instead) in [
            (
                &["X509_USER_PROXY", "X509_USER_CERT"][..],
                false,
                "the certificate of X509_USER_PROXY:",
                "BEARER_TOKEN_FILE",
            ),
            (&["X509_USER_CERT"], false, "the certificate of X509_USER_CERT:", "BEARER_TOKEN_FILE"),
            (&[], false, "the certificate in /tmp or ~/.globus:", "BEARER_TOKEN_FILE"),
            (&["BEARER_TOKEN_FILE"], true, "the token of BEARER_TOKEN_FILE:", "X509_USER_PROXY"),
            (&["BEARER_TOKEN", "X509_USER_PROXY"], true, "the token of BEARER_TOKEN:", "unset BEARER_TOKEN"),
            (&[], true, "the token in $XDG_RUNTIME_DIR or /tmp:", "X509_USER_PROXY"),
        ] {
            let text = said(set, is_token);
            assert!(text.contains(shown) && text.contains(instead), "{set:?}: {text}");
        }
    }

    #[test]
    fn what_the_user_names_goes_first_and_tokens_before_certificates() {
        let chosen = |set: &[&str], token: Found<u8>, certificate: Found<u8>| {
            choose(|name| set.contains(&name), || token, || certificate)
        };
        let none = |what: &str| Err(what.to_owned());
        assert_eq!(chosen(&[], Ok(1), Ok(2)), Ok(Ok(1)));
        assert_eq!(chosen(&[], none("no token"), Ok(2)), Ok(Err(2)));
        assert_eq!(chosen(&[], none("no token"), none("no proxy")), Err("no token; no proxy".into()));
        for name in ["X509_USER_PROXY", "X509_USER_CERT"] {
            assert_eq!(chosen(&[name], Ok(1), Ok(2)), Ok(Err(2)));
            assert_eq!(
                chosen(&[name], Ok(1), none("no proxy")),
                none("no proxy").map(Ok),
                "nothing else than what is named"
            );
            for token in ["BEARER_TOKEN", "BEARER_TOKEN_FILE"] {
                assert_eq!(chosen(&[name, token], Ok(1), Ok(2)), Ok(Ok(1)));
                assert_eq!(chosen(&[name, token], none("no token"), Ok(2)), none("no token").map(Ok));
            }
        }
    }
}
