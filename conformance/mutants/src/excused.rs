//! Rules that no mutant breaks.

/// Rules with cases that no mutant breaks, and why.
pub const RULES: &[(&str, &str)] = &[
    (
        "conventions.dns",
        "no plugin of the suite or of the reference has the capability, so that there is none to be made wrong",
    ),
    ("check.notices-a-missing-daemon", "no plugin of the suite has a daemon, so that there is none to be made wrong"),
];

/// Rules that the honest plugins do not keep to yet, and why. A test asserts that they do not.
pub const HONEST: &[(&str, &str)] = &[
    (
        "add.passes-unknown-keys-on",
        "a prevResult is read into a type that has the keys of 1.1.0, as the reference's is",
    ),
    ("conventions.args-win", "host-local asks for the addresses of both, as the reference's does"),
];
