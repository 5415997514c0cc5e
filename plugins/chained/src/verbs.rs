//! The driver of the verbs. What depends on the plugin is small here: each plugin's copy of it is part of the executable.

use cni_spec::{AddResult, CniError, Code, ConfObject, FromAnyConf, FromConf};
use interface::status::not_available;
use interface::undo::not_done;
use netops::txn;
use skel::{AddRequest, CheckRequest, DelRequest, GcRequest, Repair, Repaired, StatusRequest, Work};

use crate::attached::Attached;
use crate::lazy_sides::LazySides;
use crate::plugin::{AddOrCheck, ChainedPlugin, Collecting, Removing, Txn};

/// A plugin and its keys for ADD, without its types: the driver is compiled once for all plugins.
trait DynPlugin {
    fn add_repairs(&self) -> bool;
    fn add<'a>(
        &'a self,
        call: AddOrCheck<'a>,
        txn: &'a Txn,
        result: &'a mut AddResult,
    ) -> Work<'a, Result<(), CniError>>;
    fn check<'a>(&'a self, call: AddOrCheck<'a>) -> Work<'a, Result<(), CniError>>;
    fn lost(&self, call: AddOrCheck<'_>) -> Result<Vec<String>, CniError>;
}

struct Keys<P: ChainedPlugin>(P::Conf);

pub(crate) fn keys<P: ChainedPlugin>(object: &ConfObject) -> Result<Box<dyn skel::Attach>, CniError> {
    Ok(Box::new(Keys::<P>(P::Conf::from_conf(object)?)))
}

impl<P: ChainedPlugin> skel::Attach for Keys<P> {
    fn add<'a>(&'a self, request: &'a AddRequest) -> Work<'a, Result<AddResult, CniError>> {
        Box::pin(add(self, request))
    }

    fn check<'a>(&'a self, request: &'a CheckRequest) -> Work<'a, Result<(), CniError>> {
        Box::pin(check(self, request))
    }

    fn repair<'a>(&'a self, request: &'a CheckRequest, how: Repair) -> Work<'a, Result<Repaired, CniError>> {
        Box::pin(repair(self, request, how))
    }

    fn status<'a>(&'a self, request: &'a StatusRequest) -> Work<'a, Result<(), CniError>> {
        Box::pin(async move {
            let StatusRequest { conf, raw, .. } = request;
            P::status(&self.0, raw.search_path()).map_err(|error| not_available(&conf.name, error))
        })
    }
}

impl<P: ChainedPlugin> DynPlugin for Keys<P> {
    fn add_repairs(&self) -> bool {
        P::ADD_REPAIRS
    }

    fn add<'a>(
        &'a self,
        call: AddOrCheck<'a>,
        txn: &'a Txn,
        result: &'a mut AddResult,
    ) -> Work<'a, Result<(), CniError>> {
        Box::pin(async move { P::add(&call, &self.0, txn, result).await })
    }

    fn check<'a>(&'a self, call: AddOrCheck<'a>) -> Work<'a, Result<(), CniError>> {
        Box::pin(async move { P::check(&call, &self.0).await })
    }

    fn lost(&self, call: AddOrCheck<'_>) -> Result<Vec<String>, CniError> {
        P::lost(&call, &self.0)
    }
}

struct RemovalKeys<P: ChainedPlugin>(P::Removal);

pub(crate) fn removal_keys<P: ChainedPlugin>(object: &ConfObject) -> Box<dyn skel::Detach> {
    Box::new(RemovalKeys::<P>(P::Removal::from_any_conf(object)))
}

impl<P: ChainedPlugin> skel::Detach for RemovalKeys<P> {
    fn del<'a>(&'a self, request: &'a DelRequest) -> Work<'a, Result<(), CniError>> {
        Box::pin(async move {
            let DelRequest { attachment, netns, conf, raw, .. } = request;
            let (netns, object, removal) = (netns.as_ref(), conf.object(), &self.0);
            let attached = conf.find_prev_result().map(|prev| Attached::new(prev, &attachment.ifname, netns));
            let removing = Removing { attachment, removal, object, attached: attached.as_ref(), raw, netns };
            together(P::del(&removing).await)
        })
    }

