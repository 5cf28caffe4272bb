//! fio on the work of streams: the same files, blocks, jobs and flushing. Bytes, time and rate are fio's own
//! figures.

use std::time::Duration;

use serde_json::Value;

use super::tool::Running;
use super::{ForeignSpec, cut_off, location, told};
use crate::latency::Latency;
use crate::load::{Tally, Worker};
use crate::target::{Durability, Target, TargetError};
use crate::workload::Access;

pub(super) fn run(spec: &ForeignSpec, target: &dyn Target, worker: &Worker) -> Result<Tally, TargetError> {
    let arguments = arguments(spec, &location(spec, target)?);
    let start = worker.start();
    let Some(out) = Running::start("fio", &arguments)?.wait(worker)? else {
        return Ok(cut_off("fio", start.elapsed()));
    };
    let wrong = |what: &str| {
        let first: String = out.chars().take(200).collect();
        TargetError::path(format!("read fio's output ({what})"), std::io::Error::other(first))
    };
    let found = read(&out).ok_or_else(|| wrong("no figures in it"))?;
    if found.bytes != spec.work.bytes() {
        return Err(wrong(&format!("it moved {} bytes instead of {}", found.bytes, spec.work.bytes())));
    }
    // fio creates files, forks and sums up outside the work. Its own clock counts, so that this time does not.
    worker.span(start, found.took);
    Ok(told(worker, found.bytes, found.operations, found.latency))
}

/// Its command line.
fn arguments(spec: &ForeignSpec, directory: &str) -> Vec<String> {
    let work = &spec.work;
    let kind = match work.access {
        Access::RandomRead => "randread",
        Access::RandomWrite => "randwrite",
        Access::Mixed => "randrw",
        access if access.writes() => "write",
        _ => "read",
    };
    // Its job n has the files n * files and so on. These are the names that are removed afterwards.
    let mut all = vec![
        "--name=weir-bench".to_owned(),
        "--thread=1".to_owned(),
        "--fallocate=none".to_owned(),
        "--allow_file_create=1".to_owned(),
        "--randrepeat=1".to_owned(),
        format!("--rw={kind}"),
        format!("--bs={}", work.block_bytes),
        format!("--direct={}", u8::from(work.io_options.direct)),
        // One request after the other, like the bench's own driver by path, whatever `window` is.
        "--ioengine=psync".to_owned(),
        "--iodepth=1".to_owned(),
        format!("--end_fsync={}", u8::from(work.access.writes() && work.io_options.durability == Durability::Close)),
        format!("--sync={}", if work.io_options.durability == Durability::Write { "dsync" } else { "none" }),
    ];
    if work.access == Access::Mixed {
        all.push(format!("--rwmixwrite={}", work.write_percent));
    }
    if matches!(work.access, Access::Write | Access::Rewrite) {
        all.push("--file_append=0".to_owned());
        all.push(format!("--overwrite={}", u8::from(work.access == Access::Rewrite)));
    }
    all.push(format!("--size={}", work.file_bytes.saturating_mul(u64::from(work.files))));
    all.push("--invalidate=0".to_owned());
    // Global options end at the first job; later ones belong to that job. There is a job for each stream, with its
    // own list of files.
    let common = all;
    // `json+` is JSON with the latency histograms.
    let mut out = vec!["--output-format=json+".to_owned()];
    for stream in 0..work.streams {
        let names: Vec<String> = (0..work.files)
            .map(|file| format!("{directory}/{}", spec.name(stream, file)).replace(':', "\\:"))
            .collect();
        out.push(format!("--name=stream{stream}"));
        out.extend(common.iter().filter(|option| !option.starts_with("--name=")).cloned());
        out.push(format!("--filename={}", names.join(":")));
        out.push("--file_service_type=sequential".to_owned());
    }
    out
}

struct FioResult {
    bytes: u64,
    operations: u64,
    took: Duration,
    latency: Latency,
}

/// Returns the sums of its JSON output, and the longest time. Each job is reported separately, because a group
/// would report the sum of the times.
fn read(out: &str) -> Option<FioResult> {
    // Notes may precede the JSON.
    let value: Value = serde_json::from_str(out.get(out.find('{')?..)?).ok()?;
    let mut found = FioResult { bytes: 0, operations: 0, took: Duration::ZERO, latency: Latency::default() };
    for job in value.get("jobs")?.as_array()? {
        let mut took_ms = 0;
        for way in ["read", "write"] {
            let way = job.get(way)?;
            let number = |name: &str| way.get(name).and_then(Value::as_u64).unwrap_or(0);
            found.bytes += number("io_bytes");
            found.operations += number("total_ios");
            took_ms = took_ms.max(number("runtime"));
            let bins = way.get("clat_ns").and_then(|latency| latency.get("bins")).and_then(Value::as_object);
            for (ns, count) in bins.into_iter().flatten() {
                found.latency.add_many(Duration::from_nanos(ns.parse().ok()?), count.as_u64()?);
            }
        }
        // Including the flush at the end, which its runtime of the writes may omit.
        took_ms = took_ms.max(job.get("job_runtime").and_then(Value::as_u64).unwrap_or(0));
        found.took = found.took.max(Duration::from_millis(took_ms));
    }
    (found.operations > 0 && !found.took.is_zero()).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_fio_are_parsed() {
        let out = r#"note: something
            {"fio version": "fio-3.33", "jobs": [{"jobname": "a", "job_runtime": 1500,
                "read": {"io_bytes": 0, "runtime": 0, "total_ios": 0},
                "write": {"io_bytes": 1048576, "runtime": 1000, "total_ios": 4,
                    "clat_ns": {"N": 4, "percentile": {"50.000000": 2000000}, "bins": {"2000000": 3, "40000000": 1}}}},
               {"jobname": "b", "job_runtime": 900,
                "read": {"io_bytes": 0, "runtime": 0, "total_ios": 0},
                "write": {"io_bytes": 1048576, "runtime": 900, "total_ios": 4}}]}"#;
        let found = read(out).unwrap();
        assert_eq!((found.bytes, found.operations, found.took), (2 << 20, 8, Duration::from_millis(1500)));
        // Latencies of single requests. The second job has none.
        assert_eq!(found.latency.steps().map(|(us, count)| (us / 1000, count)).collect::<Vec<_>>(), [(2, 3), (40, 1)]);
        assert!(read("fio: failed").is_none() && read(r#"{"jobs": []}"#).is_none());
    }

    #[test]
    fn fio_does_one_request_after_the_other_like_the_bench() {
        let work: crate::workload::StreamSpec = serde_json::from_value(serde_json::json!({
            "access": "random-read", "streams": 2, "files": 1, "file_bytes": 1 << 20, "block_bytes": 4096, "chunks": 1,
            "io_options": {"direct": true, "durability": "none", "window": 8}, "rate": null, "write_percent": 50,
            "verify": false, "generation": 0, "oldest_generation": 0, "seed": 1
        }))
        .unwrap();
        let all = arguments(&ForeignSpec { tool: crate::workload::Tool::Fio, work }, "/x");
        let has = |option: &str| all.iter().filter(|one| *one == option).count();
        assert_eq!((has("--ioengine=psync"), has("--iodepth=1"), has("--direct=1")), (2, 2, 2));
        assert_eq!(all.iter().filter(|one| one.starts_with("--iodepth") || one.starts_with("--ioengine")).count(), 4);
    }
}
