//! The loopback plugin: `lo` of the container goes up, and the result says which addresses it has.
//!
//! A runtime calls it under any interface name: `CNI_IFNAME` is ignored, the interface is `lo`. It has no
//! keys, keeps no state and leaves nothing on the node.

use std::str::FromStr;

use cni_spec::{AddResult, CniError, Code, Interface, Ip};
use interface::check::differs;
use interface::failed;
use interface::sides::{find_netns, open_kernel};
use ipnetwork::IpNetwork;
use netops::link::{self, Link, Settings, Target};
use netops::{Family, Kernel, addr};
use skel::{AddRequest, CheckRequest, DelRequest, EventLoop, NetnsPath, Plugin, Preview, Shown};

const LO: &str = "lo";

pub struct Loopback;

impl Plugin for Loopback {
    const NAME: &'static str = "loopback";
    const DELEGATES: bool = false;
    const EVENT_LOOP: EventLoop = EventLoop::WhenWaiting;
    type Conf = ();
    type Removal = ();

    async fn add(request: &AddRequest, _: &()) -> Result<AddResult, CniError> {
        let prev = request.conf.prev_result()?;
        let net = open_kernel(&request.netns)?;
        let lo = link::get(&net, &Target::named(LO)).map_err(failed)?;
        // `lo` gets its own addresses when it goes up: what is there and is none of them can be known before.
        own_addresses(&net, &lo)?;
        let addresses = match set_up(&net, &lo).and_then(|()| own_addresses(&net, &lo)) {
            Ok(addresses) => addresses,
            Err(error) => return Err(down_again(&net, &lo, error)),
        };
        Ok(prev.unwrap_or_else(|| result(&request.netns, &addresses)))
    }

    async fn del(request: &DelRequest, _: &()) -> Result<(), CniError> {
        let Some(netns) = find_netns(request.netns.as_ref())? else {
            return Ok(());
        };
        // The kernel may have given the process's number to another container, and `lo` ends with its namespace anyway.
        if !matches!(netns.is_by_process(), Ok(false)) {
            tracing::debug!(netns = %netns.path().display(), "lo stays up: the namespace may be another's");
            return Ok(());
        }
        let net = Kernel::in_netns(&netns).map_err(failed)?;
        let links = link::list_of_container(&net).map_err(failed)?;
        // Another attachment of the container, or another container of the namespace, lives, and its processes use `lo`.
        if let Some(other) = links.iter().find(|link| link.up && !link.loopback) {
            tracing::debug!(netns = %netns.path().display(), link = other.name, "lo stays up: another link is up");
            return Ok(());
        }
        net.run(link::set(&Target::named(LO), &up(false))).map_err(failed)
    }

    fn preview(request: &AddRequest, _: &()) -> Result<Option<Preview>, CniError> {
        let prev = request.conf.prev_result()?;
        let net = open_kernel(&request.netns)?;
        let lo = link::get(&net, &Target::named(LO)).map_err(failed)?;
        own_addresses(&net, &lo)?;
        let addresses = [IpNetwork::from_str("127.0.0.1/8"), IpNetwork::from_str("::1/128")].into_iter().flatten();
        let result = prev.unwrap_or_else(|| result(&request.netns, &addresses.collect::<Vec<_>>()));
        let steps = vec![Shown::new(format!("ip link set {LO} up")).so_if(lo.up)];
        Ok(Some(Preview { steps, result, unknown: Vec::new() }))
    }

    async fn check(request: &CheckRequest, _: &()) -> Result<(), CniError> {
        let net = open_kernel(&request.netns)?;
        match link::get(&net, &Target::named(LO)).map_err(failed)?.up {
            true => Ok(()),
            false => Err(differs(format!("link {LO} in {}", request.netns), "it is down")),
        }
    }
}

fn up(up: bool) -> Settings {
    Settings { up: Some(up), ..Settings::default() }
}

fn set_up(net: &Kernel, lo: &Link) -> Result<(), CniError> {
    net.run(link::set(&lo.into(), &up(true))).map_err(failed)
}

/// Undoes [`set_up`], unless another process had done it before.
fn down_again(net: &Kernel, lo: &Link, error: CniError) -> CniError {
    if lo.up {
        return error;
    }
    match net.run(link::set(&lo.into(), &up(false))) {
        Ok(()) => error.detail("Undone: lo is down again."),
        Err(left) => error.detail(format!("Left behind: {left}.")),
    }
}

/// The addresses of `lo`, none of which may be another's.
fn own_addresses(net: &Kernel, lo: &Link) -> Result<Vec<IpNetwork>, CniError> {
    let addresses = addr::list(net, lo).map_err(failed)?;
    match addresses.iter().find(|address| !address.net.ip().is_loopback()) {
        Some(other) => Err(CniError::new(
            Code::UNUSABLE_RESULT,
            format!(
                "cannot use link lo in {}: it has the address {}, which is no loopback address",
                net.place(),
                other.net
            ),
        )),
        None => Ok(addresses.into_iter().map(|address| address.net).collect()),
    }
}

/// `lo` with its first address of each family.
fn result(netns: &NetnsPath, addresses: &[IpNetwork]) -> AddResult {
    let first = |family| addresses.iter().find(|address| Family::from(**address) == family);
    let ips = Family::BOTH.map(first).into_iter().flatten().map(|address| Ip::new(*address, None).of(0));
    let lo = Interface::new(LO).mac("00:00:00:00:00:00").sandbox(netns.as_str());
    ips.fold(AddResult::default().interface(lo), AddResult::ip)
}
