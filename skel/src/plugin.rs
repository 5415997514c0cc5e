//! What a plugin is: five verbs over one config; and how an executable lists the plugins it is.

use crate::call::Call;
use crate::dispatch::dispatch;
use crate::reply::Reply;
use crate::request::{AddRequest, CheckRequest, DelRequest, GcRequest, StatusRequest};
use cni_spec::{AddResult, CniError, FromConf, SpecVersion};
use std::pin::Pin;

/// A plugin. The verbs run on the process's one single-threaded runtime, one of them per process.
pub trait Plugin: 'static {
    /// The file name it is called by.
    const NAME: &'static str;
    /// The versions it speaks, oldest first.
    const VERSIONS: &'static [SpecVersion] = &SpecVersion::ALL;
    /// Its own keys.
    type Conf: FromConf;

    /// Makes the attachment, or nothing.
    ///
    /// # Errors
    /// What stood in the way; by then everything is undone, or `details` says what is left.
    fn add(request: &AddRequest<Self::Conf>) -> impl Future<Output = Result<AddResult, CniError>>;

    /// Removes the attachment, as much of it as there is. Repeatable; carries on past errors.
    ///
    /// # Errors
    /// What could not be removed, together. What is already gone is no error.
    fn del(request: &DelRequest<Self::Conf>) -> impl Future<Output = Result<(), CniError>>;

    /// Compares the node with what ADD made.
    ///
    /// # Errors
    /// The first difference.
    fn check(request: &CheckRequest<Self::Conf>) -> impl Future<Output = Result<(), CniError>>;

    /// Removes all attachments of this network that are not in the list. Carries on past errors.
    ///
    /// # Errors
    /// What could not be removed, together.
    fn gc(request: &GcRequest<Self::Conf>) -> impl Future<Output = Result<(), CniError>>;

    /// Tells whether ADD could be served now. Changes nothing.
    ///
    /// # Errors
    /// Code 50 or 51 with the reason.
    fn status(request: &StatusRequest<Self::Conf>) -> impl Future<Output = Result<(), CniError>>;
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
    /// What answers.
    pub handler: Handler,
}

impl Entry {
    /// The entry of a plugin.
    #[must_use]
    pub const fn of<P: Plugin>() -> Self {
        Self { name: P::NAME, versions: P::VERSIONS, handler: |call| Box::pin(dispatch::<P>(call)) }
    }
}
