//! Rules that no mutant breaks.

/// Rules with cases that no mutant breaks, and why.
pub const RULES: &[(&str, &str)] = &[(
    "conventions.dns",
    "no plugin of the suite or of the reference has the capability, so that there is none to be made wrong",
)];
