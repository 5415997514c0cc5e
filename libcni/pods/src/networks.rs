//! The networks of a folder.
