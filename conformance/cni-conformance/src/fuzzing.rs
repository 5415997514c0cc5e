//! For the tests that give decoders any bytes: what the kit reads.

use crate::finding::CallRecord;
use crate::testbed::Answer;
use std::path::PathBuf;

/// The answer of a plugin that ended with a status and printed something.
pub fn answer(exit: i32, stdout: &str) -> Answer {
    Answer::new(CallRecord { exit: Some(exit), stdout: stdout.to_owned(), ..CallRecord::default() }, None, "1.1.0")
}

pub fn addresses(result: &serde_json::Value) -> Vec<String> {
    crate::addresses::addresses(result)
}

/// Places of the mounts in a `mountinfo`.
pub fn mounts(mountinfo: &[u8]) -> Vec<PathBuf> {
    crate::write_protection::mounts(mountinfo).into_iter().map(|(place, _)| place).collect()
}
