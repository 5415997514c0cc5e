//! ADD, and CHECK, its mirror: the same plan, applied or compared.
//!
//! [`entry`] is where a plugin loses its types: the driver is compiled once for all plugins, and each adds only what it writes
//! itself.

use cni_spec::{AddResult, CniError, Code, ConfObject, FromConf};
use netops::link::Link;
use netops::txn;
use skel::{AddRequest, CheckRequest, Delegate, Entry, Repair, Repaired, Serve, StatusRequest, Timer, Work};

use crate::apply::Stage;
use crate::check::{self, Look};
use crate::plan::{Names, OwnIndex, Plan, Side, Turn};
use crate::plugin::{AddOrCheck, InterfacePlugin, Ipam, LinkKind, OwnStep, Verb, asked_form, other_form};
use crate::sides::Sides;
use crate::undo::{AddUndoer, Undo, not_done};
use crate::{conf, detach, lease, preview, repair, result, status};

/// The entry of an interface plugin in its executable's list.
pub const fn entry<P: InterfacePlugin>() -> Entry {
    let mut entry = Entry::new(P::NAME, Serve::Verbs { attach: keys::<P>, detach: detach::keys::<P> });
    entry.versions = P::VERSIONS;
    entry.event_loop = P::EVENT_LOOP;
    entry.delegates = true;
    entry.preview = Some(|call| {
        if let Some(other) = asked_form::<P>(call)? {
            return other.preview.map_or(Ok(None), |preview| preview(call));
        }
        let (request, keys) = skel::add_request(&self::entry::<P>(), call)?;
        preview::alone::<P>(&request, &keys).map(Some)
    });
    entry
}

/// Attaches the container, or leaves the node as it was: open, look, refuse, lease, plan, make.
/// Errors: the error that stopped ADD. All changes were rolled back; details list any that could not be.
pub(crate) async fn add(start: &dyn DynPlugin, request: &AddRequest) -> Result<AddResult, CniError> {
    let AddRequest { attachment, netns, conf: net, raw, .. } = request;
    start.require_ipam(net.ipam.is_some())?;
    conf::refuse_pattern(&attachment.ifname)?;
    conf::refuse_inexpressible(net.ipam.is_some(), net.cni_version)?;
    let timer = Timer::start();
    let sides = Sides::open(netns)?;
    let mut plugin = start.observe(AddOrCheck { verb: Verb::Add, attachment, conf: net, sides: &sides, raw })?;
    timer.end("look");
    sides.refuse_taken(&attachment.ifname)?;
    let plugin = &mut *plugin;
    let ipam = raw.ipam(net);
    let (ipam, search_path) = (ipam.as_ref(), raw.search_path());
    let link = start.link();
    let (made, is_left) = Default::default();
    let undoer = AddUndoer { attachment, sides: &sides, link, ipam, search_path, made, is_left };
    let names = Names::of(attachment);
    let done = txn::run(&undoer, skel::interrupted(), async |txn| {
        let mut stage = Stage::new(attachment, &sides, &names, txn, &undoer);
        if link == LinkKind::Veth {
            stage.refuse_living(start.shared_link())?;
        }
        let is_link_first = start.is_link_before_ipam() && ipam.map_or(Ok(false), Delegate::may_look_for_link)?;
        let mut has_filter = false;
        if is_link_first {
            let plan = plugin.plan(None)?;
            has_filter = plan.has_filter();
            make_steps(&plan, &mut stage, plugin, has_filter, Some(Turn::AfterAddresses)).await?;
        }
        let lease = lease::take(ipam, txn, &|| undoer.lives(stage.made())).await?;
        if is_link_first {
            stage.expect_unrenamed()?;
            stage.find_present(lease.as_ref())?;
        }
        let plan = plugin.plan(lease)?;
        txn.checkpoint().await;
        let made = if is_link_first { Some(Turn::BeforeAddresses) } else { None };
        make_steps(&plan, &mut stage, plugin, plan.has_filter() && !has_filter, made).await?;
        let links = plugin.links(&mut stage)?;
        Ok(result::assemble(netns, net.cni_version, plugin.earlier(), (plan.lease, plan.replaces_dns), &links))
    });
    let result = done.await.map_err(not_done)?;
    netops::all_namespaces::record_caller();
    Ok(result)
}

