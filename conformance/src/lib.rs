//! The specification as an executable suite.
