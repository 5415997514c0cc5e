//! ADD, and CHECK, its mirror: the same plan, applied or compared.

use std::cell::Cell;

use cni_spec::{AddResult, CniError, Code};
use netops::txn;
use skel::{AddRequest, CheckRequest, Delegate};

use crate::apply::Stage;
use crate::check::{self, Look};
use crate::own::{Call, InterfacePlugin, Ipam, OwnStep, Verb};
use crate::plan::{Names, Plan, Turn};
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
    let ipam = request.ipam();
    let (ipam, search_path) = (ipam.as_ref(), request.raw.search_path());
    let undoer = AddUndoer { attachment, pod: &pod, ipam, search_path, is_left: Cell::new(false) };
    let names = Names::of(attachment);
    let done = txn::run(&undoer, skel::interrupted(), async |txn| {
        pod.refuse_taken(&attachment.ifname)?;
        let mut stage = Stage::new(attachment, &pod, &names, txn, search_path);
        let is_link_first = P::LINK_BEFORE_IPAM && ipam.map_or(Ok(false), Delegate::is_process)?;
        let mut has_filter = false;
        if is_link_first {
            let plan = P::plan(&call, &state, None)?;
            has_filter = plan.has_filter();
            make(&plan, &mut stage, &mut state, has_filter, Some(Turn::AfterAddresses)).await?;
        }
        let lease = lease::take(ipam, txn).await?;
        let plan = P::plan(&call, &state, lease)?;
        txn.checkpoint().await;
        let made = if is_link_first { Some(Turn::BeforeAddresses) } else { None };
        make(&plan, &mut stage, &mut state, plan.has_filter() && !has_filter, made).await?;
        let links = P::links(&mut stage, &state)?;
        Ok(result::assemble(request, P::earlier(&call), plan.lease, plan.replaces_dns, &links))
    });
    done.await.map_err(not_done)
}

/// Makes the steps of a plan but those of one turn. `filters`: they touch the packet filter for the first time.
async fn make<O: OwnStep>(
    plan: &Plan<O>,
    stage: &mut Stage<'_>,
    state: &mut O::State,
    filters: bool,
    without: Option<Turn>,
) -> Result<(), CniError> {
    if filters {
        // Before the link is made, so taken back after it: the spoof guard stays as long as its port.
        stage.txn.push(Undo::Filter);
    }
    for step in plan.steps.iter().filter(|step| Some(step.turn()) != without) {
        step.apply(stage, state).await?;
    }
    stage.flush()
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
