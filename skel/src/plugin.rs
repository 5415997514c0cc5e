//! A plugin: five verbs on one config; and the list of an executable's plugins.

use crate::call::Call;
use crate::dispatch::add_request;
use crate::event_loop::EventLoop;
use crate::preview::Preview;
use crate::reply::Reply;
use crate::request::{AddRequest, CheckRequest, DelRequest, GcRequest, StatusRequest};
use cni_spec::{AddResult, CniError, ConfObject, FromAnyConf, FromConf, SpecVersion};
use cni_suite::{Repair, Repaired};
use std::pin::Pin;

/// A plugin. Its verbs run on the process's single-threaded event loop, one verb per process, and may use all of tokio;
/// plugins that do not can save its creation with [`Plugin::EVENT_LOOP`].
pub trait Plugin: 'static {
    /// The plugin's file name, which is its `type`.
    const NAME: &'static str;
    /// The supported versions, oldest first.
    const VERSIONS: &'static [SpecVersion] = &SpecVersion::ALL;
    /// When the plugin's verbs have an event loop.
    const EVENT_LOOP: EventLoop = EventLoop::Always;
    /// Whether the plugin's verbs call the network's address plugin. If false, [`AddRequest::ipam`] and its like are `None`. A
    /// plugin that delegates is refused as an address plugin: it would call itself without end.
    const DELEGATES: bool = true;
    /// Whether the plugin's ADD changes all or nothing: it takes back what it changed before it fails, and waits only before its first
    /// change, so that an ADD that is dropped while it waits has changed nothing. The interface plugin that it serves in the
    /// same process then calls no DEL, which would release what another ADD of the attachment reserved.
    const ALL_OR_NOTHING: bool = false;
    /// Whether the plugin is an address plugin that sends on the container's link. The interface plugin makes the link
    /// before ADD of it, and removes the link after DEL of it.
    const NEEDS_LINK: bool = false;
    /// The plugin's own keys, checked: those for ADD, and so for CHECK, which compares with it, and STATUS, which reports
    /// whether ADD would succeed.
    type Conf: FromConf;
    /// The keys that DEL and GC need to find what ADD made. As few as possible, and none that can be refused: a config
    /// that ADD refuses must not make DEL fail. `()` where network, container and interface suffice.
    type Removal: FromAnyConf;

    /// Makes the attachment, or changes nothing.
    ///
    /// # Errors
    /// The error that stopped ADD. All changes were rolled back; `details` lists any that could not be.
    fn add(request: &AddRequest, keys: &Self::Conf) -> impl Future<Output = Result<AddResult, CniError>>;

    /// Removes the attachment, as far as it exists. It can be repeated, and continues after errors.
    ///
    /// # Errors
    /// All objects that could not be removed, in one error. An object that is gone already is no error.
    fn del(request: &DelRequest, keys: &Self::Removal) -> impl Future<Output = Result<(), CniError>>;

    /// What ADD would do, for `cnitool plan` ([`crate::cni_ask`]). Changes nothing; the namespace is open, but what plugins before
    /// this one make is not there yet: it is in prevResult only. The default says nothing.
    ///
    /// # Errors
    /// The errors that ADD would report before it changes anything.
    fn preview(_request: &AddRequest, _keys: &Self::Conf) -> Result<Option<Preview>, CniError> {
        Ok(None)
    }

    /// Compares the node with what ADD made.
    ///
    /// # Errors
    /// The differences: code and message of the first, the others in its details.
    fn check(request: &CheckRequest, keys: &Self::Conf) -> impl Future<Output = Result<(), CniError>>;

    /// Reports all differences between the node and what ADD made, and writes what is missing on the node anew, if it is asked
    /// to: an extension of CHECK ([`Repair`]). Changes nothing that is right, and nothing in the container. The
    /// default repairs nothing.
    ///
    /// # Errors
    /// The differences cannot be found. A difference is no error.
    fn repair(
        request: &CheckRequest,
        keys: &Self::Conf,
        _how: Repair,
    ) -> impl Future<Output = Result<Repaired, CniError>> {
        async {
            match Self::check(request, keys).await {
                Ok(()) => Ok(Repaired::default()),
                Err(difference) => Ok(Repaired { repaired: Vec::new(), left: difference.joined() }),
            }
        }
    }

    /// Removes all attachments of this network that are not in the list. Continues after errors. The default calls GC
    /// of the address plugin, if the network has one: right for a plugin that leaves nothing on the node.
    ///
    /// # Errors
    /// All objects that could not be removed, in one error.
    fn gc(request: &GcRequest, _keys: &Self::Removal) -> impl Future<Output = Result<(), CniError>> {
        async {
            match request.ipam() {
                Some(ipam) => ipam.gc().await,
                None => Ok(()),
            }
        }
    }

    /// Reports whether ADD would succeed now. Changes nothing. A config that ADD refuses is refused before. The default
    /// calls STATUS of the address plugin, if the network has one: right for a plugin that needs nothing of the node.
    ///
    /// # Errors
    /// Code 50 or 51 with the reason.
    fn status(request: &StatusRequest, _keys: &Self::Conf) -> impl Future<Output = Result<(), CniError>> {
        async {
            match request.ipam() {
                Some(ipam) => ipam.status().await,
                None => Ok(()),
            }
        }
    }
}

