//! ADD: observe, lease, plan, apply; every step with its undo.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cni_spec::{AddResult, CniError, Code, Interface, Ip, SpecVersion};
use filter::Filter;
use interface::host_veth::{self, Owner};
use interface::{container, failed, lease, mac, txn::not_done};
use ipnetwork::IpNetwork;
use netops::link::{self, Link, Mac, Settings, Target, Veth};
use netops::txn::{self, NodeUndo, Txn};
use netops::watch::Watch;
use netops::{Errno, OpError, bridge_port, sysctl, unlink};
use skel::{AddRequest, Delegate};

use crate::conf::Conf;
use crate::observe::{Places, owner};
use crate::plan::{HostVeth, Plan};
use crate::shared::{self, Shared};
use crate::undo::{BridgeUndoer, Undo, attachment};

/// How long the host's end may take to get ready. The reference gives up after 2.55 s.
const UP_DEADLINE: Duration = Duration::from_secs(5);

/// Attaches the container, or leaves the node as it was.
///
/// # Errors
/// What stood in the way; details say what was undone.
pub async fn add(request: &AddRequest<Conf>) -> Result<AddResult, CniError> {
    refuse_inexpressible(request)?;
    // What the container may send from is decided here: it can change an address that is read there later.
    let mac = requested_mac(request)?.or_else(|| request.conf.own.mac_spoof_check.then(Mac::random));
    let places = Places::open(&request.netns)?;
    let owner = owner(&request.conf.name, &request.container_id, &request.ifname);
    let undoer = BridgeUndoer::new(request, &places.host, &owner);
    let adding = Adding { request, places: &places, owner: &owner };
    let done = txn::run(&undoer, skel::interrupted(), async |txn| {
        places.refuse_taken(&request.ifname)?;
        let lease = adding.lease(txn).await?;
        let plan = Plan::new(&request.conf.own, &owner, mac, lease)?;
        adding.apply(txn, plan).await
    });
    done.await.map_err(not_done)
}

/// Result forms before 0.3.0 have no place for an attachment without addresses: better told before the work.
fn refuse_inexpressible(request: &AddRequest<Conf>) -> Result<(), CniError> {
    match request.conf.ipam {
        Some(_) => Ok(()),
        None => AddResult::default().to_json(request.conf.cni_version).map(drop),
    }
}

/// `CNI_ARGS MAC`, the weakest of the ways to ask for an address.
fn requested_mac(request: &AddRequest<Conf>) -> Result<Option<Mac>, CniError> {
    let args = request.raw.parse_args()?;
    args.expect_known(&["MAC"])?;
    let weakest = mac::parse_requested("CNI_ARGS MAC", args.find("MAC").unwrap_or_default());
    Ok(request.conf.own.mac.or(weakest.map_err(|error| CniError { code: Code::INVALID_ENVIRONMENT, ..error })?))
}

/// DEL of a delegate whose ADD failed with an error. It has told what is wrong, so that DEL fails is only logged: the
/// runtime calls it again.
async fn release_after(error: &CniError, ipam: &Delegate<'_>) {
    // It did not even begin, and would refuse DEL in the same words.
    let refused = matches!(
        error.code,
        Code::INCOMPATIBLE_VERSION
            | Code::UNSUPPORTED_FIELD
            | Code::INVALID_ENVIRONMENT
            | Code::DECODING
            | Code::INVALID_CONFIG
    );
    if refused || !ipam.is_installed() {
        return;
    }
    if let Err(left) = ipam.del().await {
        tracing::warn!(%left, "DEL after the failed ADD of {} failed, too", ipam.name());
    }
}

struct Adding<'a> {
    request: &'a AddRequest<Conf>,
    places: &'a Places,
    owner: &'a Owner<'a>,
}

