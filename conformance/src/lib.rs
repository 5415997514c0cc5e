//! The CNI specification as an executable suite.
//!
//! `tests/plugins` has a module per section of the specification, then one per plugin; a test's name is the
//! specification's sentence. `TESTS.md` maps the sentences to the tests, `DIFFERENCES.md` lists what differs from the
//! reference plugins on purpose.
