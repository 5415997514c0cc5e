//! Versions of the specification, and their order.

/// Every version there is, oldest first.
pub const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

pub fn rank(version: &str) -> Option<usize> {
    VERSIONS.iter().position(|known| *known == version)
}

/// Whether a version is this one or newer; an unknown one is not.
pub fn is_from(version: &str, oldest: &str) -> bool {
    rank(version).is_some_and(|rank_of_it| Some(rank_of_it) >= rank(oldest))
}
