//! The changes of a node's counters between two looks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;

use crate::page::Page;

/// The activity of a node. Rates are per second, times in seconds, sizes in bytes.
#[derive(Clone, PartialEq, Default, Serialize, Debug)]
pub struct Rates {
    /// The time between the looks.
    pub seconds: f64,
    /// How long the node has run.
    pub up_seconds: f64,
    pub version: String,
    pub requests_per_second: f64,
    /// By kind, the most frequent first.
    pub requests: Vec<Request>,
    pub read_bytes_per_second: f64,
    pub written_bytes_per_second: f64,
    pub errors_per_second: f64,
    pub waits_per_second: f64,
    pub connections: f64,
    pub connections_limit: f64,
    pub sessions: f64,
    pub open_files: f64,
    pub open_files_limit: f64,
    pub writers: f64,
    pub transfers_running: f64,
    pub transfers_waiting: f64,
    pub syncs: Times,
    pub records_per_sync: f64,
    pub journal_bytes_per_second: f64,
    pub space_total_bytes: Option<f64>,
    pub space_free_bytes: Option<f64>,
    pub space_floor_bytes: Option<f64>,
    pub space_refusing: bool,
    pub deletions_waiting: Option<f64>,
    pub memory_bytes: f64,
    /// The part of the memory that is for recently written data.
    pub recent_memory_bytes: f64,
    /// How much of what was read of large files came from there, from 0 to 1; absent if nothing was read.
    pub recent_share_of_reads: Option<f64>,
    /// Processors in use: 1 is one processor all of the time.
    pub processors: f64,
    pub threads: f64,
    pub descriptors: f64,
    pub descriptors_limit: f64,
}

/// Requests of one kind.
#[derive(Clone, PartialEq, Serialize, Debug)]
pub struct Request {
    pub kind: String,
    #[serde(flatten)]
    pub times: Times,
}

/// How often something happened, and how long it took; no times if it did not happen.
#[derive(Clone, Copy, PartialEq, Default, Serialize, Debug)]
pub struct Times {
    pub per_second: f64,
    pub mean_seconds: Option<f64>,
    pub p50_seconds: Option<f64>,
    pub p99_seconds: Option<f64>,
}

impl Rates {
    /// The activity from `before` to `now`, `took` apart. If the node restarted in between, it counts from its start.
    pub fn between(before: &Page, now: &Page, took: Duration) -> Self {
        let seconds = took.as_secs_f64().max(1e-3);
        let started = now.one("weir_start_time_seconds").unwrap_or(0.0);
        let nothing = Page::default();
        let before = if before.one("weir_start_time_seconds") == Some(started) { before } else { &nothing };
        let grown = |name: &str| (now.sum(name) - before.sum(name)).max(0.0);
        let rate = |name: &str| grown(name) / seconds;
        let mut requests: Vec<Request> = now
            .values_of("weir_request_seconds_count", "request")
            .into_iter()
            .map(|kind| Request {
                kind: kind.to_owned(),
                times: times(before, now, "weir_request_seconds", Some(("request", kind)), seconds),
            })
            .filter(|request| request.times.per_second > 0.0)
            .collect();
        requests.sort_by(|a, b| b.times.per_second.total_cmp(&a.times.per_second));
        let syncs = times(before, now, "weir_journal_sync_seconds", None, seconds);
        let rounds = grown("weir_journal_sync_records_count");
        let read_from = |from: &str| {
            let of = |page: &Page| page.labelled("weir_recent_read_bytes_total", "from", from).unwrap_or(0.0);
            (of(now) - of(before)).max(0.0)
        };
        let (recent, of_disk) = (read_from("memory"), read_from("disk"));
        let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        Self {
            seconds,
            up_seconds: (clock - started).max(0.0),
            version: now
                .values_of("weir_build_info", "version")
                .first()
                .map_or(String::new(), |version| (*version).to_owned()),
            requests_per_second: rate("weir_request_seconds_count"),
            requests,
            read_bytes_per_second: rate("weir_read_bytes_total"),
            written_bytes_per_second: rate("weir_written_bytes_total"),
            errors_per_second: rate("weir_errors_total"),
            waits_per_second: rate("weir_waits_total"),
            connections: now.sum("weir_connections"),
            connections_limit: now.sum("weir_connections_limit"),
            sessions: now.sum("weir_sessions"),
            open_files: now.sum("weir_open_files"),
            open_files_limit: now.sum("weir_open_files_limit"),
            writers: now.sum("weir_writers"),
            transfers_running: now.sum("weir_transfers_running"),
            transfers_waiting: now.sum("weir_transfers_waiting"),
            syncs,
            records_per_sync: if rounds > 0.0 { grown("weir_journal_sync_records_sum") / rounds } else { 0.0 },
            journal_bytes_per_second: rate("weir_journal_written_bytes_total"),
            space_total_bytes: now.one("weir_space_total_bytes"),
            space_free_bytes: now.one("weir_space_free_bytes"),
            space_floor_bytes: now.one("weir_space_floor_bytes"),
            space_refusing: now.sum("weir_space_refusing") > 0.0,
            deletions_waiting: now.one("weir_deletions_waiting"),
            memory_bytes: now.sum("process_resident_memory_bytes"),
            recent_memory_bytes: now.sum("weir_recent_memory_bytes"),
            recent_share_of_reads: (recent + of_disk > 0.0).then(|| recent / (recent + of_disk)),
            processors: rate("process_cpu_seconds_total"),
            threads: now.sum("process_threads"),
            descriptors: now.sum("process_open_fds"),
            descriptors_limit: now.sum("process_max_fds"),
        }
    }

