//! Reasons for which ADD would fail that no plan of a plugin shows: what `validate` says of the file, and STATUS of each plugin.

use std::path::PathBuf;
use std::rc::Rc;

use cni_spec::{CniError, Command, ConfObject, SpecVersion};
use libcni::{NetworkConf, Runtime, RuntimeConf};
use serde_json::Value;
use skel::Call;
use skel::env::Environment;

use super::Makes;
use crate::doctor;
use crate::validate::{Level, Source, validate};

/// The reasons, a sentence each.
pub(crate) async fn find(
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
