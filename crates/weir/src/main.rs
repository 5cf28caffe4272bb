//! `weir`: see the library of this crate.

fn main() -> std::process::ExitCode {
    weir::run(std::env::args_os()).into()
}
