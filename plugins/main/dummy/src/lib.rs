//! The dummy plugin: a link in the container that drops all that it is given, with addresses from IPAM.
//!
//! The plan is all there is to it; the driver in crate `interface` makes it so, compares, and removes.

use cni_spec::{AddResult, CniError};
use interface::container::Options;
use interface::plan::{Compared, Create};
use interface::{AddOrCheck, InterfacePlugin, Ipam, LinkKind, NoStep, Plan, status};
use netops::link::Kind;

pub struct Dummy;

impl InterfacePlugin for Dummy {
    const NAME: &'static str = "dummy";
    const LINK: LinkKind = LinkKind::ContainerOnly("dummy");
    const IPAM: Ipam = Ipam::Required;
    type Conf = ();
    type Removal = ();
    type State = ();
    type Step = NoStep;

    fn observe(_: &AddOrCheck<'_>, _: &()) -> Result<(), CniError> {
        Ok(())
    }

    fn plan(call: &AddOrCheck<'_>, _: &(), _: &(), lease: Option<AddResult>) -> Result<Plan<NoStep>, CniError> {
        let mut plan = Plan::new(call.attachment, lease, None);
        plan.push(Compared::Create(Box::new(Create::new(Kind::Dummy))));
        plan.push_container(Options::default())?;
        Ok(plan)
    }

    fn status(_: &(), _: &str) -> Result<(), CniError> {
        status::probe_kind(Kind::Dummy)
    }
}
