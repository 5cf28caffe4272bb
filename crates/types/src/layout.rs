//! How one object is divided and copied: `replica(2) sync=2`, `stripe(4, 4MiB)`, `stripe(4, 1MiB) replica(2)`.

use std::fmt;
use std::str::FromStr;

use crate::location::cut;
use crate::units::parse_size;

/// Most copies of an object.
pub const REPLICAS_MAX: u8 = 8;
/// Fewest units of a stripe.
pub const STRIPE_WIDTH_MIN: u8 = 2;
/// Most units of a stripe.
pub const STRIPE_WIDTH_MAX: u8 = 64;
/// Smallest chunk of a stripe, in bytes.
pub const STRIPE_CHUNK_MIN: u64 = 64 << 10;
/// Largest chunk of a stripe, in bytes.
pub const STRIPE_CHUNK_MAX: u64 = 1 << 30;

/// Why a text is not a layout.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LayoutError {
    /// It has no word.
    #[error("a layout says at least one of replica(N) and stripe(W, CHUNK), as in `replica(2)`")]
    Empty,
    /// An unknown word.
    #[error("`{0}` is not a word of a layout; the words are replica(N), sync=M and stripe(W, CHUNK)")]
    UnknownWord(String),
    /// A repeated word.
    #[error("`{0}` is there twice; leave one")]
    Twice(&'static str),
    /// Unbalanced parentheses.
    #[error("`{0}`: the parentheses do not match")]
    Parentheses(String),
    /// An invalid number of copies.
    #[error("`{0}`: write replica(N) with N from 1 to 8, the number of replicas")]
    Replicas(String),
    /// An invalid number after `sync=`.
    #[error("`{0}`: write sync=M with M from 1 to the number of replicas: a close returns after so many replicas")]
    Sync(String),
    /// `sync` exceeds the number of copies.
    #[error("sync={sync} waits for more replicas than replica({replicas}) makes; write sync=1 to sync={replicas}")]
    SyncOfMore {
        /// Copies to wait for.
        sync: u8,
        /// Copies in total.
        replicas: u8,
    },
    /// An invalid width or chunk of a stripe.
    #[error("`{what}`: {why}; write stripe(W, CHUNK) as in `stripe(4, 4MiB)`")]
    Stripe {
        /// The word, or the requested value.
        what: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// An object spread in chunks over several groups: chunk `n` lies in unit `n mod width`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stripe {
    width: u8,
    chunk: u32,
}

impl Stripe {
    /// A stripe of `width` units with chunks of `chunk` bytes.
    ///
    /// # Errors
    /// [`LayoutError::Stripe`]: the width is not 2 to 64, or the chunk is not a power of two from 64 KiB to 1 GiB.
    pub fn new(width: u64, chunk: u64) -> Result<Self, LayoutError> {
        let wrong = |why| LayoutError::Stripe { what: format!("stripe({width}, {})", show_chunk(chunk)), why };
        let width = u8::try_from(width)
            .ok()
            .filter(|width| (STRIPE_WIDTH_MIN..=STRIPE_WIDTH_MAX).contains(width))
            .ok_or_else(|| wrong("the width is the number of stripe units side by side, from 2 to 64"))?;
        let chunk = u32::try_from(chunk)
            .ok()
            .filter(|_| chunk.is_power_of_two() && (STRIPE_CHUNK_MIN..=STRIPE_CHUNK_MAX).contains(&chunk))
            .ok_or_else(|| wrong("the chunk is a power of two from 64KiB to 1GiB"))?;
        Ok(Self { width, chunk })
    }

    /// Number of units, 2 to 64.
    #[must_use]
    pub fn width(self) -> u8 {
        self.width
    }

    /// Bytes of a chunk: a power of two, 64 KiB to 1 GiB.
    #[must_use]
    pub fn chunk(self) -> u64 {
        u64::from(self.chunk)
    }
}

impl fmt::Display for Stripe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stripe({}, {})", self.width, show_chunk(self.chunk()))
    }
}

/// The exact value, in the largest unit that divides it.
fn show_chunk(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.iter().find(|(bits, _)| bytes != 0 && bytes.trailing_zeros() >= *bits) {
        Some((bits, unit)) => format!("{}{unit}", bytes >> bits),
        None => format!("{bytes}B"),
    }
}

/// How an object is divided and copied. The default is one undivided copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Layout {
    replicas: u8,
    sync: u8,
    stripe: Option<Stripe>,
}

impl Default for Layout {
    fn default() -> Self {
        Self { replicas: 1, sync: 1, stripe: None }
    }
}

