//! What a chained plugin is, and what its verbs are given.

use crate::attached::Attached;
use crate::lazy_sides::LazySides;
use crate::verbs;
use cni_spec::gc::Sweep;
use cni_spec::{AddResult, Attachment, CniError, ConfObject, FromAnyConf, FromConf, NetConf, NetworkName, SpecVersion};
use interface::Preview;
use interface::link_owner::Evidence;
use interface::owner_by_reservation::Reserved;
use netops::link::{self, Kind, Link};
use netops::tc::{self, Qdisc};
use netops::txn::{DeleteLink, Undoer};
use netops::{Errno, Kernel, Netns, veth_peer};
use skel::{AddRequest, Entry, EventLoop, NetnsPath, Serve};
use std::fmt;

/// A chained plugin. [`entry`] puts it into an executable's list; README.md says what the driver does around it.
///
/// The verbs are futures for plugins that wait. In other plugins they never yield.
pub trait ChainedPlugin: Sized + 'static {
    /// The file name it is called by.
    const NAME: &'static str;
    /// The versions it speaks, oldest first.
    const VERSIONS: &'static [SpecVersion] = &SpecVersion::ALL;
    /// When the plugin's verbs have an event loop.
    const EVENT_LOOP: EventLoop = EventLoop::WhenWaiting;
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
    /// Errors: what ADD failed on. The driver then takes back what was pushed to `txn`.
    fn add(
        call: &AddOrCheck<'_>,
        keys: &Self::Conf,
        txn: &Txn,
        result: &mut AddResult,
    ) -> impl Future<Output = Result<(), CniError>>;

    /// Compares the node with what ADD made.
    /// Errors: the differences ([`crate::differs`]), as one error ([`crate::all`]).
    fn check(call: &AddOrCheck<'_>, keys: &Self::Conf) -> impl Future<Output = Result<(), CniError>>;

    /// What ADD has written on the node that is lost, and that CHECK does not compare, a sentence each: a repair has ADD write it
    /// again, where [`ChainedPlugin::ADD_REPAIRS`].
    /// Errors: the node cannot be read.
    fn lost(_call: &AddOrCheck<'_>, _keys: &Self::Conf) -> Result<Vec<String>, CniError> {
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
    /// Fails with the errors that ADD would report before it changes anything.
    fn preview(_call: &AddOrCheck<'_>, _keys: &Self::Conf, preview: &mut Preview) -> Result<(), CniError> {
        preview.unknown.push(format!("plugin {} does not say what it would do", Self::NAME));
        Ok(())
    }

    /// Returns whether the node could serve ADD. The default is right for plugins that need nothing of the node.
    /// Errors: the reason why ADD cannot be served; it becomes code 50.
    fn status(_conf: &Self::Conf, _search_path: &str) -> Result<(), CniError> {
        Ok(())
    }
}

pub struct AddOrCheck<'a> {
    pub attachment: &'a Attachment,
    pub netns: &'a NetnsPath,
    pub conf: &'a NetConf,
    /// The attachment as prevResult has it: for ADD before this plugin, for CHECK after the last one.
    pub attached: &'a Attached,
    pub sides: &'a LazySides<'a>,
    pub raw: &'a skel::Call,
}

/// A DEL. Only the attachment is certain; none of the rest is needed, and none is trusted.
pub struct Removing<'a, R> {
    pub attachment: &'a Attachment,
    pub removal: &'a R,
    pub object: &'a ConfObject,
    /// The attachment as prevResult has it, if there is a valid one.
    pub attached: Option<&'a Attached>,
    pub raw: &'a skel::Call,
    pub(crate) netns: Option<&'a NetnsPath>,
}

impl<R> Removing<'_, R> {
    /// The container's namespace. `None`: the runtime names none, or it no longer exists.
    /// Errors: code 8: it exists, and cannot be opened.
    pub fn find_netns(&self) -> Result<Option<Netns>, CniError> {
        interface::sides::find_netns(self.netns)
    }

    /// The container's interface, unless it is another attachment's ([`interface::link_owner`]): then this attachment's ADD failed
    /// for the taken name, or the runtime calls DEL for a container that it does not know, or late.
    /// Errors: the links cannot be read.
    pub fn find_link(&self, netns: &Netns, inside: &Kernel) -> netops::error::Result<Option<Link>> {
        let Some(link) = link::find(inside, self.attachment.ifname.as_str())? else { return Ok(None) };
        let end = match link.kind {
            Kind::Veth => veth_peer::find_host_end(&Kernel::host()?, inside, netns, &link)?,
            _ => None,
        };
        let (attachment, prev) = (self.attachment, self.attached.map(|attached| &attached.result));
        let reserved = Reserved::of(self.object);
        let evidence = Evidence { attachment, prev, netns, reserved: &reserved, holds_none: false };
        let is_own = evidence.whose(inside, &link, end.as_ref())?.or_warn(&link, netns);
        Ok(is_own.then_some(link))
    }
}

