//! The versions that a plugin supports (SPEC 2, VERSION).

use crate::chain::plugin_error;
use crate::deadlines::Limits;
use crate::error::{Error, PluginError};
use crate::plugin_call::{Failure, PluginCall};
use crate::raw_object::PluginObject;
use crate::{NetworkConf, Runtime};
use cni_spec::exec::CallEnv;
use cni_spec::{CniError, Code, Command, PluginPath, PluginType, SpecVersion};
use futures::future::join_all;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::path::Path;

/// The answer of a plugin that is older than VERSION.
const BEFORE_VERSION: &str = "unknown CNI_COMMAND: VERSION";

/// A plugin's answer to VERSION.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VersionInfo {
    /// The supported versions, in the plugin's order.
    pub supported: Vec<String>,
}

impl VersionInfo {
    /// Whether the plugin supports `version`; empty text is 0.1.0.
    #[must_use]
    pub fn supports(&self, version: &str) -> bool {
        let version = if version.is_empty() { SpecVersion::V0_1_0.as_str() } else { version };
        self.supported.iter().any(|supported| supported == version)
    }

    fn of(versions: &[SpecVersion]) -> Self {
        Self { supported: versions.iter().map(SpecVersion::to_string).collect() }
    }

    pub(crate) fn parse(stdout: &[u8]) -> Result<Self, CniError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        #[derive(Default)]
        struct Wire {
            cni_version: String,
            supported_versions: Vec<String>,
        }
        let bad = |reason: String| CniError::new(Code::DECODING, format!("cannot use answer to VERSION: {reason}"));
        let value = cni_spec::json::parse(stdout).map_err(|error| bad(error.msg))?;
        let wire: Wire = cni_spec::json::decode(&value).map_err(|error| bad(error.to_string()))?;
        match (wire.cni_version.as_str(), wire.supported_versions.is_empty()) {
            ("", _) => Err(bad("it has no cniVersion".into())),
            (_, false) => Ok(Self { supported: wire.supported_versions }),
            ("0.2.0", true) => Ok(Self::of(&[SpecVersion::V0_1_0, SpecVersion::V0_2_0])),
            (version, true) => Err(bad(format!("cniVersion is {version:?}, but supportedVersions is missing"))),
        }
    }
}

async fn ask(runtime: &Runtime, limits: &Limits, plugin: &str, executable: &Path) -> Result<VersionInfo, CniError> {
    // The oldest plugins check these variables before the verb.
    let mut env = CallEnv::default();
    env.netns = "dummy".into();
    env.ifname = "dummy".into();
    env.path = PluginPath::parse("dummy");
    let (command, stdin) = (Command::Version, br#"{"cniVersion":"1.1.0"}"#);
    match (PluginCall { runtime, limits, command, plugin, executable, env, stdin, noted: None }).run().await {
        Ok(stdout) => VersionInfo::parse(&stdout),
        Err(Failure { error, .. }) if error.msg == BEFORE_VERSION => Ok(VersionInfo::of(&[SpecVersion::V0_1_0])),
        Err(Failure { error, .. }) => Err(error),
    }
}

pub(crate) async fn version(runtime: &Runtime, plugin: &PluginType) -> Result<VersionInfo, Error> {
    let answer = async {
        let executable = runtime.settings.execute.find(plugin, &runtime.settings.path)?;
        ask(runtime, &Limits::of(runtime), plugin.as_str(), &executable).await
    };
    answer.await.map_err(|error| {
        Error::from(PluginError { plugin: plugin.to_string(), name: None, command: Command::Version, error })
    })
}

/// Asks every plugin of a network, at the same time.
pub(crate) async fn validate(runtime: &Runtime, network: &NetworkConf) -> Result<BTreeSet<String>, Error> {
    let limits = &Limits::of(runtime);
    let check = async |plugin: &PluginObject| {
        let executable = runtime.settings.execute.find(&plugin.plugin_type, &runtime.settings.path)?;
        let answer = ask(runtime, limits, plugin.plugin_type.as_str(), &executable).await?;
        if answer.supports(&network.cni_version) {
            return Ok(());
        }
        Err(CniError::new(
            Code::INCOMPATIBLE_VERSION,
            format!("plugin {} does not support config version {:?}", plugin.plugin_type, network.cni_version),
        )
        .detail(format!("It speaks {}.", answer.supported.join(", "))))
    };
    let outcomes = join_all(network.plugins.iter().map(check)).await;
    let mut errors: Vec<Error> = network.network_name().err().map(Error::Invalid).into_iter().collect();
    for (plugin, outcome) in network.plugins.iter().zip(outcomes) {
        errors.extend(outcome.err().map(|error| plugin_error(plugin, Command::Version, error)));
    }
    match Error::join(errors) {
        Some(error) => Err(error),
        None => Ok(network.plugins.iter().flat_map(|plugin| plugin.capabilities.iter().cloned()).collect()),
    }
}
