//! The policy of a directory for its files: a layout, the failure domain of the copies, and the location of the first
//! copy.
//!
//! As text, in any order: `replica(2) sync=1 spread=site near=client prefer=cern class=t1:1`.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use crate::layout::{LayoutError, LayoutWords, number, once, words};
use crate::location::{LocationError, cut, is_name};
use crate::{Layout, LocationPrefix};

/// Longest text of a policy, in bytes.
pub const POLICY_TEXT_MAX: usize = 1024;
/// Longest name of a class, in bytes.
pub const CLASS_NAME_MAX: usize = 32;

/// Why a text is not a policy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PolicyError {
    /// It has no word.
    #[error("the policy says nothing; write at least one word, as in `replica(2) spread=site`")]
    Empty,
    /// Longer than any policy.
    #[error("the policy is {0} bytes long; 1024 is the limit")]
    TooLong(usize),
    /// An unknown word.
    #[error(
        "`{0}` is not a word of a policy; the words are replica(N), sync=M, stripe(W, CHUNK), spread=site|rack|host, \
         near=client, prefer=LOCATION and class=NAME:REPLICAS"
    )]
    UnknownWord(String),
    /// An invalid layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// An unknown failure domain.
    #[error("`{0}`: replicas can be kept apart by site, rack or host; write spread=site, spread=rack or spread=host")]
    Spread(String),
    /// An unknown value of `near`.
    #[error("`{0}`: the first replica can be placed near the client only; write near=client, or leave it out")]
    Near(String),
    /// An invalid location.
    #[error("prefer: {0}")]
    Prefer(#[from] LocationError),
    /// An invalid class or number of its copies.
    #[error(
        "`{0}`: write class=NAME:REPLICAS, as in `class=t1:1`, several separated by commas; a name has 1 to 32 \
         letters, digits, `.`, `_` or `-`, and there are 1 to 8 replicas"
    )]
    Class(String),
    /// The classes need more copies than there are.
    #[error(
        "the classes ask for {asked} replicas and the layout makes {replicas}; write replica({asked}) or ask for fewer"
    )]
    MoreClassesThanCopies {
        /// Copies that the classes need together.
        asked: u32,
        /// Copies in total.
        replicas: u8,
    },
}

/// An administrator's name for stores of one kind (`t1`, `ssd`), for use in policies.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreClass(Box<str>);

impl StoreClass {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for StoreClass {
    type Err = PolicyError;
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        if is_name(text, CLASS_NAME_MAX) { Ok(Self(text.into())) } else { Err(PolicyError::Class(cut(text))) }
    }
}

impl fmt::Display for StoreClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for StoreClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The failure domain that the copies of an object must not share.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Spread {
    /// Copies are on different hosts.
    #[default]
    Host,
    /// Copies are in different racks.
    Rack,
    /// Copies are at different sites.
    Site,
}

impl Spread {
    /// The word in a policy.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Spread::Host => "host",
            Spread::Rack => "rack",
            Spread::Site => "site",
        }
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A directory's policy for its files. The default is one copy, on any store.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Policy {
    layout: Layout,
    spread: Spread,
    near_client: bool,
    prefer: Option<LocationPrefix>,
    /// Sorted by name; together at most the number of copies.
    classes: BTreeMap<StoreClass, u8>,
}

impl Policy {
    /// A policy with this layout and no preference of a location.
    #[must_use]
    pub fn new(layout: Layout) -> Self {
        Self { layout, ..Self::default() }
    }

    /// Sets the failure domain of the copies.
    #[must_use]
    pub fn with_spread(self, spread: Spread) -> Self {
        Self { spread, ..self }
    }

    /// Sets whether the first copy goes as close to the client as possible.
    #[must_use]
    pub fn with_near_client(self, near_client: bool) -> Self {
        Self { near_client, ..self }
    }

    /// Sets the preferred location of the first copy. It applies if `near_client` is not set or finds nothing closer.
    #[must_use]
    pub fn with_prefer(self, prefer: Option<LocationPrefix>) -> Self {
        Self { prefer, ..self }
    }

    /// Requires at least `copies` of the copies on stores of `class`.
    ///
    /// # Errors
    /// [`PolicyError::Class`] if the class already has a requirement, or `copies` is 0 or more than 8;
    /// [`PolicyError::MoreClassesThanCopies`].
    pub fn with_class(mut self, class: StoreClass, copies: u8) -> Result<Self, PolicyError> {
        let name = class.to_string();
        if !(1..=crate::layout::REPLICAS_MAX).contains(&copies) || self.classes.insert(class, copies).is_some() {
            return Err(PolicyError::Class(format!("class={name}:{copies}")));
        }
        let asked = self.classes.values().map(|copies| u32::from(*copies)).sum();
        let replicas = self.layout.replicas();
        if asked > u32::from(replicas) {
            return Err(PolicyError::MoreClassesThanCopies { asked, replicas });
        }
        Ok(self)
    }

