//! See the library.

fn main() -> std::process::ExitCode {
    cluster::main()
}
