//! The dhcp address plugin: addresses of the network's own DHCP servers.
//!
//! Leases have to be renewed as long as containers live, so a daemon keeps them: `dhcp daemon`, of the same executable. The
//! plugin asks it over a socket ([`rpc`]). [`client`] is the client of one link as RFC 2131 has it, without clock, socket
//! or kernel; [`message`] and [`lease`] are its bytes and what they mean; [`daemon`] is the rest.

pub mod client;
pub mod conf;
pub mod daemon;
pub mod ipv6;
pub mod lease;
pub mod lease_files;
pub mod message;
pub mod options;
pub mod rpc;
mod status_command;

use cni_spec::gc::Sweep;
use cni_spec::{AddResult, Attachment, CniError, Code, NetworkName};
use conf::{Conf, Removal, SOCKET};
use ipnetwork::IpNetwork;
use ipv6::Given;
use lease_files::LeaseRecord;
use netops::Netns;
use netops::all_namespaces::AllNamespaces;
use rpc::{CallError, Granted, Names, Request, Sandbox};
use skel::inventory::{Item, Sign};
use skel::{AddRequest, CheckRequest, DelRequest, GcRequest, NetnsPath, Plugin, StatusRequest};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

#[derive(Debug)]
pub struct Dhcp;

/// Runs `dhcp daemon` or `dhcp status`, if the process was started as one of them; `words` are its name and arguments. The
/// suite's one executable takes `dhcp` as first argument, too. Returns the exit status.
pub fn run_if_asked(mut words: impl Iterator<Item = String>) -> Option<u8> {
    let name = words.next()?;
    let is_dhcp = |name: &str| name == Dhcp::NAME || name.ends_with("-dhcp") || name.starts_with("dhcp-");
    let mut word = words.next()?;
    if !Path::new(&name).file_name().is_some_and(|name| is_dhcp(&name.to_string_lossy())) {
        if word != Dhcp::NAME {
            return None;
        }
        word = words.next()?;
    }
    match &*word {
        "daemon" => Some(daemon::main(words)),
        "status" => Some(status_command::main(words)),
        _ => None,
    }
}

/// How long an ADD may wait for a server: longer than the daemon's `-resendtimeout`, which knows why there is no answer.
const ADD_WITHIN: Duration = Duration::from_secs(210);
/// Longer than a lease task of the daemon may take for an order.
const OTHERS_WITHIN: Duration = Duration::from_secs(10);

impl Plugin for Dhcp {
    const NAME: &'static str = "dhcp";
    const DELEGATES: bool = false;
    const NEEDS_LINK: bool = true;
    type Conf = Conf;
    type Removal = Removal;

    async fn add(request: &AddRequest, keys: &Conf) -> Result<AddResult, CniError> {
        let conf = keys;
        let provide = options::provided(&conf.provide, &request.raw.parse_args()?)?;
        let asked = Request::Add {
            names: names(&request.attachment),
            sandbox: sandbox(&request.netns)?,
            client_id: options::client_id(&request.attachment),
            provide,
            request: conf.request.clone(),
            priority: conf.priority,
            extras: conf.extras,
        };
        let answer = rpc::call(&conf.socket, asked, ADD_WITHIN).await?;
        let Granted { lease, ipv6 } = decode(answer)?;
        netops::all_namespaces::record_caller();
        let mut result = lease.result(conf.priority);
        match ipv6 {
            Some(given) => given.extend(&mut result, conf.reports_slaac),
            None if conf.extras.ipv6 => {
                let error = CniError::new(Code::UNSUPPORTED_FIELD, "the dhcp daemon does not know key ipam.ipv6");
                return Err(error.detail("It is of an earlier version: restart it."));
            }
            None => (),
        }
        Ok(result)
    }

    /// Releases the lease. Where no daemon of ours runs, the release is noted for the next one: DEL of a node that is
    /// half upgraded does not depend on the reference's daemon, which keeps its own leases until it is stopped.
    async fn del(request: &DelRequest, keys: &Removal) -> Result<(), CniError> {
        let socket = &keys.socket;
        let names = names(&request.attachment);
        let note = |away| {
            match lease_files::note_release(&lease_files::folder(socket), &names)? {
                true => tracing::warn!(%away, "the lease is released when the daemon starts"),
                // DEL has nothing to do, and ADD, which calls it to roll back, has reported the daemon.
                false => tracing::debug!(%away, "no lease is recorded for this attachment"),
            }
            Ok(())
        };
        release(socket, Request::Del { names: names.clone() }, note).await
    }

    /// Compares prevResult with the lease that the daemon holds. Asks no server.
    async fn check(request: &CheckRequest, keys: &Conf) -> Result<(), CniError> {
        let asked = Request::Check { names: names(&request.attachment) };
        let Granted { lease, ipv6 } = decode(rpc::call(&keys.socket, asked, OTHERS_WITHIN).await?)?;
        let prev = request.conf.get_prev_result()?;
        let mut held = vec![IpNetwork::from(lease.address)];
        match ipv6 {
            Some(Given::Leased(lease)) => held.push(lease.network()),
            Some(Given::Slaac(own)) if keys.reports_slaac => held.extend(own.into_iter().map(IpNetwork::from)),
            Some(Given::Slaac(_)) | None => {}
        }
        match held.iter().find(|address| !prev.ips.iter().any(|ip| ip.address == **address)) {
            None => Ok(()),
            Some(missing) => {
                let msg = format!("prevResult does not have the address of the lease, {missing}");
                Err(CniError::new(Code::CHECK_FAILED, msg))
            }
        }
    }

