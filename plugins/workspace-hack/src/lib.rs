//! No code: `Cargo.toml` is what this crate is for.
