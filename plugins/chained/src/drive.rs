//! The driver of the verbs. What depends on the plugin is small here: each plugin's copy of it is part of the executable.

use std::pin::Pin;

use cni_spec::{AddResult, CniError, Code, Repair, Repaired};
use interface::Preview;
use interface::status::not_available;
use interface::undo::not_done;
use skel::{AddRequest, CheckRequest, DelRequest, GcRequest, StatusRequest};

use crate::attached::Attached;
use crate::plugin::{Call, ChainedPlugin, Collecting, Removing};
use crate::site::Site;
use crate::undo::Txn;

/// An ADD of any plugin.
trait Adding {
    fn add<'a>(
        &'a self,
        txn: &'a Txn,
        result: &'a mut AddResult,
    ) -> Pin<Box<dyn Future<Output = Result<(), CniError>> + 'a>>;
}

struct Job<'a, P: ChainedPlugin>(Call<'a, P::Conf>);

impl<P: ChainedPlugin> Adding for Job<'_, P> {
    fn add<'a>(
        &'a self,
        txn: &'a Txn,
        result: &'a mut AddResult,
    ) -> Pin<Box<dyn Future<Output = Result<(), CniError>> + 'a>> {
        Box::pin(P::add(&self.0, txn, result))
    }
}

/// Changes the attachment, or leaves node and container as they were.
///
/// # Errors
/// Code 7 without prevResult; the error that stopped ADD: its details list what was taken back, and what is left.
pub async fn add<P: ChainedPlugin>(request: &AddRequest<P::Conf>) -> Result<AddResult, CniError> {
    let AddRequest { attachment, netns, conf, raw } = request;
    let attached = Attached::new(conf.get_prev_result()?, attachment, Some(netns));
    let site = Site::new(netns);
    let call = Call { attachment, netns, conf, attached: &attached, site: &site, raw };
    all_or_nothing(&Job::<P>(call), &site, attached.result.clone()).await
}

async fn all_or_nothing(job: &dyn Adding, site: &Site<'_>, mut result: AddResult) -> Result<AddResult, CniError> {
    let done = netops::txn::run_and_keep(site, skel::interrupted(), async |txn| {
        txn.checkpoint().await;
        job.add(txn, &mut result).await
    });
    let ((), undos) = done.await.map_err(not_done)?;
    let netns = site.netns().clone();
    skel::take_back_by(move || {
        let site = Site::new(&netns);
        let left: Vec<String> = undos.iter().rev().filter_map(|undo| undo.run(&site).err()).collect();
        if left.is_empty() { Ok(()) } else { Err(left.join("; ")) }
    });
    Ok(result)
}

/// Compares the attachment with what ADD made.
///
/// # Errors
/// Code 7 without prevResult; the differences.
pub async fn check<P: ChainedPlugin>(request: &CheckRequest<P::Conf>) -> Result<(), CniError> {
    let CheckRequest { attachment, netns, conf, raw } = request;
    let attached = Attached::new(conf.get_prev_result()?, attachment, Some(netns));
    let site = Site::new(netns);
    P::check(&Call { attachment, netns, conf, attached: &attached, site: &site, raw }).await
}

/// Reports how the node differs from what ADD made, and has ADD write it again, if that is asked for and the plugin can.
///
/// # Errors
/// Code 7 without prevResult; errors of CHECK that are no differences.
pub async fn repair<P: ChainedPlugin>(request: &CheckRequest<P::Conf>, how: Repair) -> Result<Repaired, CniError> {
    let CheckRequest { attachment, netns, conf, raw } = request;
    let attached = Attached::new(conf.get_prev_result()?, attachment, Some(netns));
    let site = Site::new(netns);
    let call = || Call { attachment, netns, conf, attached: &attached, site: &site, raw };
    let mut report = Repaired::default();
    let mut differences = match P::check(&call()).await {
        Ok(()) => Vec::new(),
        Err(difference) if difference.code == Code::CHECK_FAILED => difference.joined(),
        Err(error) => return Err(error),
    };
    differences.extend(P::lost(&call())?);
    match (P::ADD_REPAIRS, how) {
        _ if differences.is_empty() => {}
        (false, _) => report.left = differences,
        (true, Repair::Show) => report.repaired = differences,
        (true, Repair::Write) => {
            let mut result = attached.result.clone();
            let job: &dyn Adding = &Job::<P>(call());
            let made = netops::txn::run(&site, skel::interrupted(), async |txn| job.add(txn, &mut result).await);
            match (made.await.map_err(not_done), P::check(&call()).await) {
                (Ok(()), Ok(())) => report.repaired = differences,
                (Ok(()), Err(still)) => report.left = still.joined(),
                (Err(error), _) => report.left.push(format!("{}; {error}", differences.join("; "))),
            }
        }
    }
    Ok(report)
}

/// Previews what [`add`] would do.
///
/// # Errors
/// Errors that ADD would report before it changes anything.
pub fn preview<P: ChainedPlugin>(request: &AddRequest<P::Conf>) -> Result<Preview, CniError> {
    let AddRequest { attachment, netns, conf, raw } = request;
    let attached = Attached::new(conf.get_prev_result()?, attachment, Some(netns));
    let site = Site::new(netns);
    let call = Call { attachment, netns, conf, attached: &attached, site: &site, raw };
    let mut preview = Preview { result: attached.result.clone(), ..Preview::default() };
    P::preview(&call, &mut preview)?;
    Ok(preview)
}

/// Removes what ADD made, as much of it as there is.
///
/// # Errors
/// The errors of all that is left, joined.
pub async fn del<P: ChainedPlugin>(request: &DelRequest<P::Removal>) -> Result<(), CniError> {
    let DelRequest { attachment, netns, conf, raw } = request;
    let netns = netns.as_ref();
    let attached = conf.find_prev_result().map(|prev| Attached::new(prev, attachment, netns));
    let (removal, object) = (&conf.own, conf.object());
    let removing = Removing { attachment, removal, object, attached: attached.as_ref(), raw, netns };
    together(P::del(&removing).await)
}

/// Removes what ADD made for attachments to the network that are not valid.
///
/// # Errors
/// The errors of all that is left, joined.
pub async fn gc<P: ChainedPlugin>(request: &GcRequest<P::Removal>) -> Result<(), CniError> {
    let GcRequest { conf, raw, .. } = request;
    together(P::gc(&Collecting { network: &conf.name, sweep: &request.sweep(), removal: &conf.own, raw }).await)
}

fn together(errors: Vec<CniError>) -> Result<(), CniError> {
    CniError::join(errors).map_or(Ok(()), Err)
}

/// Returns whether ADD could be served.
///
/// # Errors
/// Code 50 with the reason.
pub fn status<P: ChainedPlugin>(request: &StatusRequest<P::Conf>) -> Result<(), CniError> {
    P::status(&request.conf.own, request.raw.search_path()).map_err(|error| not_available(&request.conf.name, error))
}
