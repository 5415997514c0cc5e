//! ADD, and CHECK, its mirror: the same plan, applied or compared.

use std::cell::Cell;

use cni_spec::{AddResult, CniError, Code};
use ipnetwork::IpNetwork;
use netops::txn::{self, Txn};
use skel::{AddRequest, CheckRequest};

use crate::apply::Stage;
use crate::check::{self, Look};
use crate::own::{Call, InterfacePlugin, Ipam, Verb};
use crate::plan::Plan;
use crate::pod::Pod;
use crate::undo::{AddUndoer, Undo, not_done};
use crate::{conf, lease, result};

/// Attaches the container, or leaves the node as it was: open, look, refuse, lease, plan, make.
///
/// # Errors
/// The error that stopped ADD. All changes were rolled back; details list any that could not be.
pub async fn add<P: InterfacePlugin>(request: &AddRequest<P::Conf>) -> Result<AddResult, CniError> {
    require_ipam::<P>(request.conf.ipam.is_some())?;
    conf::refuse_inexpressible(request.conf.ipam.is_some(), request.conf.cni_version)?;
    let pod = Pod::open(&request.netns)?;
    let AddRequest { attachment, conf, raw, .. } = request;
    let call = Call { verb: Verb::Add, attachment, conf, pod: &pod, raw };
    let mut state = P::observe(&call)?;
    let (ipam, search_path) = (request.ipam(), request.raw.search_path());
    let undoer = AddUndoer { attachment, pod: &pod, ipam, search_path, is_left: Cell::new(false) };
    let done = txn::run(&undoer, skel::interrupted(), async |txn| {
        pod.refuse_taken(&attachment.ifname)?;
        let lease = lease::take(request.ipam(), txn).await?;
        let plan = P::plan(&call, &state, lease)?;
        txn.checkpoint().await;
        let earlier = P::earlier(&call);
        make::<P>(request, &pod, txn, &mut state, plan, earlier).await
    });
    done.await.map_err(not_done)
}

async fn make<P: InterfacePlugin>(
    request: &AddRequest<P::Conf>,
    pod: &Pod,
    txn: &Txn<Undo>,
    state: &mut P::State,
    plan: Plan<P::Step>,
    earlier: AddResult,
) -> Result<AddResult, CniError> {
    if let Some(addresses) = plan.find_filtered() {
        // Taken back after the link, as the spoof guard stays as long as its port.
        txn.push(Undo::Filter(addresses.iter().map(|address: &IpNetwork| address.ip()).collect()));
    }
    let mut stage = Stage::new(&request.attachment, pod, &plan.names, txn, request.raw.search_path());
    for step in &plan.steps {
        step.apply(&mut stage, state).await?;
    }
    stage.flush()?;
    let links = P::links(&mut stage, state)?;
    Ok(result::assemble(request, earlier, plan.lease, plan.replaces_dns, &links))
}

/// Compares the attachment with what ADD made. What later plugins added is no difference.
///
/// # Errors
/// The first difference.
pub async fn check<P: InterfacePlugin>(request: &CheckRequest<P::Conf>) -> Result<(), CniError> {
    require_ipam::<P>(request.conf.ipam.is_some())?;
    let prev = request.conf.prev_result()?;
    let Some(prev) = &prev else {
        return Err(CniError::new(Code::INVALID_CONFIG, "cannot CHECK without prevResult"));
    };
    if let Some(ipam) = request.ipam() {
        ipam.check().await?;
    }
    let CheckRequest { attachment, conf, raw, .. } = request;
    if P::is_linkless(&conf.own) {
        return Ok(());
    }
    let entry = check::container_interface(prev, attachment.ifname.as_str(), &request.netns)?;
    let lease = conf.ipam.as_ref().map(|_| lease::of_result(prev, entry));
    let pod = Pod::open(&request.netns)?;
    let call = Call { verb: Verb::Check, attachment, conf, pod: &pod, raw };
    let mut state = P::observe(&call)?;
    let plan = P::plan(&call, &state, lease)?;
    let mut look = Look::new(attachment, &pod, &plan.names, prev, entry, raw.search_path());
    plan.steps.iter().try_for_each(|step| step.check(&mut look, &mut state))?;
    look.prefixes()
}

/// # Errors
/// Code 7: the plugin needs an address plugin, and the network has none.
pub(crate) fn require_ipam<P: InterfacePlugin>(has_ipam: bool) -> Result<(), CniError> {
    match P::IPAM {
        Ipam::Required if !has_ipam => Err(conf::invalid(format_args!("plugin {} needs key ipam", P::NAME))
            .detail("Name an address plugin by ipam.type, such as host-local.")),
        Ipam::Required | Ipam::Optional => Ok(()),
    }
}
