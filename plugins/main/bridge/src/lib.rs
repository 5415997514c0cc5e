//! The bridge plugin.
