//! Has the linker write the build ID, by which a plugin knows a copy of itself (`skel::build_id`); and has the executable linked
//! anew when the order of its functions has changed, which the linker of a release reads (`lld`, beside this file).
//!
//! `SUITE_RELEASE`, for the code: the version by which programs and people know these executables. It begins with the
//! reference's release whose behaviour the plugins have, as nomad and nerdctl compare it with the version from which a
//! feature is there; behind it, as build metadata (semver.org, 10), are the suite's own version and, in an optimised
//! build, the commit: `1.9.1+rust.0.9.0.g0123456789ab`.

#![expect(clippy::disallowed_methods, reason = "cargo passes variables to a build script")]

use std::env;
use std::process::Command;

/// The release of the reference plugins whose behaviour the plugins have.
const REFERENCE: &str = "1.9.1";

fn main() {
    release();
    // All linkers of Linux know the option, and gcc passes it in most distributions' builds.
    link("--build-id=sha1");
    for file in ["function-order", "lld", "strip-hashes"] {
        println!("cargo::rerun-if-changed=../cni-plugins/{file}");
    }
}

/// Gives the linker an option: directly, where it is named in `.cargo/config.toml`, or through the C compiler.
fn link(option: &str) {
    let is_linker = env::var("RUSTC_LINKER").is_ok_and(|linker| linker.ends_with("lld"));
    println!("cargo::rustc-link-arg-bins={}{option}", if is_linker { "" } else { "-Wl," });
}

fn release() {
    println!("cargo::rerun-if-env-changed=CNI_COMMIT");
    // Tests run on unoptimised builds, which a commit must not make anew.
    let is_optimised = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let commit = match env::var("CNI_COMMIT") {
        Ok(named) => Some(named),
        Err(_) if is_optimised => head(),
        Err(_) => None,
    };
    let commit = commit.map(|commit| format!(".g{commit}")).unwrap_or_default();
    let own = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo::rustc-env=SUITE_RELEASE={REFERENCE}+rust.{own}{commit}");
}

/// The commit of the work tree; none where it is no repository, or of another owner, or where there is no git.
fn head() -> Option<String> {
    let git = |words: &[&str]| {
        let output = Command::new("git").args(words).output().ok().filter(|output| output.status.success())?;
        String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"])?;
    // A line is added to this file whenever HEAD changes.
    let log = git(&["rev-parse", "--path-format=absolute", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={log}");
    println!("cargo::rerun-if-changed=build.rs");
    Some(commit)
}
