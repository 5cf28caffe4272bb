//! `weir`: see the library of this crate.

// Keys, values and requests are made on one thread and freed on another, which glibc's allocator pays for with a third
// of the committer's time. How much it keeps for each thread is set in .cargo/config.toml.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    weir::run(std::env::args_os()).into()
}
