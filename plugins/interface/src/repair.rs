//! Repair, an extension of CHECK: the steps of the plan that the node has lost are made again, on the node's side only.
//!
//! The container's namespace stays as it is: an address may have moved into a virtual machine, and a process of the
//! container may use the link. Each step is made whole or not at all, and one that cannot be made hides no other.

use std::net::IpAddr;

use cni_spec::{AddResult, Attachment, CniError, Code, Interface, SpecVersion};
use netops::link::{self, Link, Mac, Settings};
use netops::{sysctl, txn};
use skel::{CheckRequest, Delegate, Repair, Repaired};

use crate::apply::Stage;
use crate::attach::{DynObserved, DynPlugin, prev_of_check};
use crate::check::{Look, container_interface};
use crate::plan::{Compared, OwnIndex, Plan, Side, Step, Uncompared, Veth};
use crate::plugin::{AddOrCheck, Verb};
use crate::sides::Sides;
use crate::undo::{AddUndoer, Left, OwnUndo, Undo, not_done};
use crate::{failed, lease};

/// Reports how the node differs from the plan, and makes it as planned, if asked to.
/// Errors: as CHECK before it compares: code 7 without prevResult, code 107 if that does not have the container's interface.
pub(crate) async fn repair(start: &dyn DynPlugin, request: &CheckRequest, how: Repair) -> Result<Repaired, CniError> {
    let CheckRequest { attachment, netns, conf: net, raw, .. } = request;
    start.require_ipam(net.ipam.is_some())?;
    let prev = with_interfaces(prev_of_check(request)?, request, start.shared_link());
    let mut report = Repaired::default();
    let ipam = raw.ipam(net).filter(|_| net.cni_version.has_check());
    if let Some(difference) = check_lease(ipam.as_ref()).await {
        report.left.push(difference.to_string());
    }
    if start.is_linkless() {
        return Ok(report);
    }
    let entry = container_interface(&prev, attachment.ifname.as_str(), netns)?;
    let lease = net.ipam.as_ref().map(|_| lease::of_result(&prev, entry));
    let sides = Sides::open(netns)?;
    let mut plugin = start.observe(AddOrCheck { verb: Verb::Check, attachment, conf: net, sides: &sides, raw })?;
    let plan = plugin.plan(lease)?;
    let mut look = Look::new(attachment, &sides, &plan.names, &prev, entry, raw.search_path());
    look.names_host_links = net.cni_version >= SpecVersion::V0_3_0;
    look.is_repair = true;
    let search_path = raw.search_path();
    let mut mender = Mender { start, attachment, sides: &sides, plan: &plan, entry, search_path, look, report };
    match how {
        Repair::Show => mender.show(&mut *plugin),
        Repair::Write => mender.write(&mut *plugin).await,
    }
    Ok(mender.finish())
}

/// The result with the interfaces of the attachment. Results before version 0.3.0 have none, and their addresses are the
/// container's.
fn with_interfaces(mut result: AddResult, request: &CheckRequest, shared_link: Option<&str>) -> AddResult {
    let CheckRequest { attachment, netns, conf, .. } = request;
    if conf.cni_version < SpecVersion::V0_3_0 && result.interfaces.is_empty() {
        result.interfaces.push(Interface::new(attachment.ifname.as_str()).sandbox(netns.as_str()));
        result.interfaces.extend(shared_link.map(Interface::new));
        result.ips.iter_mut().for_each(|ip| ip.interface = Some(0));
    }
    result
}

async fn check_lease(ipam: Option<&Delegate<'_>>) -> Option<CniError> {
    ipam?.check().await.err()
}

struct Mender<'a> {
    start: &'a dyn DynPlugin,
    attachment: &'a Attachment,
    sides: &'a Sides,
    plan: &'a Plan<OwnIndex>,
    entry: &'a Interface,
    search_path: &'a str,
    look: Look<'a>,
    report: Repaired,
}

