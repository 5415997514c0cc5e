//! Rules that no mutant breaks.

/// Rules with cases that no mutant breaks, and why.
pub const RULES: &[(&str, &str)] = &[];
