//! The kit's judgement of runtimes: the honest one passes every rule, and each fault is caught by the rule it breaks.

#![expect(clippy::unwrap_used, reason = "a test may panic, and its helpers with it")]

mod ctr;
mod faults;
mod options;
mod run_kit;
