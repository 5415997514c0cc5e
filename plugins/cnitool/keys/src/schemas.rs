//! JSON Schemas (draft 2020-12) of networks, plugins and results: what editors and other validators check files by.
//!
//! The schemas are made by asking the parsers, so they cannot have other keys or types. The plugin's page says what a key
//! means.

mod ask;
mod readme;

use std::cell::RefCell;
use std::rc::Rc;

use cni_spec::{AddResult, CniError, ConfObject, SpecVersion, json as cni_json};
use cni_validate::{Known, Role};
use serde_json::{Map, Value, json};
use tracing::subscriber::{NoSubscriber, with_default};

use crate::ALL;
pub use ask::put;
use ask::{Answer, Asker};

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";
/// The schemas that are of no plugin.
const COMMON: [&str; 3] = ["conflist", "plugin", "result"];

/// The names of all schemas: of a network's file, of any plugin in one, of ADD's result, and of each plugin.
pub fn names() -> impl Iterator<Item = &'static str> {
    COMMON.into_iter().chain(ALL.iter().map(|one| one.name))
}

/// A schema, complete by itself: others that it refers to are in its `$defs`. `None`: there is none of this name.
#[must_use]
pub fn find(name: &str) -> Option<Value> {
    // What parsers warn of is about the values that they are asked for.
    with_default(NoSubscriber::default(), || whole(name))
}

fn whole(name: &str) -> Option<Value> {
    let own = make(name)?;
    let (mut wanted, mut defs) = (referred(&own), Map::new());
    while let Some(name) = wanted.pop() {
        if defs.contains_key(name) {
            continue;
        }
        let definition = make(name)?;
        wanted.extend(referred(&definition));
        defs.insert(name.to_owned(), definition);
    }
    let mut whole = json!({"$schema": DRAFT});
    merge(&mut whole, own);
    if !defs.is_empty() {
        whole["$defs"] = defs.into();
    }
    Some(whole)
}

/// A schema without those that it refers to.
fn make(name: &str) -> Option<Value> {
    match name {
        "conflist" => Some(list()),
        "plugin" => Some(any_plugin()),
        "result" => Some(result()),
        _ => ALL.iter().find(|one| one.name == name).map(plugin),
    }
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

/// The schemas that a schema refers to.
fn referred(schema: &Value) -> Vec<&'static str> {
    let text = schema.to_string();
    names().filter(|name| text.contains(&reference(name).to_string())).collect()
}

/// What a plugin's parser says about an object.
fn parse(plugin: &Known, value: &Value) -> Answer {
    match ConfObject::parse(value.to_string().as_bytes()).map(Rc::new) {
        Ok(object) => {
            let error = (plugin.parse)(&object, SpecVersion::LATEST).err().map(named);
            Answer { error, ignored: object.ignored() }
        }
        Err(error) => Answer { error: Some(named(error)), ..Answer::default() },
    }
}

fn named(error: CniError) -> (String, String) {
    (error.key().unwrap_or_default().to_owned(), error.msg)
}

/// A configuration that the plugin's parser accepts.
#[must_use]
pub fn accepted(plugin: &Known) -> Value {
    // Each of these keys is required by some plugin.
    let mut base = json!({
        "name": "pods",
        "type": plugin.name,
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24"}]]},
        "master": "eth0",
        "vrfname": "blue",
        "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp", "hostIP": ""}]},
    });
    if plugin.name == "static" {
        base["ipam"] = json!({"type": "static", "addresses": [{"address": "10.1.0.5/24"}]});
    }
    base
}

/// The schema of a plugin's object.
fn plugin(plugin: &Known) -> Value {
    let asker = Asker { parse: &|value| parse(plugin, value), base: accepted(plugin) };
    let mut own = asker.schema(&[]);
    let mut properties = own["properties"].take().as_object().cloned().unwrap_or_default();
    // Of every plugin (`PluginConf`), whether its own keys name it or not.
    let ipam = properties.entry("ipam").or_insert_with(|| json!({"type": ["object", "null"]}));
    let ipam_type = json!({"type": ["string", "null"]});
    merge(&mut ipam["properties"], json!({"type": ipam_type}));
    let required: Vec<&str> = ["ipam", "master", "vrfname"].into_iter().filter(|key| asker.requires(key)).collect();
    for key in &required {
        let kind = &mut properties[*key]["type"];
        *kind = kind[0].take();
    }
    let mut schema = json!({
        "title": match plugin.role {
            Role::Address => format!("A network whose addresses are {}'s", plugin.name),
            _ => format!("CNI plugin {}", plugin.name),
        },
        "type": "object",
        "properties": properties,
    });
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    readme::describe(&mut schema, plugin);
    schema
}

/// Adds those keys that the object lacks.
fn merge(object: &mut Value, more: Value) {
    let mut entries = object.as_object().cloned().unwrap_or_default();
    for (key, value) in more.as_object().into_iter().flatten() {
        entries.entry(key).or_insert_with(|| value.clone());
    }
    *object = entries.into();
}

fn of_role(role: impl Fn(Role) -> bool) -> Vec<&'static str> {
    ALL.iter().filter(|one| role(one.role)).map(|one| one.name).collect()
}

