//! A plugin's part of a verb without its types: the driver is compiled once for all plugins, and each adds only what it
//! writes itself.

use std::pin::Pin;

use cni_spec::collection::Sweep;
use cni_spec::{AddResult, Attachment, CniError, Code, NetworkName, PluginConf};
use netops::OpError;
use netops::link::Link;
use skel::GcRequest;
use skel::request::Raw;

use crate::apply::Stage;
use crate::check::Look;
use crate::detach::Detaching;
use crate::plan::{Plan, Side, Turn};
use crate::plugin::{Call, InterfacePlugin, LinkKind, OwnStep, Uncollected, Verb};
use crate::pod::Pod;

/// A plugin's own step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnIndex {
    /// The step's place among the plan's own steps.
    pub(crate) place: usize,
    /// [`OwnStep::turn`].
    pub(crate) turn: Turn,
    /// [`OwnStep::name`].
    pub(crate) name: &'static str,
    /// [`OwnStep::is_on_node`].
    pub(crate) is_on_node: bool,
}

/// An ADD or CHECK before the container is opened.
pub(crate) trait Start {
    /// [`InterfacePlugin::is_linkless`].
    fn is_linkless(&self) -> bool;
    /// [`InterfacePlugin::LINK`].
    fn link(&self) -> LinkKind;
    /// [`InterfacePlugin::shared_link`].
    fn shared_link(&self) -> Option<&str>;
    /// [`InterfacePlugin::observe`].
    fn observe<'p>(&'p self, pod: &'p Pod) -> Result<Box<dyn Attach + 'p>, CniError>;
}

/// An ADD or CHECK whose node and call were looked at.
pub(crate) trait Attach {
    /// [`InterfacePlugin::plan`].
    fn plan(&mut self, lease: Option<AddResult>) -> Result<Plan<OwnIndex>, CniError>;
    /// [`InterfacePlugin::earlier`].
    fn earlier(&self) -> AddResult;
    /// [`InterfacePlugin::links`].
    fn links(&self, stage: &mut Stage<'_>) -> Result<Vec<(Side, Link)>, CniError>;
    /// [`OwnStep::apply`].
    fn apply<'f>(
        &'f mut self,
        step: OwnIndex,
        stage: &'f mut Stage<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<(), CniError>> + 'f>>;
    /// [`OwnStep::mend`].
    fn mend<'f>(
        &'f mut self,
        step: OwnIndex,
        stage: &'f mut Stage<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<(), CniError>> + 'f>>;
    /// [`OwnStep::check`].
    fn check(&mut self, step: OwnIndex, look: &mut Look<'_>) -> Result<(), CniError>;
}

/// A GC.
pub(crate) trait Collect {
    /// [`InterfacePlugin::collect`].
    fn collect(&self, network: &NetworkName, sweep: &Sweep<&Attachment>) -> Vec<Uncollected>;
    /// [`InterfacePlugin::list_stale`].
    fn list_stale(&self, network: &NetworkName, sweep: &Sweep<&Attachment>) -> Result<Vec<Link>, OpError>;
    /// [`InterfacePlugin::list_unmarked`].
    fn list_unmarked(&self) -> Result<Vec<Link>, OpError>;
}

/// An ADD or CHECK of plugin `P`.
pub(crate) struct Of<'a, P: InterfacePlugin> {
    pub(crate) verb: Verb,
    pub(crate) attachment: &'a Attachment,
    pub(crate) conf: &'a PluginConf<P::Conf>,
    pub(crate) raw: &'a Raw,
}

struct Observed<'p, P: InterfacePlugin> {
    call: Call<'p, P::Conf>,
    state: P::State,
    steps: Vec<P::Step>,
}

impl<P: InterfacePlugin> Start for Of<'_, P> {
    fn is_linkless(&self) -> bool {
        P::is_linkless(&self.conf.own)
    }

    fn link(&self) -> LinkKind {
        P::LINK
    }

    fn shared_link(&self) -> Option<&str> {
        P::shared_link(&self.conf.own)
    }

    fn observe<'p>(&'p self, pod: &'p Pod) -> Result<Box<dyn Attach + 'p>, CniError> {
        let Self { verb, attachment, conf, raw } = *self;
        let call = Call { verb, attachment, conf, pod, raw };
        let state = P::observe(&call)?;
        Ok(Box::new(Observed::<P> { call, state, steps: Vec::new() }))
    }
}

impl<P: InterfacePlugin> Attach for Observed<'_, P> {
    fn plan(&mut self, lease: Option<AddResult>) -> Result<Plan<OwnIndex>, CniError> {
        let (plan, steps) = P::plan(&self.call, &self.state, lease)?.erase();
        self.steps = steps;
        Ok(plan)
    }

    fn earlier(&self) -> AddResult {
        P::earlier(&self.call)
    }

    fn links(&self, stage: &mut Stage<'_>) -> Result<Vec<(Side, Link)>, CniError> {
        P::links(stage, &self.state)
    }

    fn apply<'f>(
        &'f mut self,
        step: OwnIndex,
        stage: &'f mut Stage<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<(), CniError>> + 'f>> {
        match self.steps.get(step.place) {
            Some(step) => Box::pin(step.apply(stage, &mut self.state)),
            None => Box::pin(async move { Err(no_such_step(step)) }),
        }
    }

    fn mend<'f>(
        &'f mut self,
        step: OwnIndex,
        stage: &'f mut Stage<'_>,
    ) -> Pin<Box<dyn Future<Output = Result<(), CniError>> + 'f>> {
        match self.steps.get(step.place) {
            Some(step) => Box::pin(step.mend(stage, &mut self.state)),
            None => Box::pin(async move { Err(no_such_step(step)) }),
        }
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

impl<P: InterfacePlugin> Collect for GcOf<'_, P> {
    fn collect(&self, network: &NetworkName, sweep: &Sweep<&Attachment>) -> Vec<Uncollected> {
        P::collect(network, sweep)
    }

    fn list_stale(&self, network: &NetworkName, sweep: &Sweep<&Attachment>) -> Result<Vec<Link>, OpError> {
        P::list_stale(network, sweep)
    }

    fn list_unmarked(&self) -> Result<Vec<Link>, OpError> {
        P::list_unmarked(&self.0.conf.own)
    }
}

/// A GC of plugin `P`.
pub(crate) struct GcOf<'a, P: InterfacePlugin>(pub(crate) &'a GcRequest<P::Removal>);

/// The removal of a link by plugin `P`.
pub(crate) fn remove_link<P: InterfacePlugin>(
    removal: &P::Removal,
) -> impl Fn(&Detaching<'_, ()>) -> Result<(), OpError> {
    move |detaching| {
        let Detaching { attachment, removal: (), prev, netns, reserved, holds_none, held } = *detaching;
        P::remove_link(&Detaching { attachment, removal, prev, netns, reserved, holds_none, held })
    }
}
