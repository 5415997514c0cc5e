//! Containers that hold a host port which another one asks for.
//!
//! The kernel lets the first rule decide. Rules of a container that is gone, which no DEL has removed, do not count: no
//! namespace has the address that they forward to, or another container now has it.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use cni_filter::iptables::rule::{Is, Protocol, Rule};
use cni_filter::iptables::{Before, FoundRule, Table, TableName, in_legacy};
use cni_filter::{Filter, may_live};
use cni_spec::{CniError, Code};
use netops::all_namespaces::AllNamespaces;
use netops::error::Result;
use netops::listening_sockets::Listener;
use netops::{Errno, Family, OpError, listening_sockets};

use crate::conditions::Conditions;
use crate::conf::{Backend, Mapping};
use crate::forwards::is_holder;
use crate::pod_ports::{PodPorts, is_conditional, target};
use crate::{iptables, nftables};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder {
    pub(crate) protocol: Protocol,
    pub(crate) port: u16,
    /// The comment of its rule, which names network and container.
    pub(crate) name: String,
    pub(crate) address: IpAddr,
    /// The backend of its rule, if that is not the one of the new rules.
    pub(crate) other: Option<Backend>,
}

/// What ADD does about ports that other containers hold.
pub(crate) struct Contest<'a> {
    /// Whether a holder is an error, and nothing is changed.
    pub(crate) refuse: bool,
    /// `PATH`, for the legacy variant of iptables.
    pub(crate) search_path: &'a str,
    /// The holders of the last look.
    pub(crate) holders: Vec<Holder>,
    /// The attachment's rules of an earlier ADD, which this one replaces.
    pub(crate) replaced: Replaced,
}

/// The attachment's rules before the first change; `None` before they are known. Shared with the undo that puts them back.
pub(crate) type Replaced = Rc<RefCell<Option<Before>>>;

impl Contest<'_> {
    /// Keeps the attachment's rules as they were before the first change.
    pub(crate) fn keep(&self, own: impl FnOnce() -> Result<Before>) -> Result<()> {
        let mut replaced = self.replaced.borrow_mut();
        if replaced.is_none() {
            *replaced = Some(own()?);
        }
        Ok(())
    }

    /// Takes the holders in the table of the new rules, and looks for those in the other backend. Whether ADD goes on.
    pub(crate) fn goes_on(
        &mut self,
        living: Vec<Holder>,
        table: &mut Table<'_>,
        is: Backend,
        pod: &PodPorts<'_>,
    ) -> Result<bool> {
        self.holders = living;
        let (other, found) = match is {
            Backend::Iptables => (Backend::Nftables, self.in_nftables(table, pod)?),
            Backend::Nftables => (Backend::Iptables, self.in_iptables(table, pod)?),
        };
        self.holders.extend(found.into_iter().map(|holder| Holder { other: Some(other), ..holder }));
        Ok(!self.refuse || self.holders.is_empty())
    }

    /// Looks for those who hold a port by rules of either backend, for shared rules.
    pub(crate) fn by_rules(&self, filter: &mut Filter, pod: &PodPorts<'_>) -> Result<Vec<Holder>> {
        let mut native = filter.native(nftables::table(pod.family));
        let mut found = nftables::holders(&mut native, pod)?;
        found.extend(self.in_iptables(&mut native, pod)?);
        Ok(found)
    }

    fn in_nftables(&self, table: &mut Table<'_>, pod: &PodPorts<'_>) -> Result<Vec<Holder>> {
        let native = nftables::table(pod.family);
        if let Some(mut table) = table.native_beside(native.clone()) {
            return nftables::holders(&mut table, pod);
        }
        // Beside the legacy variant the kernel may have no nf_tables.
        match Filter::find(self.search_path)?.map(|mut filter| nftables::holders(&mut filter.native(native), pod)) {
            Some(Err(error)) if is_without_nftables(&error) => Ok(Vec::new()),
            found => found.unwrap_or_else(|| Ok(Vec::new())),
        }
    }

    fn in_iptables(&self, table: &mut Table<'_>, pod: &PodPorts<'_>) -> Result<Vec<Holder>> {
        let mut found = match table.iptables_beside(TableName::Nat) {
            Some(mut table) => iptables::holders(&mut table, pod)?,
            None => Vec::new(),
        };
        match in_legacy(self.search_path, pod.family, TableName::Nat) {
            Ok(Some(mut table)) => found.extend(iptables::holders(&mut table, pod)?),
            Ok(None) => {}
            Err(error) if self.refuse => return Err(error),
            // The rules need none of its programs.
            Err(error) => {
                tracing::warn!(%error, "containers that hold ports by the legacy variant of iptables are not seen")
            }
        }
        Ok(found)
    }
}