impl Adding<'_> {
    async fn lease(&self, txn: &Txn<Undo>) -> Result<Option<AddResult>, CniError> {
        let Some(ipam) = self.request.ipam() else { return Ok(None) };
        txn.push(Undo::Request);
        let answer = lease::add(&ipam).await;
        // It has come to its end, whatever it says.
        txn.forget_newest();
        txn.push(Undo::Lease);
        match answer {
            Ok(lease) => Ok(Some(lease)),
            Err(error) => {
                // A delegate that was cut off is for the rollback; one that answered is called with DEL here (SPEC 4).
                if !matches!(error.code, Code::TIMEOUT | Code::UNUSABLE_RESULT) {
                    release_after(&error, &ipam).await;
                    txn.forget_newest();
                }
                Err(error)
            }
        }
    }

    async fn apply(&self, txn: &Txn<Undo>, plan: Plan) -> Result<AddResult, CniError> {
        txn.checkpoint().await;
        if plan.masquerade.is_some() || plan.spoof_guard {
            let masqueraded = plan.masquerade.iter().flat_map(|(_, addresses)| addresses);
            // Taken back after the link, as the spoof guard stays as long as its port.
            txn.push(Undo::Filter(masqueraded.map(IpNetwork::ip).collect()));
        }
        let (mut shared, host_veth) = self.join(txn, &plan)?;
        txn.checkpoint().await;
        self.filter(&plan, &host_veth)?;
        let container = self.prepare(&shared, &host_veth, &plan).map_err(failed)?;
        txn.checkpoint().await;
        if plan.container_up {
            let configured = container::configure(&self.places.inside, &container, &plan.container).map_err(failed)?;
            self.until_inside_up(&configured).await?;
        }
        let links = self.read_again(&shared, host_veth, container, plan.container_up).await.map_err(failed)?;
        self.until_addresses_answer(&mut shared, &links.container, &plan).await.map_err(failed)?;
        // Last, as it is for the whole node and not taken back.
        let (ipv4, ipv6) = plan.forwards();
        if ipv4 {
            sysctl::forward_ipv4().map_err(failed)?;
        }
        if ipv6 {
            sysctl::forward_ipv6().map_err(failed)?;
        }
        Ok(result(self.request, plan.lease, &links))
    }

    /// The bridge, and the container's port there.
    fn join(&self, txn: &Txn<Undo>, plan: &Plan) -> Result<(Shared<'_>, Link), CniError> {
        let shared = shared::ensure(&self.places.host, plan, self.request.conf.own.force_address)?;
        let made = self.create_veth(plan, &shared.bridge);
        // An error may be that of a lost answer: then the pair is there.
        let there = match &made {
            Ok(host_veth) => Some(host_veth.clone()),
            Err(error) if error.code == Code::EXISTS => None,
            Err(_) => self.owner.find(&self.places.host).ok().flatten(),
        };
        there.into_iter().for_each(|veth| txn.push(Undo::Node(NodeUndo::DeleteLink(veth))));
        Ok((shared, made?))
    }

    fn create_veth(&self, plan: &Plan, bridge: &Link) -> Result<Link, CniError> {
        let HostVeth { name, alias, mtu_bytes, .. } = &plan.host_veth;
        let veth = Veth {
            name,
            master: Some(bridge.index),
            alias,
            mtu_bytes: *mtu_bytes,
            peer_name: &plan.container.ifname,
            peer_mac: plan.container_mac,
            peer_netns: Some(&self.places.netns),
        };
        let error = match link::create_veth(&self.places.host, &veth) {
            Ok(link) => return Ok(link),
            Err(error) if error.os_errno() == Some(Errno::EEXIST) => error,
            Err(error) => return Err(explain(error, bridge)),
        };
        self.places.refuse_taken(&self.request.ifname)?;
        let random = host_veth::random_name();
        let name = match link::find(&self.places.host, name).map_err(failed)? {
            // Ours, of a container that died with its namespace and is not all gone yet.
            Some(stale) if self.owner.owns(&stale) => {
                unlink::remove(&stale, None).map_err(failed)?;
                name
            }
            Some(_) => &random,
            None => return Err(failed(error)),
        };
        link::create_veth(&self.places.host, &Veth { name, ..veth }).map_err(|error| explain(error, bridge))
    }

    /// Both ends before they get up; returns the container's.
    fn prepare(&self, shared: &Shared<'_>, host_veth: &Link, plan: &Plan) -> Result<Link, OpError> {
        let Places { host, netns, inside } = self.places;
        shared::refuse_advertisements(host_veth)?;
        let HostVeth { vlans, port, .. } = &plan.host_veth;
        let mut requests = Vec::new();
        if vlans.leave_default {
            requests.extend(shared::leave_default(&shared.bridge, host_veth));
        }
        requests.extend(vlans.join.iter().map(|vlans| bridge_port::add_vlans(host_veth, *vlans)));
        if port.hairpin || port.isolated {
            requests.push(bridge_port::set(&host_veth.into(), *port));
        }
        // Host end first: a veth has carrier only while both ends are up.
        let up = Settings { up: Some(true), ..Settings::default() };
        requests.push(link::set(&host_veth.into(), &up));
        host.run_all(requests)?;
        container::write_sysctls(netns, &plan.container)?;
        link::get(inside, &Target::named(&plan.container.ifname))
    }

    /// Before the host's end is up: a process in the container may set its own end up as soon as it is there.
    fn filter(&self, plan: &Plan, host_veth: &Link) -> Result<(), CniError> {
        if plan.masquerade.is_none() && !plan.spoof_guard {
            return Ok(());
        }
        let mut filter = Filter::open().map_err(failed)?.searching(self.request.raw.search_path());
        if let (true, Some(mac)) = (plan.spoof_guard, plan.container_mac) {
            filter.add_spoof_guard(attachment(self.owner), &host_veth.name, mac.0).map_err(failed)?;
        }
        if let Some((backend, addresses)) = &plan.masquerade {
            filter.add_masquerade(*backend, attachment(self.owner), addresses).map_err(failed)?;
        }
        Ok(())
    }

    /// The kernel gets round to one end after the other, and until then an end drops what it is given to send.
    /// Subscribing only when the first look did not suffice loses nothing: the wait looks again after it.
    async fn until_inside_up(&self, container: &Link) -> Result<(), CniError> {
        let Places { netns, inside, .. } = self.places;
        if !container.oper_up {
            let mut watch = Watch::in_netns(netns).map_err(failed)?;
            watch.until_up(inside, container, UP_DEADLINE).await.map_err(failed)?;
        }
        Ok(())
    }

    /// What the kernel does on its own after it has taken the addresses. By now it mostly has.
    async fn until_addresses_answer(
        &self,
        shared: &mut Shared<'_>,
        container: &Link,
        plan: &Plan,
    ) -> Result<(), OpError> {
        let Places { netns, inside, .. } = self.places;
        if plan.container_up {
            container::settle(inside, netns, container, &plan.container).await?;
        }
        shared.settle().await
    }

    /// The links as they are now, the host's end when it can carry packets: a bridge may have taken its new port's
    /// address.
    async fn read_again(
        &self,
        shared: &Shared<'_>,
        host_veth: Link,
        container: Link,
        is_to_be_up: bool,
    ) -> Result<Links, OpError> {
        let host = &self.places.host;
        let (seen, mut bridge) = link::get_both(host, &(&host_veth).into(), &(&shared.bridge).into())?;
        if is_to_be_up && !seen.oper_up {
            let mut watch = Watch::host()?;
            watch.until_up(host, &host_veth, UP_DEADLINE).await?;
            bridge = link::get(host, &(&bridge).into())?;
        }
        let gateway = match &shared.vlan_gateway {
            Some(gateway) => Some(link::get(host, &gateway.into())?),
            None => None,
        };
        if bridge.oper_unknown {
            // A new bridge has carrier from the start, so its first port changes nothing and the kernel never works
            // out its state.
            let settings = Settings { oper_up: true, ..Settings::default() };
            bridge = link::set_and_get(host, &(&bridge).into(), &settings)?;
        }
        Ok(Links { bridge, host_veth, container, gateway })
    }
}

