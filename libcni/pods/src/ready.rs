//! Readiness: whether pods can be given networks, and if not, every reason.

use crate::error::KnownNetworks;
use crate::handle::{Pods, READY_DEADLINE};
use crate::loopback::{self, Loopback};
use cni_spec::{Code, NetworkName};
use futures::future::join_all;
use libcni::NetworkConf;
use std::fmt;
use std::path::PathBuf;
use std::time::Instant;

/// Why pods cannot be given networks. As text: one line, as a kubelet shows it for `NetworkReady`.
#[derive(Debug)]
pub struct NotReady {
    /// At least one.
    pub reasons: Vec<NotReadyReason>,
    /// The existing networks, and the skipped files.
    pub known: KnownNetworks,
}

/// A reason why the node is not ready.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotReadyReason {
    #[error("{} in {}", without_default(name.as_ref()), dir.display())]
    NoDefault {
        /// The default network's name, if it is fixed.
        name: Option<NetworkName>,
        dir: PathBuf,
    },
    #[error("{have} usable networks, {want} wanted")]
    TooFew { have: usize, want: usize },
    /// A network reports by STATUS that it cannot serve ADD (code 50).
    #[error("network {network} cannot take pods: {}", error.with_causes())]
    NotAvailable { network: String, error: libcni::Error },
    /// A network reports by STATUS that it cannot serve ADD, and that existing pods may have limited connectivity (code
    /// 51).
    #[error("network {network} cannot take pods, and those that are up may have limited connectivity: {}", error.with_causes())]
    LimitedConnectivity { network: String, error: libcni::Error },
    /// STATUS is not possible: an executable is missing, or the plugin fails otherwise.
    #[error("network {network} fails: {}", error.with_causes())]
    Failing { network: String, error: libcni::Error },
}

fn without_default(name: Option<&NetworkName>) -> String {
    name.map_or("no network can be used".to_owned(), |name| format!("default network {name} not found"))
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::from("network is not ready: ");
        let reasons = self.reasons.iter().map(ToString::to_string);
        text.push_str(&reasons.chain(self.known.passed_over.iter().cloned()).collect::<Vec<_>>().join("; "));
        // Plugins' texts may have several lines.
        f.write_str(&text.replace('\n', "; "))
    }
}

impl std::error::Error for NotReady {}

impl NotReadyReason {
    fn of(network: &NetworkConf, error: libcni::Error) -> Self {
        let network = network.name.clone();
        match error.code() {
            Some(Code::NOT_AVAILABLE) => Self::NotAvailable { network, error },
            Some(Code::LIMITED_CONNECTIVITY) => Self::LimitedConnectivity { network, error },
            _ => Self::Failing { network, error },
        }
    }
}

impl Pods {
    /// Whether pods can be given networks: there is a default network, its executables exist, its plugins' STATUS
    /// succeeds (from version 1.1.0 on), there are as many such networks as [`crate::Builder::min_networks`]
    /// requires, and with [`Loopback::Plugin`] the plugin `loopback` exists.
    ///
    /// STATUS of all networks of the folder is called at the same time, with a limit of 30 s. A network other than the
    /// default one that fails does not count, but is no reason while there are enough.
    /// Errors: every reason, and every skipped file.
    pub async fn ready(&self) -> Result<(), NotReady> {
        let networks = self.networks().await;
        let choice = self.choice(&networks);
        let runtime = self.runtime(self.deadline().min(Instant::now() + READY_DEADLINE));
        let ask = async |conf: &NetworkConf| {
            for plugin in &conf.plugins {
                // Below 1.1.0 there is no STATUS, which would find a missing executable.
                if let Err(error) = runtime.plugin_path().find_executable(&plugin.plugin_type) {
                    return Err(libcni::Error::Invalid(error));
                }
            }
            Box::pin(runtime.status(conf)).await
        };
        let answers = join_all(choice.usable.iter().map(|conf| ask(conf))).await;
        let failing: Vec<_> =
            choice.usable.iter().zip(answers).filter_map(|(conf, answer)| Some((*conf, answer.err()?))).collect();
        let have = choice.usable.len() - failing.len();
        let want = self.settings().min_networks;
        let is_default = |conf: &NetworkConf| choice.default.is_some_and(|default| default.name == conf.name);
        let default_fails = failing.iter().any(|(conf, _)| is_default(conf));
        let lo = (self.settings().loopback == Loopback::Plugin).then(loopback::network).and_then(Result::ok);
        let lo_error = match &lo {
            Some(conf) => ask(conf).await.err().map(|error| NotReadyReason::of(conf, error)),
            None => None,
        };
        if choice.default.is_some() && !default_fails && have >= want && lo_error.is_none() {
            for (conf, error) in failing {
                tracing::warn!(
                    network = conf.name,
                    error = error.with_causes(),
                    "a network that is not the default fails"
                );
            }
            return Ok(());
        }
        let mut reasons = Vec::from_iter(lo_error);
        if choice.default.is_none() {
            reasons
                .push(NotReadyReason::NoDefault { name: choice.fixed.cloned(), dir: self.settings().conf_dir.clone() });
        }
        // A single default network is the usual case, and is included already.
        if have < want && (want > 1 || failing.is_empty() && choice.default.is_some()) {
            reasons.push(NotReadyReason::TooFew { have, want });
        }
        reasons.extend(failing.into_iter().map(|(conf, error)| NotReadyReason::of(conf, error)));
        Err(NotReady { reasons, known: choice.known() })
    }
}
