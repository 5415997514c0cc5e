//! A plugin without its types: [`crate::dispatch`] is compiled once for all plugins of an executable, and each adds only its
//! verbs.

use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;

use cni_spec::{AddResult, CniError, ConfObject, PluginConf, Repair, Repaired, SpecVersion};

use crate::event_loop::EventLoop;
use crate::plugin::Plugin;
use crate::request::{AddRequest, CheckRequest, DelRequest, GcRequest, StatusRequest};

/// A verb under way.
pub(crate) type Work<T> = Pin<Box<dyn Future<Output = T>>>;

/// A plugin: its constants, and the way to its verbs.
pub(crate) trait Erased {
    /// [`Plugin::NAME`].
    fn name(&self) -> &'static str;
    /// [`Plugin::VERSIONS`].
    fn versions(&self) -> &'static [SpecVersion];
    /// [`Plugin::EVENT_LOOP`].
    fn event_loop(&self) -> EventLoop;
    /// [`Plugin::DELEGATES`].
    fn delegates(&self) -> bool;
    /// The config for ADD, CHECK and STATUS.
    fn checked(&self, object: &Rc<ConfObject>, version: SpecVersion) -> Result<PluginConf<Box<dyn Attach>>, CniError>;
    /// The config for DEL and GC.
    fn for_removal(&self, object: &Rc<ConfObject>, version: SpecVersion) -> PluginConf<Box<dyn Detach>>;
}

/// A plugin's keys for ADD, with the verbs that use them. The requests are for the same config.
pub(crate) trait Attach {
    /// ADD; returns the request, too.
    fn add(self: Box<Self>, request: AddRequest<()>) -> Work<(Result<AddResult, CniError>, AddRequest<()>)>;
    /// CHECK.
    fn check(self: Box<Self>, request: CheckRequest<()>) -> Work<Result<(), CniError>>;
    /// CHECK that repairs.
    fn repair(self: Box<Self>, request: CheckRequest<()>, how: Repair) -> Work<Result<Repaired, CniError>>;
    /// STATUS.
    fn status(self: Box<Self>, request: StatusRequest<()>) -> Work<Result<(), CniError>>;
}

/// A plugin's keys for removal, with the verbs that use them.
pub(crate) trait Detach {
    /// DEL.
    fn del(self: Box<Self>, request: DelRequest<()>) -> Work<Result<(), CniError>>;
    /// GC.
    fn gc(self: Box<Self>, request: GcRequest<()>) -> Work<Result<(), CniError>>;
}

/// Plugin `P`.
pub(crate) struct Of<P>(pub(crate) PhantomData<P>);

struct Checked<P: Plugin>(P::Conf);

struct ForRemoval<P: Plugin>(P::Removal);

impl<P: Plugin> Erased for Of<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn versions(&self) -> &'static [SpecVersion] {
        P::VERSIONS
    }

    fn event_loop(&self) -> EventLoop {
        P::EVENT_LOOP
    }

    fn delegates(&self) -> bool {
        P::DELEGATES
    }

    fn checked(&self, object: &Rc<ConfObject>, version: SpecVersion) -> Result<PluginConf<Box<dyn Attach>>, CniError> {
        let PluginConf { net, own } = PluginConf::checked(object, version)?;
        Ok(PluginConf { net, own: Box::new(Checked::<P>(own)) })
    }

    fn for_removal(&self, object: &Rc<ConfObject>, version: SpecVersion) -> PluginConf<Box<dyn Detach>> {
        let PluginConf { net, own } = PluginConf::for_removal(object, version);
        PluginConf { net, own: Box::new(ForRemoval::<P>(own)) }
    }
}

impl<P: Plugin> Attach for Checked<P> {
    fn add(self: Box<Self>, request: AddRequest<()>) -> Work<(Result<AddResult, CniError>, AddRequest<()>)> {
        let request = request.with_own(self.0);
        Box::pin(async move {
            let added = P::add(&request).await;
            (added, request.with_own(()))
        })
    }

    fn check(self: Box<Self>, request: CheckRequest<()>) -> Work<Result<(), CniError>> {
        let request = request.with_own(self.0);
        Box::pin(async move { P::check(&request).await })
    }

    fn repair(self: Box<Self>, request: CheckRequest<()>, how: Repair) -> Work<Result<Repaired, CniError>> {
        let request = request.with_own(self.0);
        Box::pin(async move { P::repair(&request, how).await })
    }

    fn status(self: Box<Self>, request: StatusRequest<()>) -> Work<Result<(), CniError>> {
        let request = request.with_own(self.0);
        Box::pin(async move { P::status(&request).await })
    }
}

impl<P: Plugin> Detach for ForRemoval<P> {
    fn del(self: Box<Self>, request: DelRequest<()>) -> Work<Result<(), CniError>> {
        let request = request.with_own(self.0);
        Box::pin(async move { P::del(&request).await })
    }

    fn gc(self: Box<Self>, request: GcRequest<()>) -> Work<Result<(), CniError>> {
        let request = request.with_own(self.0);
        Box::pin(async move { P::gc(&request).await })
    }
}
