//! firewall: lets a container's packets pass the node's packet filter.

pub mod conf;

mod egress;
mod firewalld;
mod rules;

use std::cell::{Cell, RefCell};
use std::net::IpAddr;
use std::rc::Rc;

use chained::{
    AddOrCheck, ChainedPlugin, Collecting, Left, Preview, Removing, Shown, Timer, Txn, all, differs, failed, invalid,
};
use cni_filter::iptables::{Edit, Table, TableName};
use cni_filter::{Filter, Names, Noted, OfNetwork, Stale};
use cni_spec::{AddResult, Attachment, CniError, Code, NetworkName, SpecVersion};
use interface::owner_by_reservation::{Holder, Reserved};
use netops::OpError;
use netops::nft::Family;

use conf::{Backend, Conf, Removal};
use firewalld::{Answer, CallError, Firewalld, Method};
use rules::{Accepted, Attached, Isolation, Replaced};

const FAMILIES: [Family; 2] = [Family::Ip, Family::Ip6];

#[derive(Debug)]
pub struct Firewall;

impl ChainedPlugin for Firewall {
    const NAME: &'static str = "firewall";
    const ADD_REPAIRS: bool = true;
    /// The reference refuses older ones, too.
    const VERSIONS: &'static [SpecVersion] = SpecVersion::V0_4_0.and_later();
    type Conf = Conf;
    type Removal = Removal;

    async fn add(call: &AddOrCheck<'_>, conf: &Conf, txn: &Txn, _result: &mut AddResult) -> Result<(), CniError> {
        let (addresses, bridge) = (addresses(&call.attached.result), bridge(call, conf)?);
        let (mut firewalld, how) = find_firewalld(conf)?;
        let search_path = call.raw.search_path();
        // First: nothing passes before it is judged.
        if !conf.egress.is_empty() {
            egress::add(call, conf, txn)?;
            txn.checkpoint().await;
        }
        if firewalld.is_none() || conf.policy.is_some() {
            let mut filter = open(search_path)?;
            expect_one_backend(&mut filter, conf)?;
            // Before the rules: an address that another attachment has is refused.
            if conf.is_shared {
                let is_new = Rc::<Cell<bool>>::default();
                txn.push(Box::new(Forget {
                    attachment: call.attachment.clone(),
                    is_new: Rc::clone(&is_new),
                    what: "firewall elements",
                    remove: Filter::remove_accepted,
                }));
                is_new.set(filter.add_accepted(Names::from(call.attachment), &addresses).map_err(failed)?);
                txn.checkpoint().await;
            }
            for family in FAMILIES {
                let own = of_family(&addresses, family);
                if own.is_empty() {
                    continue;
                }
                let attached = attached(call, conf, &own, bridge, how);
                let replaced = Rc::new(RefCell::new(None));
                txn.push(Box::new(Remove {
                    attachment: call.attachment.clone(),
                    search_path: search_path.to_owned(),
                    backend: conf.backend,
                    family,
                    replaced: Rc::clone(&replaced),
                }));
                let timer = Timer::start();
                let added = rules::add(&mut table(&mut filter, conf.backend, family)?, attached, &replaced);
                timer.end("accept packets");
                added.map_err(failed)?;
                txn.checkpoint().await;
            }
        }
        if let Some(firewalld) = &mut firewalld {
            for address in addresses {
                // Asked before: a source that is there is another attachment's, an earlier ADD's or an administrator's, and the answer
                // of `addSource`, which would say so, may be lost.
                let found = firewalld.call(Method::Query, &conf.zone, address);
                if found.map_err(|why| not_in_zone("find", address, &conf.zone, &why))? == Answer::Yes {
                    continue;
                }
                let added = firewalld.call(Method::Add, &conf.zone, address);
                if matches!(added, Ok(Answer::Yes) | Err(CallError::NoAnswer(_))) {
                    txn.push(Box::new(Source { address, zone: conf.zone.clone() }));
                }
                added.map_err(|why| not_in_zone("add", address, &conf.zone, &why))?;
                txn.checkpoint().await;
            }
        }
        Ok(())
    }

