//! The command line of libcni.
