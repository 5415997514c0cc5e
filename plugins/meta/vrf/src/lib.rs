//! The vrf plugin: puts the container's interface into a VRF of the container, a set of interfaces with a routing table of their own.

pub mod conf;

use chained::{
    AddOrCheck, ChainedPlugin, LazySides, Left, Preview, Removing, Shown, Timer, Txn, Undo, differs, failed, lock,
};
use cni_spec::{AddResult, CniError, Code, SpecVersion};
use interface::sides::Sides;
use interface::status::probe_kind;
use netops::addr::Address;
use netops::link::vrf::Vrf;
use netops::link::{self, Kind, Link, LinkName, NewLink, Settings};
use netops::route::whole::Whole;
use netops::route::{MAIN_TABLE, whole};
use netops::watch::Watch;
use netops::{Errno, Family, Kernel, addr, link_removal, rule};
use std::net::IpAddr;
use std::time::Duration;

use crate::conf::{Conf, Name};

#[derive(Debug)]
pub struct VrfPlugin;

impl ChainedPlugin for VrfPlugin {
    const NAME: &'static str = "vrf";
    /// Results before 0.3.0 have no interfaces; the reference begins with 0.3.1.
    const VERSIONS: &'static [SpecVersion] = SpecVersion::V0_3_1.and_later();
    type Conf = Conf;
    type Removal = Name;

    async fn add(call: &AddOrCheck<'_>, keys: &Conf, txn: &Txn, _result: &mut AddResult) -> Result<(), CniError> {
        let sides = call.sides.open()?;
        let link = call.attached.link(sides)?;
        let _lock = lock("vrf", &sides.netns)?;
        require_free(&sides.container, &link, &keys.name)?;
        let vrf = ensure_vrf(sides, txn, keys)?;
        txn.checkpoint().await;
        let timer = Timer::start();
        let joined = Member::read(sides, link)?.join(sides, txn, &vrf).await;
        timer.end("join VRF");
        joined
    }

    fn preview(call: &AddOrCheck<'_>, keys: &Conf, preview: &mut Preview) -> Result<(), CniError> {
        let (name, ifname) = (&keys.name, &call.attachment.ifname);
        let (table, is_there, is_up) = match choose(&call.sides.open()?.container, keys)? {
            Chosen::Found(Link { kind: Kind::Vrf(Vrf { table }), up, .. }) => (table, true, up),
            Chosen::Found(link) => return Err(CniError::new(Code::INTERNAL, format!("{} is no VRF", link.name))),
            Chosen::New(table) => (table, false, false),
        };
        preview.push(Shown::new(format!("ip link add {name} type vrf table {table}")).so_if(is_there));
        preview.push(Shown::new(format!("ip link set {name} up")).so_if(is_up));
        preview.step(format!("ip link set {ifname} master {name}"));
        preview.push(Shown::new(format!("move the routes of {ifname} to table {table}")).uncompared());
        Ok(())
    }

    async fn check(call: &AddOrCheck<'_>, keys: &Conf) -> Result<(), CniError> {
        let Conf { name, table } = keys;
        let sides = call.sides.open()?;
        let link = call.attached.link(sides)?;
        let place = sides.container.place();
        let vrf = link::find(&sides.container, name.as_str()).map_err(failed)?;
        let (vrf, found) = match vrf.as_ref().map(|vrf| (vrf, &vrf.kind)) {
            Some((vrf, Kind::Vrf(settings))) => (vrf, settings.table),
            Some(_) | None => return Err(differs(format!("VRF {name} in {place}"), "it is not found")),
        };
        if let Some(table) = table.filter(|table| *table != found) {
            return Err(differs(format!("VRF {name} in {place}"), format!("its table is {found}, not {table}")));
        }
        if link.master != Some(vrf.index) {
            return Err(differs(format!("link {} in {place}", link.name), format!("it is not in VRF {name}")));
        }
        match vrf.up {
            true => Ok(()),
            false => Err(differs(format!("VRF {name} in {place}"), "it is down")),
        }
    }

    /// Takes the interface out of the VRF, and removes the VRF if it was the last one.
    async fn del(removing: &Removing<'_, Name>) -> Vec<CniError> {
        let Some(name) = &removing.removal.0 else { return Vec::new() };
        let netns = match removing.find_netns() {
            Ok(Some(netns)) => netns,
            Ok(None) => return Vec::new(),
            Err(error) => return vec![error],
        };
        // Without the lock a VRF that another ADD is about to use may go; that ADD fails then.
        let lock = lock("vrf", &netns);
        let mut errors: Vec<CniError> = lock.as_ref().err().cloned().into_iter().collect();
        let removed =
            Kernel::in_netns(&netns).and_then(|inside| leave(&inside, name, removing.find_link(&netns, &inside)?));
        errors.extend(removed.err().map(failed));
        errors
    }

