//! ADD's way through a plan: netlink requests are queued as long as they go to the same side, and sent in one call.

use std::cell::Cell;
use std::time::Duration;

use cni_filter::Filter;
use cni_spec::{AddResult, Attachment, CniError, Code};
use ipnetwork::IpNetwork;
use netops::addr::{self, Address};
use netops::bridge_port::{self, Vlans};
use netops::link::{self, Kind, Link, LinkName, NewLink, Place, Settings, Target};
use netops::route::{self, Route};
use netops::txn::{DeleteLink, Txn};
use netops::watch::Watch;
use netops::{Errno, Request};
use skel::Timer;

use crate::attach::DynObserved;
use crate::container::{self, Sysctl};
use crate::plan::{Compared, Create, Names, OwnIndex, Side, Step, Uncompared};
use crate::sides::Sides;
use crate::undo::{AddUndoer, MadeLinks, Undo};
use crate::{alias, conf, failed, forwarding, host_veth, stacked, veth};

/// How long a link may take to get ready. The reference gives up after 2.55 s.
pub const UP_DEADLINE: Duration = Duration::from_secs(5);

pub struct Stage<'a> {
    pub attachment: &'a Attachment,
    pub sides: &'a Sides,
    pub names: &'a Names,
    /// Where steps push what takes them back.
    pub txn: &'a Txn<Undo>,
    /// `PATH`, for programs of the node.
    pub search_path: &'a str,
    /// What the host's end becomes a port of: a plugin's own step sets it.
    pub master: Option<Link>,
    /// The host's end, as it was when it was made.
    pub host_link: Option<Link>,
    /// No link had the name of the host's end when the node was last read.
    pub(crate) is_host_name_free: bool,
    /// The link of a name that [`Stage::refuse_living`] looked up, until a step asks for it.
    shared: Option<(String, Option<Link>)>,
    container: Option<Link>,
    /// IPv6 addresses that the kernel has given the container's link while the address plugin ran.
    present: Vec<IpNetwork>,
    /// The container's link, as far as the answer about its peer describes it: enough to send requests, whose answers have the rest.
    new_peer: Option<Link>,
    queue: Queue,
    filter: Option<Filter>,
    /// The rollback's knowledge of the links.
    noted: &'a Cell<MadeLinks>,
}

/// A stage ends before its rollback begins, also where ADD is interrupted.
impl Drop for Stage<'_> {
    fn drop(&mut self) {
        self.noted.set(self.made());
    }
}

/// The changes that were asked for and not sent yet.
enum Queue {
    Empty,
    Requests(Side, Vec<Request>),
    Sysctls(Vec<Sysctl>),
}

impl<'a> Stage<'a> {
    pub(crate) fn new(
        attachment: &'a Attachment,
        sides: &'a Sides,
        names: &'a Names,
        txn: &'a Txn<Undo>,
        undoer: &'a AddUndoer<'a>,
    ) -> Self {
        Self {
            attachment,
            sides,
            names,
            txn,
            search_path: undoer.search_path,
            master: None,
            host_link: None,
            is_host_name_free: false,
            shared: None,
            container: None,
            present: Vec::new(),
            new_peer: None,
            queue: Queue::Empty,
            filter: None,
            noted: &undoer.made,
        }
    }

    /// The link on one side. The container's is as it was after the last requests to it.
    /// Errors: the link does not exist.
    pub fn link(&mut self, side: Side) -> Result<&Link, CniError> {
        let slot = match side {
            Side::Host => &mut self.host_link,
            Side::Container => &mut self.container,
        };
        if let (Side::Container, None) = (side, &slot) {
            *slot = Some(link::get(&self.sides.container, &Target::named(&self.names.container)).map_err(failed)?);
        }
        slot.as_ref().ok_or_else(|| no_link(&self.names.host))
    }

    /// A link of the host, if there is one of this name. By the same call the name of the host's end is looked up, which a
    /// veth that is made next need not do again.
    pub fn find_host_link(&mut self, name: &str) -> Result<Option<Link>, CniError> {
        match self.shared.take() {
            Some((looked_up, found)) if looked_up == name => return Ok(found),
            Some(_) | None => (),
        }
        let (found, taken) = link::find_both(&self.sides.host, name, &self.names.host).map_err(failed)?;
        self.is_host_name_free = taken.is_none();
        Ok(found)
    }

