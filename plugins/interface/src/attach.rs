//! ADD, and CHECK, its mirror: the same plan, applied or compared.

use cni_spec::{AddResult, Attachment, CniError, Code, NetConf};
use netops::txn;
use skel::request::Raw;
use skel::{AddRequest, CheckRequest, Delegate, NetnsPath, Timer};

use crate::apply::Stage;
use crate::check::{self, Look};
use crate::erased::{self, Attach, OwnIndex, Start};
use crate::plan::{Names, Plan, Turn};
use crate::plugin::{InterfacePlugin, Ipam, LinkKind, Verb};
use crate::pod::Pod;
use crate::undo::{AddUndoer, Undo, not_done};
use crate::{conf, lease, result};

/// Attaches the container, or leaves the node as it was: open, look, refuse, lease, plan, make.
///
/// # Errors
/// The error that stopped ADD. All changes were rolled back; details list any that could not be.
pub async fn add<P: InterfacePlugin>(request: &AddRequest<P::Conf>) -> Result<AddResult, CniError> {
    require_ipam::<P>(request.conf.ipam.is_some())?;
    let AddRequest { attachment, netns, conf, raw } = request;
    let start = erased::Of::<P> { verb: Verb::Add, attachment, conf, raw };
    add_by(&start, P::LINK_BEFORE_IPAM, Asked { attachment, netns, net: &conf.net, raw }).await
}

/// The parts of a request that are the same for all plugins.
#[derive(Clone, Copy)]
pub(crate) struct Asked<'a> {
    pub(crate) attachment: &'a Attachment,
    pub(crate) netns: &'a NetnsPath,
    pub(crate) net: &'a NetConf,
    pub(crate) raw: &'a Raw,
}

impl Asked<'_> {
    /// prevResult, for CHECK.
    ///
    /// # Errors
    /// Code 7: there is none.
    pub(crate) fn get_prev_result(&self) -> Result<AddResult, CniError> {
        let missing = || CniError::new(Code::INVALID_CONFIG, "cannot CHECK without prevResult");
        self.net.prev_result()?.ok_or_else(missing)
    }
}

async fn add_by(start: &dyn Start, link_before_ipam: bool, asked: Asked<'_>) -> Result<AddResult, CniError> {
    let Asked { attachment, netns, net, raw } = asked;
    conf::refuse_pattern(&attachment.ifname)?;
    conf::refuse_inexpressible(net.ipam.is_some(), net.cni_version)?;
    let timer = Timer::start();
    let pod = Pod::open(netns)?;
    let mut plugin = start.observe(&pod)?;
    timer.end("look");
    let plugin = &mut *plugin;
    let ipam = raw.ipam(net);
    let (ipam, search_path) = (ipam.as_ref(), raw.search_path());
    let link = start.link();
    let (made, is_left) = Default::default();
    let undoer = AddUndoer { attachment, pod: &pod, link, ipam, search_path, made, is_left };
    let names = Names::of(attachment);
    let done = txn::run(&undoer, skel::interrupted(), async |txn| {
        pod.refuse_taken(&attachment.ifname)?;
        let mut stage = Stage::new(attachment, &pod, &names, txn, &undoer);
        if link == LinkKind::Veth {
            stage.refuse_living(start.shared_link())?;
        }
        let is_link_first = link_before_ipam && ipam.map_or(Ok(false), Delegate::may_look_for_link)?;
        let mut has_filter = false;
        if is_link_first {
            let plan = plugin.plan(None)?;
            has_filter = plan.has_filter();
            make(&plan, &mut stage, plugin, has_filter, Some(Turn::AfterAddresses)).await?;
        }
        let lease = lease::take(ipam, txn, &|| undoer.lives(stage.made())).await?;
        if is_link_first {
            stage.expect_unrenamed()?;
        }
        let plan = plugin.plan(lease)?;
        txn.checkpoint().await;
        let made = if is_link_first { Some(Turn::BeforeAddresses) } else { None };
        make(&plan, &mut stage, plugin, plan.has_filter() && !has_filter, made).await?;
        let links = plugin.links(&mut stage)?;
        Ok(result::assemble(netns, net.cni_version, plugin.earlier(), (plan.lease, plan.replaces_dns), &links))
    });
    done.await.map_err(not_done)
}

/// Makes the steps of a plan but those of one turn. `filters`: they touch the packet filter for the first time.
async fn make(
    plan: &Plan<OwnIndex>,
    stage: &mut Stage<'_>,
    plugin: &mut (dyn Attach + '_),
    filters: bool,
    without: Option<Turn>,
) -> Result<(), CniError> {
    if filters {
        // Before the link is made, so taken back after it: the spoof guard stays as long as its port.
        stage.txn.push(Undo::Filter);
    }
    for step in plan.steps.iter().filter(|step| Some(step.turn()) != without) {
        step.apply(stage, plugin).await?;
    }
    stage.flush()
}

/// Compares the attachment with what ADD made. What later plugins added is no difference.
///
/// # Errors
/// All differences: code and message of the first, the others in its details.
pub async fn check<P: InterfacePlugin>(request: &CheckRequest<P::Conf>) -> Result<(), CniError> {
    require_ipam::<P>(request.conf.ipam.is_some())?;
    let CheckRequest { attachment, netns, conf, raw } = request;
    let start = erased::Of::<P> { verb: Verb::Check, attachment, conf, raw };
    check_by(&start, Asked { attachment, netns, net: &conf.net, raw }).await
}

async fn check_by(start: &dyn Start, asked: Asked<'_>) -> Result<(), CniError> {
    let prev = asked.get_prev_result()?;
    let reserved = match asked.raw.ipam(asked.net) {
        Some(ipam) => ipam.check().await,
        None => Ok(()),
    };
    match start.is_linkless() {
        true => reserved,
        false => check::all([reserved, compare(start, asked, &prev)]),
    }
}

/// Compares node and container with the plan.
fn compare(start: &dyn Start, asked: Asked<'_>, prev: &AddResult) -> Result<(), CniError> {
    let Asked { attachment, netns, net, raw } = asked;
    let entry = check::container_interface(prev, attachment.ifname.as_str(), netns)?;
    let lease = net.ipam.as_ref().map(|_| lease::of_result(prev, entry));
    let pod = Pod::open(netns)?;
    let mut plugin = start.observe(&pod)?;
    let plan = plugin.plan(lease)?;
    let mut look = Look::new(attachment, &pod, &plan.names, prev, entry, raw.search_path());
    let steps = check::all(plan.steps.iter().map(|step| step.check(&mut look, &mut *plugin)));
    check::all([steps, look.prefixes()])
}

/// Whether the network has an address plugin, if the plugin needs one.
///
/// # Errors
/// Code 7: the plugin needs an address plugin, and the network has none.
pub fn require_ipam<P: InterfacePlugin>(has_ipam: bool) -> Result<(), CniError> {
    match P::IPAM {
        Ipam::Required if !has_ipam => Err(missing_ipam(P::NAME)),
        Ipam::Required | Ipam::Optional => Ok(()),
    }
}

fn missing_ipam(plugin: &str) -> CniError {
    conf::invalid(format_args!("plugin {plugin} needs key ipam"))
        .detail("Name an address plugin by ipam.type, such as host-local.")
}