impl Layout {
    /// `replicas` copies (of each unit, if it is striped). A close waits for `sync` of them.
    ///
    /// # Errors
    /// [`LayoutError::Replicas`], [`LayoutError::Sync`], [`LayoutError::SyncOfMore`].
    pub fn new(replicas: u8, sync: u8, stripe: Option<Stripe>) -> Result<Self, LayoutError> {
        if !(1..=REPLICAS_MAX).contains(&replicas) {
            return Err(LayoutError::Replicas(format!("replica({replicas})")));
        }
        if sync == 0 {
            return Err(LayoutError::Sync(format!("sync={sync}")));
        }
        if sync > replicas {
            return Err(LayoutError::SyncOfMore { sync, replicas });
        }
        Ok(Self { replicas, sync, stripe })
    }

    /// Number of copies, 1 to 8; of a striped file, copies of each unit.
    #[must_use]
    pub fn replicas(&self) -> u8 {
        self.replicas
    }

    /// The number of copies after which a close returns, 1 to [`Self::replicas`]. The others are made in the
    /// background.
    #[must_use]
    pub fn sync(&self) -> u8 {
        self.sync
    }

    /// The striping, if any.
    #[must_use]
    pub fn stripe(&self) -> Option<Stripe> {
        self.stripe
    }

    /// Number of units; 1 if it is not striped.
    #[must_use]
    pub fn units(&self) -> u8 {
        self.stripe.map_or(1, Stripe::width)
    }
}

/// `stripe(W, CHUNK)` if striped, `replica(N)`, and `sync=M` if there are several copies.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stripe) = self.stripe {
            write!(f, "{stripe} ")?;
        }
        write!(f, "replica({})", self.replicas)?;
        if self.replicas > 1 {
            write!(f, " sync={}", self.sync)?;
        }
        Ok(())
    }
}

impl FromStr for Layout {
    type Err = LayoutError;
    fn from_str(text: &str) -> Result<Self, LayoutError> {
        let mut layout = LayoutWords::default();
        for word in words(text)? {
            if !layout.take(word)? {
                return Err(LayoutError::UnknownWord(cut(word)));
            }
        }
        if layout.replicas.is_none() && layout.stripe.is_none() {
            return Err(LayoutError::Empty);
        }
        layout.layout()
    }
}

/// The words of a layout, read one by one, possibly among those of a policy.
#[derive(Default)]
pub(crate) struct LayoutWords {
    replicas: Option<u8>,
    sync: Option<u8>,
    stripe: Option<Stripe>,
}

impl LayoutWords {
    /// Takes `word` if it belongs to a layout. Returns whether it does.
    pub(crate) fn take(&mut self, word: &str) -> Result<bool, LayoutError> {
        if let Some(inside) = argument(word, "replica") {
            let wrong = || LayoutError::Replicas(cut(word));
            let replicas = number(inside.ok_or_else(wrong)?).ok_or_else(wrong)?;
            let replicas = Some(replicas).filter(|n| (1..=REPLICAS_MAX).contains(n)).ok_or_else(wrong)?;
            once(&mut self.replicas, replicas, "replica")?;
        } else if let Some(inside) = argument(word, "stripe") {
            let wrong = |why| LayoutError::Stripe { what: cut(word), why };
            let (width, chunk) = inside
                .and_then(|inside| inside.split_once(','))
                .ok_or_else(|| wrong("a stripe has a width and a chunk"))?;
            let width = width.trim();
            let digits = !width.is_empty() && width.bytes().all(|byte| byte.is_ascii_digit());
            let width = width.parse::<u64>().ok().filter(|_| digits);
            let width = width.ok_or_else(|| wrong("the width is a number from 2 to 64"))?;
            let chunk = parse_size(chunk.trim()).map_err(|_| wrong("the chunk is a size with its unit"))?;
            once(&mut self.stripe, Stripe::new(width, chunk)?, "stripe")?;
        } else if let Some(value) = word.strip_prefix("sync=") {
            let sync = number(value).filter(|sync| (1..=REPLICAS_MAX).contains(sync));
            once(&mut self.sync, sync.ok_or_else(|| LayoutError::Sync(cut(word)))?, "sync")?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// The resulting layout. By default a close waits for all copies.
    pub(crate) fn layout(&self) -> Result<Layout, LayoutError> {
        let replicas = self.replicas.unwrap_or(1);
        Layout::new(replicas, self.sync.unwrap_or(replicas), self.stripe)
    }
}

/// Sets `slot`, or fails if it is already set.
pub(crate) fn once<T>(slot: &mut Option<T>, value: T, word: &'static str) -> Result<(), LayoutError> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(LayoutError::Twice(word)),
    }
}

/// The text between the parentheses of `name(…)`. `None` for another word, `Some(None)` for `name` without parentheses.
fn argument<'a>(word: &'a str, name: &str) -> Option<Option<&'a str>> {
    let rest = word.strip_prefix(name)?;
    match rest.trim_start().strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
        Some(inside) => Some(Some(inside.trim())),
        None => (rest.is_empty() || rest.starts_with(['=', '(', ':'])).then_some(None),
    }
}