    /// Looks which addresses of the lease the container's link has already, by SLAAC: the kernel keeps them.
    /// Errors: the addresses cannot be read.
    pub(crate) fn find_present(&mut self, lease: Option<&AddResult>) -> Result<(), CniError> {
        if lease.is_some_and(|lease| lease.ips.iter().any(|ip| ip.address.is_ipv6())) {
            let sides = self.sides;
            let all = addr::list(&sides.container, self.link(Side::Container)?).map_err(failed)?;
            self.present = all.into_iter().map(|address| address.net).filter(IpNetwork::is_ipv6).collect();
        }
        Ok(())
    }

    /// Refuses an attachment that has a host's end whose other end is in a namespace that exists: under another path, or
    /// under another name there. Before anything is changed. By the same call the link that attachments share is looked up.
    /// Errors: code 103: it has one.
    pub(crate) fn refuse_living(&mut self, shared: Option<&str>) -> Result<(), CniError> {
        let named = match shared {
            Some(name) => {
                let (found, named) = link::find_both(&self.sides.host, name, &self.names.host).map_err(failed)?;
                self.shared = Some((name.to_owned(), found));
                named
            }
            None => link::find(&self.sides.host, &self.names.host).map_err(failed)?,
        };
        self.is_host_name_free = named.is_none();
        match named {
            None => Ok(()),
            Some(_) => veth::refuse_living(&self.sides.host, self.attachment),
        }
    }

    pub(crate) fn made(&self) -> MadeLinks {
        let container = self.container.as_ref().or(self.new_peer.as_ref());
        MadeLinks {
            has_host_end: self.host_link.is_some(),
            container: container.map(|link| link.index),
            may_have_rules: self.filter.is_some(),
        }
    }

    /// Refuses a link that a process of the container has renamed while the address plugin ran.
    /// Errors: code 100: it is gone, or has another name.
    pub(crate) fn expect_unrenamed(&mut self) -> Result<(), CniError> {
        let Some(made) = self.container.as_ref().or(self.new_peer.as_ref()) else { return Ok(()) };
        let link = link::get(&self.sides.container, &made.into()).map_err(failed)?;
        if link.name != self.names.container {
            let (name, place) = (&self.names.container, self.sides.container.place());
            let msg = format!("cannot use interface {name} in {place}: it was renamed {} during ADD", link.name);
            return Err(CniError::new(Code::KERNEL, msg));
        }
        self.container = Some(link);
        Ok(())
    }

    /// Sets the container's link, after a step has made or moved it.
    pub fn set_container(&mut self, link: Link) {
        self.container = Some(link);
    }

    /// Queues a request about the link on one side. Requests to one side in a row are one call to the kernel.
    /// Errors: the kernel refuses a request that was queued before.
    pub fn push(&mut self, side: Side, request: impl FnOnce(&Link) -> Request) -> Result<(), CniError> {
        if !matches!(&self.queue, Queue::Requests(queued, _) if *queued == side) {
            self.flush()?;
            self.queue = Queue::Requests(side, Vec::new());
        }
        let request = match (side, &self.container, &self.new_peer) {
            (Side::Container, None, Some(peer)) => request(peer),
            _ => request(self.link(side)?),
        };
        if let Queue::Requests(_, requests) = &mut self.queue {
            requests.push(request);
        }
        Ok(())
    }

    fn push_sysctls(&mut self, sysctls: &[Sysctl]) -> Result<(), CniError> {
        if !matches!(self.queue, Queue::Sysctls(_)) {
            self.flush()?;
            self.queue = Queue::Sysctls(Vec::new());
        }
        if let Queue::Sysctls(queued) = &mut self.queue {
            queued.extend_from_slice(sysctls);
        }
        Ok(())
    }

