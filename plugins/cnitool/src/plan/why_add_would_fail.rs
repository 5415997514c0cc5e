//! Reasons for which ADD would fail that no plan of a plugin shows: what `validate` says of the file, and STATUS of each plugin.

use std::path::PathBuf;
use std::rc::Rc;

use cni_spec::{CniError, Command, ConfObject, SpecVersion};
use host_local::inventory::usage_of;
use libcni::{Attachment, NetworkConf, Runtime};
use serde_json::Value;
use skel::Call;
use skel::env::Environment;

use super::Makes;
use crate::validate::{Level, Source, validate};

/// The reasons, a sentence each.
pub(crate) async fn find(
    runtime: &Runtime,
    network: &NetworkConf,
    attachment: &Attachment,
    executables: &[PathBuf],
    makes: &Makes,
) -> Vec<String> {
    netops::kernel_probe::leave_no_marks();
    let mut found = by_validate(network);
    found.extend(not_adopted(network));
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

/// The plugin `cluster` refuses a node that holds addresses of before it had the store.
fn not_adopted(network: &NetworkConf) -> Option<String> {
    let requests = on_node::Requests::of(network);
    let is_new = |object: &&ConfObject| !on_node::memory(object).is_some_and(|memory| memory.is_recorded);
    let object = requests.clusters().find(is_new)?;
    let held: u128 = usage_of(object, None).ok()?.iter().map(|range| range.used).sum();
    let name = &network.name;
    (held > 0).then(|| {
        format!(
            "this node holds {held} addresses that were given without the store. Once: cnitool cluster adopt {name} --begin; on each node: cnitool cluster \
             adopt {name}; at last, once: cnitool cluster adopt {name} --end"
        )
    })
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
