//! Packet filter rules on the real kernel: one executable, as each takes seconds to link.

mod node;

#[path = "iptables/main.rs"]
mod iptables;
mod leftovers;
mod masquerade;
mod spoof;
