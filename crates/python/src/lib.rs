//! The native part of the Python package `weir`: a thin layer between Python objects and the `client` crate.
//!
//! It keeps connections and open files for many threads ([`pool::State`]), and turns errors into Python's own. Paths,
//! `fsspec`, event loops and buffered files are in `python/weir`. How requests are sent, repeated and recovered is in
//! `client`.
//!
//! Every call that may wait releases Python's global lock.

mod error;
mod follow;
mod given_up;
mod kept;
mod open_file;
mod pool;
mod python;
mod source;
mod writer;

use pyo3::prelude::*;

/// The native part of the package `weir`. Use the package instead.
#[pymodule]
mod _weir {
    #[pymodule_export]
    use super::follow::Follower;
    #[pymodule_export]
    use super::python::Pool;
    #[pymodule_export]
    use super::writer::Writer;

    #[pymodule_init]
    fn init(module: &super::Bound<'_, super::PyModule>) -> super::PyResult<()> {
        use super::PyModuleMethods as _;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
