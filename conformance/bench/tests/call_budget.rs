//! Requests of unoptimised executables to the kernel, against the limits; `.ci/run` also counts the release build.

#![allow(clippy::unwrap_used, reason = "a test that cannot set up its objects fails")]

use bench::call_budget::limits::{self, Limits};
use bench::call_budget::{Folder, Metric, count_all, scenes};

/// The limits hold for every call that can be counted, and no longer for one that has gone.
#[test]
fn calls_are_within_their_limits() {
    let folder = Folder { plugins: testns::plugins().to_owned(), cnitool: testns::cnitool().to_owned() };
    let limits = Limits::read(&limits::path()).unwrap();
    let all =
        count_all(&folder, "", false, &|seen| limits.compare(seen, Metric::has_limit_in_every_profile).is_empty())
            .unwrap();
    let sentences = limits.compare(&all, Metric::has_limit_in_every_profile);
    assert!(sentences.is_empty(), "\n{}", sentences.join("\n"));
    let counted: Vec<_> = all.iter().map(|seen| seen.call.as_str()).collect();
    let gone: Vec<_> = limits.calls().filter(|call| !counted.contains(call)).collect();
    assert!(gone.is_empty() && scenes().len() == 10, "limits.json has calls that no scene makes: {gone:?}");
}