    fn gc<'a>(&'a self, request: &'a GcRequest) -> Work<'a, Result<(), CniError>> {
        Box::pin(async move {
            let GcRequest { conf, raw, .. } = request;
            let (network, sweep, removal) = (&conf.name, &request.sweep(), &self.0);
            together(P::gc(&Collecting { network, sweep, removal, raw }).await)
        })
    }
}

/// Joins the errors of all that is left.
fn together(errors: Vec<CniError>) -> Result<(), CniError> {
    CniError::join(errors).map_or(Ok(()), Err)
}

/// Changes the attachment, or leaves node and container as they were.
/// Errors: code 7 without prevResult; the error that stopped ADD: its details list what was taken back, and what is left.
async fn add(plugin: &dyn DynPlugin, request: &AddRequest) -> Result<AddResult, CniError> {
    let AddRequest { attachment, netns, conf, raw, .. } = request;
    let attached = &Attached::new(conf.get_prev_result()?, &attachment.ifname, Some(netns));
    let sides = &LazySides::new(netns);
    let mut result = attached.result.clone();
    let done = txn::run_and_keep(sides, skel::interrupted(), async |txn| {
        txn.checkpoint().await;
        let call = AddOrCheck { attachment, netns, conf, attached, sides, raw };
        plugin.add(call, txn, &mut result).await
    });
    let ((), undos) = done.await.map_err(not_done)?;
    netops::all_namespaces::record_caller();
    let netns = sides.netns().clone();
    skel::take_back_by(async move {
        let (_undone, left) = txn::take_back(&LazySides::new(&netns), undos, txn::UNDO_DEADLINE).await;
        left
    });
    Ok(result)
}

/// Compares the attachment with what ADD made.
/// Errors: code 7 without prevResult; the differences.
async fn check(plugin: &dyn DynPlugin, request: &CheckRequest) -> Result<(), CniError> {
    let CheckRequest { attachment, netns, conf, raw, .. } = request;
    let attached = &Attached::new(conf.get_prev_result()?, &attachment.ifname, Some(netns));
    let sides = &LazySides::new(netns);
    plugin.check(AddOrCheck { attachment, netns, conf, attached, sides, raw }).await
}

/// Reports how the node differs from what ADD made, and has ADD write it again, if that is asked for and the plugin can.
/// Errors: code 7 without prevResult; errors of CHECK that are no differences.
async fn repair(plugin: &dyn DynPlugin, request: &CheckRequest, how: Repair) -> Result<Repaired, CniError> {
    let CheckRequest { attachment, netns, conf, raw, .. } = request;
    let attached = &Attached::new(conf.get_prev_result()?, &attachment.ifname, Some(netns));
    let sides = &LazySides::new(netns);
    let call = || AddOrCheck { attachment, netns, conf, attached, sides, raw };
    let mut report = Repaired::default();
    let mut differences = match plugin.check(call()).await {
        Ok(()) => Vec::new(),
        Err(difference) if difference.code == Code::CHECK_FAILED => difference.joined(),
        Err(error) => return Err(error),
    };
    differences.extend(plugin.lost(call())?);
    match (plugin.add_repairs(), how) {
        _ if differences.is_empty() => {}
        (false, _) => report.left = differences,
        (true, Repair::Show) => report.repaired = differences,
        (true, Repair::Write) => {
            let mut result = attached.result.clone();
            let made = txn::run(sides, skel::interrupted(), async |txn| plugin.add(call(), txn, &mut result).await);
            match (made.await.map_err(not_done), plugin.check(call()).await) {
                (Ok(()), Ok(())) => report.repaired = differences,
                (Ok(()), Err(still)) => report.left = still.joined(),
                (Err(error), _) => report.left.push(format!("{}; {error}", differences.join("; "))),
            }
        }
    }
    Ok(report)
}
