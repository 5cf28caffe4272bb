//! What uproot jobs need to know of the files that the bench's own jobs read.

use super::material::JobReads;
use super::{AnalysisError, AnalysisSource, AnalysisSpec, put};
use crate::rootfile::Kind;
use crate::target::RelName;

/// A tree and its branches, by name.
#[derive(Clone, Debug)]
pub(in crate::workload) struct UprootInput {
    files: usize,
    pub(in crate::workload) tree: String,
    pub(in crate::workload) branches: Vec<String>,
    pub(in crate::workload) entries: u64,
    pub(in crate::workload) compressible: bool,
}

impl UprootInput {
    /// Returns the name of the file of a copy.
    pub(in crate::workload) fn name(&self, copy: u32) -> RelName {
        put::name(self.files, copy, 0)
    }
}

impl AnalysisSpec {
    /// Returns the input of uproot jobs.
    pub(in crate::workload) fn uproot_input(&self) -> Result<UprootInput, AnalysisError> {
        let material = self.material()?;
        let path = match &self.source {
            AnalysisSource::RootFile { path, .. } => path.display().to_string(),
            AnalysisSource::Recording { .. } | AnalysisSource::Synthetic(_) => String::new(),
        };
        let wrong = |what: &str| AnalysisError::Source { path: path.clone(), what: what.to_owned() };
        let JobReads::Dataset(dataset) = &material.reading else {
            return Err(wrong("uproot jobs need a ROOT file"));
        };
        let Some((tree, Kind::Tree)) = dataset.name.as_ref().map(|(name, kind)| (name.clone(), *kind)) else {
            return Err(wrong(
                "uproot jobs read trees (TTree), not ntuples; choose one with `tree`, or remove `beside`",
            ));
        };
        if dataset.branch_names.is_empty() {
            return Err(wrong("all its baskets are within the tree's own object; take a larger file for uproot jobs"));
        }
        Ok(UprootInput {
            files: material.files.len(),
            tree,
            branches: dataset.branch_names.clone(),
            entries: dataset.entries,
            compressible: material.compressible,
        })
    }
}