struct Links {
    bridge: Link,
    host_veth: Link,
    container: Link,
    gateway: Option<Link>,
}

fn explain(error: OpError, bridge: &Link) -> CniError {
    let full = error.os_errno() == Some(Errno::EXFULL);
    let error = failed(error);
    match full {
        true => error.detail(format!(
            "Bridge {} has as many ports as the kernel allows, 1023: remove some, run GC, or use another bridge.",
            bridge.name
        )),
        false => error,
    }
}

/// What was made, after what earlier plugins of the chain made.
fn result(request: &AddRequest<Conf>, lease: AddResult, links: &Links) -> AddResult {
    let mut result = request.conf.find_prev_result().map(without_loopback).unwrap_or_default();
    let first = result.interfaces.len();
    // Results have MTUs from 1.1.0 on.
    let with_mtu = request.conf.cni_version >= SpecVersion::V1_1_0;
    let entry = |link: &Link, sandbox: &str| {
        let entry = interface(link, sandbox);
        if with_mtu { entry } else { Interface { mtu: 0, ..entry } }
    };
    result.interfaces.push(entry(&links.bridge, ""));
    result.interfaces.push(entry(&links.host_veth, ""));
    result.interfaces.push(entry(&links.container, request.netns.as_str()));
    result.interfaces.extend(links.gateway.as_ref().map(|gateway| entry(gateway, "")));
    let own = |ip: Ip| Ip { interface: Some(first + 2), ..ip };
    result.ips.extend(lease.ips.into_iter().map(own));
    result.routes.extend(lease.routes);
    if !lease.dns.is_empty() || request.conf.own.dns.is_some() {
        result.dns = lease.dns;
    }
    result
}

