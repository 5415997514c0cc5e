//! What ADD of a network would do here and now, from the plugins' own plans. Nothing is changed.
//!
//! [`plan`] goes through a network's plugins as ADD does: each gets the config and the result that it would get, and says what
//! it would do.

pub(crate) mod output;
mod plugins_own_plans;

pub(crate) use interface::preview::{Preview, Shown};

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::doctor;
use crate::other_projects::ask;
use crate::validate::plugin_executables::is_of_this_suite;
use crate::validate::{Level, Source, validate};
use cni_spec::{AddResult, CniError, Command, ConfObject, PluginType, SpecVersion};
use libcni::{Error, NetworkConf, Runtime, RuntimeConf};
use serde_json::Value;
use skel::Call;
use skel::cni_ask::{Answer, Question};
use skel::env::Environment;

#[derive(Debug, Clone)]
pub(crate) struct NetworkPlan {
    pub(crate) plugins: Vec<PluginPlan>,
    /// The result, as far as it is known before; `None` where a plugin does not say, or ADD would fail.
    pub(crate) result: Option<AddResult>,
    /// Why ADD would fail, where no plugin's own plan shows it.
    pub(crate) refused: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) struct PluginPlan {
    pub(crate) plugin: PluginType,
    pub(crate) executable: PathBuf,
    pub(crate) outcome: Outcome,
}

/// The outcome of a plugin's ADD, as far as it is known.
#[derive(Debug, Clone)]
pub(crate) enum Outcome {
    Steps(Box<Preview>),
    /// ADD would fail, before it changes anything.
    Fails(CniError),
    /// Nothing: the plugin is of another project and does not say.
    OtherMake,
    /// Nothing: this suite's plugin does not say.
    Silent,
    /// Nothing: a plugin before it does not say which result it would give, or would fail.
    NotReached,
}

impl NetworkPlan {
    /// The error with which ADD would fail, as far as it is known, and the plugin.
    pub(crate) fn failure(&self) -> Option<(&PluginPlan, &CniError)> {
        self.plugins.iter().find_map(|plugin| match &plugin.outcome {
            Outcome::Fails(error) => Some((plugin, error)),
            _ => None,
        })
    }
}

/// What ADD would do now.
/// Fails with the errors with which ADD fails before it calls a plugin: an unknown version, an executable that is not found.
pub(crate) async fn plan(
    runtime: &Runtime,
    network: &NetworkConf,
    attachment: &RuntimeConf,
) -> Result<NetworkPlan, Error> {
    let version = network.version()?;
    network.network_name()?;
    let executables = runtime.find_executables(network)?;
    let makes = Makes::default();
    let mut plugins = Vec::new();
    let mut result: Option<AddResult> = None;
    let mut is_reached = true;
    for (index, (plugin, executable)) in network.plugins.iter().zip(&executables).enumerate() {
        let prev = result.as_ref().map(|result| result.to_json(version)).transpose();
        let outcome = match prev {
            _ if !is_reached => Outcome::NotReached,
            Err(error) => Outcome::Fails(error),
            Ok(prev) => {
                let stdin = network.add_request(index, attachment, prev.as_deref()).unwrap_or_default();
                if makes.is_ours(executable) {
                    of_plugin(runtime, &makes, &plugin.plugin_type, &call(runtime, attachment, stdin))
                } else {
                    of_another_project(runtime, attachment, executable, &stdin).await
                }
            }
        };
        match &outcome {
            Outcome::Steps(preview) => result = Some(preview.result.clone()),
            _ => (is_reached, result) = (false, None),
        }
        plugins.push(PluginPlan { plugin: plugin.plugin_type.clone(), executable: executable.clone(), outcome });
    }
    let mut plan = NetworkPlan { plugins, result, refused: Vec::new() };
    if plan.failure().is_none() {
        plan.refused = why_add_would_fail(runtime, network, attachment, &executables, &makes).await;
    }
    if !plan.refused.is_empty() {
        plan.result = None;
    }
    Ok(plan)
}

fn call(runtime: &Runtime, attachment: &RuntimeConf, stdin: Vec<u8>) -> Call {
    let env = Environment {
        command: Command::Add.as_str().to_owned(),
        container_id: attachment.id.container_id.to_string(),
        netns: attachment.netns.clone(),
        ifname: attachment.id.ifname.to_string(),
        args: attachment.args.to_string(),
        path: runtime.plugin_path().to_string(),
        not_utf8: Vec::new(),
        ..Environment::of_process()
    };
    Call::given(env, Rc::from(stdin))
}

