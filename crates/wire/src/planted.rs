//! Deliberate bugs, by name. Tests switch each of them on and must notice it. Without the feature `planted` none
//! can be switched on, and the compiler removes the checks for them.

/// A deliberate bug, active in this thread only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Bug {
    /// `mv` splits at the first blank even if the client sent the length of the first path.
    MvCutsAtBlank,
    /// Left-over bytes are not noticed.
    TrailingBytesTaken,
    /// The data of a `writev` are treated as the next request.
    WritevDataForgotten,
    /// The CRC of a status response does not cover the file offset.
    StatusSumTooShort,
    /// The first page is cut as if the data began at a page boundary.
    FirstPageNotAligned,
    /// A payload that arrives in two parts loses its first part.
    SplitPayloadLost,
    /// The limits of payload lengths are not checked.
    LengthNotBounded,
    /// Negative offsets wrap to very large ones.
    NegativeOffsetTaken,
    /// A page's checksum is not checked.
    PageSumNotCompared,
    /// The last page of a listing keeps its line end.
    ListingNotEnded,
}

impl Bug {
    /// All bugs.
    pub const ALL: &'static [Bug] = &[
        Bug::MvCutsAtBlank,
        Bug::TrailingBytesTaken,
        Bug::WritevDataForgotten,
        Bug::StatusSumTooShort,
        Bug::FirstPageNotAligned,
        Bug::SplitPayloadLost,
        Bug::LengthNotBounded,
        Bug::NegativeOffsetTaken,
        Bug::PageSumNotCompared,
        Bug::ListingNotEnded,
    ];
}

#[cfg(feature = "planted")]
mod switch {
    use super::Bug;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
    }

    /// Runs `what` with `bug` active in this thread, and removes the bug afterwards.
    pub fn with<R>(bug: Bug, what: impl FnOnce() -> R) -> R {
        struct Out;
        impl Drop for Out {
            fn drop(&mut self) {
                PLANTED.set(None);
            }
        }
        PLANTED.set(Some(bug));
        let _out = Out;
        what()
    }

    pub(crate) fn is(bug: Bug) -> bool {
        PLANTED.get() == Some(bug)
    }
}

#[cfg(feature = "planted")]
pub use switch::with;

#[cfg(feature = "planted")]
pub(crate) use switch::is;

#[cfg(not(feature = "planted"))]
pub(crate) const fn is(_: Bug) -> bool {
    false
}
