//! The input made from a source once, shared by all works that read it in the same way.

use std::sync::{Arc, OnceLock};

use super::AnalysisError;
use super::material::Material;

/// An input that is made at the first use. It follows from its specification, so two of them are equal if their
/// specifications are.
#[derive(Clone, Default)]
pub struct Shared(Arc<OnceLock<Result<Arc<Material>, AnalysisError>>>);

impl Shared {
    pub(super) fn get(
        &self,
        make: impl FnOnce() -> Result<Material, AnalysisError>,
    ) -> Result<Arc<Material>, AnalysisError> {
        self.0.get_or_init(|| make().map(Arc::new)).clone()
    }
}

impl PartialEq for Shared {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.get().is_some() { "Shared(made)" } else { "Shared(not made yet)" })
    }
}