    fn preview(call: &AddOrCheck<'_>, conf: &Conf, preview: &mut Preview) -> Result<(), CniError> {
        let (addresses, bridge) = (addresses(&call.attached.result), bridge(call, conf)?);
        if addresses.is_empty() {
            preview.unknown.push("the rules that let packets pass: the addresses are not known before".to_owned());
        }
        let (firewalld, how) = find_firewalld(conf)?;
        if !conf.egress.is_empty() {
            egress::preview(call, preview)?;
        }
        if firewalld.is_none() || conf.policy.is_some() {
            let mut filter = open(call.raw.search_path())?;
            expect_one_backend(&mut filter, conf)?;
            if conf.is_shared {
                let is_so = filter.check_accepted(Names::from(call.attachment), &addresses).is_ok();
                let add = |address: &IpAddr| {
                    let family = Family::of(*address);
                    format!("nft add element {family} cni_shared accept_addresses {{ {address} }}")
                };
                addresses.iter().for_each(|address| preview.push(Shown::new(add(address)).so_if(is_so)));
            }
            for family in FAMILIES {
                let own = of_family(&addresses, family);
                if own.is_empty() {
                    continue;
                }
                let attached = attached(call, conf, &own, bridge, how);
                let mut table = table(&mut filter, conf.backend, family)?;
                for edit in rules::present(&mut table, attached).map_err(failed)? {
                    preview.push(Shown::new(table.command(&edit)).so_if(true));
                }
                for edit in rules::edits(&mut table, attached).map_err(failed)? {
                    let shown = Shown::new(table.command(&edit));
                    preview.push(match &edit {
                        Edit::Append(rule) | Edit::Prepend(rule) if rules::is_compared(attached, rule) => shown,
                        _ => shown.uncompared(),
                    });
                }
            }
        }
        if firewalld.is_some() {
            let add = |address| format!("firewall-cmd --zone={} --add-source={address}", conf.zone);
            addresses.into_iter().for_each(|address| preview.step(add(address)));
        }
        Ok(())
    }

    async fn check(call: &AddOrCheck<'_>, conf: &Conf) -> Result<(), CniError> {
        let (addresses, bridge) = (addresses(&call.attached.result), bridge(call, conf)?);
        let (mut firewalld, how) = find_firewalld(conf)?;
        let mut differences = Vec::new();
        if !conf.egress.is_empty() {
            differences.extend(egress::check(call, conf)?);
        }
        if firewalld.is_none() || conf.policy.is_some() {
            let mut filter = open(call.raw.search_path())?;
            differences.extend(policies_elsewhere(&mut filter, conf)?);
            let mut lacking = |how| -> Result<Vec<String>, CniError> {
                let mut lacking = Vec::new();
                for family in FAMILIES {
                    let own = of_family(&addresses, family);
                    if own.is_empty() {
                        continue;
                    }
                    let attached = attached(call, conf, &own, bridge, how);
                    let mut table = table(&mut filter, conf.backend, family)?;
                    lacking.extend(rules::check(&mut table, attached).map_err(failed)?);
                }
                if how == Accepted::ByMark {
                    let checked = filter.check_accepted(Names::from(call.attachment), &addresses);
                    lacking.extend(checked.err().map(|error| error.to_string()));
                }
                Ok(lacking)
            };
            let found = lacking(how)?;
            // The key may have changed since ADD.
            let is_otherwise = match how.other() {
                Some(other) if !found.is_empty() => lacking(other)?.is_empty(),
                _ => false,
            };
            differences.extend(found.into_iter().filter(|_| !is_otherwise));
        }
        for address in addresses {
            let Some(firewalld) = &mut firewalld else { break };
            let found = firewalld.call(Method::Query, &conf.zone, address);
            if found.map_err(|why| not_in_zone("find", address, &conf.zone, &why))? == Answer::No {
                differences.push(format!("zone {} of firewalld does not have source {address}", conf.zone));
            }
        }
        let object = format!("the firewall for {}", call.attachment.container_id);
        all(differences.into_iter().map(|how| Err(differs(&object, how))))
    }