/// A small number without a sign.
pub(crate) fn number(text: &str) -> Option<u8> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The words of a text, separated by white space outside parentheses. A parenthesis that stands alone belongs to the
/// word before it.
pub(crate) fn words(text: &str) -> Result<Vec<&str>, LayoutError> {
    let unmatched = || LayoutError::Parentheses(cut(text.trim()));
    let mut words = Vec::new();
    let (mut start, mut inside) = (None, false);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' if inside => return Err(unmatched()),
            '(' => inside = true,
            ')' if !inside => return Err(unmatched()),
            ')' => inside = false,
            _ => {}
        }
        if letter.is_whitespace() && !inside {
            words.extend(start.take().map(|start| &text[start..at]));
        } else {
            start.get_or_insert(at);
        }
    }
    if inside {
        return Err(unmatched());
    }
    words.extend(start.map(|start| &text[start..]));
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(text: &str) -> Layout {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn refused(text: &str) -> String {
        text.parse::<Layout>().unwrap_err().to_string()
    }

    #[test]
    fn as_people_write_it() {
        assert_eq!(layout("replica(1)"), Layout::default());
        assert_eq!(layout("replica(2) sync=1"), Layout::new(2, 1, None).unwrap());
        assert_eq!(layout("replica(2)").sync(), 2, "a close waits for all copies unless it is told not to");
        let striped = layout("stripe(4, 4MiB)");
        assert_eq!((striped.units(), striped.replicas(), striped.stripe().unwrap().chunk()), (4, 1, 4 << 20));
        assert_eq!(layout("  replica( 2 )\tstripe(4,1 MiB) \n"), layout("stripe(4, 1MiB) replica(2)"));
    }

    #[test]
    fn the_canonical_form_round_trips() {
        for (text, canonical) in [
            ("replica(1) sync=1", "replica(1)"),
            ("sync=2 replica(3)", "replica(3) sync=2"),
            ("replica(8)", "replica(8) sync=8"),
            ("stripe(64,1024KiB)", "stripe(64, 1MiB) replica(1)"),
            ("stripe(2, 1GiB) replica(2)", "stripe(2, 1GiB) replica(2) sync=2"),
            ("stripe(2, 65536B)", "stripe(2, 64KiB) replica(1)"),
        ] {
            assert_eq!(layout(text).to_string(), canonical);
            assert_eq!(layout(canonical), layout(text));
        }
    }

    #[test]
    fn each_bound_is_held() {
        for wrong in ["replica(0)", "replica(9)", "replica(256)", "replica(+1)", "replica()", "replica", "replica=2"] {
            assert!(refused(wrong).contains("1 to 8"), "{wrong}: {}", refused(wrong));
        }
        for wrong in ["sync=0", "sync=9", "sync=", "sync=all", "sync=-1"] {
            assert!(refused(&format!("replica(2) {wrong}")).contains("write sync=M"), "{wrong}");
        }
        assert!(refused("replica(2) sync=3").contains("write sync=1 to sync=2"));
        assert!(refused("stripe(2, 1MiB) sync=2").contains("replica(1)"));
        for wrong in ["stripe(1, 1MiB)", "stripe(65, 1MiB)", "stripe(99999999999999999999, 1MiB)", "stripe(+2, 1MiB)"] {
            assert!(refused(wrong).contains("from 2 to 64"), "{wrong}: {}", refused(wrong));
        }
        for wrong in ["stripe(2, 32KiB)", "stripe(2, 2GiB)", "stripe(2, 3MiB)", "stripe(2, 1MB)", "stripe(2, 0B)"] {
            assert!(refused(wrong).contains("power of two from 64KiB to 1GiB"), "{wrong}: {}", refused(wrong));
        }
        for wrong in ["stripe(2)", "stripe(2, 1048576)", "stripe(2, 1MiB, 3)", "stripe"] {
            assert!(refused(wrong).contains("as in `stripe(4, 4MiB)`"), "{wrong}: {}", refused(wrong));
        }
        for width in [2, 64] {
            for chunk in [STRIPE_CHUNK_MIN, STRIPE_CHUNK_MAX] {
                assert!(Stripe::new(width, chunk).is_ok());
            }
        }
        assert!(
            Layout::new(0, 0, None).is_err() && Layout::new(9, 1, None).is_err() && Layout::new(1, 0, None).is_err()
        );
    }

    #[test]
    fn unknown_words_are_named() {
        assert!(refused("replica(2) raid=6").contains("`raid=6`"));
        assert!(refused("replica(2) replica(2)").contains("twice"));
        assert!(refused("stripes(2, 1MiB)").contains("`stripes(2, 1MiB)`"));
        assert!(refused("").contains("at least one") && refused("sync=1").contains("at least one"));
        for wrong in ["replica(2", "replica 2)", "replica((2))", "stripe(2, 1MiB"] {
            assert!(refused(wrong).contains("parentheses"), "{wrong}: {}", refused(wrong));
        }
        assert!(refused(&"x".repeat(1 << 20)).len() < 400, "a long text is not repeated whole");
    }
}
