//! STATUS: whether ADD could be served now.

use cni_filter::{Backend, Filter};
use cni_spec::{CniError, Code, ConfObject, NetworkName};
use netops::link::tun::{Tap, create_tap};
use netops::link::{self, Kind, LinkName, NewLink, Place, Veth};
use netops::{Kernel, Netns, OpError, kernel_probe};
use serde::Deserialize;
use skel::StatusRequest;

use crate::attach::DynPlugin;
use crate::conf::Masquerade;
use crate::error::refuse_without_ipv6;
use crate::{conf, failed, forwarding};

/// Reports whether ADD could be served.
/// Errors: code 50 with the reason; the IPAM plugin's own.
pub(crate) async fn status(start: &dyn DynPlugin, request: &StatusRequest) -> Result<(), CniError> {
    let StatusRequest { conf: net, raw, .. } = request;
    start.require_ipam(net.ipam.is_some())?;
    let ipv6 = || match (has_ipv6(net.object()), start.gateway_link()) {
        (true, Some(link)) => refuse_without_ipv6(Some(&link)).and_then(|()| forwarding::warn_of_lost()),
        (true, None) => refuse_without_ipv6(None),
        (false, _) => Ok(()),
    };
    start.status(raw.search_path()).and_then(|()| ipv6()).map_err(|error| not_available(&net.name, error))?;
    let Some(ipam) = raw.ipam(net) else { return Ok(()) };
    match ipam.status().await {
        // The address plugin did not answer, so it has no answer to pass on.
        Err(error) if error.code == Code::DELEGATE => Err(not_available(&net.name, error)),
        answer => answer,
    }
}

/// A range of host-local, or an address of static.
#[derive(Deserialize)]
struct Given {
    #[serde(default, alias = "address")]
    subnet: String,
}

/// Whether the keys of host-local or static ask for IPv6 addresses. Keys of other address plugins are not known.
fn has_ipv6(object: &ConfObject) -> bool {
    let single = object.find::<Given>(&["ipam"]);
    let ranges = object.find::<Vec<Vec<Given>>>(&["ipam", "ranges"]).unwrap_or_default();
    let addresses = object.find::<Vec<Given>>(&["ipam", "addresses"]).unwrap_or_default();
    single.into_iter().chain(ranges.into_iter().flatten()).chain(addresses).any(|given| given.subnet.contains(':'))
}

/// The answer of STATUS of a network whose gateways of IPv6 the node's link cannot have; `None`: it can.
pub fn without_ipv6(network: &NetworkName, link: &str) -> Option<CniError> {
    refuse_without_ipv6(Some(link)).err().map(|error| not_available(network, error))
}

/// The error of STATUS: why ADD could not be served.
pub fn not_available(network: &NetworkName, error: CniError) -> CniError {
    let msg = format!("network {network} is not available: {}", error.msg);
    CniError { code: Code::NOT_AVAILABLE, msg, ..error }
}

/// Whether the packet filter can do what a config asks for.
/// Errors: a part of the kernel, a privilege, or iptables is missing.
pub fn probe_filter(masquerade: Option<&Masquerade>, spoof_guard: bool, search_path: &str) -> Result<(), CniError> {
    let masquerade = masquerade.map(|of| of.backend);
    let name = match (masquerade, spoof_guard) {
        (None, false) => return Ok(()),
        (None, true) => "filter-spoof-guard",
        (Some(Backend::Nftables), false) => "filter-masquerade",
        (Some(Backend::Nftables), true) => "filter-masquerade-spoof-guard",
        (Some(Backend::Shared), false) => "filter-shared",
        (Some(Backend::Shared), true) => "filter-shared-spoof-guard",
        // The node may change at any time which of its rules and programs for iptables are in use.
        (Some(_), _) => return ask_filter(masquerade, spoof_guard, search_path).map_err(failed),
    };
    // A request to nf_tables waits for other containers' transactions, and for what they have deleted to be freed.
    kernel_probe::once(name, || ask_filter(masquerade, spoof_guard, search_path)).map_err(failed)
}

fn ask_filter(masquerade: Option<Backend>, spoof_guard: bool, search_path: &str) -> Result<(), OpError> {
    let mut filter = Filter::open(search_path)?;
    let masquerades = masquerade.map_or(Ok(()), |backend| filter.probe_masquerade(backend));
    let outcome = masquerades.and_then(|()| if spoof_guard { filter.probe_spoof_guard() } else { Ok(()) });
    filter.close();
    outcome
}

/// Whether the kernel has links of this kind that need no other link.
/// Errors: the kernel has no such links, or the plugin may not make one.
pub fn probe_kind(kind: Kind) -> Result<(), CniError> {
    let name = LinkName::parse("trial0").map_err(|error| conf::invalid(error.to_string()))?;
    let what = kind.name().to_owned();
    try_out(&what, |net| link::create(net, &NewLink::new(&name, kind), None).map(drop))
}

pub fn trial_veth(mtu_bytes: Option<u32>) -> Veth<'static> {
    Veth { mtu_bytes, ..Veth::new("veth-trial0", "veth-trial1") }
}

/// Whether the kernel has taps.
/// Errors: the kernel has no taps, or the plugin may not make one.
pub fn try_out_tap() -> Result<(), CniError> {
    let name = LinkName::parse("trial0").map_err(|error| conf::invalid(error.to_string()))?;
    try_out("tap", |net| {
        let netns = Netns::current().map_err(|error| OpError::state("open", "the namespace", error.to_string()))?;
        let (multi_queue, owner, group, master, mtu_bytes, mac, alias) = (false, None, None, None, None, None, None);
        let tap = Tap { name: &name, multi_queue, owner, group, master, mtu_bytes, mac, alias };
        create_tap(Place { netns: &netns, kernel: net }, &tap).map(drop)
    })
}

/// Makes what ADD would make, in a namespace that ends at once, the first time in a boot: that also loads the modules. `what`
/// names it ([`kernel_probe::once`]).
/// Errors: the kernel refused a request.
pub fn try_out(what: &str, make: impl FnOnce(&Kernel) -> Result<(), OpError> + Send) -> Result<(), CniError> {
    let tried = kernel_probe::once(what, || Netns::run_in_new(|| make(&Kernel::host()?)).and_then(|made| made));
    tried.map_err(failed)
}

/// A pair of the MTU in [`try_out`]'s name.
pub fn mtu_word(mtu_bytes: Option<u32>) -> String {
    mtu_bytes.map(|mtu| format!("-mtu{mtu}")).unwrap_or_default()
}