    /// Sends what is queued. The container's link is read back with the same call.
    /// Errors: the first request that the kernel refused.
    pub fn flush(&mut self) -> Result<(), CniError> {
        let (queue, timer) = (std::mem::replace(&mut self.queue, Queue::Empty), Timer::start());
        let what = match &queue {
            Queue::Empty => return Ok(()),
            Queue::Requests(_, requests) if requests.is_empty() => return Ok(()),
            Queue::Requests(Side::Host, _) => "set up the host's side",
            Queue::Requests(Side::Container, _) => "set up the container's side",
            Queue::Sysctls(_) => "write sysctls",
        };
        let sent = self.send(queue);
        timer.end(what);
        sent
    }

    fn send(&mut self, queue: Queue) -> Result<(), CniError> {
        match queue {
            Queue::Empty => Ok(()),
            Queue::Requests(Side::Host, requests) => self.sides.host.run_all(requests).map_err(failed),
            Queue::Requests(Side::Container, requests) => {
                let target = match (&self.container, &self.new_peer) {
                    (None, Some(peer)) => peer.into(),
                    _ => self.link(Side::Container)?.into(),
                };
                let made = link::run_and_get(&self.sides.container, requests, &target);
                let link =
                    made.map_err(|error| stacked::explain_taken_mac(error, self.container.as_ref(), self.sides))?;
                self.container = Some(link);
                Ok(())
            }
            Queue::Sysctls(sysctls) => {
                let written = container::write_sysctls(&self.sides.netns, &sysctls).map_err(failed);
                written.map_err(|error| self.explain_missing_ipv6(error))
            }
        }
    }

    /// A link whose MTU is too small has no IPv6 and none of its sysctls.
    fn explain_missing_ipv6(&self, error: CniError) -> CniError {
        let small = self.container.as_ref().filter(|link| (1..conf::IPV6_MTU_MIN).contains(&link.mtu_bytes));
        match small {
            None => error,
            Some(Link { name, mtu_bytes, .. }) => error.detail(format!(
                "Interface {name} has MTU {mtu_bytes}: IPv6 needs {} bytes. Give the link that it is, or that it is on, a larger \
                 one.",
                conf::IPV6_MTU_MIN
            )),
        }
    }

    fn filter(&mut self) -> Result<&mut Filter, CniError> {
        match &mut self.filter {
            Some(filter) => Ok(filter),
            none @ None => Ok(none.insert(Filter::open(self.search_path).map_err(failed)?)),
        }
    }

    /// Makes a link in the container, with the attachment's mark, by which DEL knows it from another of its name.
    fn create(&mut self, create: &Create) -> Result<(), CniError> {
        let Sides { host, container, netns } = self.sides;
        let name = LinkName::parse(&self.names.container).map_err(|error| conf::invalid(error.to_string()))?;
        let new = NewLink {
            lower: create.lower.as_ref().map(|(_, lower)| lower.index),
            mtu_bytes: create.mtu_bytes,
            mac: create.mac,
            alias: Some(&self.names.alias),
            ..NewLink::new(&name, create.kind.clone())
        };
        let made = match create.lower {
            Some((Side::Host, _)) => link::create(host, &new, Some(Place { netns, kernel: container })),
            Some((Side::Container, _)) | None => link::create(container, &new, None),
        };
        let link = match made {
            Err(error) if error.os_errno() == Some(Errno::EEXIST) => {
                self.sides.refuse_taken(&self.attachment.ifname)?;
                return Err(stacked::explain(error, create, self.sides));
            }
            Err(error) => {
                // The error may be that of a lost answer: then the link is there, which ADD has seen to be new.
                let there = link::find(container, name.as_str()).ok().flatten();
                let is_ours = |link: &Link| link.kind.name() == create.kind.name() && !alias::is_marked(link);
                there.filter(is_ours).into_iter().for_each(|link| self.txn.push(Undo::ContainerLink(link)));
                return Err(stacked::explain(error, create, self.sides));
            }
            Ok(link) => link,
        };
        self.txn.push(Undo::ContainerLink(link.clone()));
        self.container = Some(link);
        Ok(())
    }

