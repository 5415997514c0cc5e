//! Ports by shared rules (key `rules`): elements of maps, which no other container's call or packet pays for.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use chained::{AddOrCheck, Preview, Shown, Timer, Txn, all, differs, failed};
use cni_filter::{SharedPort, SharedPorts};
use cni_spec::{Attachment, CniError, Code};
use netops::nft::Family;

use crate::conf::{Backend, Conf, OnPortInUse};
use crate::pod_ports::{PodPorts, names};
use crate::route_localnet::Enabled;
use crate::{contest, open, pods, port_holder, redirect_flows, route_localnet};

/// Removes the elements of an ADD that fails later, if it made the first.
#[derive(Debug)]
struct Unmap {
    attachment: Attachment,
    is_mapped: Rc<Cell<bool>>,
    enabled: Rc<RefCell<Enabled>>,
    search_path: String,
}

impl chained::Undo for Unmap {
    fn text(&self) -> String {
        "forwarded ports removed".to_owned()
    }

    fn run(&self, _sides: &chained::LazySides<'_>) -> Result<(), chained::Left> {
        let (names, search_path) = (names(&self.attachment), &*self.search_path);
        let remove = || open(search_path)?.remove_ports(names).map(drop).map_err(failed);
        let removed = if self.is_mapped.get() { remove() } else { Ok(()) };
        let closed = route_localnet::undo(&self.enabled.borrow(), &names.key(), search_path).map_err(failed);
        Ok(all([removed, closed])?)
    }
}

/// The pods, with the programs of the node that keep their packets.
fn looked_up<'a>(call: &AddOrCheck<'a>, conf: &'a Conf) -> Result<Vec<PodPorts<'a>>, CniError> {
    let mut pods = pods(call, conf);
    port_holder::refuse_programs(&mut pods, conf.on_port_in_use == OnPortInUse::Error)?;
    Ok(pods)
}

fn ports(pods: &[PodPorts<'_>]) -> SharedPorts {
    let mut ports = SharedPorts::default();
    for pod in pods {
        let ip = pod.address.ip();
        for mapping in pod.mappings() {
            let (protocol, port) = (mapping.protocol, mapping.host_port);
            let to = (ip, mapping.container_port).into();
            ports.forwarded.push(SharedPort { protocol, address: mapping.destination(), port, to });
            let spared = pod.spared(mapping).map(|address| (address, port));
            ports.forwarded.extend(spared.map(|(address, port)| SharedPort {
                protocol,
                address: Some(address),
                port,
                to: (address, port).into(),
            }));
        }
        let Some(snat) = pod.conf.snat.as_ref().filter(|_| !pod.mappings().is_empty()) else { continue };
        match (snat.masq_all, pod.family) {
            (true, _) => ports.masqueraded.push((None, ip)),
            (false, Family::Ip) => {
                let loopback = IpAddr::from(Ipv4Addr::LOCALHOST);
                ports.masqueraded.extend([ip, loopback].map(|from| (Some(from), ip)));
            }
            (false, _) => ports.masqueraded.push((Some(ip), ip)),
        }
    }
    ports
}

/// Forwards the ports. All that can fail comes before the elements, which are one transaction.
pub(crate) fn add(call: &AddOrCheck<'_>, conf: &Conf, txn: &Txn) -> Result<(), CniError> {
    let pods = looked_up(call, conf)?;
    let mut filter = open(call.raw.search_path())?;
    for pod in &pods {
        if let Some(holder) = contest(call, conf).by_rules(&mut filter, pod).map_err(failed)?.first() {
            let why = "Delete that container, or use another port: rules of a container and shared ones have no order.";
            return Err(CniError::new(Code::EXISTS, format!("cannot forward ports: {holder}")).detail(why));
        }
    }
    let (enabled, search_path) = (Rc::<RefCell<Enabled>>::default(), call.raw.search_path());
    let is_mapped = Rc::<Cell<bool>>::default();
    let undo = Unmap {
        attachment: call.attachment.clone(),
        is_mapped: Rc::clone(&is_mapped),
        enabled: Rc::clone(&enabled),
        search_path: search_path.to_owned(),
    };
    txn.push(Box::new(undo));
    for pod in &pods {
        route_localnet::enable(call, pod, &enabled)?;
    }
    let timer = Timer::start();
    is_mapped.set(filter.add_ports(names(call.attachment), &ports(&pods)).map_err(failed)?);
    timer.end("forward ports");
    for pod in &pods {
        redirect_flows(pod, &contest(call, conf));
    }
    Ok(())
}

/// Shows what [`add`] would do.
pub(crate) fn preview(call: &AddOrCheck<'_>, conf: &Conf, preview: &mut Preview) -> Result<(), CniError> {
    let pods = looked_up(call, conf)?;
    let wanted = ports(&pods);
    let is_so = open(call.raw.search_path())?.check_ports(names(call.attachment), &wanted).is_ok();
    for SharedPort { protocol, address, port, to } in wanted.forwarded {
        let (map, address) = match address {
            None => ("ports_of_any", String::new()),
            Some(address) => ("ports_of_addresses", format!(" {address} .")),
        };
        let (family, ip, protocol) = (Family::of(to.ip()), to.ip(), protocol.name());
        let element = format!("{protocol} .{address} {port} : {ip} . {}", to.port());
        preview.push(Shown::new(format!("nft add element {family} cni_shared {map} {{ {element} }}")).so_if(is_so));
    }
    for pod in pods.iter().filter(|pod| route_localnet::is_needed(pod)) {
        preview.push(Shown::new(route_localnet::text(pod)).uncompared());
    }
    Ok(())
}

/// Compares the elements, or by `by_rules` the rules of another form: the key may have changed since ADD.
pub(crate) fn check(
    call: &AddOrCheck<'_>,
    conf: &Conf,
    by_rules: &dyn Fn(&Conf) -> Result<(), CniError>,
) -> Result<(), CniError> {
    let by_elements = || {
        let checked = open(call.raw.search_path())?.check_ports(names(call.attachment), &ports(&pods(call, conf)));
        checked.map_err(|difference| differs("forwarded ports", difference))
    };
    if !conf.is_shared {
        return by_rules(conf).or_else(|difference| by_elements().map_err(|_no_elements| difference));
    }
    let in_table = |backend| by_rules(&Conf { backend, ..conf.clone() });
    let by_other = |difference| {
        let found = in_table(None).or_else(|_| in_table(Some(Backend::Nftables)));
        found.map_err(|_no_rules| difference)
    };
    by_elements().or_else(by_other)
}
