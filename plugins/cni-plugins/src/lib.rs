//! The one executable that is all plugins: it acts as the one by whose name it is called.
//!
//! Every plugin is an [`Entry`] here and a file in the plugin folder. An IPAM plugin that is in this table runs in the
//! process of the interface plugin that delegates to it, if its file there is of this very build; see [`skel::delegate`].

pub use {
    bandwidth, bridge, dhcp, dummy, firewall, host_device, host_local, ipvlan, loopback, macvlan, portmap, ptp, sbr,
    static_ipam, tap, tuning, vlan, vrf,
};

use skel::Entry;

/// The release of the reference plugins whose behaviour these have, with this suite's version as build metadata:
/// `1.9.1+rust.0.9.0.g0123456789ab`.
pub const RELEASE: &str = env!("SUITE_RELEASE");

/// Calls the macro `$table` with the list of all plugins but noop: what kind a plugin is of, its crate's type, and its
/// folder below `plugins`. Dispatch, the keys that `cnitool validate` checks and the previews of `cnitool plan` are made from this list.
///
/// `interface` plugins make an interface in the container, `chained` plugins change what one before them has made, and
/// `address` plugins give addresses; loopback is the only one of its kind.
#[macro_export]
macro_rules! plugins {
    ($table:ident) => {
        $table! {
            chained $crate::bandwidth::Bandwidth, "meta/bandwidth";
            interface $crate::bridge::Bridge, "main/bridge";
            address $crate::dhcp::Dhcp, "ipam/dhcp";
            interface $crate::dummy::Dummy, "main/dummy";
            chained $crate::firewall::Firewall, "meta/firewall";
            interface $crate::host_device::HostDevice, "main/host-device";
            address $crate::host_local::HostLocal, "ipam/host-local";
            interface $crate::ipvlan::Ipvlan, "main/ipvlan";
            loopback $crate::loopback::Loopback, "main/loopback";
            interface $crate::macvlan::Macvlan, "main/macvlan";
            chained $crate::portmap::Portmap, "meta/portmap";
            interface $crate::ptp::Ptp, "main/ptp";
            chained $crate::sbr::Sbr, "meta/sbr";
            address $crate::static_ipam::Static, "ipam/static";
            interface $crate::tap::Tap, "main/tap";
            chained $crate::tuning::Tuning, "meta/tuning";
            interface $crate::vlan::Vlan, "main/vlan";
            chained $crate::vrf::VrfPlugin, "meta/vrf";
        }
    };
}

macro_rules! entries {
    ($($kind:ident $plugin:path, $folder:literal;)*) => {
        /// The plugins, and noop, which is for tests. They answer no question about previews: `cnitool` has their parsers.
        pub const ENTRIES: &[Entry] = &[$(entry::$kind::<$plugin>().without_preview(),)* noop::ENTRY];
    };
}

plugins!(entries);

/// The entry of a plugin, by the kind that `plugins!` says.
pub mod entry {
    pub use chained::entry as chained;
    pub use interface::entry as interface;
    use skel::{Entry, Plugin};

    pub const fn address<P: Plugin>() -> Entry {
        Entry::of::<P>()
    }

    pub const fn loopback<P: Plugin>() -> Entry {
        Entry::of::<P>()
    }
}

/// The whole process, up to its exit status; `words` are its arguments, its own name first.
pub fn main(words: impl Iterator<Item = String>) -> u8 {
    if let Err(error) = skel::start() {
        return skel::refuse(&error);
    }
    let words: Vec<_> = words.collect();
    dhcp::run_if_asked(words.iter().cloned()).unwrap_or_else(|| skel::run(words.into_iter(), ENTRIES, RELEASE))
}