    /// How objects are divided and copied.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The failure domain of the copies.
    #[must_use]
    pub fn spread(&self) -> Spread {
        self.spread
    }

    /// Whether the first copy goes as close to the client as possible.
    #[must_use]
    pub fn near_client(&self) -> bool {
        self.near_client
    }

    /// The preferred location of the first copy. It applies if [`Policy::near_client`] is not set or finds nothing
    /// closer.
    #[must_use]
    pub fn prefer(&self) -> Option<&LocationPrefix> {
        self.prefer.as_ref()
    }

    /// The minimum number of copies on stores of each class.
    #[must_use]
    pub fn classes(&self) -> &BTreeMap<StoreClass, u8> {
        &self.classes
    }
}

/// Always shows layout and spread, and the other words if they are set, in the order of the module's example.
impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} spread={}", self.layout, self.spread)?;
        if self.near_client {
            f.write_str(" near=client")?;
        }
        if let Some(prefer) = &self.prefer {
            write!(f, " prefer={prefer}")?;
        }
        for (n, (class, copies)) in self.classes.iter().enumerate() {
            write!(f, "{}{class}:{copies}", if n == 0 { " class=" } else { "," })?;
        }
        Ok(())
    }
}

impl FromStr for Policy {
    type Err = PolicyError;
    fn from_str(text: &str) -> Result<Self, PolicyError> {
        if text.len() > POLICY_TEXT_MAX {
            return Err(PolicyError::TooLong(text.len()));
        }
        let words = words(text)?;
        if words.is_empty() {
            return Err(PolicyError::Empty);
        }
        let mut layout = LayoutWords::default();
        let (mut spread, mut near, mut prefer, mut classes) = (None, None, None, None);
        for word in words {
            if layout.take(word)? {
                continue;
            }
            let (name, value) = word.split_once('=').ok_or_else(|| PolicyError::UnknownWord(cut(word)))?;
            match name {
                "spread" => once(&mut spread, parse_spread(word, value)?, "spread")?,
                "near" if value == "client" => once(&mut near, (), "near")?,
                "near" => return Err(PolicyError::Near(cut(word))),
                "prefer" => once(&mut prefer, value.parse::<LocationPrefix>()?, "prefer")?,
                "class" => once(&mut classes, parse_classes(word, value)?, "class")?,
                _ => return Err(PolicyError::UnknownWord(cut(word))),
            }
        }
        let policy = Policy::new(layout.layout()?)
            .with_spread(spread.unwrap_or_default())
            .with_near_client(near.is_some())
            .with_prefer(prefer);
        let classes = classes.unwrap_or_default();
        classes.into_iter().try_fold(policy, |policy, (class, copies)| policy.with_class(class, copies))
    }
}

fn parse_spread(word: &str, value: &str) -> Result<Spread, PolicyError> {
    let known = [Spread::Host, Spread::Rack, Spread::Site];
    known.into_iter().find(|spread| spread.as_str() == value).ok_or_else(|| PolicyError::Spread(cut(word)))
}

