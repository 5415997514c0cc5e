//! Programs of the node that listen on a port which a container asks for: the kernel forwards before it looks for a socket, so
//! their clients reach the container.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use cni_filter::iptables::rule::Protocol;
use cni_spec::{CniError, Code};
use netops::Family;
use netops::listening_sockets::{self, Listener};

use crate::conditions::Conditions;
use crate::conf::Mapping;
use crate::forwards::is_holder;
use crate::pod_ports::PodPorts;

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
///
/// # Errors
/// Code 103 with the first program, if `refuse`.
pub(crate) fn look(pods: &mut [PodPorts<'_>], refuse: bool) -> Result<(), CniError> {
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
