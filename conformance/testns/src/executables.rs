//! The suite's own executables, which tests call as a runtime does.

use crate::feature::skip;
use crate::must::Must as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, OnceLock};

/// A folder with `cni-plugins` and `cnitool` to test instead of a build of the sources, such as `target/*/release`.
const FOLDER: &str = "TESTNS_EXECUTABLES";

/// The executable that contains all plugins. One for all tests: cargo builds it when the first test of a process needs
/// it, so it is never older than the sources.
pub fn plugins() -> &'static Path {
    executable(&PLUGINS, "cni-plugins")
}

/// The command line of libcni, likewise.
pub fn cnitool() -> &'static Path {
    executable(&CNITOOL, "cnitool")
}

static PLUGINS: OnceLock<PathBuf> = OnceLock::new();
static CNITOOL: OnceLock<PathBuf> = OnceLock::new();
static BUILT: OnceLock<PathBuf> = OnceLock::new();

fn executable(cell: &'static OnceLock<PathBuf>, name: &str) -> &'static Path {
    cell.get_or_init(|| {
        let path = BUILT.get_or_init(|| given().unwrap_or_else(build)).join(name);
        assert!(path.is_file(), "{} is missing", path.display());
        path
    })
}

fn given() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// With the features of `cargo test`, so that only the two links are left to do; offline, as cargo has just
/// built the test that asks.
fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.current_dir(env!("CARGO_MANIFEST_DIR")).args(["build", "--quiet", "--locked", "--offline", "--workspace"]);
    build.args(["--bin", "cni-plugins", "--bin", "cnitool", "--features", "conformance/as-tested"]);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let status = build.status().must("start cargo");
    assert!(status.success(), "cargo build of cni-plugins and cnitool: {status}");
    let test = std::env::current_exe().must("find the test's own executable");
    // Beside the folder `deps` of tests, or where executables are.
    let folder = test.ancestors().skip(1).find(|folder| folder.join("cni-plugins").is_file());
    folder.unwrap_or_else(|| panic!("cargo left no cni-plugins above {}", test.display())).to_owned()
}

/// A folder with the reference's plugins in place of the one that `conformance/fetch-reference` fills.
const REFERENCE_FOLDER: &str = "CNI_REFERENCE";

static REFERENCE: LazyLock<Option<PathBuf>> = LazyLock::new(|| {
    let target = || {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
    };
    let folder = std::env::var_os(REFERENCE_FOLDER).map_or_else(|| target().join("reference"), PathBuf::from);
    folder.join("bridge").is_file().then(|| folder.canonicalize().unwrap_or(folder))
});

/// The folder of the reference's plugins: `CNI_REFERENCE`, else `target/reference`, if it has them.
pub fn find_reference() -> Option<&'static Path> {
    REFERENCE.as_deref()
}

pub fn reference_or_skip(test: &str) -> Option<&'static Path> {
    if find_reference().is_none() {
        skip(test, "no reference plugins: conformance/fetch-reference fetches them");
    }
    find_reference()
}
