//! The work on a system. Each workload has typed parameters, a pure plan of its operations, and code that does them
//! through the driver interface.

mod access;
mod analysis;
mod churn;
mod daq;
mod failure;
mod file_window;
mod foreign;
mod generate;
mod kind;
mod known;
mod permutation;
mod small;
mod stream;
mod uproot;

pub use access::{Access, Operation, Operations, Part};
pub use analysis::{
    AnalysisError, AnalysisPhase, AnalysisSource, AnalysisSpec, Gaps, Mode, Order, RecordingError, Shared,
    SyntheticSpec,
};
pub use churn::{ChurnError, ChurnPhase, ChurnSpec, Files, Mix, Plan, Sizes, Slot, Step};
pub use daq::{DaqError, DaqSpec};
pub use failure::{FailureError, FailureSpec};
pub use foreign::{FlowTool, ForeignError, ForeignFlowsSpec, ForeignSpec, Iperf3Server, Tool};
pub use generate::{ClientWork, GenerateError, GenerateSpec};
pub(crate) use kind::word_of;
pub use kind::{LocalFile, Names, Refusal, Site, Unit, WorkError, Workload, no_names};
pub use known::KnownFiles;
pub use small::{SmallError, SmallPhase, SmallSpec};
pub use stream::{StreamError, StreamSpec};
pub use uproot::{DEFAULT_PYTHON, JobTool, MadeFile, Tried, UprootError, UprootSpec, UprootWith, make_file};
