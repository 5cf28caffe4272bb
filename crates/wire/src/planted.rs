//! Bugs on purpose, by name. The tests switch each on and have to notice; without the feature `planted` nothing here can
//! be switched on and the compiler removes the questions.

/// What is broken while it is planted (in this thread).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Bug {
    /// `mv` cuts at the first blank even if the client said where the first path ends.
    MvCutsAtBlank,
    /// Bytes that are left over are not noticed.
    TrailingBytesTaken,
    /// The data of a `writev` is taken for the next request.
    WritevDataForgotten,
    /// The CRC of a status response does not cover the file offset.
    StatusSumTooShort,
    /// The first page is cut as if the data began on a page's boundary.
    FirstPageNotAligned,
    /// A payload that comes in two pieces loses its first piece.
    SplitPayloadLost,
    /// The limits of payload lengths are not looked at.
    LengthNotBounded,
    /// Offsets below zero wrap to very large ones.
    NegativeOffsetTaken,
    /// A page's checksum is believed.
    PageSumNotCompared,
    /// The last page of a listing keeps its line end.
    ListingNotEnded,
}

impl Bug {
    /// All of them.
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

    /// Runs `what` with `bug` in place (in this thread), and takes it out again.
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
