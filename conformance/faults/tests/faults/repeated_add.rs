//! A repeated ADD that fails leaves the rules of the first one; for a first ADD see `crash::chained`.

mod firewall;
mod portmap;
