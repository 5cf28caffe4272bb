//! Measures any storage system end to end, and names its bottleneck.
//!
//! # Promises
//!
//! - Every written byte can be verified ([`content`]). A read that returns wrong data fails the run, and the report
//!   says where.
//! - It touches nothing outside a run's own folder: a name that leads out of it cannot be made
//!   ([`target::RelName`]).
//! - It gives no figure for work that was not done: failures are counted beside the work ([`load::Tally`]).
//! - Its statements about figures assume no distribution ([`statistics`]).
//!
//! The command line, and starting and stopping systems, are left to others.
//!
//! # How a campaign runs
//!
//! 1. `campaign` turns a TOML file into works (a file for each section) and an order of trials.
//! 2. `run` makes a trial's folder, and removes what it made.
//! 3. `phases` has each phase done by this machine or by all agents.
//! 4. A `Workload` (`workload/kind.rs`) is a specification as plain data. It says what it needs, how much it moves
//!    and whether its parameters are valid. It hires a `WorkerPool` for a range of its **parts**: streams, clients,
//!    recorders, jobs. Names and contents follow from the part's number, so the work is the same on any machine.
//! 5. The crew's workers prepare, start together, and count in meters of their own. They reach a system through
//!    `Target`, `Session` and `OpenFile`: by path, `root://` or HTTP. Several directories are one `Spread`.
//! 6. `result` records each trial at once. `report` works from these records alone, so everything can be made
//!    again: rows, ceilings, flags, the page, and verdicts by a table that `docs/how-to/bench.md` shares (a test
//!    compares them).
//!
//! Analysis jobs of uproot (`workload/uproot`) are Python processes that run the program `job.py`. A path that is
//! longer for any client is a proxy on this machine (`delay.rs`), which a `Target` puts before its server.
//!
//! Jobs with many files (`workload/churn`) and failures (`workload/failure`) know which files must exist
//! afterwards. The first follow a plan from the seed, as far as its steps were acknowledged; `workload/known.rs`
//! keeps that between phases, on the machine that did the part. The second keep a board of acknowledged files. The
//! command that breaks a system is the user's own (`fault.rs`), run without a shell on the machine that runs the
//! campaign.
//!
//! # Several machines
//!
//! - `peer` connects the processes of a measurement: a token that both have proved to know, then JSON frames with
//!   bounded lengths.
//! - `network` has flows. The server of a network test uses a thread for each connection and each flow, or a child
//!   process for each flow.
//! - `coordinate/machine.rs` decides which peers are present, when all start and which are lost, and sums up. It is
//!   synchronous, with time and messages as arguments, and is simulated with 1,000 agents. `shell.rs` and
//!   `connection.rs` are the threads around it.
//! - An agent has a thread that reads, one that works and one that watches. It uses files and tools of its machine
//!   only if the person who started it allowed that (`agent/allowed.rs`).
//! - Flows belong to the agents: they know the servers by the token with which they joined.
//! - Agents and watchers report their machines' settings; a trial's record has them when they are new
//!   (`result/settings.rs`). The report says what distinguishes an outlier and what changed meanwhile
//!   (`report/settings.rs`).
//! - Samples and counts of seconds are kept in bounded series (`sampling::Series`, `load/history.rs`), however long
//!   a run is.

pub mod agent;
pub mod campaign;
pub mod content;
pub mod coordinate;
pub mod delay;
pub mod fault;
pub mod latency;
pub mod load;
pub mod measure;
pub mod memory;
pub mod network;
pub mod peer;
mod phases;
pub mod report;
pub mod result;
pub mod rootfile;
pub mod run;
pub mod sampling;
mod splitmix;
pub mod statistics;
pub mod study;
pub mod target;
pub mod units;
pub mod workload;
