//! The loopback plugin.