    async fn gc(request: &GcRequest, keys: &Removal) -> Result<(), CniError> {
        let socket = &keys.socket;
        let (network, folder) = (request.conf.name.to_string(), lease_files::folder(socket));
        let mut sweep = request.sweep().map(|attachment| names(attachment));
        sweep.valid.extend(in_use(&folder, &network, &sweep)?);
        let note = |_| lease_files::note_stale(&folder, &network, &sweep);
        let Sweep { valid, seen } = sweep.clone();
        release(socket, Request::Gc { network: network.clone(), valid, seen }, note).await
    }

    async fn status(_: &StatusRequest, keys: &Conf) -> Result<(), CniError> {
        let answer = rpc::call(&keys.socket, Request::Status, Duration::ZERO).await;
        answer.map(drop).map_err(|error| CniError { code: Code::NOT_AVAILABLE, ..error.into() })
    }
}

/// Has the daemon release leases, or notes that the next one is to.
async fn release(
    socket: &Path,
    asked: Request,
    note: impl FnOnce(CniError) -> Result<(), CniError>,
) -> Result<(), CniError> {
    match rpc::call(socket, asked.clone(), OTHERS_WITHIN).await {
        Ok(_) => return Ok(()),
        Err(CallError::Away(away)) => note(away)?,
        // A daemon that goes on finds the request in its socket, and one that is started anew the note.
        Err(CallError::Silent(silent)) => return note(silent),
        Err(CallError::Failed(error)) => return Err(error),
    }
    // A daemon that has started meanwhile may have missed the note.
    match rpc::call(socket, asked, OTHERS_WITHIN).await {
        Ok(_) | Err(CallError::Away(_) | CallError::Silent(_)) => Ok(()),
        Err(CallError::Failed(error)) => Err(error),
    }
}

/// The attachments whose leases GC would release, but whose address a namespace has: a link that is in the container
/// alone outlives GC, and the server would give its address to another one.
fn in_use(folder: &Path, network: &str, sweep: &Sweep<Names>) -> Result<Vec<Names>, CniError> {
    let mut records = lease_files::list_stale(folder, network, sweep)?;
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let places = AllNamespaces::read();
    records.retain(|record| {
        let is_used = places.find(&record.addresses()) != Some(false);
        if is_used {
            let Names { container_id, ifname, .. } = &record.subject.names;
            tracing::warn!(container_id, ifname, "kept: a container has the address, though it is not valid");
        }
        is_used
    });
    Ok(records.into_iter().map(|record| record.subject.names).collect())
}

fn names(attachment: &Attachment) -> Names {
    Names {
        network: attachment.network.to_string(),
        container_id: attachment.container_id.to_string(),
        ifname: attachment.ifname.to_string(),
    }
}

fn sandbox(path: &NetnsPath) -> Result<Sandbox, CniError> {
    let invalid = |why: String| CniError::new(Code::INVALID_NETNS, why);
    let opened = path
        .opened()
        .map_err(|errno| invalid(format!("cannot open network namespace {path}: {}", errno.desc().to_lowercase())))?;
    let file = opened.try_clone_to_owned().map_err(|error| invalid(error.to_string()))?;
    let netns = Netns::from_file(file.into(), path.as_str()).map_err(|error| invalid(error.to_string()))?;
    Ok(Sandbox { path: path.as_str().to_owned(), identity: netns.identity().numbers() })
}

fn decode(answer: serde_json::Value) -> Result<Granted, CniError> {
    serde_json::from_value(answer)
        .map_err(|error| CniError::new(Code::IO, format!("cannot use the lease of the dhcp daemon: {error}")))
}

/// Each lease of the network that the daemon of `socket` keeps, by its records. Changes nothing, and asks no daemon.
pub fn inventory(socket: &Path, network: &NetworkName) -> Result<Vec<Item>, CniError> {
    Ok(lease_files::list_of(&lease_files::folder(socket), network.as_str())?.iter().filter_map(item).collect())
}

fn item(record: &LeaseRecord) -> Option<Item> {
    let Names { network, container_id, ifname } = &record.subject.names;
    let attachment = Attachment::parse(network, container_id, ifname).ok()?;
    let Sandbox { path, identity } = &record.subject.sandbox;
    let namespace = Sign::Namespace { path: path.into(), numbers: *identity };
    // GC keeps a lease whose address any namespace has.
    let signs = std::iter::once(namespace).chain(record.addresses().into_iter().map(Sign::Address)).collect();
    let object = format!("DHCP lease of {}", record.lease.address.ip());
    Some(Item { owner: (&attachment).into(), object, signs })
}

/// The names of the networks that have a lease which the usual daemon keeps.
pub fn networks() -> Result<BTreeSet<String>, CniError> {
    let records = lease_files::list_unreleased(&lease_files::folder(Path::new(SOCKET)))?;
    Ok(records.into_iter().map(|record| record.subject.names.network).collect())
}