/// Of a plugin's object in a list: which plugin's schema it has to agree with.
fn any_plugin() -> Value {
    let is = |key: &str, name: &str| json!({"properties": {key: {"const": name}}, "required": [key]});
    let own = ALL.iter().filter(|one| one.role != Role::Address);
    let own = own.map(|one| json!({"if": is("type", one.name), "then": reference(one.name)}));
    let address = of_role(|role| role == Role::Address).into_iter().map(|name| {
        json!({
            "if": {"properties": {"ipam": {"type": "object", "properties": {"type": {"const": name}}, "required": ["type"]}},
                   "required": ["ipam"]},
            "then": reference(name),
        })
    });
    let others = of_role(|role| role != Role::Address);
    let known = of_role(|_| true);
    json!({
        "title": "CNI plugin",
        "description": "A plugin of a list, or a file *.conf. Keys of plugins of another make are not checked.",
        "type": "object",
        "properties": {
            "type": {
                "description": "The plugin: the file name of its executable.",
                "type": "string",
                "pattern": r"^[^/\x00-\x1f\x7f]+$",
                "not": {"enum": [".", ".."]},
                "anyOf": [{"enum": others}, {}],
            },
            "name": {"type": ["string", "null"]},
            "log": log("Where the plugin records its calls, if neither environment nor node decide."),
            "capabilities": {
                "description": "What the runtime adds to runtimeConfig, such as \"portMappings\": true.",
                "type": ["object", "null"],
                "additionalProperties": {"type": ["boolean", "null"]},
            },
        },
        "required": ["type"],
        "allOf": own.collect::<Vec<_>>(),
        "if": {"properties": {"type": {"enum": known}}},
        "then": {
            "allOf": address.collect::<Vec<_>>(),
            "properties": {"ipam": {"properties": {"type": {"not": {"enum": others}}}}},
        },
    })
}

/// A value that means nothing is ignored, so none is refused.
fn log(text: &str) -> Value {
    json!({"description": text, "examples": ["journal", "file", "stderr", "off"]})
}

fn list() -> Value {
    let flag = |text: &str| {
        json!({
            "description": text,
            "type": ["boolean", "string"],
            "pattern": "^([Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee])$",
        })
    };
    let versions = SpecVersion::ALL.iter().map(|version| json!(version.as_str()));
    let versions: Vec<Value> = versions.chain([json!(""), Value::Null]).collect();
    json!({
        "title": "CNI network",
        "description": "A file *.conflist.",
        "type": "object",
        "properties": {
            "cniVersion": {"description": "The version of the specification.", "type": ["string", "null"]},
            "cniVersions": {
                "description": "Versions, of which the newest counts that the runtime knows.",
                "type": ["array", "null"],
                "items": {"type": "string"},
            },
            "name": {
                "description": "The network's name, unique on the node.",
                "type": "string",
                "pattern": r"^[a-zA-Z0-9][a-zA-Z0-9_.\-]{0,254}$",
            },
            "log": log("Where a runtime records its operations on this network, if neither environment nor node decide."),
            "disableCheck": flag("CHECK is not called."),
            "disableGC": flag("GC is not called."),
            "loadOnlyInlinedPlugins": flag("Files beside this one, in a folder of the network's name, add no plugins."),
            "plugins": {
                "description": "The plugins, in the order of ADD.",
                "type": "array",
                "minItems": 1,
                "items": reference("plugin"),
            },
        },
        "required": ["name"],
        "anyOf": [
            {"required": ["plugins"]},
            {"not": {"anyOf": [
                {"required": ["type"]},
                {"properties": {"loadOnlyInlinedPlugins": {"enum": [true, "true"]}}, "required": ["loadOnlyInlinedPlugins"]},
            ]}},
        ],
        "if": {"properties": {"cniVersions": {"type": "array"}}, "required": ["cniVersions"]},
        "else": {"properties": {"cniVersion": {"enum": versions}}},
    })
}

/// The result of ADD in its newest form.
fn result() -> Value {
    let parse = |value: &Value| {
        let ignored = RefCell::default();
        let error = cni_json::decode_noting::<AddResult>(value, &ignored).err();
        let error = error.map(|error| (error.path.clone(), error.to_string()));
        Answer { error, ignored: ignored.into_inner() }
    };
    let base = json!({
        "ips": [{"address": "10.1.0.5/24"}],
        "routes": [{"dst": "0.0.0.0/0"}],
    });
    let mut own = Asker { parse: &parse, base }.schema(&[]);
    for (list, key) in [("ips", "address"), ("routes", "dst")] {
        let entry = &mut own["properties"][list]["items"];
        let kind = &mut entry["properties"][key]["type"];
        *kind = kind[0].take();
        entry["required"] = json!([key]);
    }
    let versions = [json!(SpecVersion::V1_0_0.as_str()), json!(SpecVersion::V1_1_0.as_str()), json!(""), Value::Null];
    own["properties"]["cniVersion"] = json!({"enum": versions});
    let mut schema = json!({
        "title": "CNI result",
        "description": "What ADD prints, and prevResult, in version 1.0.0 and later.",
    });
    merge(&mut schema, own);
    schema
}
