//! Views of a cluster for people: plain data. Nothing is decided here.

mod activity;
mod files;
mod losses;
mod missing;
mod overview;

pub(crate) use activity::Activities;
pub use activity::ActivityView;
pub use files::{ContentState, ContentView, CopyState, CopyView, FileView, StoreView, WriterView};
pub use losses::{FileSum, LossView};
pub use missing::{MissingAfter, MissingFile, MissingPage, Shortage};
pub(crate) use overview::COUNT_MAX;
pub use overview::{Counted, NodeView, StatusView, TopView};
