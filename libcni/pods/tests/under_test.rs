//! All plugins, by the name it is called by.

fn main() -> std::process::ExitCode {
    cni_plugins::main()
}
