//! What all interface plugins but bridge have in common: a table of them, and each test by that table.

mod add;
mod at_once;
mod check;
mod del;
mod gateways;
mod limits;
mod living;
mod packets;
mod renamed;
mod service;

pub(crate) use conformance::kinds::*;

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
macro_rules! each_kind {
    (mod $name:ident: $($kinds:tt)*) => {
        mod $name {
            use super::*;

            crate::kinds::each_kind! { $($kinds)* }
        }
    };
    ($($module:ident: $kind:ident),*; $tests:tt) => { $(
        mod $module {
            crate::kinds::tests! { $kind $tests }
        }
    )* };
}

macro_rules! tests {
    ($kind:ident ($($test:ident)*)) => { $(
        #[test]
        fn $test() {
            crate::kinds::$kind.run(super::$test);
        }
    )* };
}

pub(crate) use {each_kind, tests};
