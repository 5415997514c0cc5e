//! What all interface plugins but bridge have in common: a table of them, and each test by that table.

mod add;
mod check;
mod concurrency;
mod del;
mod gateways;
mod gc;
mod limits;
mod other_attachments;
mod other_type;
mod packets;
mod renamed;
mod status;

pub(crate) use conformance::interface_plugins::*;

/// The folder of the network's reservations.
const STORE: &str = "/var/lib/cni/networks/net";

/// The addresses that are reserved in the network.
fn held() -> Vec<String> {
    let entries = std::fs::read_dir(STORE).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.parse::<std::net::IpAddr>().is_ok()).collect()
}

/// What the kernel does in its own time with a link that is up.
pub(crate) fn is_kernels(line: &str) -> bool {
    line.contains(" fe80::") || line.contains(" route ff00::/8 ")
}

/// A module for each of the kinds, with the tests of these names.
/// With `mod NAME:` all of them are in a module of that name, for further kinds of the same file.
macro_rules! each_interface_plugin {
    (mod $name:ident: $($kinds:tt)*) => {
        mod $name {
            use super::*;

            crate::interface_plugins::each_interface_plugin! { $($kinds)* }
        }
    };
    ($($module:ident: $kind:ident),*; $tests:tt) => { $(
        mod $module {
            crate::interface_plugins::tests! { $kind $tests }
        }
    )* };
}

macro_rules! tests {
    ($kind:ident ($($test:ident)*)) => { $(
        #[test]
        fn $test() {
            crate::interface_plugins::$kind.run(super::$test);
        }
    )* };
}

pub(crate) use {each_interface_plugin, tests};
