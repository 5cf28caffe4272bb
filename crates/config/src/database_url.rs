//! The address of a database, as it was given.

/// The address of a database. It may hold a password, so it is not shown. The crate `database` reads it.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(String);

impl DatabaseUrl {
    /// The whole text, with the password if it has one. Do not log it.
    #[must_use]
    pub fn secret(&self) -> &str {
        &self.0
    }

    /// The address in a text, or what a right one looks like.
    pub(crate) fn checked(text: &str) -> Result<Self, String> {
        match text.starts_with("postgres://") || text.starts_with("postgresql://") {
            true => Ok(Self(text.to_owned())),
            false => Err("begins with `postgres://`, as in \"postgres://weir@db1.example.org/weir\"".into()),
        }
    }

    /// Whether it holds a password, which others can see where the address is an argument of a process.
    #[must_use]
    pub fn has_password(&self) -> bool {
        let after_scheme = self.0.split_once("://").map_or("", |(_, rest)| rest);
        let (place, query) = after_scheme.split_once('?').unwrap_or((after_scheme, ""));
        let has_one = place.rsplit_once('@').is_some_and(|(account, _)| account.contains(':'));
        has_one || query.split('&').any(|pair| pair.starts_with("password="))
    }
}

// Accepts every text: the error of a parser would show it.
impl std::str::FromStr for DatabaseUrl {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self(text.to_owned()))
    }
}

impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatabaseUrl(not shown)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_noticed_and_not_shown() {
        for (text, expected) in [
            ("postgres://weir@db/weir", false),
            ("postgres://weir@db1:5432,db2:5433/weir?passfile=/a:b", false),
            ("postgres://weir:secret@db/weir", true),
            ("postgres://weir@db/weir?sslmode=disable&password=secret", true),
        ] {
            let url = DatabaseUrl::checked(text).unwrap();
            assert_eq!(url.has_password(), expected, "{text}");
            assert!(!format!("{url:?}").contains("secret"));
        }
        assert!(!DatabaseUrl::checked("mysql://weir:secret@db/weir").unwrap_err().contains("secret"));
    }
}
