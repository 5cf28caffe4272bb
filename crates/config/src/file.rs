//! Reads the TOML file. Every key must be known; an error gives the position and suggests the nearest key.

use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::administrators::ADMINISTRATOR_KEYS;
use super::authentication_keys::{IDENTITY_KEYS, ISSUER_KEYS};
use super::keys::{Given, KEYS, RENAMED_KEYS, STORE_KEYS};
use super::tables::Tables;
use super::{Config, StoreTable};

/// Errors of a configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("cannot read the configuration file {path}: {source}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// It is not TOML.
    #[error("{path}:{place}: not valid TOML: {reason}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        place: Position,
        /// The error of the parser.
        reason: String,
    },
    /// There is no such key.
    #[error("{path}:{place}: unknown key `{key}`{nearest}")]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        place: Position,
        /// The key as written, with its section.
        key: String,
        /// The known key that is most similar.
        nearest: Nearest,
    },
    /// The key is known, but its value is wrong.
    #[error("{path}:{place}: `{key}` {reason}")]
    WrongValue {
        /// The file.
        path: PathBuf,
        /// Where in the file.
        place: Position,
        /// The key.
        key: &'static str,
        /// What a right value looks like.
        reason: String,
    },
}

/// A position in a file; both numbers count from 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The character in the line.
    pub column: usize,
}

impl Position {
    pub(crate) fn of(text: &str, offset: usize) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before.get(line_start..).unwrap_or("").chars().count() + 1,
        }
    }
}

impl std::fmt::Display for Position {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// The known key that is most similar to an unknown one, if any is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nearest(pub Option<&'static str>);

impl Nearest {
    /// The present name of a renamed key; otherwise the known key that is most similar. Compares the whole key, and
    /// also its last part alone: a key in the wrong section is a common slip.
    #[must_use]
    pub fn to(key: &str) -> Self {
        if let Some((_, present)) = RENAMED_KEYS.iter().find(|(old, _)| *old == key) {
            return Self(Some(present));
        }
        let last = |name: &str| name.rsplit('.').next().unwrap_or("").to_owned();
        let names = KEYS.iter().map(|known| known.name).chain(STORE_KEYS.iter().map(|known| known.name));
        let names = names.chain(ISSUER_KEYS.iter().copied()).chain(IDENTITY_KEYS.iter().copied());
        let names = names.chain(ADMINISTRATOR_KEYS.iter().copied());
        let best = names
            .map(|known| {
                let whole = strsim::jaro_winkler(key, known);
                let part = strsim::jaro_winkler(&last(key), &last(known));
                (known, whole.max(part))
            })
            .max_by(|(_, a), (_, b)| a.total_cmp(b));
        Self(best.filter(|(_, likeness)| *likeness >= 0.7).map(|(name, _)| name))
    }
}

impl std::fmt::Display for Nearest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(known) => write!(f, "; did you mean `{known}`?"),
            None => write!(f, "; docs/reference/configuration.md lists all keys"),
        }
    }
}

pub(super) fn read_into(config: &mut Config, path: &Path) -> Result<(), ConfigError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    parse_into(config, path, &text)
}

pub(super) fn parse_into(config: &mut Config, path: &Path, text: &str) -> Result<(), ConfigError> {
    let table = DeTable::parse(text).map_err(|error| ConfigError::Syntax {
        path: path.to_owned(),
        place: Position::of(text, error.span().map_or(0, |span| span.start)),
        reason: error.message().to_owned(),
    })?;
    table_into(config, path, text, "", table.get_ref())
}

