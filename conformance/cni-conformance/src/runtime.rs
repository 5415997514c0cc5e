//! Tests of runtimes: the kit installs mock plugins, and checks how they are called.
//!
//! A [`Driver`] says, as data, how a runtime is made to do something; a [`RuntimeTestbed`] is a throwaway node with
//! [mock plugins](mock_plugin) in its plugin folder. A case lays a network of mock plugins, has the runtime do its work, and
//! looks at what the mock plugins wrote down: arguments, environment, stdin, order. The [`rules`] are data like those for
//! plugins, and the reports are the same.

mod assertions;
mod daemon;
mod driver;
mod foreground_run;
pub mod mock_plugin;
pub mod rules;
mod runtime_testbed;
mod trial;

pub use driver::Driver;
pub use runtime_testbed::FinishedRun;
pub use runtime_testbed::{Request, RuntimeTestbed};
pub use trial::Trial;

pub type Rule = crate::rule::Rule<RuntimeTestbed>;
pub type Case = crate::rule::Case<RuntimeTestbed>;
