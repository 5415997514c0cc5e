//! What ADD would do here and now, for programs that show it: the plan's steps as text. Nothing is changed.

use cni_spec::{AddResult, CniError, Code, Interface};
use skel::AddRequest;

use crate::attach::require_ipam;
use crate::check::{self, Look};
use crate::error::refuse_without_ipv6;
use crate::lease::refuse_empty;
use crate::plan::{Plan, Side, Step, Uncompared};
use crate::plugin::{AddOrCheck, InterfacePlugin, OwnStep, Verb};
use crate::sides::Sides;
use crate::{conf, forwarding};

pub use skel::preview::{Preview, Shown};

/// The addresses that ADD would get, as far as they are known before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lease {
    /// The network has no address plugin.
    None,
    /// The addresses, unless another ADD takes them first.
    Known(Box<AddResult>),
    /// Only the address plugin's ADD knows the addresses.
    Unknown,
}

/// What ADD would do.
/// Errors: the errors that ADD would report before it changes anything.
pub fn preview<P: InterfacePlugin>(
    request: &AddRequest,
    keys: &P::Conf,
    lease: &mut dyn FnMut() -> Result<Lease, CniError>,
) -> Result<Preview, CniError> {
    require_ipam::<P>(request.conf.ipam.is_some())?;
    let AddRequest { attachment, netns, conf, raw, .. } = request;
    conf::refuse_pattern(&attachment.ifname)?;
    conf::refuse_inexpressible(conf.ipam.is_some(), conf.cni_version)?;
    let sides = Sides::open(netns)?;
    let call = AddOrCheck { verb: Verb::Add, attachment, conf, sides: &sides, raw };
    let mut state = P::observe(&call, keys)?;
    sides.refuse_taken(&attachment.ifname)?;
    refuse_previewed(&call)?;
    let mut preview = Preview::default();
    let lease = match lease()? {
        Lease::None => None,
        Lease::Known(lease) => {
            refuse_empty(&lease, conf.ipam.as_ref().map(ToString::to_string).unwrap_or_default())?;
            Some(*lease)
        }
        Lease::Unknown => {
            let ipam = conf.ipam.as_ref().map(ToString::to_string).unwrap_or_default();
            preview.unknown.push(format!("addresses and routes: {ipam} says at ADD which"));
            Some(AddResult::default())
        }
    };
    if lease.iter().flat_map(|lease| &lease.ips).any(|ip| ip.address.is_ipv6()) {
        refuse_without_ipv6(P::gateway_link(keys).as_deref())?;
    }
    let plan = P::plan(&call, keys, &state, lease)?;
    preview.result = result(P::earlier(&call, keys), &plan, &P::names(keys, &plan), netns.as_str());
    let Some(entry) = preview.result.interfaces.iter().rfind(|entry| !entry.sandbox.is_empty()) else {
        return Ok(preview);
    };
    let mut look = Look::new(attachment, &sides, &plan.names, &preview.result, entry, raw.search_path());
    let mut steps = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Own(own) => steps.extend(own.preview(&mut look, &mut state)?),
            step => {
                if let Step::Uncompared(Uncompared::Forward(family)) = step {
                    let kept = forwarding::to_keep(&sides.host, *family)?;
                    steps.extend(kept.iter().map(|key| Shown::new(format!("{key}=2")).uncompared()));
                }
                let is_so = matches!(step, Step::Uncompared(Uncompared::Forward(family)) if check::forwarding(*family)?.1.as_deref() == Some("1"));
                let is_compared = matches!(step, Step::Compared(_));
                let text = step.text(&plan.names);
                let shown = |line: &str| Shown { text: line.to_owned(), is_so, is_compared };
                steps.extend(text.lines().map(shown));
            }
        }
    }
    drop(look);
    preview.steps = steps;
    Ok(preview)
}

/// [`preview`] of a plugin that does not know the address plugins of this suite.
pub(crate) fn alone<P: InterfacePlugin>(request: &AddRequest, keys: &P::Conf) -> Result<Preview, CniError> {
    let lease = || if request.conf.ipam.is_some() { Lease::Unknown } else { Lease::None };
    preview::<P>(request, keys, &mut || Ok(lease()))
}

/// Refuses an interface name that an earlier plugin of the list would have given.
fn refuse_previewed(call: &AddOrCheck<'_>) -> Result<(), CniError> {
    let AddOrCheck { attachment, sides, .. } = call;
    let earlier = call.conf.find_prev_result().unwrap_or_default();
    let is_it = |entry: &Interface| entry.name == attachment.ifname.as_str() && !entry.sandbox.is_empty();
    match earlier.interfaces.iter().any(is_it) {
        false => Ok(()),
        true => {
            let place = sides.container.place();
            let msg = format!("cannot create interface {} in {place}: an earlier plugin makes it", attachment.ifname);
            Err(CniError::new(Code::EXISTS, msg).detail("A list has one plugin that makes the interface."))
        }
    }
}

fn result<O>(mut result: AddResult, plan: &Plan<O>, names: &[(Side, String)], netns: &str) -> AddResult {
    let container = names.iter().position(|(side, _)| *side == Side::Container);
    let place = container.map(|place| result.interfaces.len() + place);
    let entry =
        |(side, name): &(Side, String)| Interface::new(name).sandbox(if *side == Side::Container { netns } else { "" });
    result.interfaces.extend(names.iter().map(entry));
    let lease = plan.lease.clone();
    result.ips.extend(lease.ips.into_iter().map(|ip| ip.of(place)));
    result.routes.extend(lease.routes);
    if !lease.dns.is_empty() || plan.replaces_dns {
        result.dns = lease.dns;
    }
    result
}

/// A step's own text: each line is a step, made or compared as a whole.
pub(crate) fn of_own<O: OwnStep>(step: &O, look: &mut Look<'_>, state: &mut O::State) -> Vec<Shown> {
    let is_compared = step.is_compared();
    let is_so = is_compared && step.check(look, state).is_ok();
    step.to_string().lines().map(|line| Shown { text: line.to_owned(), is_so, is_compared }).collect()
}