    fn status(_conf: &Conf, _search_path: &str) -> Result<(), CniError> {
        probe_kind(Kind::Vrf(Vrf { table: 1 }))
    }
}

fn require_free(inside: &Kernel, link: &Link, vrf: &LinkName) -> Result<(), CniError> {
    let Some(index) = link.master else { return Ok(()) };
    let master = link::find_index(inside, index).map_err(failed)?;
    let master = master.map_or_else(|| format!("number {index}"), |master| master.name);
    let msg = format!("cannot put link {} into VRF {vrf} in {}: it is in {master} already", link.name, inside.place());
    Err(CniError::new(Code::EXISTS, msg))
}

enum Chosen {
    Found(Link),
    /// A VRF to make, with this table.
    New(u32),
}

/// The VRF of the name, or the table of a new one.
fn choose(inside: &Kernel, conf: &Conf) -> Result<Chosen, CniError> {
    let Conf { name, table } = conf;
    let cannot =
        |why: String| Err(CniError::new(Code::EXISTS, format!("cannot use VRF {name} in {}: {why}", inside.place())));
    if let Some(link) = link::find(inside, name.as_str()).map_err(failed)? {
        return match (&link.kind, table) {
            (Kind::Vrf(found), Some(table)) if found.table != *table => {
                cannot(format!("it is there with table {}, not {table}", found.table))
            }
            (Kind::Vrf(_), _) => Ok(Chosen::Found(link)),
            (kind, _) => cannot(format!("a {kind} has that name")),
        };
    }
    let vrfs = link::list(inside, None).map_err(failed)?;
    let holder = |table: u32| vrfs.iter().find(|link| matches!(&link.kind, Kind::Vrf(vrf) if vrf.table == table));
    match table {
        Some(table) => match holder(*table) {
            // As the reference: what is in one of them is reached from the other, as the administrator asks for.
            Some(other) => {
                tracing::warn!(table, vrf = %name, other = other.name, "two VRFs have one table");
                Ok(Chosen::New(*table))
            }
            None => Ok(Chosen::New(*table)),
        },
        None => free_table(inside, &|table| holder(table).is_some()).map(Chosen::New),
    }
}

/// The VRF of the name, made if it is not there.
fn ensure_vrf(sides: &Sides, txn: &Txn, conf: &Conf) -> Result<Link, CniError> {
    let (inside, name) = (&sides.container, &conf.name);
    match choose(inside, conf)? {
        Chosen::Found(link) if link.up => Ok(link),
        Chosen::Found(link) => {
            let up = Settings { up: Some(true), ..Settings::default() };
            link::set_and_get(inside, &(&link).into(), &up).map_err(failed)
        }
        Chosen::New(table) => {
            let new = NewLink { up: true, ..NewLink::new(name, Kind::Vrf(Vrf { table })) };
            let made = link::create(inside, &new, None);
            if made.is_ok() || !matches!(link::find(inside, name.as_str()), Ok(None)) {
                txn.push(Box::new(DeleteVrf(name.clone())));
            }
            made.map_err(failed)
        }
    }
}

/// The lowest table that no VRF has, as in the reference, and that no rule names and no route is in.
fn free_table(inside: &Kernel, is_taken: &dyn Fn(u32) -> bool) -> Result<u32, CniError> {
    let mut first = 1;
    while let Some(table) = rule::free_table(inside, first).map_err(failed)? {
        if !is_taken(table) {
            return Ok(table);
        }
        first = table.saturating_add(1);
    }
    Err(CniError::new(Code::KERNEL, format!("cannot choose a routing table in {}: none is free", inside.place())))
}

fn leave(inside: &Kernel, vrf: &LinkName, link: Option<Link>) -> netops::error::Result<()> {
    let Some(vrf) = link::find(inside, vrf.as_str())?.filter(|link| matches!(link.kind, Kind::Vrf(_))) else {
        return Ok(());
    };
    if let Some(link) = link.filter(|link| link.master == Some(vrf.index)) {
        let free = Settings { master: Some(0), ..Settings::default() };
        absent_is_done(inside.run(link::set(&(&link).into(), &free)))?;
    }
    match link::list(inside, Some(vrf.index))?.is_empty() {
        true => absent_is_done(inside.run(link_removal::request(&(&vrf).into()))),
        false => Ok(()),
    }
}

