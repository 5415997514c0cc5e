//! Does nothing: what starting and ending a static executable costs.

fn main() {}