    /// The activity as one line of JSON.
    pub fn json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn times(before: &Page, now: &Page, name: &str, label: Option<(&str, &str)>, seconds: f64) -> Times {
    let part = |page: &Page, what: &str| {
        let name = format!("{name}_{what}");
        label.map_or_else(|| page.sum(&name), |(label, value)| page.labelled(&name, label, value).unwrap_or(0.0))
    };
    let count = (part(now, "count") - part(before, "count")).max(0.0);
    let then = before.buckets(name, label);
    let grown: Vec<(f64, f64)> = now
        .buckets(name, label)
        .into_iter()
        .enumerate()
        .map(|(place, (bound, count))| (bound, (count - then.get(place).map_or(0.0, |(_, count)| *count)).max(0.0)))
        .collect();
    Times {
        per_second: count / seconds,
        mean_seconds: (count > 0.0).then(|| (part(now, "sum") - part(before, "sum")).max(0.0) / count),
        p50_seconds: quantile(&grown, 0.5),
        p99_seconds: quantile(&grown, 0.99),
    }
}

/// The quantile `q` from pairs (upper bound, count of all up to it). Assumes that values are spread evenly within their bucket. Beyond the
/// last bound it returns that bound.
fn quantile(buckets: &[(f64, f64)], q: f64) -> Option<f64> {
    let all = buckets.last()?.1;
    if all <= 0.0 {
        return None;
    }
    let wanted = all * q;
    let (mut lower, mut below) = (0.0, 0.0);
    for (bound, count) in buckets {
        if *count >= wanted {
            if bound.is_infinite() {
                return Some(lower);
            }
            let within = if count > &below { (wanted - below) / (count - below) } else { 1.0 };
            return Some(lower + (bound - lower) * within);
        }
        (lower, below) = (*bound, *count);
    }
    Some(lower)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "weir_start_time_seconds 100\nweir_read_bytes_total 1000\nweir_connections 3\n\
        weir_recent_read_bytes_total{from=\"memory\"} 50\nweir_recent_read_bytes_total{from=\"disk\"} 70\n\
        weir_request_seconds_bucket{request=\"stat\",le=\"0.001\"} 10\nweir_request_seconds_bucket{request=\"stat\",le=\"0.002\"} 10\n\
        weir_request_seconds_bucket{request=\"stat\",le=\"+Inf\"} 10\nweir_request_seconds_sum{request=\"stat\"} 1\n\
        weir_request_seconds_count{request=\"stat\"} 10\nweir_request_seconds_count{request=\"open\"} 7\n";
    const NOW: &str = "weir_start_time_seconds 100\nweir_read_bytes_total 5000\nweir_connections 4\n\
        weir_recent_read_bytes_total{from=\"memory\"} 350\nweir_recent_read_bytes_total{from=\"disk\"} 170\n\
        weir_request_seconds_bucket{request=\"stat\",le=\"0.001\"} 60\nweir_request_seconds_bucket{request=\"stat\",le=\"0.002\"} 109\n\
        weir_request_seconds_bucket{request=\"stat\",le=\"+Inf\"} 110\nweir_request_seconds_sum{request=\"stat\"} 3\n\
        weir_request_seconds_count{request=\"stat\"} 110\nweir_request_seconds_count{request=\"open\"} 7\n";

    #[test]
    fn rates_are_increases_divided_by_the_time() {
        let rates = Rates::between(&Page::parse(BEFORE), &Page::parse(NOW), Duration::from_secs(2));
        assert_eq!((rates.read_bytes_per_second, rates.connections, rates.requests_per_second), (2000.0, 4.0, 50.0));
        assert_eq!(rates.recent_share_of_reads, Some(0.75));
        assert_eq!(rates.requests.len(), 1, "what did not happen is not shown");
        let stat = rates.requests[0].times;
        assert_eq!((stat.per_second, stat.mean_seconds), (50.0, Some(0.02)));
        assert_eq!((stat.p50_seconds, stat.p99_seconds), (Some(0.001), Some(0.002)));
        assert!(rates.json().contains("\"kind\":\"stat\",\"per_second\":50.0"), "{}", rates.json());
    }

    #[test]
    fn a_restarted_node_counts_from_its_start() {
        let restarted = NOW.replace("weir_start_time_seconds 100", "weir_start_time_seconds 200").replace("5000", "10");
        let rates = Rates::between(&Page::parse(BEFORE), &Page::parse(&restarted), Duration::from_secs(1));
        assert_eq!((rates.read_bytes_per_second, rates.requests_per_second), (10.0, 117.0));
    }

    #[test]
    fn quantiles_lie_within_their_bucket() {
        let buckets = [(1.0, 0.0), (2.0, 50.0), (4.0, 100.0), (f64::INFINITY, 100.0)];
        assert_eq!(
            (quantile(&buckets, 0.25), quantile(&buckets, 0.5), quantile(&buckets, 0.75)),
            (Some(1.5), Some(2.0), Some(3.0))
        );
        assert_eq!(quantile(&[(1.0, 0.0), (f64::INFINITY, 5.0)], 0.5), Some(1.0));
        assert_eq!((quantile(&[(1.0, 0.0)], 0.5), quantile(&[], 0.5)), (None, None));
    }
}
