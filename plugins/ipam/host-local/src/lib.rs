//! The host-local address plugin.