    /// Sets the container's link's own Ethernet address, upon which the kernel announces its addresses (`arp_notify`,
    /// `ndisc_notify`). A packet socket would do the same, but closing one takes the kernel milliseconds.
    fn announce(&mut self) -> Result<(), CniError> {
        let net = &self.sides.container;
        let link = self.link(Side::Container)?;
        let settings = Settings { mac: link.mac, ..Settings::default() };
        // Hardware is left alone. A driver that refuses is no fault of ADD: neighbours find the new owner after some seconds.
        if link.mac.is_some()
            && link.kind != Kind::None
            && let Err(error) = net.run(link::set(&(link).into(), &settings))
        {
            tracing::debug!(%error, "the addresses are not announced");
        }
        Ok(())
    }

    /// Waits until the kernel has brought the link up: it does so with one end after the other, and until then an end drops packets.
    /// Subscribing only when the first look did not suffice loses nothing: the wait looks again after it.
    async fn await_up(&mut self, side: Side) -> Result<(), CniError> {
        let sides = self.sides;
        let link = match side {
            Side::Host => link::get(&sides.host, &self.link(side)?.into()).map_err(failed)?,
            Side::Container => self.link(side)?.clone(),
        };
        if link.oper_up {
            return Ok(());
        }
        let (watch, net) = match side {
            Side::Host => (Watch::host(), &sides.host),
            Side::Container => (Watch::in_netns(&sides.netns), &sides.container),
        };
        watch.map_err(failed)?.until_up(net, &link, UP_DEADLINE).await.map_err(failed)?;
        Ok(())
    }
}

fn no_link(name: &str) -> CniError {
    CniError::new(Code::KERNEL, format!("cannot use link {name}: no step has made or found it"))
}

impl Step<OwnIndex> {
    pub(crate) async fn apply(&self, stage: &mut Stage<'_>, plugin: &mut dyn DynObserved) -> Result<(), CniError> {
        let up = Settings { up: Some(true), ..Settings::default() };
        match self {
            Self::Uncompared(Uncompared::LeaveDefaultVlan) => {
                let missing = || no_link(&format!("the bridge of {}", stage.names.host));
                match stage.master.as_ref().ok_or_else(missing)?.kind.bridge_vlans().default_pvid {
                    Some(id @ 1..) => {
                        stage.push(Side::Host, |link| bridge_port::delete_vlans(link, Vlans::tagged(id, id)))
                    }
                    Some(0) | None => Ok(()),
                }
            }
            Self::Compared(Compared::JoinVlans(join)) => {
                join.iter().try_for_each(|vlans| stage.push(Side::Host, |link| bridge_port::add_vlans(link, *vlans)))
            }
            Self::Compared(Compared::Port(port)) => {
                stage.push(Side::Host, |link| bridge_port::set(&link.into(), *port))
            }
            Self::Uncompared(Uncompared::Sysctls(sysctls)) => stage.push_sysctls(sysctls),
            Self::Uncompared(Uncompared::ArpNotify) => {
                let settings = Settings { arp_notify: Some(true), ..Settings::default() };
                stage.push(Side::Container, |link| link::set(&link.into(), &settings))
            }
            Self::Compared(Compared::Addresses(side, addresses)) => {
                let is_new = |address: &&Address| *side == Side::Host || !stage.present.contains(&address.net);
                let new: Vec<&Address> = addresses.iter().filter(is_new).collect();
                new.into_iter().try_for_each(|address| stage.push(*side, |link| addr::add(link, address)))
            }
            Self::Compared(Compared::Up(side)) => stage.push(*side, |link| link::set(&link.into(), &up)),
            Self::Compared(Compared::Routes(side, routes)) => routes.iter().try_for_each(|route| {
                stage.push(*side, |link| route::add(&Route { link: Some(link.index), ..route.clone() }))
            }),
            Self::Compared(Compared::OnlyRoutes(side, routes)) => routes.iter().try_for_each(|route| {
                stage.push(*side, |link| route::add_only(&Route { link: Some(link.index), ..route.clone() }))
            }),
            Self::Uncompared(Uncompared::DeleteRoutes(side, routes)) => routes.iter().try_for_each(|route| {
                stage.push(*side, |link| route::delete(&Route { link: Some(link.index), ..route.clone() }))
            }),
            Self::Uncompared(Uncompared::StayDown) => Ok(()),
            acting => {
                stage.flush()?;
                let timer = Timer::start();
                let acted = acting.act(stage, plugin).await;
                timer.end(acting.name());
                acted?;
                stage.txn.checkpoint().await;
                Ok(())
            }
        }
    }

