//! The metrics of the database under a namespace.

use database::Postgres;
use monitor::exposition::{Exposition, Kind};

/// Writes them.
pub(super) fn tell(out: &mut Exposition, database: &Postgres) {
    use Kind::{Counter, Gauge};
    let stats = database.stats();
    let outage = database.outage();
    let up = "1 while the database under the namespace answers and accepts changes, otherwise 0";
    out.family("weir_database_up", Gauge, up).sample(u8::from(outage.is_none()));
    let away = "How long the database has been away; 0 while it answers";
    out.family("weir_database_outage_seconds", Gauge, away).sample(outage.map_or(0, |outage| outage.lasted.as_secs()));
    out.family("weir_database_operations_total", Counter, "Changes of the namespace, by outcome");
    for (outcome, count) in [("committed", stats.committed), ("aborted", stats.aborted), ("refused", stats.refused)] {
        out.labelled(&[("outcome", outcome)], count);
    }
    let mut counter = |name, help, value: u64| {
        out.family(name, Counter, help).sample(value);
    };
    counter("weir_database_batches_total", "Batches of changes committed in the database", stats.batches);
    let conflicts = "Batches that collided with other transactions, and ran again";
    counter("weir_database_conflicts_total", conflicts, stats.conflicts);
    counter("weir_database_lost_answers_total", "Commits whose answer was lost", stats.answers_lost);
    counter("weir_database_reconnections_total", "How often the committer connected again", stats.reconnected);
    counter("weir_database_round_trips_total", "Round trips to the database", stats.round_trips);
    out.family("weir_database_largest_batch", Gauge, "Changes in the largest batch since the start")
        .sample(stats.largest_batch);
    out.family(
        "weir_database_longest_batch_seconds",
        Gauge,
        "The longest time of a batch until its commit since the start",
    )
    .sample(stats.longest_batch.as_secs_f64());
}