fn is_without_nftables(error: &OpError) -> bool {
    matches!(error.os_errno(), Some(Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP))
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, port, name, address, other } = self;
        write!(f, "host port {port}/{} is held by the container of rule \"{name}\", {address}", protocol.name())?;
        match other {
            Some(Backend::Iptables) => f.write_str(", in backend iptables"),
            Some(Backend::Nftables) => f.write_str(", in backend nftables"),
            None => Ok(()),
        }
    }
}

pub(crate) type Port = (u8, u16);

/// Looks which rules hold ports of `pod`: those of containers that live, and the ports that only containers hold that are
/// gone. `rules` come in their order, with the name of their container.
pub(crate) fn of_rules<'a>(
    rules: impl Iterator<Item = (&'a FoundRule, String)>,
    pod: &PodPorts<'_>,
) -> (Vec<Holder>, BTreeSet<Port>) {
    let mut search = Search::new(pod);
    rules.for_each(|(found, name)| search.take(found, &name));
    search.end()
}

/// The same for rules that jump to the containers' chains. The first rule of a port decides, so the chains behind a holder
/// that lives are not read.
pub(crate) fn in_chains(
    table: &mut Table<'_>,
    entries: &[&FoundRule],
    pod: &PodPorts<'_>,
) -> Result<(Vec<Holder>, BTreeSet<Port>)> {
    let mut search = Search::new(pod);
    let mut read: BTreeSet<&str> = BTreeSet::new();
    for entry in entries {
        let Some(chain) = entry.goes_to().filter(|chain| !read.contains(chain)) else { continue };
        if entry.rule.as_ref().is_some_and(|rule| search.is_answered(rule)) {
            continue;
        }
        read.insert(chain);
        let name = entry.comment().unwrap_or_default();
        table.list(chain)?.unwrap_or_default().iter().for_each(|found| search.take(found, &name));
    }
    Ok(search.end())
}

struct Search<'a> {
    pod: &'a PodPorts<'a>,
    places: OnceCell<AllNamespaces>,
    living: Vec<Holder>,
    dead: BTreeSet<Port>,
}

impl<'a> Search<'a> {
    fn new(pod: &'a PodPorts<'a>) -> Self {
        Self { pod, places: OnceCell::new(), living: Vec::new(), dead: BTreeSet::new() }
    }

    fn take(&mut self, found: &FoundRule, name: &str) {
        let Self { pod, places, living, dead } = self;
        let (Some(address), Some(rule)) = (target(found), &found.rule) else { return };
        let Some((protocol, port)) = held(rule, pod) else { return };
        let is_own = address == pod.address.ip();
        // A note names the network, too.
        let owner = found.note.as_deref().unwrap_or(name);
        let places = places.get_or_init(AllNamespaces::read);
        if may_live(places, owner, address, is_own.then_some(pod.names)) {
            living.push(Holder { protocol, port, name: name.to_owned(), address, other: None });
        } else {
            dead.insert((protocol as u8, port));
        }
    }

    fn is_held(&self, (protocol, port): Port) -> bool {
        self.living.iter().any(|holder| (holder.protocol as u8, holder.port) == (protocol, port))
    }

    /// Whether a living holder is known for all ports of this rule that the pod asks for at any address.
    fn is_answered(&self, rule: &Rule) -> bool {
        let Some(protocol) = rule.protocol else { return false };
        let mut own = self.pod.conf.mappings.iter().filter(|mapping| {
            mapping.is_for(self.pod.family) && mapping.protocol == protocol && rule.ports.contains(&mapping.host_port)
        });
        own.all(|mapping| mapping.destination().is_none() && self.is_held((protocol as u8, mapping.host_port)))
    }

    fn end(mut self) -> (Vec<Holder>, BTreeSet<Port>) {
        let dead = std::mem::take(&mut self.dead);
        let dead = dead.into_iter().filter(|port| !self.is_held(*port)).collect();
        (self.living, dead)
    }
}

