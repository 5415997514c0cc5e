//! The one executable that is all plugins: it acts as the one by whose name it is called.
//!
//! Every plugin is an [`Entry`] here and a file in the plugin folder. An IPAM plugin that is in this table runs in the
//! process of the interface plugin that delegates to it, if its file there is of this very build; see [`skel::delegate`].

use skel::Entry;

/// The release of the reference plugins whose behaviour these have, with this suite's version as build metadata:
/// `1.9.1+rust.0.1.0.g0123456789ab`.
pub const RELEASE: &str = env!("SUITE_RELEASE");

/// The plugins, in the order in which they are listed.
pub const ENTRIES: &[Entry] = &[
    Entry::of::<bandwidth::Bandwidth>(),
    Entry::of::<bridge::Bridge>(),
    Entry::of::<dhcp::Dhcp>(),
    Entry::of::<dummy::Dummy>(),
    Entry::of::<firewall::Firewall>(),
    Entry::of::<host_device::HostDevice>(),
    Entry::of::<host_local::HostLocal>(),
    Entry::of::<ipvlan::Ipvlan>(),
    Entry::of::<loopback::Loopback>(),
    Entry::of::<macvlan::Macvlan>(),
    Entry::of::<ptp::Ptp>(),
    noop::ENTRY,
    Entry::of::<portmap::Portmap>(),
    Entry::of::<sbr::Sbr>(),
    Entry::of::<static_ipam::Static>(),
    Entry::of::<tap::Tap>(),
    Entry::of::<tuning::Tuning>(),
    Entry::of::<vlan::Vlan>(),
    Entry::of::<vrf::VrfPlugin>(),
];

/// The whole process, up to its exit status.
#[must_use]
pub fn main() -> u8 {
    if skel::start().is_err() {
        return 1;
    }
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    dhcp::run_if_asked(words).unwrap_or_else(|| skel::run(ENTRIES, RELEASE))
}