impl Mender<'_> {
    fn show(&mut self, plugin: &mut dyn DynObserved) {
        for step in &self.plan.steps {
            let Err(difference) = self.difference(step, plugin) else { continue };
            match self.may_make(step, plugin) {
                true => self.report.repaired.push(difference.to_string()),
                false => self.report.left.push(difference.to_string()),
            }
        }
    }

    async fn write(&mut self, plugin: &mut dyn DynObserved) {
        // Whether a restriction of the port could not be made: then it stays down.
        let mut is_open = false;
        for step in &self.plan.steps {
            let Err(difference) = self.difference(step, plugin) else { continue };
            let stays = is_open && matches!(step, Step::Compared(Compared::Up(Side::Host)));
            if stays || !self.may_make(step, plugin) {
                self.report.left.push(difference.to_string());
                continue;
            }
            let made = self.make_step(step, plugin).await;
            self.look.forget_node();
            match (made, self.difference(step, plugin)) {
                (_, Ok(())) => {
                    self.report.repaired.push(difference.to_string());
                    continue;
                }
                (Ok(()), Err(still)) if still.msg == difference.msg => self.report.left.push(still.to_string()),
                (Ok(()), Err(still)) => {
                    self.report.repaired.push(difference.to_string());
                    self.report.left.push(still.to_string());
                }
                (Err(error), Err(_)) => self.report.left.push(format!("{difference}; {error}")),
            }
            is_open |=
                matches!(step, Step::Compared(Compared::SpoofGuard(_) | Compared::JoinVlans(_) | Compared::Port(_)));
        }
    }

    /// The report, with the routes to the container's subnets compared, and each sentence once.
    fn finish(mut self) -> Repaired {
        if let Err(difference) = self.look.compare_prefixes() {
            self.report.left.push(difference.to_string());
        }
        for list in [&mut self.report.repaired, &mut self.report.left] {
            let mut seen: Vec<String> = Vec::new();
            list.retain(|sentence| {
                let is_new = !seen.contains(sentence);
                seen.push(sentence.clone());
                is_new
            });
        }
        self.report
    }

    fn difference(&mut self, step: &Step<OwnIndex>, plugin: &mut dyn DynObserved) -> Result<(), CniError> {
        match step {
            Step::Uncompared(Uncompared::Forward(family)) => self.look.forwards(*family),
            step => step.check(&mut self.look, plugin),
        }
    }

    /// Whether the step is on the node, and the links that it needs are there.
    fn may_make(&mut self, step: &Step<OwnIndex>, plugin: &dyn DynObserved) -> bool {
        match step {
            Step::Own(own) => own.is_on_node && plugin.may_mend(*own, &self.look) && !self.is_renamed(),
            Step::Compared(step) => self.may_make_compared(step),
            Step::Uncompared(step) => matches!(step, Uncompared::Forward(_)),
        }
    }

    fn may_make_compared(&mut self, step: &Compared) -> bool {
        match step {
            Compared::Veth(_) => self.look.compare_kind("veth").is_ok() && !self.is_elsewhere(),
            Compared::SpoofGuard(_) | Compared::JoinVlans(_) | Compared::Port(_) => !self.is_elsewhere(),
            Compared::Addresses(Side::Host, addresses) => {
                self.look.host_link().is_ok_and(|link| can_have(&link.name, addresses.iter().map(|it| it.net.ip())))
            }
            Compared::Up(Side::Host) | Compared::Routes(Side::Host, _) | Compared::OnlyRoutes(Side::Host, _) => {
                self.look.host_link().is_ok()
            }
            Compared::Masquerade(..) => true,
            Compared::Create(_)
            | Compared::Addresses(Side::Container, _)
            | Compared::Up(Side::Container)
            | Compared::Routes(Side::Container, _)
            | Compared::OnlyRoutes(Side::Container, _) => false,
        }
    }

    /// Whether the host's end is missing, or a port of another link, to which only an administrator can have moved it.
    fn is_elsewhere(&mut self) -> bool {
        let master = self.look.master.as_ref().map(|master| master.index);
        self.look.host_link().map_or(true, |link| link.master.is_some() && link.master != master)
    }

    /// Whether the bridge is missing and the host's end is a port all the same: of the bridge, under another name. A second one
    /// would take the containers' gateway from them.
    fn is_renamed(&mut self) -> bool {
        self.look.master.is_none() && self.look.host_link().is_ok_and(|link| link.master.is_some())
    }

    /// Makes one step, or changes nothing.
    async fn make_step(&mut self, step: &Step<OwnIndex>, plugin: &mut dyn DynObserved) -> Result<(), CniError> {
        let Self { start, attachment, sides, search_path, .. } = *self;
        let (made, is_left) = Default::default();
        let undoer = AddUndoer { attachment, sides, link: start.link(), ipam: None, search_path, made, is_left };
        let (host_link, master) = (self.look.host_link().ok().cloned(), self.look.master.clone());
        let done = txn::run(&undoer, skel::interrupted(), async |txn| {
            let mut stage = Stage::new(self.attachment, self.sides, &self.plan.names, txn, &undoer);
            (stage.host_link, stage.master) = (host_link, master);
            match step {
                Step::Compared(Compared::Veth(veth)) => self.rejoin(veth, &mut stage, plugin).await?,
                Step::Own(own) => plugin.mend(*own, &mut stage).await?,
                Step::Compared(
                    Compared::Addresses(Side::Host, _)
                    | Compared::Routes(Side::Host, _)
                    | Compared::OnlyRoutes(Side::Host, _),
                ) => {
                    add_missing(step, &mut stage, plugin).await?;
                }
                step => self.as_made(step).apply(&mut stage, plugin).await?,
            }
            stage.flush()
        });
        done.await.map_err(not_done)
    }

    /// Has the host's end up, and as the port that it was. Where its frames are restricted it is down until they are.
    async fn rejoin(&self, veth: &Veth, stage: &mut Stage<'_>, plugin: &mut dyn DynObserved) -> Result<(), CniError> {
        let host = &self.sides.host;
        let link = stage.link(Side::Host)?.clone();
        let up = |up| Settings { up: Some(up), ..Settings::default() };
        let set = |settings: &Settings| host.run(link::set(&(&link).into(), settings)).map_err(failed);
        let master = stage.master.as_ref().map(|master| master.index).filter(|_| veth.master.is_some());
        if let Some(master) = master.filter(|master| link.master != Some(*master)) {
            stage.txn.push(Undo::Own(Box::new(PutBack(link.clone()))));
            if !veth.up {
                set(&up(false))?;
            }
            set(&Settings { master: Some(master), ..Settings::default() })?;
            let of_port = |step: &&Step<OwnIndex>| {
                matches!(
                    step,
                    Step::Compared(Compared::SpoofGuard(_) | Compared::JoinVlans(_) | Compared::Port(_))
                        | Step::Uncompared(Uncompared::LeaveDefaultVlan)
                )
            };
            for step in self.plan.steps.iter().filter(of_port) {
                self.as_made(step).apply(stage, plugin).await?;
            }
            stage.flush()?;
        }
        set(&up(true))
    }

    /// The step as ADD made it: CHECK's plan does not know which Ethernet address the container got.
    fn as_made(&self, step: &Step<OwnIndex>) -> Step<OwnIndex> {
        match step {
            Step::Compared(Compared::SpoofGuard(None)) => {
                Compared::SpoofGuard(self.entry.mac.parse::<Mac>().ok()).into()
            }
            step => step.clone(),
        }
    }
}

