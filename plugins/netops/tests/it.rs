//! Kernel objects in throwaway namespaces: one executable, as each takes seconds to link.

mod conntrack;
#[path = "kernel/main.rs"]
mod kernel;
mod links;
mod nft;
