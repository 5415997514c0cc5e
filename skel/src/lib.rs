//! The plugin side of CNI (SPEC 2 and 4): from environment and stdin to one of five verbs, and back to stdout.
//!
//! A plugin implements [`Plugin`]; its `main` is [`main`], or [`run`] when one executable is several plugins:
//!
//! ```no_run
//! use cni_spec::{AddResult, CniError};
//! use skel::{AddRequest, CheckRequest, DelRequest, Entry, Plugin};
//!
//! struct Passthrough;
//!
//! impl Plugin for Passthrough {
//!     const NAME: &'static str = "passthrough";
//!     type Conf = ();
//!     type Removal = ();
//!     async fn add(request: &AddRequest, _: &()) -> Result<AddResult, CniError> {
//!         tokio::time::sleep(std::time::Duration::from_millis(1)).await; // a verb may use all of tokio
//!         Ok(request.conf.prev_result()?.unwrap_or_default())
//!     }
//!     async fn del(_: &DelRequest, _: &()) -> Result<(), CniError> { Ok(()) }
//!     async fn check(_: &CheckRequest, _: &()) -> Result<(), CniError> { Ok(()) }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     skel::main(const { &Entry::of::<Passthrough>() }, env!("CARGO_PKG_VERSION"))
//! }
//! ```
//!
//! Only [`mod@env`] reads the environment, only [`reply`] writes stdout, only [`run`] ends the process.

#![warn(missing_docs, clippy::missing_errors_doc)]

pub mod call;
pub mod cni_ask;
pub mod delegate;
mod dispatch;
pub mod env;
pub mod event_loop;
pub mod interrupt;
pub mod inventory;
mod log;
mod netns;
pub mod plugin;
pub mod preview;
mod record;
pub mod reply;
pub mod request;
mod run;
mod unwritten_result;

pub use call::Call;
pub use cni_spec;
pub use cni_suite::{MARK as SUITE_MARK, Repair, Repaired};
pub use delegate::Delegate;
pub use dispatch::add_request;
pub use event_loop::EventLoop;
pub use interrupt::interrupted;
pub use log::start_at as log_at;
pub use netns::NetnsPath;
pub use plugin::{Attach, Detach, Entry, Plugin, Serve, Work};
pub use preview::{Preview, Shown};
pub use record::Timer;
pub use reply::Reply;
pub use request::{AddRequest, CheckRequest, DelRequest, GcRequest, StatusRequest};
pub use run::{main, refuse, run, start};
pub use unwritten_result::take_back_by;