    async fn del(removing: &Removing<'_, Removal>) -> Vec<CniError> {
        let Removal { backend, zone } = removing.removal;
        let mut addresses = removing.attached.map(|attached| addresses(&attached.result)).unwrap_or_default();
        let reserved = Reserved::of(removing.object);
        // The next owner's rules and sources are alike. The reference's rules name no attachment, sources never do.
        addresses.retain(|address| {
            let holder = reserved.holder(removing.attachment, *address);
            matches!(holder, None | Some(Holder::Own))
        });
        let names = Names::from(removing.attachment);
        let timer = Timer::start();
        let by_rule = &mut |table: &mut Table<'_>, family| rules::remove(table, names, &of_family(&addresses, family));
        let by_name = &mut |filter: &mut Filter| both(filter.remove_accepted(names), filter.remove_egress(names));
        let removed = each(removing.raw.search_path(), by_rule, by_name);
        let mut errors: Vec<CniError> = removed.into_iter().map(failed).collect();
        timer.end("remove rules");
        if matches!(backend, Backend::Iptables | Backend::Nftables) || addresses.is_empty() {
            return errors;
        }
        // A firewalld that has ended has forgotten its sources.
        match look_for_firewalld() {
            Ok(None) => {}
            Ok(Some(mut firewalld)) => {
                for address in addresses {
                    let removed = firewalld.call(Method::Remove, zone, address);
                    errors.extend(removed.err().map(|why| not_in_zone("remove", address, zone, &why)));
                }
            }
            Err(error) => errors.push(error),
        }
        errors
    }

    async fn gc(collecting: &Collecting<'_, Removal>) -> Vec<CniError> {
        let sweep = collecting.sweep.map(|attachment| Names::from(*attachment));
        let network = collecting.network.as_str();
        let by_rule = &mut |table: &mut Table<'_>, _| rules::gc(table, network, &sweep);
        let by_name = &mut |filter: &mut Filter| {
            let stale = Stale::new(network, &sweep);
            both(filter.gc_accepted(&stale), filter.gc_egress(&stale))
        };
        let errors = each(collecting.raw.search_path(), by_rule, by_name);
        errors.into_iter().map(failed).collect()
    }

    fn status(conf: &Conf, search_path: &str) -> Result<(), CniError> {
        let (firewalld, _) = find_firewalld(conf)?;
        let mut filter = open(search_path)?;
        if !conf.egress.is_empty() {
            filter.probe_egress().map_err(failed)?;
        }
        if firewalld.is_some() && conf.policy.is_none() {
            return Ok(());
        }
        expect_one_backend(&mut filter, conf)?;
        if conf.is_shared {
            filter.probe_accepted().map_err(failed)?;
        }
        let mut table = table(&mut filter, conf.backend, Family::Ip)?;
        rules::probe(&mut table, conf.policy).map_err(failed)
    }
}

/// What GC of the network would remove if no attachment were valid. Changes nothing. Sources of firewalld's zones, which GC
/// leaves, are not among them.
/// Errors: the refusal of the kernel or iptables.
pub fn inventory(network: &NetworkName, search_path: &str) -> Result<Vec<Noted>, CniError> {
    let (mut found, mut marked, network) = (Vec::new(), Vec::new(), OfNetwork::new(network.as_str()));
    let by_rule = &mut |table: &mut Table<'_>, _| {
        found.extend(rules::list(table, &network)?);
        Ok(())
    };
    let errors = each(search_path, by_rule, &mut |filter| {
        let accepted = filter.list_accepted().map(|accepted| {
            let noted = |(address, comment): (IpAddr, String)| {
                Noted::of(&network, Some(&comment), Some(address), format!("firewall element of {address}"))
            };
            marked.extend(accepted.into_iter().filter_map(noted));
        });
        let judged = filter.list_egress().map(|judged| {
            let noted = |(address, comment): (Option<IpAddr>, String)| {
                Noted::of(&network, Some(&comment), address, "egressPolicy in table cni_egress".to_owned())
            };
            marked.extend(judged.into_iter().filter_map(noted));
        });
        both(accepted, judged)
    });
    found.extend(marked);
    CniError::join(errors.into_iter().map(failed).collect()).map_or(Ok(found), Err)
}

fn open(search_path: &str) -> Result<Filter, CniError> {
    Filter::open(search_path).map_err(failed)
}

fn table(filter: &mut Filter, backend: Backend, family: Family) -> Result<Table<'_>, CniError> {
    if backend == Backend::Nftables {
        return Ok(filter.native(rules::native(family)));
    }
    match (filter.place(family, TableName::Filter).map_err(failed)?, backend) {
        (Some(place), _) => Ok(filter.table(place)),
        (None, Backend::Iptables) => {
            let why = "the kernel has no extensions of iptables for nf_tables, and legacy iptables is not installed; load \
                       nft_compat, xt_comment and xt_conntrack, or use backend nftables";
            Err(failed(OpError::state("use", format!("backend iptables ({family})"), why)))
        }
        (None, _) => Ok(filter.native_instead(rules::native(family))),
    }
}

