//! The integration tests of the binary and of the repository: one program, because each program costs a link.

mod arrows;
mod cli;
mod died;
mod documents;
mod fsck;
mod fsyncs;
#[path = "../../xrootd/tests/fuzzed/mod.rs"]
mod fuzzed;
mod lost_journal;
mod newer;
mod node;
mod restored;
mod session;
mod sessions;
mod watched;