    /// The name of a step that acts, in the record of the call.
    fn name(&self) -> &'static str {
        match self {
            Self::Own(own) => own.name,
            Self::Compared(Compared::Veth(_)) => "create veth",
            Self::Compared(Compared::Create(_)) => "create link",
            Self::Compared(Compared::SpoofGuard(_)) => "add spoof guard",
            Self::Compared(Compared::Masquerade(..)) => "add masquerade",
            Self::Uncompared(Uncompared::RefuseAdvertisements(_)) => "refuse router advertisements",
            Self::Uncompared(Uncompared::AwaitUp(_)) => "wait for carrier",
            Self::Uncompared(Uncompared::Announce) => "announce addresses",
            Self::Uncompared(Uncompared::AwaitAddresses(_)) => "wait for addresses",
            Self::Uncompared(Uncompared::Forward(_)) => "forward packets",
            _ => "other step",
        }
    }

    /// The steps that are more than requests in a queue.
    async fn act(&self, stage: &mut Stage<'_>, plugin: &mut dyn DynObserved) -> Result<(), CniError> {
        match self {
            Self::Own(own) => plugin.apply(*own, stage).await,
            Self::Compared(Compared::Veth(veth)) => {
                let made = veth::create(stage, veth);
                // An error may be that of a lost answer: then the pair is there.
                let there = match &made {
                    Ok(link) => Some(link.clone()),
                    Err(error) if error.code == Code::EXISTS => None,
                    Err(_) => host_veth::find(&stage.sides.host, stage.attachment).ok().flatten(),
                };
                there.into_iter().for_each(|veth| stage.txn.push(Undo::HostLink(DeleteLink(veth))));
                let made = made?;
                // The kernel's own word about the pair that it has just made: no index that the container can choose.
                let name = stage.names.container.clone();
                stage.new_peer = made.peer.map(|index| Link { index, name, kind: Kind::Veth, ..Link::default() });
                stage.host_link = Some(made);
                Ok(())
            }
            Self::Compared(Compared::Create(create)) => stage.create(create),
            Self::Compared(Compared::SpoofGuard(None)) => {
                let msg =
                    format!("cannot guard link {}: its container's Ethernet address is not known", stage.names.host);
                Err(CniError::new(Code::KERNEL, msg))
            }
            Self::Compared(Compared::SpoofGuard(Some(mac))) => {
                let (attachment, veth) = (stage.attachment, stage.link(Side::Host)?.name.clone());
                stage.filter()?.add_spoof_guard(attachment.into(), &veth, mac.0).map_err(failed)
            }
            Self::Compared(Compared::Masquerade(masquerade, addresses)) => {
                let attachment = stage.attachment;
                let added =
                    stage.filter()?.add_masquerade(masquerade.backend, attachment.into(), masquerade.of(addresses));
                added.map_err(failed)
            }
            Self::Uncompared(Uncompared::RefuseAdvertisements(need)) => {
                veth::refuse_advertisements(&stage.link(Side::Host)?.name, *need).map_err(failed)
            }
            Self::Uncompared(Uncompared::AwaitUp(side)) => stage.await_up(*side).await,
            Self::Uncompared(Uncompared::Announce) => stage.announce(),
            Self::Uncompared(Uncompared::AwaitAddresses(addresses)) => {
                let Sides { netns, container, .. } = stage.sides;
                container::settle(container, netns, stage.link(Side::Container)?, addresses).await.map_err(failed)
            }
            Self::Uncompared(Uncompared::Forward(family)) => forwarding::turn_on(&stage.sides.host, *family),
            queued => {
                Err(CniError::new(Code::INTERNAL, format!("cannot make step {queued:?}: it is no step of its own")))
            }
        }
    }
}
