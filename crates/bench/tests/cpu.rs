//! The CPU time of programs that a worker runs. It is the only test of this file, because the CPU time of other
//! tests in the process would count too.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::process::Command;
use std::sync::{Arc, Mutex};

use weir_bench::load::{Tally, WorkerPool};
use weir_bench::measure::measure;

/// A shell that computes for some tenths of a second, and then prints what its child has used by the kernel's
/// count.
const BUSY: &str = "sh -c 'i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done'; times";

/// Parses the seconds of `0m1.25s`.
fn seconds(word: &str) -> f64 {
    let (minutes, seconds) = word.trim_end_matches('s').split_once('m').unwrap();
    60.0 * minutes.parse::<f64>().unwrap() + seconds.parse::<f64>().unwrap()
}

#[test]
fn a_programs_time_is_counted_once() {
    let told = Arc::new(Mutex::new((0.0, 0.0)));
    let of_worker = Arc::clone(&told);
    let worker_pool = WorkerPool::hire(&[("", 0..1)], move |worker| {
        let _ = worker.start();
        let out = Command::new("sh").args(["-c", BUSY]).output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let [own_user, own_system, user, system] = text.split_whitespace().map(seconds).collect::<Vec<_>>()[..] else {
            panic!("{text}");
        };
        *of_worker.lock().unwrap() = (own_user + user + own_system + system, own_system + system);
        Ok(Tally::default())
    });
    let (_, measured) = measure(worker_pool.unwrap(), None, |_| true).remove(0);
    let (all, system) = *told.lock().unwrap();
    assert!(all > 0.15, "{all}");
    let close = |found: f64, right: f64| (found - right).abs() < 0.2 * right + 0.08;
    assert!(close(measured.client_cpu_s, all), "{} s instead of {all} s", measured.client_cpu_s);
    assert!(close(measured.client_system_s, system), "{} s instead of {system} s", measured.client_system_s);
}
