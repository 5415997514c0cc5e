//! Settings of a run, from environment variables: `TARGET_WHAT` for the target `--test target`, as `HISTORY_SEED`.

#![expect(clippy::disallowed_methods, reason = "the length of a run is asked for by variables")]

pub fn text(variable: &str) -> Option<String> {
    std::env::var(variable).ok()
}

pub fn number(variable: &str) -> Option<u64> {
    text(variable).map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

pub fn number_or(variable: &str, otherwise: u64) -> u64 {
    number(variable).unwrap_or(otherwise)
}
