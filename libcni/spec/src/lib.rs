//! The CNI protocol as types.
