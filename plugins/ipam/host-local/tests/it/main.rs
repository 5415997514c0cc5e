//! host-local as processes on real files: beside the reference, in races, cut off anywhere, on stores that fail.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail by panicking")]

mod call;

mod failing_stores;
mod reference;