fn absent_is_done(done: netops::error::Result<()>) -> netops::error::Result<()> {
    match done {
        Err(error) if !error.is_absent() => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// How long the kernel may take to make the routes of new addresses; the reference's.
const DEADLINE: Duration = Duration::from_millis(2500);

/// The container's interface, with what it may lose.
#[derive(Debug, Clone)]
pub struct Member {
    link: Link,
    addresses: Vec<Address>,
    routes: Vec<Whole>,
}

impl Member {
    pub fn read(sides: &Sides, link: Link) -> Result<Self, CniError> {
        let inside = &sides.container;
        let is_global = |address: &Address| matches!(address.net.ip(), IpAddr::V6(ip) if !ip.is_unicast_link_local());
        let mut addresses = addr::list(inside, &link).map_err(failed)?;
        addresses.retain(is_global);
        let routes = list(inside, &link).map_err(failed)?;
        Ok(Self { link, addresses, routes })
    }

    /// Puts the interface into the VRF, and gives it back what it lost.
    pub async fn join(self, sides: &Sides, txn: &Txn, vrf: &Link) -> Result<(), CniError> {
        let Kind::Vrf(Vrf { table }) = vrf.kind else {
            return Err(CniError::new(Code::INTERNAL, format!("{} is no VRF", vrf.name)));
        };
        let routes: Vec<Whole> = self.routes.iter().map(|route| route.in_table(table)).collect();
        let mut watch = Watch::in_netns(&sides.netns).map_err(failed)?;
        let master = Settings { master: Some(vrf.index), ..Settings::default() };
        txn.push(Box::new(Leave(self.clone())));
        sides.container.run(link::set(&(&self.link).into(), &master)).map_err(failed)?;
        let lost = self.restore_addresses(&sides.container).map_err(failed)?;
        if !lost.is_empty() {
            // The routes by gateways need those of the addresses.
            watch.until_announced(&self.link, &lost, DEADLINE).await.map_err(failed)?;
        }
        sides.container.run_all(routes.iter().map(whole::put).collect()).map_err(failed)?;
        // Of an IPv6 route that another interface has, too, the kernel makes the part in the main table again.
        whole::remove(&sides.container, &list(&sides.container, &self.link).map_err(failed)?).map_err(failed)
    }

    /// Adds the addresses that the interface has lost, usable at once: they were looked for before. Returns them.
    fn restore_addresses(&self, inside: &Kernel) -> netops::error::Result<Vec<IpAddr>> {
        let kept = addr::list(inside, &self.link)?;
        let is_lost = |address: &&Address| !kept.iter().any(|kept| kept.net == address.net);
        let lost: Vec<Address> =
            self.addresses.iter().filter(is_lost).map(|address| Address { nodad: true, ..*address }).collect();
        for address in &lost {
            match inside.run(addr::add(&self.link, address)) {
                Err(error) if error.os_errno() == Some(Errno::EEXIST) => (),
                done => done?,
            }
        }
        Ok(lost.iter().map(|address| address.net.ip()).collect())
    }
}

/// The link's routes in the main table, but for those that the kernel made of the link and its addresses.
fn list(inside: &Kernel, link: &Link) -> netops::error::Result<Vec<Whole>> {
    let mut routes = whole::list(inside, link.index, MAIN_TABLE, Family::V4)?;
    routes.extend(whole::list(inside, link.index, MAIN_TABLE, Family::V6)?);
    routes.retain(|route| route.hops().iter().all(|hop| hop.scope == Some(0)));
    Ok(routes)
}

/// Takes the interface out of the VRF again, with the addresses and routes that it had.
#[derive(Debug)]
struct Leave(Member);

impl Undo for Leave {
    fn text(&self) -> String {
        format!("link {} out of the VRF", self.0.link.name)
    }

    fn run(&self, sides: &LazySides<'_>) -> Result<(), Left> {
        let inside = &sides.open()?.container;
        let free = Settings { master: Some(0), ..Settings::default() };
        let done = inside
            .run(link::set(&(&self.0.link).into(), &free))
            .and_then(|()| self.0.restore_addresses(inside))
            .and_then(|_lost| whole::restore(inside, self.0.routes.iter().cloned()));
        match done {
            Err(error) if !error.is_absent() => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// Deletes the VRF that ADD made.
#[derive(Debug)]
pub struct DeleteVrf(pub LinkName);

impl Undo for DeleteVrf {
    fn text(&self) -> String {
        format!("VRF {} deleted", self.0)
    }

    fn run(&self, sides: &LazySides<'_>) -> Result<(), Left> {
        let inside = &sides.open()?.container;
        let found = link::find(inside, self.0.as_str())?;
        let Some(vrf) = found.filter(|link| matches!(link.kind, Kind::Vrf(_))) else { return Ok(()) };
        match inside.run(link_removal::request(&(&vrf).into())) {
            Err(error) if !error.is_absent() => Err(error.into()),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}