/// The port of `pod` that a forwarding rule takes, if it takes any: same protocol and port, and an address of the node that
/// both are for.
fn held(rule: &Rule, pod: &PodPorts<'_>) -> Option<(Protocol, u16)> {
    let (protocol, port) = (rule.protocol?, rule.port?);
    // A rule with conditions takes only some packets, and was made for them.
    if is_conditional(rule) {
        return None;
    }
    let taken = rule.destination.as_ref().and_then(Is::host);
    let mut own = pod.conf.mappings.iter().filter(|mapping| mapping.is_for(pod.family));
    let meets = own.any(|mapping| {
        let both = taken.zip(mapping.destination());
        (mapping.protocol, mapping.host_port) == (protocol, port) && both.is_none_or(|(taken, wanted)| taken == wanted)
    });
    meets.then_some((protocol, port))
}

struct Taken {
    protocol: Protocol,
    listener: Listener,
    process: Option<String>,
}

impl fmt::Display for Taken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { protocol, listener: Listener { address, port, .. }, process } = self;
        let process = process.as_ref().map_or("a process".to_owned(), |process| format!("process {process}"));
        write!(f, "host port {port}/{}: {process} of the node listens on {address}", protocol.name())
    }
}

/// Warns of programs that listen on the ports, or refuses them. A program on a loopback address other than 127.0.0.1, such as a
/// resolver on 127.0.0.53, keeps its packets: no rule for all addresses is for it.
/// Errors: code 103 with the first program, if `refuse`.
pub(crate) fn refuse_programs(pods: &mut [PodPorts<'_>], refuse: bool) -> std::result::Result<(), CniError> {
    pods.iter_mut().for_each(|pod| pod.spared = Some(Vec::new()));
    let found: Vec<_> = [Protocol::Tcp, Protocol::Udp].into_iter().flat_map(|protocol| find(pods, protocol)).collect();
    for taken in found {
        let address = taken.listener.address;
        if matches!(address, IpAddr::V4(ip) if ip.is_loopback() && ip != Ipv4Addr::LOCALHOST) {
            let mut is_asked_for = false;
            for pod in &mut *pods {
                let mut of_any: Vec<_> =
                    pod.mappings().into_iter().filter(|mapping| taken.is_of(pod, mapping)).collect();
                is_asked_for |= of_any.iter().any(|mapping| mapping.destination().is_some());
                of_any.retain(|mapping| mapping.destination().is_none());
                pod.spared.iter_mut().for_each(|all| all.extend(of_any.iter().map(|mapping| (*mapping, address))));
            }
            if !is_asked_for {
                continue;
            }
        }
        if refuse {
            return Err(CniError::new(Code::EXISTS, format!("cannot forward ports: {taken}")).detail(
                "End that program, or use another port. Without key onPortInUse its clients reach the container.",
            ));
        }
        tracing::warn!("{taken}, and its clients reach the container from now on");
    }
    Ok(())
}

impl Taken {
    /// Whether packets to the socket are for the mapping, too. A rule with conditions takes only some packets, and was made for them.
    fn is_of(&self, pod: &PodPorts<'_>, mapping: &Mapping) -> bool {
        let Self { protocol, listener, .. } = self;
        let is_it = |own| listener.address.is_unspecified() || listener.address == own;
        *pod.conf.conditions(pod.family) == Conditions::default()
            && (mapping.protocol, mapping.host_port) == (*protocol, listener.port)
            && listener.takes(Family::from(pod.address.ip()))
            && mapping.destination().is_none_or(is_it)
    }
}

fn find(pods: &[PodPorts<'_>], protocol: Protocol) -> Vec<Taken> {
    let wanted: Vec<_> =
        pods.iter().flat_map(|pod| pod.mappings().into_iter().map(move |mapping| (pod, mapping))).collect();
    let ports = || wanted.iter().filter(|(_, of)| of.protocol == protocol).map(|(_, of)| of.host_port);
    let Some((first, last)) = ports().min().zip(ports().max()) else { return Vec::new() };
    let found = listening_sockets::list_on(protocol == Protocol::Udp, &(first..=last)).unwrap_or_else(|error| {
        tracing::warn!(%error, "programs of the node that listen on ports are not seen");
        Vec::new()
    });
    let mut found: Vec<_> = found.into_iter().map(|listener| Taken { protocol, listener, process: None }).collect();
    found.retain(|taken| wanted.iter().any(|(pod, mapping)| taken.is_of(pod, mapping)));
    if !found.is_empty() {
        let processes = listening_sockets::processes(&found.iter().map(|taken| &taken.listener).collect::<Vec<_>>());
        found.iter_mut().zip(processes).for_each(|(taken, process)| taken.process = process);
    }
    found.retain(|taken| !taken.process.as_deref().is_some_and(is_holder));
    found
}