async fn of_another_project(runtime: &Runtime, attachment: &RuntimeConf, executable: &Path, stdin: &[u8]) -> Outcome {
    let mut env = attachment.call_env();
    env.path = runtime.plugin_path().clone();
    match ask(executable, Question::Plan, &env, stdin).await {
        Some(Answer { error: Some(error), .. }) => Outcome::Fails(error),
        Some(Answer { plan: Some(preview), .. }) => Outcome::Steps(Box::new(preview)),
        Some(_) | None => Outcome::OtherMake,
    }
}

fn of_plugin(runtime: &Runtime, makes: &Makes, plugin: &PluginType, call: &Call) -> Outcome {
    let Some(foresee) = plugins_own_plans::find(plugin.as_str()) else { return Outcome::Silent };
    let is_our_ipam = |ipam: &PluginType| runtime.plugin_path().find_executable(ipam).map(|path| makes.is_ours(&path));
    match foresee(call, &is_our_ipam) {
        Ok(Some(preview)) => Outcome::Steps(Box::new(preview)),
        Ok(None) => Outcome::Silent,
        Err(error) => Outcome::Fails(error),
    }
}

/// Tells which executables are of this suite: each is read once.
#[derive(Default)]
struct Makes(RefCell<BTreeMap<PathBuf, bool>>);

impl Makes {
    fn is_ours(&self, executable: &Path) -> bool {
        let look = || is_of_this_suite(executable).unwrap_or(false);
        *self.0.borrow_mut().entry(executable.to_owned()).or_insert_with(look)
    }
}

/// Returns why ADD would fail, a sentence each, by configuration and STATUS.
async fn why_add_would_fail(
    runtime: &Runtime,
    network: &NetworkConf,
    attachment: &RuntimeConf,
    executables: &[PathBuf],
    makes: &Makes,
) -> Vec<String> {
    netops::kernel_probe::leave_no_marks();
    let mut found = by_validate(network);
    found.extend(of_cluster(network));
    for (index, (plugin, executable)) in network.plugins.iter().zip(executables).enumerate() {
        let stdin = network.add_request(index, attachment, None).unwrap_or_default();
        if !makes.is_ours(executable) || !found.is_empty() {
            continue;
        }
        let name = plugin.plugin_type.as_str();
        if let Some(error) = by_status(runtime, name, &stdin, makes).await {
            found.push(format!("STATUS of plugin {name}: {error}"));
        }
    }
    found
}

fn by_validate(network: &NetworkConf) -> Vec<String> {
    let Some(source) = network.path().and_then(|path| Source::read(path).ok()) else { return Vec::new() };
    let report = validate(vec![source], crate::keys::ALL);
    let errors = report.findings.iter().filter(|finding| finding.level == Level::Error);
    let text = |finding: &crate::validate::Finding| {
        let source = &report.sources[finding.file];
        let (line, column) = source.position(finding.span.start);
        format!("{}:{line}:{column}: {}", source.name, finding.message)
    };
    errors.map(text).collect()
}

/// What the node's memory of plugin `cluster`, which is another executable, says of ADD.
fn of_cluster(network: &NetworkConf) -> Vec<String> {
    let requests = on_node::Requests::of(network);
    let found = requests.clusters().flat_map(|object| doctor::of_cluster(network, object));
    let is_fatal = |found: &doctor::Finding| found.level == Level::Error || found.kind == doctor::Kind::RangeFull;
    found.filter(is_fatal).map(|found| format!("{}. {}", found.what, found.remedy)).collect()
}

/// Asks the plugin within this process, in the version that has STATUS. `None`: it is ready, or cannot be asked so.
async fn by_status(runtime: &Runtime, name: &str, stdin: &[u8], makes: &Makes) -> Option<CniError> {
    let within = |name: &str| cni_plugins::ENTRIES.iter().find(|entry| entry.name == name);
    let entry = within(name)?;
    let mut value: Value = serde_json::from_slice(stdin).ok()?;
    if let Some(ipam) = ConfObject::parse(stdin).ok()?.ipam_type().ok()?.filter(|_| entry.delegates) {
        within(ipam.as_str())?;
        runtime.plugin_path().find_executable(&ipam).ok().filter(|path| makes.is_ours(path))?;
    }
    let object = value.as_object_mut()?;
    object.insert("cniVersion".to_owned(), SpecVersion::LATEST.as_str().into());
    let env = Environment {
        command: Command::Status.as_str().to_owned(),
        path: runtime.plugin_path().to_string(),
        not_utf8: Vec::new(),
        ..Environment::of_process()
    };
    let call = Call::given(env, Rc::from(value.to_string().into_bytes())).within(cni_plugins::ENTRIES);
    CniError::find_in(&entry.answer(&call).await.stdout)
}
