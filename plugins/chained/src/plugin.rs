//! What a chained plugin is, and what its verbs are given.

use cni_spec::collection::Sweep;
use cni_spec::{
    AddResult, Attachment, CniError, ConfObject, FromAnyConf, FromConf, NetworkName, PluginConf, SpecVersion,
};
use interface::Preview;
use interface::reserved::Reserved;
use interface::whose::Evidence;
use netops::link::{self, Kind, Link};
use netops::{Kernel, Netns, pair};
use skel::request::Raw;
use skel::{EventLoop, NetnsPath};

use crate::attached::Attached;
use crate::site::Site;
use crate::undo::Txn;

/// A chained plugin. [`crate::plugin!`] makes a [`skel::Plugin`] of it; README.md says what the driver does around it.
///
/// The verbs are futures for plugins that wait. In other plugins they never yield.
pub trait ChainedPlugin: Sized + 'static {
    /// The file name it is called by.
    const NAME: &'static str;
    /// The versions it speaks, oldest first.
    const VERSIONS: &'static [SpecVersion] = &SpecVersion::ALL;
    /// When its verbs have an event loop.
    const EVENT_LOOP: EventLoop = EventLoop::WhenWaiting;
    /// The plugin's keys, checked.
    type Conf: FromConf;
    /// What DEL and GC need of the keys; `()` where the attachment suffices.
    type Removal: FromAnyConf;

    /// Whether ADD of an attachment that lives writes what the node has lost of it, and changes nothing in the container: a
    /// repair then calls it where CHECK finds a difference.
    const ADD_REPAIRS: bool = false;

    /// Changes the attachment. `result` is prevResult, and what is passed on: change in it what the plugin changes.
    ///
    /// Each step pushes its undo to `txn` before or together with its change. [`netops::txn::Txn::checkpoint`] between steps
    /// lets SIGTERM take effect.
    ///
    /// # Errors
    /// What ADD failed on. The driver then takes back what was pushed to `txn`.
    fn add(
        call: &Call<'_, Self::Conf>,
        txn: &Txn,
        result: &mut AddResult,
    ) -> impl Future<Output = Result<(), CniError>>;

    /// Compares the node with what ADD made.
    ///
    /// # Errors
    /// The differences ([`crate::differs`]), as one error ([`crate::all`]).
    fn check(call: &Call<'_, Self::Conf>) -> impl Future<Output = Result<(), CniError>>;

    /// What ADD has written on the node that is lost, and that CHECK does not compare, a sentence each: a repair has ADD write it
    /// again, where [`ChainedPlugin::ADD_REPAIRS`].
    ///
    /// # Errors
    /// The node cannot be read.
    fn lost(_call: &Call<'_, Self::Conf>) -> Result<Vec<String>, CniError> {
        Ok(Vec::new())
    }

    /// Removes what ADD made, as far as it exists. It may be repeated. Returns what is left, an error each; an object that
    /// does not exist is none.
    fn del(removing: &Removing<'_, Self::Removal>) -> impl Future<Output = Vec<CniError>>;

    /// Removes what ADD made for attachments to the network that are not valid. Returns what is left, an error each. The
    /// default is right for plugins that leave nothing outside the container.
    fn gc(_collecting: &Collecting<'_, Self::Removal>) -> impl Future<Output = Vec<CniError>> {
        async { Vec::new() }
    }

    /// What ADD would do, for programs that show it: its steps, and its change of the result. Changes nothing. The attachment is
    /// as the plugins before would make it, so its links do not exist yet.
    ///
    /// # Errors
    /// Errors that ADD would report before it changes anything.
    fn preview(_call: &Call<'_, Self::Conf>, preview: &mut Preview) -> Result<(), CniError> {
        preview.unknown.push(format!("plugin {} does not say what it would do", Self::NAME));
        Ok(())
    }

    /// Returns whether the node could serve ADD. The default is right for plugins that need nothing of the node.
    ///
    /// # Errors
    /// Why not; it becomes code 50.
    fn status(_conf: &Self::Conf, _search_path: &str) -> Result<(), CniError> {
        Ok(())
    }
}

/// An ADD or CHECK.
pub struct Call<'a, C> {
    /// The attachment to change or check.
    pub attachment: &'a Attachment,
    /// `CNI_NETNS`.
    pub netns: &'a NetnsPath,
    /// The network config, the plugin's keys in `own`.
    pub conf: &'a PluginConf<C>,
    /// The attachment as prevResult has it: for ADD before this plugin, for CHECK after the last one.
    pub attached: &'a Attached,
    /// The node and the container.
    pub site: &'a Site<'a>,
    /// The call as it came.
    pub raw: &'a Raw,
}

