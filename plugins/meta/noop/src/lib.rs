//! The noop plugin.
