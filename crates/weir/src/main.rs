//! The `weir` binary; the library of this crate does the work.

// One thread allocates keys, values and requests, and another frees them. With glibc's allocator that costs a third of the committer's
// time. `.cargo/config.toml` sets how much memory jemalloc keeps for each thread.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    weir::main(std::env::args_os())
}