/// A verb under way.
pub type Work<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// The keys of one plugin for ADD, checked, with the verbs that use them: what the call is given to, whatever the plugin.
pub trait Attach {
    /// [`Plugin::add`].
    fn add<'a>(&'a self, request: &'a AddRequest) -> Work<'a, Result<AddResult, CniError>>;
    /// [`Plugin::check`].
    fn check<'a>(&'a self, request: &'a CheckRequest) -> Work<'a, Result<(), CniError>>;
    /// [`Plugin::repair`].
    fn repair<'a>(&'a self, request: &'a CheckRequest, how: Repair) -> Work<'a, Result<Repaired, CniError>>;
    /// [`Plugin::status`].
    fn status<'a>(&'a self, request: &'a StatusRequest) -> Work<'a, Result<(), CniError>>;
}

/// The keys of one plugin for removal, with the verbs that use them.
pub trait Detach {
    /// [`Plugin::del`].
    fn del<'a>(&'a self, request: &'a DelRequest) -> Work<'a, Result<(), CniError>>;
    /// [`Plugin::gc`].
    fn gc<'a>(&'a self, request: &'a GcRequest) -> Work<'a, Result<(), CniError>>;
}

/// The way from a call to a plugin.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Serve {
    /// The plugin reads its keys; environment, versions and stdin are checked before.
    Verbs {
        /// Reads the keys for ADD, CHECK and STATUS.
        attach: fn(&ConfObject) -> Result<Box<dyn Attach>, CniError>,
        /// Reads the keys for DEL and GC.
        detach: fn(&ConfObject) -> Box<dyn Detach>,
    },
    /// The plugin answers the call itself, unchecked.
    Call(fn(&Call) -> Reply),
}

/// What ADD would do by this call; `None` where the plugin does not say.
pub type Foresee = fn(&Call) -> Result<Option<Preview>, CniError>;

/// A plugin in this executable, under its file name.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Entry {
    /// The file name.
    pub name: &'static str,
    /// The supported versions, for the about text.
    pub versions: &'static [SpecVersion],
    /// When the plugin's verbs have an event loop.
    pub event_loop: EventLoop,
    /// Whether the plugin calls the network's address plugin, see [`Plugin::DELEGATES`].
    pub delegates: bool,
    /// Whether a dropped or failed ADD has changed nothing, see [`Plugin::ALL_OR_NOTHING`].
    pub is_all_or_nothing: bool,
    /// Whether the plugin sends on the container's link, see [`Plugin::NEEDS_LINK`].
    pub needs_link: bool,
    /// [`Plugin::preview`] of a call; `None` for a plugin whose executable answers no question.
    pub preview: Option<Foresee>,
    /// The way to its verbs.
    pub serve: Serve,
}