/// Why a policy of this backend would keep nothing away: there are others of the other one, and the rules of a table know
/// only the bridges that they name.
fn policies_elsewhere(filter: &mut Filter, conf: &Conf) -> Result<Option<String>, CniError> {
    if conf.policy.is_none() {
        return Ok(None);
    }
    for family in FAMILIES {
        let other = match conf.backend {
            Backend::Nftables => filter.iptables(family, TableName::Filter).map_err(failed)?,
            Backend::Iptables => Some(filter.native(rules::native(family))),
            // Without a place of iptables the rules are in the native table themselves.
            Backend::Found | Backend::Firewalld => {
                let place = filter.place(family, TableName::Filter).map_err(failed)?;
                place.map(|_| filter.native(rules::native(family)))
            }
        };
        let Some(mut table) = other else { continue };
        if let Some(bridge) = rules::isolated_bridge(&mut table).map_err(failed)? {
            return Ok(Some(format!(
                "the ingressPolicy of bridge {bridge} is in table {table}, which this backend does not use"
            )));
        }
    }
    Ok(None)
}

/// Refuses a policy where [`policies_elsewhere`] has one.
fn expect_one_backend(filter: &mut Filter, conf: &Conf) -> Result<(), CniError> {
    match policies_elsewhere(filter, conf)? {
        None => Ok(()),
        Some(how) => Err(invalid(format!("cannot use ingressPolicy: {how}")).detail(
            "Use one backend for all networks with an ingressPolicy, and delete the containers of the other one.",
        )),
    }
}

/// firewalld, if the packets are to pass by it, and how they pass.
/// Errors: shared rules where firewalld filters, as a mark does not pass its zones.
fn find_firewalld(conf: &Conf) -> Result<(Option<Firewalld>, Accepted), CniError> {
    let found = firewalld_of(conf.backend)?;
    match (&found, conf.is_shared) {
        (Some(_), true) => Err(invalid("cannot use rules = \"shared\": firewalld filters by the sources of its zones")
            .detail("Leave key rules out, or stop firewalld.")),
        (Some(_), false) => Ok((found, Accepted::ByFirewalld)),
        (None, true) => Ok((found, Accepted::ByMark)),
        (None, false) => Ok((found, Accepted::Here)),
    }
}

fn firewalld_of(backend: Backend) -> Result<Option<Firewalld>, CniError> {
    match backend {
        Backend::Iptables | Backend::Nftables => Ok(None),
        Backend::Found => look_for_firewalld(),
        Backend::Firewalld => look_for_firewalld()?.map(Some).ok_or_else(|| {
            CniError::new(
                Code::TRY_AGAIN,
                "cannot use backend firewalld: none with zones of this network namespace is on the system bus",
            )
            .detail("Start firewalld, or use backend iptables.")
        }),
    }
}

fn look_for_firewalld() -> Result<Option<Firewalld>, CniError> {
    Firewalld::find().map_err(|error| {
        let msg = format!("cannot ask the system bus for firewalld: no thread can be made: {error}");
        CniError::new(Code::TRY_AGAIN, msg)
            .detail("Raise the limit of processes (pids.max of the runtime's cgroup), or set key backend to iptables.")
    })
}

fn not_in_zone(verb: &str, address: IpAddr, zone: &str, why: &CallError) -> CniError {
    CniError::new(Code::KERNEL, format!("cannot {verb} source {address} in zone {zone} of firewalld: {why}"))
}

/// All addresses of the result, as in the reference.
fn addresses(result: &AddResult) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = Vec::new();
    for address in result.ips.iter().map(|ip| ip.address.ip()) {
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    addresses
}

fn of_family(addresses: &[IpAddr], family: Family) -> Vec<IpAddr> {
    addresses.iter().copied().filter(|address| address.is_ipv4() == (family == Family::Ip)).collect()
}

