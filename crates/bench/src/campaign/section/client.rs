//! `[[client]]`.

use serde::Deserialize;

use super::super::trial::{Phase, Work};
use super::super::value::{OneOrMany, Size};
use super::{Section, each, named, one, product, request, size};
use crate::workload::{ClientWork, GenerateSpec};

/// The client alone, in all combinations of the parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientAlone {
    /// Its name in results.
    pub name: String,
    /// The operations on each block.
    #[serde(default = "all_client_work")]
    pub work: Vec<ClientWork>,
    /// Threads at a time.
    #[serde(default = "one")]
    pub threads: OneOrMany<u32>,
    /// The size of each block in bytes.
    pub block: OneOrMany<Size>,
    /// The duration of each operation.
    #[serde(default = "few_seconds")]
    pub seconds: u32,
}

fn all_client_work() -> Vec<ClientWork> {
    ClientWork::ALL.to_vec()
}

fn few_seconds() -> u32 {
    3
}

impl Section for ClientAlone {
    fn combinations(&self) -> u64 {
        product([self.threads.count(), self.block.count()])
    }

    fn works(&self, _seed: u64) -> Vec<Work> {
        let first = GenerateSpec { work: ClientWork::Make, threads: 0, block_bytes: 0, seconds: self.seconds };
        let specs = each(vec![first], &self.threads, |spec, threads| spec.threads = threads);
        let specs = each(specs, &self.block, |spec, block| spec.block_bytes = request(block.bytes));
        let work = |spec: GenerateSpec| Work {
            parameters: named([
                ("threads", spec.threads.to_string()),
                ("block", size(u64::from(spec.block_bytes), &self.block)),
            ]),
            phases: self.work.iter().map(|work| Phase::Client(GenerateSpec { work: *work, ..spec.clone() })).collect(),
            ..Work::new(&self.name)
        };
        specs.into_iter().map(work).collect()
    }
}
