//! What an interface plugin is: its keys, its plan, and the few steps that only it has.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;

use cni_spec::gc::Sweep;
use cni_spec::{AddResult, Attachment, CniError, ConfObject, FromAnyConf, FromConf, NetConf, NetworkName, SpecVersion};
use netops::OpError;
use netops::link::Link;
use skel::{Call, Entry, EventLoop};

use crate::apply::Stage;
use crate::check::Look;
use crate::detach::Detaching;
use crate::plan::{Compared, Plan, Side, Step, Turn};
use crate::preview::{self, Shown};
use crate::result::without_loopback;
use crate::sides::Sides;
use crate::{container_only, veth};

/// What GC could not take back.
#[derive(Debug)]
pub struct Uncollected {
    /// The attachment, whose addresses stay reserved. `None`: not known, so all the network's addresses do.
    pub attachment: Option<Attachment>,
    pub error: OpError,
}

/// The form that an interface plugin has where a config has a key: a plugin that changes what one before it has made.
#[derive(Clone, Copy)]
pub struct OtherForm {
    /// The key, which is `true`.
    pub key: &'static str,
    pub entry: Entry,
}

/// The entry of the other form, if the config asks for it. With `ipam`, which ADD refuses beside the key, DEL is that of an interface
/// that the config once made, and releases its addresses.
pub fn other_form<P: InterfacePlugin>(object: &ConfObject) -> Option<Entry> {
    let (conf, form) = (object.value(), P::CHAINED?);
    (conf.get(form.key) == Some(&true.into()) && conf.get("ipam").is_none()).then_some(form.entry)
}

/// As [`other_form`], by a call's config.
/// Errors: it cannot be read.
pub fn asked_form<P: InterfacePlugin>(call: &Call) -> Result<Option<Entry>, CniError> {
    match P::CHAINED {
        Some(_) => Ok(other_form::<P>(&ConfObject::parse(&call.read_stdin()?)?)),
        None => Ok(None),
    }
}

