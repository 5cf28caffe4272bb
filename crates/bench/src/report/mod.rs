//! Reports: one row for each phase of each work, with all systems, the certainty of the figures, and doubts about
//! them.

mod ceiling;
mod difference;
mod figures;
mod flags;
mod html;
mod jobs;
mod machines;
mod network;
mod remarks;
mod settings;
mod summary;
mod table;
mod text;
mod verdict;

pub use ceiling::{Ceiling, Stage};
pub use difference::{Difference, RowDifference, SettingDifference, difference};
pub(crate) use figures::{event_rate, rate};
pub use flags::Flag;
pub use html::{FigureFile, Page, Rendered};
pub use jobs::Jobs;
pub use network::NetworkDetails;
pub use remarks::Remark;
pub use settings::{Changed, DifferingSetting, MachinesWithValue, OutlierSetting, settings_of_run};
pub use summary::{Cell, Outlier, Row, Source, Summary, summarise};
pub use table::{COLUMNS, csv, latex, markdown};
pub use text::text;
pub use verdict::{Bound, DataRoute, DiskUse, Evidence, Growth, Link, Machine, RULES, Rule, Verdict, decide};

pub use crate::workload::Unit;