fn table_into(
    config: &mut Config,
    path: &Path,
    text: &str,
    section: &str,
    table: &DeTable<'_>,
) -> Result<(), ConfigError> {
    // In the order of the file, so that the error names the first mistake.
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let name = if section.is_empty() { key.get_ref().to_string() } else { format!("{section}.{}", key.get_ref()) };
        let place = Position::of(text, key.span().start);
        let Some(known) = KEYS.iter().find(|known| known.name == name) else {
            let is_section =
                KEYS.iter().any(|known| known.name.strip_prefix(&name).is_some_and(|r| r.starts_with('.')));
            if let (true, DeValue::Table(inner)) = (is_section, value.get_ref()) {
                table_into(config, path, text, &name, inner)?;
                continue;
            }
            // For an unknown section, the first key in it tells best what was meant.
            let key = match value.get_ref() {
                DeValue::Table(inner) => match inner.keys().min_by_key(|key| key.span().start) {
                    Some(first) => format!("{name}.{}", first.get_ref()),
                    None => name,
                },
                _ => name,
            };
            let nearest = Nearest::to(&key);
            return Err(ConfigError::UnknownKey { path: path.to_owned(), place, key, nearest });
        };
        let wrong = |reason| ConfigError::WrongValue {
            path: path.to_owned(),
            place: Position::of(text, value.span().start),
            key: known.name,
            reason,
        };
        if known.name == "store" {
            let DeValue::Array(list) = value.get_ref() else {
                return Err(wrong("takes a table for each store: write [[store]] above its keys".into()));
            };
            let tables = list.iter().map(|table| store_of(path, text, table)).collect::<Result<Vec<_>, _>>()?;
            (known.set)(config, Given::Stores(&tables)).map_err(wrong)?;
            continue;
        }
        if known.name == "issuer" {
            let tables = Tables { path, text, name: known.name, keys: ISSUER_KEYS }.read(value)?;
            (known.set)(config, Given::Issuers(&tables)).map_err(wrong)?;
            continue;
        }
        if known.name == "identity" {
            let tables = Tables { path, text, name: known.name, keys: IDENTITY_KEYS }.read(value)?;
            (known.set)(config, Given::Rules(&tables)).map_err(wrong)?;
            continue;
        }
        if known.name == "administrator" {
            let tables = Tables { path, text, name: known.name, keys: ADMINISTRATOR_KEYS }.read(value)?;
            (known.set)(config, Given::Administrators(&tables)).map_err(wrong)?;
            continue;
        }
        let mut words = Vec::new();
        let given = given(value, &mut words).map_err(wrong)?;
        (known.set)(config, given).map_err(wrong)?;
    }
    Ok(())
}

fn store_of(path: &Path, text: &str, table: &Spanned<DeValue<'_>>) -> Result<StoreTable, ConfigError> {
    let wrong = |at: usize, key, reason: String| ConfigError::WrongValue {
        path: path.to_owned(),
        place: Position::of(text, at),
        key,
        reason,
    };
    let start = table.span().start;
    let DeValue::Table(keys) = table.get_ref() else {
        return Err(wrong(start, "store", "takes a table for each store: write [[store]] above its keys".into()));
    };
    let mut entries: Vec<_> = keys.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    let mut store = StoreTable::default();
    for (key, value) in entries {
        let name = format!("store.{}", key.get_ref());
        let Some(known) = STORE_KEYS.iter().find(|known| known.name == name) else {
            let (nearest, place) = (Nearest::to(&name), Position::of(text, key.span().start));
            return Err(ConfigError::UnknownKey { path: path.to_owned(), place, key: name, nearest });
        };
        let mut words = Vec::new();
        let set = given(value, &mut words).and_then(|given| (known.set)(&mut store, given));
        set.map_err(|reason| wrong(value.span().start, known.name, reason))?;
    }
    if store.dir.as_os_str().is_empty() {
        return Err(wrong(start, "store.dir", "is missing: each [[store]] says which directory it is".into()));
    }
    Ok(store)
}