/// An interface plugin. [`crate::entry`] puts it into an executable's list; README.md says what the driver does around it.
pub trait InterfacePlugin: Sized + 'static {
    /// The file name it is called by.
    const NAME: &'static str;
    /// The versions it speaks, oldest first.
    const VERSIONS: &'static [SpecVersion] = &SpecVersion::ALL;
    /// When the plugin's verbs have an event loop.
    const EVENT_LOOP: EventLoop = EventLoop::WhenWaiting;
    /// The kind of an attachment's link, which says how DEL and GC find the link.
    const LINK: LinkKind;
    /// The plugin's other form, as a chained plugin.
    const CHAINED: Option<OtherForm> = None;
    /// Whether plans may have [`crate::plan::Compared::SpoofGuard`] or [`crate::plan::Compared::Masquerade`]: then DEL, GC and a
    /// rollback read the packet filter, even if the config has changed since ADD. DEL of other plugins reads it where no result
    /// shows the kind of the link, GC always.
    const FILTERS: bool = false;
    /// Whether the link is there when an address plugin of another project is called, as with the reference: dhcp sends on
    /// it. The other address plugins are called first, and an ADD that they refuse changes nothing.
    const LINK_BEFORE_IPAM: bool = true;
    const IPAM: Ipam = Ipam::Optional;
    type Conf: FromConf;
    /// What DEL and GC need of the keys; `()` where the attachment says it all.
    type Removal: FromAnyConf;
    /// What [`InterfacePlugin::observe`] finds, and steps leave for later steps; `()` for most.
    type State;
    /// Steps that only this plugin has; [`NoStep`] for none.
    type Step: OwnStep<State = Self::State>;

    /// Looks at call and node before anything is changed, for ADD before IPAM is asked. Changes nothing.
    /// Errors: why ADD cannot be done, or CHECK has found a difference.
    fn observe(call: &AddOrCheck<'_>, keys: &Self::Conf) -> Result<Self::State, CniError>;

    /// Checks that the keys have what ADD needs, for programs that look at a configuration before a runtime adds to it.
    /// Errors: code 7.
    fn require(_: &Self::Conf) -> Result<(), CniError> {
        Ok(())
    }

    /// The plan for a lease (`None`: a network without IPAM). ADD and CHECK ask with the same keys; CHECK with the lease that
    /// prevResult shows.
    /// Errors: a lease that no interface can have, code 110; keys that contradict it, code 7.
    fn plan(
        call: &AddOrCheck<'_>,
        keys: &Self::Conf,
        state: &Self::State,
        lease: Option<AddResult>,
    ) -> Result<Plan<Self::Step>, CniError>;

    /// The earlier result that ADD passes on, with what this plugin made behind it. By default prevResult without interfaces
    /// that have loopback addresses only.
    fn earlier(call: &AddOrCheck<'_>, _keys: &Self::Conf) -> AddResult {
        call.conf.find_prev_result().map(without_loopback).unwrap_or_default()
    }

    /// The links of the result, in order, when all is made. By default the host's end, if there is one, and the container's
    /// link.
    /// Errors: the links cannot be read.
    fn links(stage: &mut Stage<'_>, _state: &Self::State) -> Result<Vec<(Side, Link)>, CniError> {
        let host = stage.host_link.clone().map(|link| (Side::Host, link));
        let container = (Side::Container, stage.link(Side::Container)?.clone());
        Ok(host.into_iter().chain([container]).collect())
    }

    /// The names of these links before they are made, for programs that show what ADD would do.
    fn names(_keys: &Self::Conf, plan: &Plan<Self::Step>) -> Vec<(Side, String)> {
        let has_veth = plan.steps.iter().any(|step| matches!(step, Step::Compared(Compared::Veth(_))));
        let host = has_veth.then(|| (Side::Host, plan.names.host.clone()));
        host.into_iter().chain([(Side::Container, plan.names.container.clone())]).collect()
    }

    /// The name of the node's link that attachments of the network share, if there is one: it is read together with the name of
    /// the host's end before anything is changed.
    fn shared_link(_conf: &Self::Conf) -> Option<&str> {
        None
    }

    /// The node's link that gets the addresses of gateways: one that attachments share, by its name, or `default`, as sysctls
    /// name all new links, where each attachment has its own. `None`: the node gets no address.
    fn gateway_link(_conf: &Self::Conf) -> Option<String> {
        None
    }

    /// Removes the attachment's link, if it is there, on the host or in the container.
    /// Errors: the link still exists, or could not be looked up.
    fn remove_link(detaching: &Detaching<'_>, _removal: &Self::Removal) -> Result<(), OpError> {
        match Self::LINK {
            LinkKind::Veth => veth::remove(detaching, veth::Unmarked::Alone),
            LinkKind::ContainerOnly(kind) => container_only::remove(detaching, Some(kind)).map(drop),
        }
    }

    /// The links on the host that are a container's, without a mark that names the attachment. GC frees no address that such
    /// a container may use, whatever list it has.
    /// Errors: the links cannot be listed.
    fn list_unmarked(_removal: &Self::Removal) -> Result<Vec<Link>, OpError> {
        Ok(Vec::new())
    }

    /// Takes back what attachments to this network that GC removes have on the node beside links to delete.
    ///
    /// Goes on past errors, and returns what is left.
    fn collect(_network: &NetworkName, _sweep: &Sweep<&Attachment>) -> Vec<Uncollected> {
        Vec::new()
    }

    /// Whether the plugin's attachment has no link in the container, so that CHECK compares none.
    fn is_linkless(_conf: &Self::Conf) -> bool {
        false
    }

    /// Reports whether the node could serve ADD. The driver calls STATUS of the address plugin.
    /// Errors: the reason why ADD cannot be served; it becomes code 50.
    fn status(_conf: &Self::Conf, _search_path: &str) -> Result<(), CniError> {
        Ok(())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkKind {
    /// A veth whose host end has the attachment's mark, by which it is found without the namespace.
    Veth,
    /// A link of this kind that is in the container alone, and ends with its namespace.
    ContainerOnly(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ipam {
    Optional,
    Required,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Add,
    Check,
}

/// An ADD or CHECK, as plugins see it.
pub struct AddOrCheck<'a> {
    pub verb: Verb,
    pub attachment: &'a Attachment,
    pub conf: &'a NetConf,
    pub sides: &'a Sides,
    pub raw: &'a skel::Call,
}

/// A step that only one plugin has. Its text is written as `ip` commands, a change a line.
pub trait OwnStep: fmt::Display {
    /// [`InterfacePlugin::State`].
    type State;

    /// The turn in which the step is made.
    fn turn(&self) -> Turn {
        Turn::AfterAddresses
    }

    fn name(&self) -> &'static str {
        "own step"
    }

    /// Makes the step. Requests that were queued before have been sent then. Pushes the step's undo to [`Stage::txn`].
    /// Errors: the kernel refused a change.
    fn apply(&self, stage: &mut Stage<'_>, state: &mut Self::State) -> impl Future<Output = Result<(), CniError>>;

    /// Compares the node with it.
    /// Errors: code 107 naming the difference.
    fn check(&self, look: &mut Look<'_>, state: &mut Self::State) -> Result<(), CniError>;

    /// Whether a repair may make the step again ([`OwnStep::mend`]): all that it makes is on the node.
    fn is_on_node(&self) -> bool {
        false
    }

    /// Whether [`OwnStep::mend`] would make what [`OwnStep::check`] has found to differ: it replaces nothing.
    fn may_mend(&self, _: &Look<'_>) -> bool {
        true
    }

    /// Makes the step again for an attachment that lives, and replaces nothing.
    fn mend(&self, stage: &mut Stage<'_>, state: &mut Self::State) -> impl Future<Output = Result<(), CniError>> {
        self.apply(stage, state)
    }

    /// Whether [`OwnStep::check`] compares anything.
    fn is_compared(&self) -> bool {
        true
    }

    /// The step for programs that show what ADD would do: by default its text, and whether the node is so already. Changes
    /// nothing.
    /// Errors: why ADD would fail here.
    fn preview(&self, look: &mut Look<'_>, state: &mut Self::State) -> Result<Vec<Shown>, CniError>
    where
        Self: Sized,
    {
        Ok(preview::of_own(self, look, state))
    }
}

/// The own step of plugins whose steps are all shared ones.
#[derive(Debug, Clone)]
pub struct NoStep<S = ()>(Infallible, PhantomData<S>);

impl<S> fmt::Display for NoStep<S> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl<S> OwnStep for NoStep<S> {
    type State = S;

    async fn apply(&self, _: &mut Stage<'_>, _: &mut S) -> Result<(), CniError> {
        match self.0 {}
    }

    fn check(&self, _: &mut Look<'_>, _: &mut S) -> Result<(), CniError> {
        match self.0 {}
    }
}
