//! What a machine does while something is measured: the kernel's counters once a second, of clients and servers alike.
//!
//! Reading the counters ([`Counters::read`]) is apart from what is made of two readings ([`Sample::between`]), which is pure.

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
