//! Network config + attachment -> one plugin's stdin (SPEC 3, "Deriving request configuration from plugin
//! configuration").

use crate::attachment::{AttachmentId, RuntimeConf};
use crate::conflist::NetworkConf;
use crate::raw_object::PluginObject;
use crate::raw_object::{ObjectWriter, quote};
use cni_spec::gc;
use cni_suite::{Repair, repair};

/// The keys that a call adds to a plugin's object.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Added<'a> {
    /// The result before this plugin, as JSON of the network's version.
    pub(crate) prev_result: Option<&'a str>,
    /// The attachment whose capability arguments become `runtimeConfig`.
    pub(crate) attachment: Option<&'a RuntimeConf>,
    pub(crate) valid: Option<&'a [AttachmentId]>,
    /// GC after a look at the node: the attachments that were there.
    pub(crate) seen: Option<&'a [AttachmentId]>,
    pub(crate) repair: Option<Repair>,
}

/// The config for one call of one plugin. Keys that this library does not set keep their original bytes.
pub(crate) fn stdin(network: &NetworkConf, plugin: &PluginObject, added: &Added<'_>) -> Vec<u8> {
    let runtime_config = added.attachment.and_then(|attachment| runtime_config(plugin, attachment));
    let is_replaced = |key: &str| {
        let is = |name: &str| key.eq_ignore_ascii_case(name);
        ["cniVersion", "name", "capabilities"].into_iter().any(is)
            || runtime_config.is_some() && is("runtimeConfig")
            || added.prev_result.is_some() && is("prevResult")
            || added.valid.is_some() && (gc::VALID.into_iter().any(is) || is(gc::SEEN))
            // A file cannot ask for a repair: CHECK, which a runtime makes, changes nothing.
            || is(repair::REPAIR)
    };
    let mut object = ObjectWriter::new();
    object.text("cniVersion", &network.cni_version);
    object.text("name", &network.name);
    for (key, value) in plugin.keys.iter().filter(|(key, _)| !is_replaced(key)) {
        object.raw(key, value.get());
    }
    if let Some(runtime_config) = &runtime_config {
        object.raw("runtimeConfig", runtime_config);
    }
    if let Some(prev_result) = added.prev_result {
        object.raw("prevResult", prev_result);
    }
    if let Some(valid) = added.valid {
        let list = attachments(valid);
        gc::VALID.into_iter().for_each(|key| object.raw(key, &list));
    }
    if let Some(seen) = added.seen {
        object.raw(gc::SEEN, &attachments(seen));
    }
    if let Some(repair) = added.repair {
        object.text(repair::REPAIR, repair.as_str());
    }
    object.finish()
}

/// The arguments for the capabilities that the plugin enables; `None` if there are none.
fn runtime_config(plugin: &PluginObject, attachment: &RuntimeConf) -> Option<String> {
    let mut object = ObjectWriter::new();
    let mut is_empty = true;
    for (name, value) in attachment.capability_args.iter() {
        if plugin.capabilities.iter().any(|enabled| enabled == name) {
            object.raw(name, value);
            is_empty = false;
        }
    }
    (!is_empty).then(|| String::from_utf8_lossy(&object.finish()).into_owned())
}

fn attachments(valid: &[AttachmentId]) -> String {
    let one = |id: &AttachmentId| {
        format!(r#"{{"containerID":{},"ifname":{}}}"#, quote(id.container_id.as_str()), quote(id.ifname.as_str()))
    };
    format!("[{}]", valid.iter().map(one).collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(list: &str, added: &Added<'_>, expected: &Expect) {
        let network = NetworkConf::parse(list.as_bytes()).unwrap();
        let texts: Vec<_> =
            network.plugins.iter().map(|plugin| String::from_utf8(stdin(&network, plugin, added)).unwrap()).collect();
        expected.assert_eq(&texts.join("\n"));
    }

    #[test]
    fn unknown_keys_pass_as_the_bytes_they_are() {
        check(
            r#"{"cniVersion":"1.0.0","name":"n","plugins":[{"type":"a","name":"own","big":12345678901234567890.50,
                "text":"<&>\u0041","deep":{ "x" : [1,  2] }}]}"#,
            &Added::default(),
            &expect![[
                r#"{"cniVersion":"1.0.0","name":"n","type":"a","big":12345678901234567890.50,"text":"<&>\u0041","deep":{ "x" : [1,  2] }}"#
            ]],
        );
    }

    #[test]
    fn a_configuration_asks_for_no_repair() {
        let list = r#"{"name":"n","plugins":[{"type":"a","cni-plugins/repair":"write"}]}"#;
        check(list, &Added::default(), &expect![[r#"{"cniVersion":"","name":"n","type":"a"}"#]]);
        let asked = Added { repair: Some(Repair::Show), ..Added::default() };
        check(list, &asked, &expect![[r#"{"cniVersion":"","name":"n","type":"a","cni-plugins/repair":"show"}"#]]);
    }

    #[test]
    fn capabilities_become_runtime_config_where_both_sides_have_them() {
        let attachment = RuntimeConf::new("c", "eth0")
            .unwrap()
            .capability("mac", &"0a:00:00:00:00:01")
            .unwrap()
            .capability("portMappings", &[1])
            .unwrap();
        check(
            r#"{"name":"n","plugins":[
                {"type":"both","capabilities":{"mac":true,"dns":true,"portMappings":false}},
                {"type":"none","capabilities":{}, "runtimeConfig":{"own":1}},
                {"type":"case","Capabilities":{"portMappings":true},"RuntimeConfig":{"own":1}}]}"#,
            &Added { attachment: Some(&attachment), ..Added::default() },
            &expect![[r#"
                {"cniVersion":"","name":"n","type":"both","runtimeConfig":{"mac":"0a:00:00:00:00:01"}}
                {"cniVersion":"","name":"n","type":"none","runtimeConfig":{"own":1}}
                {"cniVersion":"","name":"n","type":"case","runtimeConfig":{"portMappings":[1]}}"#]],
        );
    }
}