pub struct Collecting<'a, R> {
    pub network: &'a NetworkName,
    /// The attachments to it whose objects are removed.
    pub sweep: &'a Sweep<&'a Attachment>,
    pub removal: &'a R,
    pub raw: &'a skel::Call,
}

/// The entry of a chained plugin in its executable's list.
pub const fn entry<P: ChainedPlugin>() -> Entry {
    // It delegates nothing: the network's addresses are the interface plugin's business.
    let mut entry = Entry::new(P::NAME, Serve::Verbs { attach: verbs::keys::<P>, detach: verbs::removal_keys::<P> });
    entry.versions = P::VERSIONS;
    entry.event_loop = P::EVENT_LOOP;
    entry.preview = Some(|call| {
        let (request, keys) = skel::add_request(&self::entry::<P>(), call)?;
        preview::<P>(&request, &keys).map(Some)
    });
    entry
}

/// Previews what ADD would do.
/// Fails with the errors that ADD would report before it changes anything.
pub fn preview<P: ChainedPlugin>(request: &AddRequest, keys: &P::Conf) -> Result<Preview, CniError> {
    let AddRequest { attachment, netns, conf, raw, .. } = request;
    let attached = Attached::new(conf.get_prev_result()?, &attachment.ifname, Some(netns));
    let sides = LazySides::new(netns);
    let call = AddOrCheck { attachment, netns, conf, attached: &attached, sides: &sides, raw };
    let mut preview = Preview { result: attached.result.clone(), ..Preview::default() };
    P::preview(&call, keys, &mut preview)?;
    Ok(preview)
}

pub use interface::undo::Left;

pub type Txn = netops::txn::Txn<Box<dyn Undo>>;

/// The undo of one change.
pub trait Undo: fmt::Debug {
    /// Returns the words for it in the error's `details`, among what was undone: `ifb bwp12 deleted`.
    fn text(&self) -> String;

    /// Undoes the change. A change that never happened, or that is already gone, counts as undone.
    /// Errors: what is left, and why.
    fn run(&self, sides: &LazySides<'_>) -> Result<(), Left>;
}

impl fmt::Display for dyn Undo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text())
    }
}

impl Undo for DeleteLink {
    fn text(&self) -> String {
        self.to_string()
    }

    fn run(&self, sides: &LazySides<'_>) -> Result<(), Left> {
        Ok(DeleteLink::run(self, &sides.open()?.host)?)
    }
}

/// The undo of a qdisc `ingress` at a link of the node or of the container.
#[derive(Debug)]
pub struct DeleteIngress {
    pub link: Link,
    pub is_in_container: bool,
    /// Whether this ADD created the qdisc, which is not known where the kernel's answer is lost.
    pub is_new: bool,
}

impl Undo for DeleteIngress {
    fn text(&self) -> String {
        format!("qdisc ingress of {} deleted", self.link.name)
    }

    fn run(&self, sides: &LazySides<'_>) -> Result<(), Left> {
        let sides = sides.open()?;
        let net = if self.is_in_container { &sides.container } else { &sides.host };
        if !self.is_new && tc::has_filters(net, &self.link)? {
            return Ok(());
        }
        unless_absent(net.run(tc::delete(&self.link, &Qdisc::Ingress)))
    }
}

/// `EINVAL`: the qdisc was not made, or the link is gone.
pub fn unless_absent(done: netops::error::Result<()>) -> Result<(), Left> {
    match done {
        Err(error) if !error.is_absent() && error.os_errno() != Some(Errno::EINVAL) => Err(error.into()),
        Ok(()) | Err(_) => Ok(()),
    }
}

impl Undoer for LazySides<'_> {
    type Undo = Box<dyn Undo>;
    type Left = Left;

    async fn undo(&self, undo: &Box<dyn Undo>) -> Result<(), Left> {
        undo.run(self)
    }
}
