//! The activity of a machine during a measurement: the kernel's counters once a second, on clients and servers
//! alike.
//!
//! [`Counters::read`] reads the counters. [`Sample::between`] computes the difference of two readings, and is pure.

mod counters;
mod ethtool;
mod machine;
mod observer;
mod sample;
mod series;

pub use counters::{Counters, Cpu, Disk, Interface, Pressure, Tcp};
pub(crate) use machine::MOUNT;
pub use machine::{Settings, machine_settings, memory_bytes};
pub use observer::Observer;
pub use sample::{CpuShares, DiskRates, InterfaceRates, PressureShares, Sample};
pub use series::Series;