/// A result without interfaces that have loopback addresses only, as plugin loopback before this one tells of `lo` (nomad's
/// bridge network has it there). Nobody reaches the container by them, but whoever takes the first address of a result
/// does: portmap would map ports to 127.0.0.1. The reference's bridge tells nothing of earlier results.
fn without_loopback(mut result: AddResult) -> AddResult {
    let had_addresses = with_addresses(&result);
    result.ips.retain(|ip| !ip.address.ip().is_loopback());
    let have_addresses = with_addresses(&result);
    let stays = |index: &usize| !had_addresses.contains(index) || have_addresses.contains(index);
    // Where each interface that stays comes to stand.
    let places: BTreeMap<usize, usize> = (0..result.interfaces.len()).filter(stays).zip(0..).collect();
    for ip in &mut result.ips {
        ip.interface = ip.interface.and_then(|old| places.get(&old).copied());
    }
    let mut index = 0..;
    result.interfaces.retain(|_| index.next().is_some_and(|index| places.contains_key(&index)));
    result
}

/// The interfaces that addresses are on, by index.
fn with_addresses(result: &AddResult) -> BTreeSet<usize> {
    result.ips.iter().filter_map(|ip| ip.interface).collect()
}

fn interface(link: &Link, sandbox: &str) -> Interface {
    Interface {
        name: link.name.clone(),
        mac: link.mac.map(|mac| mac.to_string()).unwrap_or_default(),
        mtu: link.mtu_bytes,
        sandbox: sandbox.to_owned(),
        ..Interface::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    #[expect(clippy::needless_pass_by_value, reason = "reads as a table")]
    fn check(result: &str, expected: Expect) {
        let prev =
            AddResult::from_value(&cni_spec::json::parse(result.as_bytes()).unwrap(), SpecVersion::V1_0_0).unwrap();
        let AddResult { interfaces, ips, .. } = without_loopback(prev);
        let names: Vec<&str> = interfaces.iter().map(|entry| entry.name.as_str()).collect();
        let ips: Vec<String> = ips.iter().map(|ip| format!("{} on {:?}", ip.address, ip.interface)).collect();
        expected.assert_eq(&format!("{} | {}", names.join(" "), ips.join(", ")));
    }

    #[test]
    fn loopback_is_left_out_of_an_earlier_result() {
        check(
            r#"{"interfaces": [{"name": "lo", "sandbox": "/n"}],
                "ips": [{"interface": 0, "address": "127.0.0.1/8"}, {"interface": 0, "address": "::1/128"}]}"#,
            expect![" | "],
        );
        check(
            r#"{"interfaces": [{"name": "ens1"}, {"name": "lo"}, {"name": "net1", "sandbox": "/n"}],
                "ips": [{"interface": 1, "address": "127.0.0.1/8"}, {"interface": 2, "address": "192.0.2.9/24"},
                        {"address": "198.51.100.1/24"}]}"#,
            expect!["ens1 net1 | 192.0.2.9/24 on Some(1), 198.51.100.1/24 on None"],
        );
        // With an address that others reach it by, it is no mere loopback.
        check(
            r#"{"interfaces": [{"name": "lo", "sandbox": "/n"}],
                "ips": [{"interface": 0, "address": "127.0.0.1/8"}, {"interface": 0, "address": "192.0.2.9/32"}]}"#,
            expect!["lo | 192.0.2.9/32 on Some(0)"],
        );
    }
}
