//! The statements, as plain SQL: tables of byte strings, no extension. Each is prepared once a connection.

use tokio_postgres::{Client, Statement};

/// Several entries by their keys.
const GET: &str = "SELECT key, value FROM weir.entries WHERE key = ANY($1::bytea[])";

/// The first entries of a range.
const SCAN: &str =
    "SELECT key, value FROM weir.entries WHERE key >= $1::bytea AND key < $2::bytea ORDER BY key LIMIT $3::int8";

/// The last entries of a range.
const SCAN_DOWN: &str =
    "SELECT key, value FROM weir.entries WHERE key >= $1::bytea AND key < $2::bytea ORDER BY key DESC LIMIT $3::int8";

/// Entries that lead to each other ([`kv::Chain`]), of many chains at once.
/// - $1 to $3: a row for each name: chain, step, name.
/// - $4, $5: the first ids: chain, id.
/// - $6: the beginning of all keys; $7: where in a value the next id is, counted from 1.
/// - $8 to $12: the entries to follow: chain, step, beginning and end of the key, the most entries (0: that key alone).
/// - $13 to $15: where in the value their ids and the rest of their keys are, counted from 1; 0: there is none.
/// - $16: bytes that are behind the end of any key.
///
/// `LIMIT` inside of `LATERAL` makes every planner look each key up in the index.
const CHAIN: &str = "
WITH RECURSIVE
names AS (
    SELECT n.chain, n.step, n.name FROM unnest($1::int4[], $2::int4[], $3::bytea[]) AS n (chain, step, name)
),
walk AS (
    SELECT s.chain, 0 AS step, s.id, NULL::bytea AS key, NULL::bytea AS value
    FROM unnest($4::int4[], $5::bytea[]) AS s (chain, id)
    UNION ALL
    SELECT w.chain, w.step + 1, substring(e.value FROM $7::int4 FOR 8), e.key, e.value
    FROM walk w
    JOIN names n ON n.chain = w.chain AND n.step = w.step
    CROSS JOIN LATERAL (
        SELECT key, value FROM weir.entries WHERE key = $6::bytea || w.id || n.name LIMIT 1
    ) e
),
follow AS (
    SELECT f.most, f.prefix
        || CASE
            WHEN f.id_at = 0 THEN w.id
            WHEN length(w.value) >= f.id_at + 7 THEN substring(w.value FROM f.id_at FOR 8)
        END
        || CASE
            WHEN f.second_at = 0 THEN ''::bytea
            WHEN length(w.value) >= f.second_at + 7 THEN substring(w.value FROM f.second_at FOR 8)
        END
        || f.suffix
        || CASE WHEN f.rest_at = 0 THEN ''::bytea ELSE substring(w.value FROM f.rest_at) END AS key
    FROM unnest($8::int4[], $9::int4[], $10::bytea[], $11::bytea[], $12::int4[], $13::int4[], $14::int4[], $15::int4[])
        AS f (chain, step, prefix, suffix, most, id_at, second_at, rest_at)
    JOIN walk w ON w.chain = f.chain AND w.step = f.step
)
SELECT key, value FROM walk WHERE key IS NOT NULL
UNION ALL
SELECT e.key, e.value FROM follow f CROSS JOIN LATERAL (
    SELECT key, value FROM weir.entries WHERE key = f.key LIMIT 1
) e WHERE f.most = 0
UNION ALL
SELECT e.key, e.value FROM follow f CROSS JOIN LATERAL (
    SELECT key, value FROM weir.entries
    WHERE key >= f.key AND key < f.key || $16::bytea
    ORDER BY key LIMIT f.most
) e WHERE f.most > 0";

/// Removes entries.
const DELETE: &str = "DELETE FROM weir.entries WHERE key = ANY($1::bytea[])";

/// Adds or replaces entries.
const PUT: &str = "INSERT INTO weir.entries (key, value)
SELECT n.key, n.value FROM unnest($1::bytea[], $2::bytea[]) AS n (key, value)
ON CONFLICT (key) DO UPDATE SET value = excluded.value";

/// Notes a batch of a committer. Fails with a division by zero, which undoes the batch, unless the committer still has its place.
const ADVANCE: &str = "WITH advanced AS (
    UPDATE weir.committers SET batch = $3::int8 WHERE name = $1::text AND fence = $2::int8 AND batch = $3::int8 - 1 RETURNING 1
)
SELECT 1 / count(*) FROM advanced";

/// The last batch of a committer, and its fence.
const BATCH: &str = "SELECT batch, fence FROM weir.committers WHERE name = $1::text";

/// The prepared statements of a connection.
pub(crate) struct Statements {
    pub(crate) get: Statement,
    pub(crate) scan: Statement,
    pub(crate) scan_down: Statement,
    pub(crate) chain: Statement,
    pub(crate) delete: Statement,
    pub(crate) put: Statement,
    pub(crate) advance: Statement,
    pub(crate) batch: Statement,
}

impl Statements {
    pub(crate) async fn prepare(client: &Client) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            get: client.prepare(GET).await?,
            scan: client.prepare(SCAN).await?,
            scan_down: client.prepare(SCAN_DOWN).await?,
            chain: client.prepare(CHAIN).await?,
            delete: client.prepare(DELETE).await?,
            put: client.prepare(PUT).await?,
            advance: client.prepare(ADVANCE).await?,
            batch: client.prepare(BATCH).await?,
        })
    }
}