/// The bridge that a policy is about: the first interface of the result.
fn bridge<'a>(call: &'a AddOrCheck<'_>, conf: &Conf) -> Result<Option<&'a str>, CniError> {
    let Some(policy) = conf.policy else { return Ok(None) };
    let first = call.attached.result.interfaces.first();
    let bridge = first.filter(|entry| entry.sandbox.is_empty() && netops::link::is_name(&entry.name));
    bridge.map(|entry| Some(entry.name.as_str())).ok_or_else(|| {
        invalid(format!("ingressPolicy {} needs a bridge as the first interface of prevResult", policy.as_str()))
            .detail("It is for networks of plugin bridge, which comes before this one in the list.")
    })
}

fn attached<'a>(
    call: &'a AddOrCheck<'_>,
    conf: &'a Conf,
    addresses: &'a [IpAddr],
    bridge: Option<&'a str>,
    accepted: Accepted,
) -> Attached<'a> {
    let isolation = bridge.zip(conf.policy).map(|(bridge, policy)| Isolation { bridge, policy });
    let names = Names::from(call.attachment);
    Attached { names, addresses, admin_chain: &conf.admin_chain, isolation, accepted }
}

fn both(first: netops::error::Result<()>, second: netops::error::Result<()>) -> Vec<OpError> {
    [first, second].into_iter().filter_map(Result::err).collect()
}

/// Works on both families in each variant of iptables and in our own tables; returns all errors.
fn each(
    search_path: &str,
    work: &mut dyn FnMut(&mut Table<'_>, Family) -> netops::error::Result<()>,
    by_name: &mut dyn FnMut(&mut Filter) -> Vec<OpError>,
) -> Vec<OpError> {
    Filter::sweep(search_path, &mut |filter| {
        let mut errors: Vec<OpError> = Vec::new();
        for family in FAMILIES {
            errors.extend(filter.each_iptables(family, TableName::Filter, &mut |table| work(table, family)).err());
            errors.extend(work(&mut filter.native(rules::native(family)), family).err());
        }
        errors.extend(by_name(filter));
        errors
    })
}

/// Removes the rules of ADD in one family, and puts those back that it replaced.
#[derive(Debug)]
struct Remove {
    attachment: Attachment,
    search_path: String,
    backend: Backend,
    family: Family,
    replaced: Rc<RefCell<Option<Replaced>>>,
}

impl Remove {
    fn put_back(&self) -> Result<(), CniError> {
        let replaced = self.replaced.borrow();
        // Without it ADD failed before it changed anything.
        let Some(replaced) = &*replaced else { return Ok(()) };
        let mut filter = open(&self.search_path)?;
        let mut table = table(&mut filter, self.backend, self.family)?;
        rules::put_back(&mut table, Names::from(&self.attachment), replaced).map_err(failed)
    }
}

impl chained::Undo for Remove {
    fn text(&self) -> String {
        let had_none = self.replaced.borrow().as_ref().is_some_and(Replaced::is_empty);
        let how = if had_none { "removed" } else { "as before" };
        format!("firewall rules ({}) {how}", self.family)
    }

    fn run(&self, _sides: &chained::LazySides<'_>) -> Result<(), Left> {
        Ok(self.put_back()?)
    }
}

/// Removes what an ADD that fails later has made of one kind, if it made the first.
#[derive(Debug)]
struct Forget {
    attachment: Attachment,
    is_new: Rc<Cell<bool>>,
    /// The kind, for people.
    what: &'static str,
    remove: fn(&mut Filter, Names<'_>) -> netops::error::Result<()>,
}

impl chained::Undo for Forget {
    fn text(&self) -> String {
        format!("{} removed", self.what)
    }

    fn run(&self, _sides: &chained::LazySides<'_>) -> Result<(), Left> {
        if self.is_new.get() {
            (self.remove)(&mut open("")?, Names::from(&self.attachment)).map_err(failed)?;
        }
        Ok(())
    }
}

/// Removes a source that ADD has put, or may have put, into a zone.
#[derive(Debug)]
struct Source {
    address: IpAddr,
    zone: String,
}

impl chained::Undo for Source {
    fn text(&self) -> String {
        format!("source {} of zone {} removed", self.address, self.zone)
    }

    fn run(&self, _sides: &chained::LazySides<'_>) -> Result<(), Left> {
        let Some(mut firewalld) = look_for_firewalld()? else { return Ok(()) };
        let removed = firewalld.call(Method::Remove, &self.zone, self.address);
        removed.map_err(|why| not_in_zone("remove", self.address, &self.zone, &why))?;
        Ok(())
    }
}