/// A DEL. Only the attachment is certain; none of the rest is needed, and none is trusted.
pub struct Removing<'a, R> {
    /// The attachment to remove.
    pub attachment: &'a Attachment,
    /// The keys that removal uses.
    pub removal: &'a R,
    /// The whole config.
    pub object: &'a ConfObject,
    /// The attachment as prevResult has it, if there is a valid one.
    pub attached: Option<&'a Attached>,
    /// The call as it came.
    pub raw: &'a Raw,
    pub(crate) netns: Option<&'a NetnsPath>,
}

impl<R> Removing<'_, R> {
    /// The container's namespace. `None`: the runtime names none, or it no longer exists.
    ///
    /// # Errors
    /// Code 8: it exists, and cannot be opened.
    pub fn find_netns(&self) -> Result<Option<Netns>, CniError> {
        interface::pod::find_netns(self.netns)
    }

    /// The container's interface, unless it is another attachment's ([`interface::whose`]): then this attachment's ADD failed
    /// for the taken name, or the runtime calls DEL for a container that it does not know, or late.
    ///
    /// # Errors
    /// The links cannot be read.
    pub fn find_link(&self, netns: &Netns, inside: &Kernel) -> netops::error::Result<Option<Link>> {
        let Some(link) = link::find(inside, self.attachment.ifname.as_str())? else { return Ok(None) };
        let end = match link.kind {
            Kind::Veth => pair::find_host_end(&Kernel::host()?, inside, netns, &link)?,
            _ => None,
        };
        let (attachment, prev) = (self.attachment, self.attached.map(|attached| &attached.result));
        let reserved = Reserved::of(self.object);
        let evidence = Evidence { attachment, prev, netns, reserved: &reserved, holds_none: false };
        let is_own = evidence.whose(inside, &link, end.as_ref())?.or_warn(&link, netns);
        Ok(is_own.then_some(link))
    }
}

/// A GC.
pub struct Collecting<'a, R> {
    /// The network.
    pub network: &'a NetworkName,
    /// The attachments to it whose objects are removed.
    pub sweep: &'a Sweep<&'a Attachment>,
    /// The keys that removal uses.
    pub removal: &'a R,
    /// The call as it came.
    pub raw: &'a Raw,
}

/// Makes a [`skel::Plugin`] of a [`ChainedPlugin`], its verbs the driver's.
#[macro_export]
macro_rules! plugin {
    ($Plugin:ty) => {
        impl $crate::skel::Plugin for $Plugin {
            const NAME: &'static str = <$Plugin as $crate::ChainedPlugin>::NAME;
            const VERSIONS: &'static [$crate::skel::cni_spec::SpecVersion] =
                <$Plugin as $crate::ChainedPlugin>::VERSIONS;
            const EVENT_LOOP: $crate::skel::EventLoop = <$Plugin as $crate::ChainedPlugin>::EVENT_LOOP;
            // The network's addresses are the interface plugin's business.
            const DELEGATES: bool = false;
            type Conf = <$Plugin as $crate::ChainedPlugin>::Conf;
            type Removal = <$Plugin as $crate::ChainedPlugin>::Removal;

            async fn add(
                request: &$crate::skel::AddRequest<Self::Conf>,
            ) -> Result<$crate::skel::cni_spec::AddResult, $crate::skel::cni_spec::CniError> {
                $crate::drive::add::<$Plugin>(request).await
            }

            async fn del(
                request: &$crate::skel::DelRequest<Self::Removal>,
            ) -> Result<(), $crate::skel::cni_spec::CniError> {
                $crate::drive::del::<$Plugin>(request).await
            }

            fn preview(
                request: &$crate::skel::AddRequest<Self::Conf>,
            ) -> Result<Option<$crate::skel::Preview>, $crate::skel::cni_spec::CniError> {
                $crate::drive::preview::<$Plugin>(request).map(Some)
            }

            async fn check(
                request: &$crate::skel::CheckRequest<Self::Conf>,
            ) -> Result<(), $crate::skel::cni_spec::CniError> {
                $crate::drive::check::<$Plugin>(request).await
            }

            async fn repair(
                request: &$crate::skel::CheckRequest<Self::Conf>,
                how: $crate::skel::cni_spec::Repair,
            ) -> Result<$crate::skel::cni_spec::Repaired, $crate::skel::cni_spec::CniError> {
                $crate::drive::repair::<$Plugin>(request, how).await
            }

            async fn gc(
                request: &$crate::skel::GcRequest<Self::Removal>,
            ) -> Result<(), $crate::skel::cni_spec::CniError> {
                $crate::drive::gc::<$Plugin>(request).await
            }

            async fn status(
                request: &$crate::skel::StatusRequest<Self::Conf>,
            ) -> Result<(), $crate::skel::cni_spec::CniError> {
                $crate::drive::status::<$Plugin>(request)
            }
        }
    };
}
