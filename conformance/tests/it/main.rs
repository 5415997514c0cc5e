//! The specification as tests: a module per section, then one per plugin.

#![allow(missing_docs, reason = "a test's name is its documentation")]

mod subjects;

mod protocol;
