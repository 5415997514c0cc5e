//! What a plugin is: five verbs over one config; and how an executable lists the plugins it is.

use crate::call::Call;
use crate::dispatch::dispatch;
use crate::event_loop::{self, EventLoop};
use crate::reply::Reply;
use crate::request::{AddRequest, CheckRequest, DelRequest, GcRequest, StatusRequest};
use cni_spec::{AddResult, CniError, FromAnyConf, FromConf, SpecVersion};
use std::pin::Pin;

/// A plugin. Its verbs run on the process's one single-threaded event loop, one of them per process, and may use all of
/// tokio; [`Plugin::EVENT_LOOP`] saves those who do not the making of it.
pub trait Plugin: 'static {
    /// The file name it is called by.
    const NAME: &'static str;
    /// The versions it speaks, oldest first.
    const VERSIONS: &'static [SpecVersion] = &SpecVersion::ALL;
    /// When its verbs have an event loop.
    const EVENT_LOOP: EventLoop = EventLoop::Always;
    /// Whether its verbs call the network's address plugin. To one that does not, [`AddRequest::ipam`] and its like are
    /// `None`. One that does is refused as an address plugin: it would call itself without end.
    const DELEGATES: bool = true;
    /// Whether its ADD waits only before its first change, so that one that is dropped while it waits has made nothing. The
    /// interface plugin that it serves in the same process then need not call DEL when it is told to end.
    const WAITS_BEFORE_CHANGES: bool = false;
    /// Its own keys, checked: what ADD needs, and so CHECK, which compares with it, and STATUS, which says whether ADD
    /// would work.
    type Conf: FromConf;
    /// What DEL and GC need of the keys to find what ADD made. As little as possible, and nothing that can be refused:
    /// a config that ADD refuses must not keep DEL from its work. `()` where network, container and interface suffice.
    type Removal: FromAnyConf;

    /// Makes the attachment, or nothing.
    ///
    /// # Errors
    /// What stood in the way; by then everything is undone, or `details` says what is left.
    fn add(request: &AddRequest<Self::Conf>) -> impl Future<Output = Result<AddResult, CniError>>;

    /// Removes the attachment, as much of it as there is. Repeatable; carries on past errors.
    ///
    /// # Errors
    /// What could not be removed, together. What is already gone is no error.
    fn del(request: &DelRequest<Self::Removal>) -> impl Future<Output = Result<(), CniError>>;

    /// Compares the node with what ADD made.
    ///
    /// # Errors
    /// The first difference.
    fn check(request: &CheckRequest<Self::Conf>) -> impl Future<Output = Result<(), CniError>>;

    /// Removes all attachments of this network that are not in the list. Carries on past errors. By default it has the
    /// address plugin collect, if the network has one: what a plugin does that leaves nothing on the node.
    ///
    /// # Errors
    /// What could not be removed, together.
    fn gc(request: &GcRequest<Self::Removal>) -> impl Future<Output = Result<(), CniError>> {
        async {
            match request.ipam() {
                Some(ipam) => ipam.gc().await,
                None => Ok(()),
            }
        }
    }

    /// Tells whether ADD could be served now. Changes nothing. A config that ADD refuses does not get here. By default it
    /// asks the address plugin, if the network has one: what a plugin does that needs nothing of the node.
    ///
    /// # Errors
    /// Code 50 or 51 with the reason.
    fn status(request: &StatusRequest<Self::Conf>) -> impl Future<Output = Result<(), CniError>> {
        async {
            match request.ipam() {
                Some(ipam) => ipam.status().await,
                None => Ok(()),
            }
        }
    }
}

/// Answers one call.
pub type Handler = for<'a> fn(&'a Call) -> Pin<Box<dyn Future<Output = Reply> + 'a>>;

/// A plugin that this executable is, under the name it is called by.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The file name.
    pub name: &'static str,
    /// The versions it speaks, for the about text.
    pub versions: &'static [SpecVersion],
    /// Whether it calls the network's address plugin, see [`Plugin::DELEGATES`].
    pub delegates: bool,
    /// Whether a dropped ADD has made nothing, see [`Plugin::WAITS_BEFORE_CHANGES`].
    pub waits_before_changes: bool,
    /// What answers.
    pub handler: Handler,
}

/// The entry that a file of this executable is by its name: that of this name; else the longest that the name ends in
/// behind a hyphen, or begins with before one (`cnv-bridge`, `bridge-1.2`), as nodes keep two versions side by side.
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
        let handler: Handler = |call| {
            Box::pin(async move {
                event_loop::as_needed_by::<P>().await;
                dispatch::<P>(call).await
            })
        };
        Self {
            name: P::NAME,
            versions: P::VERSIONS,
            delegates: P::DELEGATES,
            waits_before_changes: P::WAITS_BEFORE_CHANGES,
            handler,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_name_selects_the_longest_entry_that_it_ends_in_or_begins_with() {
        let entry = |name| {
            let handler: Handler = |_| Box::pin(async { Reply::default() });
            Entry { name, versions: &SpecVersion::ALL, delegates: false, waits_before_changes: false, handler }
        };
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