/// Whether the node's settings let a link have these addresses, as far as they can be read.
pub fn can_have(link: &str, addresses: impl IntoIterator<Item = IpAddr>) -> bool {
    let has_ipv6 = addresses.into_iter().any(|address| address.is_ipv6());
    !has_ipv6 || !matches!(sysctl::find_ipv6_refusal(link), Ok(Some(_)))
}

/// Adds the addresses or routes of a step one by one; what is there stays.
async fn add_missing(
    step: &Step<OwnIndex>,
    stage: &mut Stage<'_>,
    plugin: &mut dyn DynObserved,
) -> Result<(), CniError> {
    let each: Vec<Step<OwnIndex>> = match step {
        Step::Compared(Compared::Addresses(side, all)) => {
            all.iter().map(|one| Compared::Addresses(*side, vec![*one]).into()).collect()
        }
        Step::Compared(Compared::Routes(side, all) | Compared::OnlyRoutes(side, all)) => {
            all.iter().map(|one| Compared::OnlyRoutes(*side, vec![one.clone()]).into()).collect()
        }
        step => vec![step.clone()],
    };
    for one in each {
        one.apply(stage, plugin).await?;
        match stage.flush() {
            Err(error) if error.code == Code::EXISTS => {}
            flushed => flushed?,
        }
    }
    Ok(())
}

/// Gives a host's end its former master and state back.
#[derive(Debug)]
struct PutBack(Link);

impl OwnUndo for PutBack {
    fn text(&self) -> String {
        format!("link {} as before", self.0.name)
    }

    fn run(&self, sides: &Sides) -> Result<(), Left> {
        let Self(link) = self;
        let master = Settings { master: Some(link.master.unwrap_or_default()), ..Settings::default() };
        let up = Settings { up: Some(link.up), ..Settings::default() };
        [master, up].iter().try_for_each(|settings| sides.host.run(link::set(&link.into(), settings)))?;
        Ok(())
    }
}