/// Makes the steps of a plan but those of one turn. `filters`: they touch the packet filter for the first time.
async fn make_steps(
    plan: &Plan<OwnIndex>,
    stage: &mut Stage<'_>,
    plugin: &mut (dyn DynObserved + '_),
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
/// Errors: all differences: code and message of the first, the others in its details.
pub(crate) async fn check(start: &dyn DynPlugin, request: &CheckRequest) -> Result<(), CniError> {
    start.require_ipam(request.conf.ipam.is_some())?;
    let prev = prev_of_check(request)?;
    let reserved = match request.ipam() {
        Some(ipam) => ipam.check().await,
        None => Ok(()),
    };
    match start.is_linkless() {
        true => reserved,
        false => check::all([reserved, compare(start, request, &prev)]),
    }
}

/// prevResult, for CHECK.
/// Errors: code 7: there is none.
pub(crate) fn prev_of_check(request: &CheckRequest) -> Result<AddResult, CniError> {
    let missing = || CniError::new(Code::INVALID_CONFIG, "cannot CHECK without prevResult");
    request.conf.prev_result()?.ok_or_else(missing)
}

/// Compares node and container with the plan.
fn compare(start: &dyn DynPlugin, request: &CheckRequest, prev: &AddResult) -> Result<(), CniError> {
    let CheckRequest { attachment, netns, conf: net, raw, .. } = request;
    let entry = check::container_interface(prev, attachment.ifname.as_str(), netns)?;
    let lease = net.ipam.as_ref().map(|_| lease::of_result(prev, entry));
    let sides = Sides::open(netns)?;
    let mut plugin = start.observe(AddOrCheck { verb: Verb::Check, attachment, conf: net, sides: &sides, raw })?;
    let plan = plugin.plan(lease)?;
    let mut look = Look::new(attachment, &sides, &plan.names, prev, entry, raw.search_path());
    let steps = check::all(plan.steps.iter().map(|step| step.check(&mut look, &mut *plugin)));
    check::all([steps, look.compare_prefixes()])
}

/// Whether the network has an address plugin, if the plugin needs one.
/// Errors: code 7: the plugin needs an address plugin, and the network has none.
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

/// A plugin and its keys for ADD.
pub(crate) trait DynPlugin {
    fn require_ipam(&self, has_ipam: bool) -> Result<(), CniError>;
    fn is_link_before_ipam(&self) -> bool;
    fn status(&self, search_path: &str) -> Result<(), CniError>;
    fn is_linkless(&self) -> bool;
    fn link(&self) -> LinkKind;
    fn shared_link(&self) -> Option<&str>;
    fn gateway_link(&self) -> Option<String>;
    fn observe<'p>(&'p self, call: AddOrCheck<'p>) -> Result<Box<dyn DynObserved + 'p>, CniError>;
}

/// An ADD or CHECK whose node and call were looked at.
pub(crate) trait DynObserved {
    fn plan(&mut self, lease: Option<AddResult>) -> Result<Plan<OwnIndex>, CniError>;
    fn earlier(&self) -> AddResult;
    fn links(&self, stage: &mut Stage<'_>) -> Result<Vec<(Side, Link)>, CniError>;
    fn apply<'f>(&'f mut self, step: OwnIndex, stage: &'f mut Stage<'_>) -> Work<'f, Result<(), CniError>>;
    fn mend<'f>(&'f mut self, step: OwnIndex, stage: &'f mut Stage<'_>) -> Work<'f, Result<(), CniError>>;
    fn may_mend(&self, step: OwnIndex, look: &Look<'_>) -> bool;
    fn check(&mut self, step: OwnIndex, look: &mut Look<'_>) -> Result<(), CniError>;
}

struct Keys<P: InterfacePlugin>(P::Conf);

fn keys<P: InterfacePlugin>(object: &ConfObject) -> Result<Box<dyn skel::Attach>, CniError> {
    if let Some(Entry { serve: Serve::Verbs { attach, .. }, .. }) = other_form::<P>(object) {
        return attach(object);
    }
    Ok(Box::new(Keys::<P>(P::Conf::from_conf(object)?)))
}

impl<P: InterfacePlugin> skel::Attach for Keys<P> {
    fn add<'a>(&'a self, request: &'a AddRequest) -> Work<'a, Result<AddResult, CniError>> {
        Box::pin(add(self, request))
    }

    fn check<'a>(&'a self, request: &'a CheckRequest) -> Work<'a, Result<(), CniError>> {
        Box::pin(check(self, request))
    }

    fn repair<'a>(&'a self, request: &'a CheckRequest, how: Repair) -> Work<'a, Result<Repaired, CniError>> {
        Box::pin(repair::repair(self, request, how))
    }

    fn status<'a>(&'a self, request: &'a StatusRequest) -> Work<'a, Result<(), CniError>> {
        Box::pin(status::status(self, request))
    }
}

struct Observed<'p, P: InterfacePlugin> {
    call: AddOrCheck<'p>,
    keys: &'p P::Conf,
    state: P::State,
    steps: Vec<P::Step>,
}

impl<P: InterfacePlugin> DynPlugin for Keys<P> {
    fn require_ipam(&self, has_ipam: bool) -> Result<(), CniError> {
        require_ipam::<P>(has_ipam)
    }

    fn is_link_before_ipam(&self) -> bool {
        P::LINK_BEFORE_IPAM
    }

    fn status(&self, search_path: &str) -> Result<(), CniError> {
        P::status(&self.0, search_path)
    }

    fn is_linkless(&self) -> bool {
        P::is_linkless(&self.0)
    }

    fn link(&self) -> LinkKind {
        P::LINK
    }

    fn shared_link(&self) -> Option<&str> {
        P::shared_link(&self.0)
    }

    fn gateway_link(&self) -> Option<String> {
        P::gateway_link(&self.0)
    }

    fn observe<'p>(&'p self, call: AddOrCheck<'p>) -> Result<Box<dyn DynObserved + 'p>, CniError> {
        let keys = &self.0;
        let state = P::observe(&call, keys)?;
        Ok(Box::new(Observed::<P> { call, keys, state, steps: Vec::new() }))
    }
}

impl<P: InterfacePlugin> DynObserved for Observed<'_, P> {
    fn plan(&mut self, lease: Option<AddResult>) -> Result<Plan<OwnIndex>, CniError> {
        let (plan, steps) = P::plan(&self.call, self.keys, &self.state, lease)?.erase();
        self.steps = steps;
        Ok(plan)
    }

    fn earlier(&self) -> AddResult {
        P::earlier(&self.call, self.keys)
    }

    fn links(&self, stage: &mut Stage<'_>) -> Result<Vec<(Side, Link)>, CniError> {
        P::links(stage, &self.state)
    }

    fn apply<'f>(&'f mut self, step: OwnIndex, stage: &'f mut Stage<'_>) -> Work<'f, Result<(), CniError>> {
        match self.steps.get(step.place) {
            Some(step) => Box::pin(step.apply(stage, &mut self.state)),
            None => Box::pin(async move { Err(no_such_step(step)) }),
        }
    }

    fn mend<'f>(&'f mut self, step: OwnIndex, stage: &'f mut Stage<'_>) -> Work<'f, Result<(), CniError>> {
        match self.steps.get(step.place) {
            Some(step) => Box::pin(step.mend(stage, &mut self.state)),
            None => Box::pin(async move { Err(no_such_step(step)) }),
        }
    }

    fn may_mend(&self, step: OwnIndex, look: &Look<'_>) -> bool {
        self.steps.get(step.place).is_some_and(|step| step.may_mend(look))
    }

    fn check(&mut self, step: OwnIndex, look: &mut Look<'_>) -> Result<(), CniError> {
        let own = self.steps.get(step.place).ok_or_else(|| no_such_step(step))?;
        own.check(look, &mut self.state)
    }
}

fn no_such_step(step: OwnIndex) -> CniError {
    CniError::new(
        Code::INTERNAL,
        format!("cannot do step {:?}: the plan has no step at place {}", step.name, step.place),
    )
}