fn parse_classes(word: &str, value: &str) -> Result<Vec<(StoreClass, u8)>, PolicyError> {
    let wrong = || PolicyError::Class(cut(word));
    value
        .split(',')
        .map(|part| {
            let (class, copies) = part.split_once(':').ok_or_else(wrong)?;
            Ok((class.parse().map_err(|_| wrong())?, number(copies).ok_or_else(wrong)?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> String {
        text.parse::<Policy>().unwrap_err().to_string()
    }

    #[test]
    fn each_word_sets_one_property() {
        let all = policy("stripe(4, 1MiB) replica(3) sync=2 spread=site near=client prefer=cern/r1 class=t1:2,ssd:1");
        assert_eq!((all.layout().units(), all.layout().replicas(), all.layout().sync()), (4, 3, 2));
        assert_eq!(all.spread(), Spread::Site);
        assert!(all.near_client());
        assert_eq!(all.prefer().map(LocationPrefix::as_str), Some("cern/r1"));
        let classes: Vec<_> = all.classes().iter().map(|(class, copies)| (class.as_str(), *copies)).collect();
        assert_eq!(classes, [("ssd", 1), ("t1", 2)]);
        assert_eq!(policy("replica(1)"), Policy::default());
        assert_eq!(policy("near=client").layout(), &Layout::default(), "a policy need not name a layout");
        assert_eq!(Policy::default().spread(), Spread::Host);
    }

    #[test]
    fn the_canonical_form_round_trips() {
        for (text, canonical) in [
            ("near=client", "replica(1) spread=host near=client"),
            ("prefer=cern  near=client replica(2)", "replica(2) sync=2 spread=host near=client prefer=cern"),
            ("class=t1:1,a:1 spread=rack replica(2) sync=1", "replica(2) sync=1 spread=rack class=a:1,t1:1"),
            ("stripe(2, 64KiB)", "stripe(2, 64KiB) replica(1) spread=host"),
        ] {
            assert_eq!(policy(text).to_string(), canonical);
            assert_eq!(policy(canonical), policy(text));
        }
    }

    #[test]
    fn the_longest_canonical_form_can_be_read() {
        let name = "n".repeat(crate::location::LOCATION_NAME_MAX);
        let classes: Vec<_> = (0..8).map(|n| format!("{}{n}:1", "c".repeat(CLASS_NAME_MAX - 1))).collect();
        let text = format!(
            "stripe(64, 512MiB) replica(8) spread=site near=client prefer={name}/{name}/{name} class={}",
            classes.join(",")
        );
        let longest = policy(&text).to_string();
        assert!(longest.len() <= POLICY_TEXT_MAX);
        assert_eq!(policy(&longest), policy(&text));
    }

    /// Texts combined from valid words, nearly valid words, and others.
    #[test]
    fn any_accepted_text_round_trips() {
        let parts = [
            "replica(",
            "stripe(",
            "sync=",
            "spread=",
            "near=",
            "prefer=",
            "class=",
            "2",
            "1",
            "3",
            "4, ",
            "1MiB",
            "64KiB",
            ")",
            "(",
            " ",
            " ",
            " ",
            "\t",
            "site",
            "rack",
            "client",
            "cern",
            "/",
            ":",
            ",",
            "t1",
            "t1:1",
            "=",
            "ü",
            "\u{a0}",
            "\0",
            "-1",
            "replica(2) ",
            "replica(3) ",
            "near=client ",
            "spread=site ",
            "sync=1 ",
            "stripe(2, 1MiB) ",
            "class=t1:1,tn:1 ",
        ];
        let (mut state, mut read) = (1_u64, 0);
        for _ in 0..100_000 {
            let mut text = String::new();
            for _ in 0..=state % 7 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                text += parts[usize::try_from(state >> 33).unwrap() % parts.len()];
            }
            if let Ok(policy) = text.parse::<Policy>() {
                assert_eq!(policy.to_string().parse(), Ok(policy), "{text}");
                read += 1;
            }
        }
        assert!(read > 1_000, "{read} were policies");
    }

    #[test]
    fn errors_suggest_a_correct_form() {
        for (text, help) in [
            ("", "at least one word"),
            ("  ", "at least one word"),
            ("replika(2)", "the words are replica(N)"),
            ("replica(2) fast", "`fast`"),
            ("replica(2) speed=high", "`speed=high`"),
            ("replica(9)", "1 to 8"),
            ("replica(2) replica(3)", "twice"),
            ("spread=site spread=site", "twice"),
            ("near=client near=client", "twice"),
            ("class=a:1 class=b:1", "twice"),
            ("spread=disk", "spread=site, spread=rack or spread=host"),
            ("spread=", "spread=site, spread=rack or spread=host"),
            ("near=server", "near=client"),
            ("prefer=", "cern/r12"),
            ("prefer=a/b/c/d", "cern/r12"),
            ("prefer=a//b", "1 to 64 bytes"),
            ("replica(2) class=t1", "class=t1:1"),
            ("replica(2) class=t1:0", "1 to 8 replicas"),
            ("replica(2) class=t1:9", "1 to 8 replicas"),
            ("replica(2) class=:1", "class=t1:1"),
            ("replica(2) class=t1:1,t1:1", "class=t1:1"),
            ("replica(2) class=", "class=t1:1"),
            ("replica(2) class=t1:1,tn:2", "write replica(3)"),
            ("class=t1:2", "write replica(2)"),
        ] {
            assert!(refused(text).contains(help), "{text}: {}", refused(text));
        }
        assert!(refused(&"x".repeat(POLICY_TEXT_MAX + 1)).contains("1024"));
        assert!(refused(&"x".repeat(POLICY_TEXT_MAX)).contains("not a word"));
        assert!(refused(&format!("class={}:1", "c".repeat(CLASS_NAME_MAX + 1))).contains("1 to 32"));
    }
}