/// Converts a TOML value; `words` holds the strings of a list.
fn given<'a>(value: &'a Spanned<DeValue<'_>>, words: &'a mut Vec<&'a str>) -> Result<Given<'a>, String> {
    match value.get_ref() {
        DeValue::Array(list) => {
            for word in list {
                match word.get_ref() {
                    DeValue::String(text) => words.push(text),
                    other => {
                        return Err(format!(
                            "cannot be an array with something of the type {} in it",
                            other.type_str()
                        ));
                    }
                }
            }
            Ok(Given::List(words))
        }
        DeValue::String(text) => Ok(Given::Text(text)),
        DeValue::Boolean(switch) => Ok(Given::Switch(*switch)),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Given::Number)
            .map_err(|_| format!("is {number}, which is too large")),
        other => Err(format!("cannot be of the type {}", other.type_str())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        let mut config = Config::defaults();
        parse_into(&mut config, Path::new("weir.toml"), text).map_err(|error| error.to_string())?;
        Ok(config)
    }

    #[test]
    fn sections_and_dotted_keys() {
        let config = parse(
            "listen = \"[::1]:0\"\ngrace_seconds = 5\nfiles.uploads_kept = \"2h\"\n[space]\nballast = \"16MiB\"\n",
        );
        let config = config.unwrap();
        assert_eq!((config.listen.as_str(), config.grace.as_secs(), config.ballast), ("[::1]:0", 5, 16 << 20));
        assert_eq!(config.uploads_kept.as_secs(), 7200);
        assert_eq!(config.third_party_sources, ["*"]);
        let config = parse("third_party_sources = [\"*.example.org\", \"10.1.*\"]\n").unwrap();
        assert_eq!(config.third_party_sources, ["*.example.org", "10.1.*"]);
        assert!(parse("third_party_sources = []\n").unwrap().third_party_sources.is_empty());
        for wrong in ["\"*\"", "[1]", "[\"root://host\"]", "[\"\"]", "[\"[\"]"] {
            assert!(parse(&format!("third_party_sources = {wrong}\n")).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_unknown_key_is_named_with_its_position_and_the_nearest_key() {
        assert_eq!(
            parse("data = \"/d\"\ngrace_secnds = 3\n").unwrap_err(),
            "weir.toml:2:1: unknown key `grace_secnds`; did you mean `grace_seconds`?"
        );
        assert_eq!(
            parse("[space]\n  balast = \"1s\"\n").unwrap_err(),
            "weir.toml:2:3: unknown key `space.balast`; did you mean `space.ballast`?"
        );
        assert_eq!(
            parse("ballast = \"1s\"\n").unwrap_err(),
            "weir.toml:1:1: unknown key `ballast`; did you mean `space.ballast`?"
        );
        assert_eq!(
            parse("[spaces]\nballast = \"1s\"\n").unwrap_err(),
            "weir.toml:1:2: unknown key `spaces.ballast`; did you mean `space.ballast`?"
        );
        assert_eq!(
            parse("zzzz = 1\n").unwrap_err(),
            "weir.toml:1:1: unknown key `zzzz`; docs/reference/configuration.md lists all keys"
        );
        for (old, text, now) in [
            ("place", "place = \"a/b/c\"", "location"),
            ("clients.places", "clients.places = []", "clients.locations"),
            ("store.place", "[[store]]\nplace = \"a/b/c\"", "store.location"),
            ("copies.rate", "copies.rate = \"1MiB\"", "repair.rate"),
        ] {
            let said = parse(text).unwrap_err();
            assert!(said.ends_with(&format!("unknown key `{old}`; did you mean `{now}`?")), "{said}");
        }
    }

    #[test]
    fn an_error_of_a_value_says_what_is_right() {
        assert_eq!(
            parse("[files]\nuploads_kept = 60\n").unwrap_err(),
            "weir.toml:2:16: `files.uploads_kept` takes a duration with its unit, in quotes, as in \"60s\""
        );
        assert!(parse("[files]\nuploads_kept = \"60\"\n").unwrap_err().contains("`60` is not a duration"));
        assert!(parse("[space]\nballast = \"1B\"\n").unwrap_err().contains("must be from 1.00 MiB to"));
        assert!(parse("limits.connections = 0\n").unwrap_err().contains("from 1 to"));
        assert!(parse("limits.connections = 99999999999999999999\n").unwrap_err().contains("too large"));
        assert!(parse("grace_seconds = -1\n").unwrap_err().contains("from 0 to"));
        assert!(parse("insecure = \"yes\"\n").unwrap_err().contains("true or false"));
        assert!(parse("listen = [1]\n").unwrap_err().contains("array"));
        assert!(parse("listen = \n").unwrap_err().starts_with("weir.toml:1:"));
        assert!(parse("files = 3\n").unwrap_err().contains("unknown key `files`"));
    }

    #[test]
    fn stores_are_tables_of_their_own() {
        let text = "role = \"disk\"\nlocation = \"cern/r1/d1\"\nmanagers = [\"mgr1:1095\", \"[::1]:1095\"]\n\
            [[store]]\ndir = \"/data1\"\nlocation = \"cern/r2/d1\"\nclass = \"t1\"\nreserve = \"10GiB\"\n[[store]]\ndir = \"/data2\"\n";
        let config = parse(text).unwrap();
        assert_eq!((config.role, config.managers.len()), (Some(crate::ClusterRole::Disk), 2));
        let first = StoreTable {
            dir: "/data1".into(),
            location: Some("cern/r2/d1".parse().unwrap()),
            class: Some("t1".parse().unwrap()),
            reserve: Some(10 << 30),
        };
        assert_eq!(config.stores, [first, StoreTable { dir: "/data2".into(), ..StoreTable::default() }]);
        for (wrong, words) in [
            ("[store]\ndir = \"/d\"\n", "weir.toml:1:1: `store` takes a table for each store: write [[store]]"),
            ("store = [1]\n", "weir.toml:1:10: `store` takes a table"),
            ("[[store]]\nclass = \"t1\"\n", "`store.dir` is missing"),
            ("[[store]]\ndirr = \"/d\"\n", "weir.toml:2:1: unknown key `store.dirr`; did you mean `store.dir`?"),
            (
                "[[store]]\ndir = \"/d\"\nlocation = \"cern\"\n",
                "weir.toml:3:12: `store.location` is wrong: `cern` is not a location",
            ),
            ("[[store]]\ndir = \"/d\"\nreserve = 5\n", "takes a size with its unit"),
            ("class = \"a b\"\n", "`class` is no name of a class"),
            ("role = \"king\"\n", "it is \"manager\" or \"disk\""),
            ("managers = [\"mgr1\"]\n", "write HOST:PORT"),
            ("advertise = \"d1:0\"\n", "write HOST:PORT"),
            ("advertise = \"::1:5\"\n", "write HOST:PORT"),
        ] {
            let said = parse(wrong).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn authentication_has_issuers_and_rules() {
        let text = "[authentication]\nmechanisms = [\"ztn\", \"unix\"]\ntrusted_networks = [\"10.1.0.0/16\"]\nca = \"/ca.pem\"\n\
            [[issuer]]\nurl = \"https://a.example\"\nbase_paths = [\"/wlcg\"]\naudiences = [\"https://se.example\"]\ngroups = \"never\"\n\
            [[identity]]\nissuer = \"https://a.example\"\nprincipal = \"a-{subject}\"\n[[identity]]\nlocal_user = \"*\"\nprincipal = \"{user}\"\n";
        let config = parse(text).unwrap();
        let settings = config.authentication();
        assert_eq!(settings.mechanisms.iter().map(|mechanism| mechanism.name()).collect::<Vec<_>>(), ["ztn", "unix"]);
        assert!(settings.trusted_networks[0].contains("10.1.2.3".parse().unwrap()));
        assert_eq!(settings.trust, tls::TrustSource::File("/ca.pem".into()));
        assert_eq!(settings.issuers[0].groups, identity::GroupUse::Never);
        assert_eq!(settings.mapping.identity[1].principal.as_deref(), Some("{user}"));
        assert_eq!(settings.mapping.identity_default, None);
        let system = parse("identity_default = \"guest\"\n").unwrap().authentication();
        assert_eq!(
            (system.trust, system.mapping.identity_default.as_deref()),
            (tls::TrustSource::System, Some("guest"))
        );
        let directory = parse("authentication.ca = \"/\"\n").unwrap().authentication();
        assert_eq!(directory.trust, tls::TrustSource::Directory("/".into()));
        for (wrong, words) in [
            (
                "authentication.mechanisms = [\"zttn\"]\n",
                "weir.toml:1:29: `authentication.mechanisms` cannot be used: `zttn` is not a mechanism",
            ),
            ("authentication.mechanisms = \"ztn\"\n", "takes a list"),
            (
                "authentication.signing = \"all\"\n",
                "cannot be \"all\": the levels are none, compatible, standard, intense, pedantic",
            ),
            ("authentication.trusted_networks = [\"10.1.2.3/16\"]\n", "write `10.1.0.0/16`"),
            ("identity_default = \"a b\"\n", "`identity_default` cannot be used"),
            ("issuer = 1\n", "weir.toml:1:10: `issuer` takes tables: write [[issuer]]"),
            ("identity = [1]\n", "weir.toml:1:13: `identity` takes tables: write [[identity]]"),
            ("[[issuer]]\nulr = 1\n", "weir.toml:2:1: unknown key `issuer.ulr`; did you mean `issuer.url`?"),
            (
                "[[identity]]\nsubjct = \"a\"\n",
                "weir.toml:2:1: unknown key `identity.subjct`; did you mean `identity.subject`?",
            ),
            (
                "[[issuer]]\nurl = 5\naudiences = []\n",
                "weir.toml:2:7: `issuer.url` cannot be used: invalid type: integer",
            ),
            ("[[issuer]]\naudiences = [\"a\"]\n", "`issuer` cannot be used: missing field `url`"),
            (
                "[[issuer]]\nurl = \"x\"\naudiences = []\ngroups = \"some\"\n",
                "weir.toml:4:10: `issuer.groups` cannot be used: unknown variant",
            ),
            (
                "[[issuer]]\nurl = \"http://a.example\"\naudiences = [\"a\"]\nscopes = false\n",
                "does not begin with `https://`",
            ),
            (
                "[[identity]]\nlocal_user = \"a\"\nprincipal = \"x\"\n[[identity]]\nprincipal = \"x\"\n",
                "`identity` cannot be used: cannot use [[identity]] number 2: it does not say",
            ),
        ] {
            let said = parse(wrong).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }

    #[test]
    fn administrators_are_principals_or_groups_with_a_role() {
        let text = "[[administrator]]\nprincipal = \"ana\"\nrole = \"operator\"\n[[administrator]]\ngroup = \"atlas/ops\"\nrole = \"viewer\"\n";
        let rules = parse(text).unwrap().administrators;
        let rules: Vec<String> =
            rules.iter().map(|rule| format!("{} {} {}", rule.kind, rule.name, rule.role)).collect();
        assert_eq!(rules, ["user ana operator", "group atlas/ops viewer"]);
        for (wrong, words) in [
            ("administrator = 1\n", "weir.toml:1:17: `administrator` takes tables: write [[administrator]]"),
            ("[[administrator]]\nrole = \"viewer\"\n", "number 1 must have either `principal` or `group`"),
            (
                "[[administrator]]\nprincipal = \"a\"\ngroup = \"a\"\nrole = \"viewer\"\n",
                "number 1 must have either `principal` or `group`",
            ),
            ("[[administrator]]\nprincipal = \"a\"\n", "missing field `role`"),
            (
                "[[administrator]]\nprincipal = \"a\"\nrole = \"king\"\n",
                "weir.toml:3:8: `administrator.role` cannot be used: unknown variant `king`",
            ),
            ("[[administrator]]\nprincipal = \"a/b\"\nrole = \"admin\"\n", "number 1: `a/b` is not the name of a user"),
            ("[[administrator]]\nprincipal = \"*\"\nrole = \"admin\"\n", "number 1: `*` is not the name of a user"),
            ("[[administrator]]\nuser = \"a\"\nrole = \"admin\"\n", "weir.toml:2:1: unknown key `administrator.user`"),
            ("administration.socket = \"run/s\"\n", "takes a path that begins with /"),
        ] {
            let said = parse(wrong).unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }

    /// The lists have the keys of the types that the tables become, all of them and no others.
    #[test]
    fn each_key_of_issuers_and_rules_is_known() {
        let issuer = toml::from_str::<identity::IssuerSettings>("zzz = 1").unwrap_err();
        let rule = toml::from_str::<identity::RuleSettings>("zzz = 1").unwrap_err();
        let administrator = toml::from_str::<crate::AdministratorSettings>("zzz = 1").unwrap_err();
        for (section, keys, error) in [
            ("issuer", ISSUER_KEYS, issuer),
            ("identity", IDENTITY_KEYS, rule),
            ("administrator", ADMINISTRATOR_KEYS, administrator),
        ] {
            // "unknown field `zzz`, expected one of `url`, `base_paths`, …"
            let known = error.message().split('`').skip(1).step_by(2).skip(1);
            let known: Vec<String> = known.map(|key| format!("{section}.{key}")).collect();
            assert_eq!(keys, known);
        }
    }

    #[test]
    fn every_key_accepts_its_own_default() {
        let mut config = Config::defaults();
        for key in KEYS {
            if let Some(default) = key.default {
                assert_eq!((key.set)(&mut config, default), Ok(()), "{}", key.name);
            }
        }
        assert_eq!(config, Config::defaults());
    }
}