/// The entry for a file of this executable with this name: the entry of that name; otherwise the longest entry that the
/// name ends in after a hyphen, or begins with before one (`cnv-bridge`, `bridge-1.2`), as nodes keep two versions side
/// by side.
pub(crate) fn find<'a>(entries: &'a [Entry], file_name: &str) -> Option<&'a Entry> {
    let is_part = |entry: &&Entry| {
        let before = file_name.strip_suffix(entry.name).is_some_and(|rest| rest.ends_with('-'));
        before || file_name.strip_prefix(entry.name).is_some_and(|rest| rest.starts_with('-'))
    };
    let exact = entries.iter().find(|entry| entry.name == file_name);
    exact.or_else(|| entries.iter().filter(is_part).max_by_key(|entry| entry.name.len()))
}

impl Entry {
    /// The entry of a plugin.
    #[must_use]
    pub const fn of<P: Plugin>() -> Self {
        Self {
            versions: P::VERSIONS,
            event_loop: P::EVENT_LOOP,
            delegates: P::DELEGATES,
            is_all_or_nothing: P::ALL_OR_NOTHING,
            needs_link: P::NEEDS_LINK,
            preview: Some(|call| {
                let (request, keys) = add_request(&Self::of::<P>(), call)?;
                P::preview(&request, &keys)
            }),
            ..Self::new(
                P::NAME,
                Serve::Verbs {
                    attach: |object| Ok(Box::new(Checked::<P>(P::Conf::from_conf(object)?))),
                    detach: |object| Box::new(ForRemoval::<P>(P::Removal::from_any_conf(object))),
                },
            )
        }
    }

    /// An entry of a plugin of all versions that delegates nothing and has no preview, with an event loop when it waits.
    #[must_use]
    pub const fn new(name: &'static str, serve: Serve) -> Self {
        Self {
            name,
            versions: &SpecVersion::ALL,
            event_loop: EventLoop::WhenWaiting,
            delegates: false,
            is_all_or_nothing: false,
            needs_link: false,
            preview: None,
            serve,
        }
    }

    /// The entry in an executable that answers no question: the plugin's preview is no part of that.
    #[must_use]
    pub const fn without_preview(self) -> Self {
        Self { preview: None, ..self }
    }
}

/// A plugin's [`Plugin::Conf`].
struct Checked<P: Plugin>(P::Conf);

impl<P: Plugin> Attach for Checked<P> {
    fn add<'a>(&'a self, request: &'a AddRequest) -> Work<'a, Result<AddResult, CniError>> {
        Box::pin(P::add(request, &self.0))
    }

    fn check<'a>(&'a self, request: &'a CheckRequest) -> Work<'a, Result<(), CniError>> {
        Box::pin(P::check(request, &self.0))
    }

    fn repair<'a>(&'a self, request: &'a CheckRequest, how: Repair) -> Work<'a, Result<Repaired, CniError>> {
        Box::pin(P::repair(request, &self.0, how))
    }

    fn status<'a>(&'a self, request: &'a StatusRequest) -> Work<'a, Result<(), CniError>> {
        Box::pin(P::status(request, &self.0))
    }
}

/// A plugin's [`Plugin::Removal`].
struct ForRemoval<P: Plugin>(P::Removal);

impl<P: Plugin> Detach for ForRemoval<P> {
    fn del<'a>(&'a self, request: &'a DelRequest) -> Work<'a, Result<(), CniError>> {
        Box::pin(P::del(request, &self.0))
    }

    fn gc<'a>(&'a self, request: &'a GcRequest) -> Work<'a, Result<(), CniError>> {
        Box::pin(P::gc(request, &self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_selects_the_longest_entry_that_it_ends_in_or_begins_with() {
        let entry = |name| Entry::new(name, Serve::Call(|_| Reply::default()));
        let entries = ["bridge", "local", "host-local", "probe", "probe-ipam"].map(entry);
        let found = |name: &str| find(&entries, name).map(|entry| entry.name);
        for (name, expected) in [
            ("bridge", "bridge"),
            ("cnv-bridge", "bridge"),
            ("bridge-1.2", "bridge"),
            ("a-host-local", "host-local"),
            ("host-local-old", "host-local"),
            ("host-local", "host-local"),
            ("probe-ipam", "probe-ipam"),
            ("probe-ipam-2", "probe-ipam"),
        ] {
            assert_eq!(found(name), Some(expected), "{name}");
        }
        for name in ["", "-", "mybridge", "bridge2", "bridge.old", "cni-plugins", "a-bridge-b"] {
            assert_eq!(found(name), None, "{name}");
        }
    }
}
