//! For each deliberate bug, a check that the other tests also run notices it. Without the bug, the same check
//! succeeds.

use crate::common::{self, Check, captures, requests, responses, same};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use wire::planted::{self, Bug};
use wire::{Limits, Request, RequestHeader};

/// The same few hundred values at each run.
fn sample<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>, check: impl Fn(&T) -> Check) -> Check {
    let mut runner = TestRunner::deterministic();
    for _ in 0..300 {
        let value = strategy.new_tree(&mut runner).map_err(|reason| reason.to_string())?.current();
        check(&value)?;
    }
    Ok(())
}

fn all_recordings() -> Check {
    captures::names().iter().try_for_each(|name| captures::understood(&captures::load(name)).map(|_| ()))
}

fn lengths_are_bounded() -> Check {
    sample(requests::any_request(), |request| {
        let bytes = common::encoded(request);
        let (header, _) = common::split(&bytes);
        let header = RequestHeader { dlen: i32::MAX, ..header };
        let allowed = matches!(request, Request::Write(_) | Request::Pgwrite(_));
        same("a payload of 2 GiB", &header.payload(&Limits::default()).is_ok(), &allowed)
    })
}

fn offsets_below_zero_are_refused() -> Check {
    sample(requests::any_request(), |request| {
        let bytes = common::encoded(request);
        let (mut header, payload) = common::split(&bytes);
        if !matches!(request, Request::Read(_) | Request::Pgread(_) | Request::Write(_) | Request::Pgwrite(_)) {
            return Ok(());
        }
        header.params[4] |= 0x80;
        same("an offset below zero", &Request::decode(&header, payload).is_ok(), &false)
    })
}

fn check(bug: Bug) -> Check {
    match bug {
        Bug::MvCutsAtBlank => sample(requests::any_request(), common::round_trip),
        Bug::TrailingBytesTaken => sample(requests::any_request(), common::refuses_other_lengths),
        Bug::WritevDataForgotten | Bug::SplitPayloadLost => sample(requests::short_request(), |request| {
            common::split_anywhere(&[request.clone(), Request::Ping], &[50, 5])
        }),
        Bug::StatusSumTooShort => all_recordings(),
        Bug::FirstPageNotAligned => {
            sample((0..10_000u64, 0..9000usize), |&(offset, len)| captures::pages_as_a_plain_loop(offset, len))
        }
        Bug::LengthNotBounded => lengths_are_bounded(),
        Bug::NegativeOffsetTaken => offsets_below_zero_are_refused(),
        Bug::PageSumNotCompared => sample((0..9000u64, 1..9000usize, any::<u64>()), |&(offset, len, place)| {
            captures::changed_bit_is_found(offset, len, place)
        }),
        Bug::ListingNotEnded => {
            sample(responses::entries(true), |entries| responses::listing_round_trip(true, entries, 200))
        }
        _ => Err("a bug that no check is named for".into()),
    }
}

#[test]
fn every_planted_bug_is_noticed() {
    for &bug in Bug::ALL {
        check(bug).unwrap_or_else(|error| panic!("without any bug, the check for {bug:?}: {error}"));
        // a check may also notice by an assertion
        let noticed = std::panic::catch_unwind(|| planted::with(bug, || check(bug))).unwrap_or(Err("asserted".into()));
        let error = noticed.expect_err(&format!("{bug:?} was not noticed"));
        println!("{bug:?}: {}", error.chars().take(150).collect::<String>());
        assert!(!error.starts_with("a bug that no check"), "{bug:?} has no check");
    }
}
