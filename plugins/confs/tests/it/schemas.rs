//! The schemas in `libcni/schemas`: they are what the parsers say, and another validator reads them the same way.
//!
//! `UPDATE_EXPECT=1 cargo test -p confs --test it -- schemas` writes them.

mod ask;
mod readme;

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::LazyLock;

use ask::{Answer, Asker};
use boon::{Compiler, Draft, SchemaIndex, Schemas};
use cni_spec::{AddResult, CniError, ConfObject, SpecVersion, json as cni_json};
use expect_test::expect_file;
use libcni::NetworkConf;
use serde_json::{Map, Value, json};
use validate::{Known, Level, Role, Source, validate};

const DRAFT: &str = "https://json-schema.org/draft/2020-12/schema";

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
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

/// A config that every plugin accepts: one of them needs each key.
fn accepted(plugin: &Known) -> Value {
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
    assert!(parse(plugin, &base).error.is_none(), "{}: {:?}", plugin.name, parse(plugin, &base).error);
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
        "$schema": DRAFT,
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
    let text = std::fs::read_to_string(readme::of(plugin)).unwrap();
    readme::describe(&mut schema, &text, plugin);
    schema
}

fn merge(object: &mut Value, more: Value) {
    if object.is_null() {
        *object = json!({});
    }
    for (key, value) in more.as_object().unwrap() {
        let entries = object.as_object_mut().unwrap();
        entries.entry(key.clone()).or_insert_with(|| value.clone());
    }
}

fn names(role: impl Fn(Role) -> bool) -> Vec<&'static str> {
    confs::ALL.iter().filter(|one| role(one.role)).map(|one| one.name).collect()
}

/// Of a plugin's object in a list: which plugin's schema it has to agree with.
fn any_plugin() -> Value {
    let is = |key: &str, name: &str| json!({"properties": {key: {"const": name}}, "required": [key]});
    let own = confs::ALL.iter().filter(|one| one.role != Role::Address);
    let own = own.map(|one| json!({"if": is("type", one.name), "then": {"$ref": format!("{}.json", one.name)}}));
    let address = names(|role| role == Role::Address).into_iter().map(|name| {
        json!({
            "if": {"properties": {"ipam": {"type": "object", "properties": {"type": {"const": name}}, "required": ["type"]}},
                   "required": ["ipam"]},
            "then": {"$ref": format!("{name}.json")},
        })
    });
    let others = names(|role| role != Role::Address);
    let known = names(|_| true);
    json!({
        "$schema": DRAFT,
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
        "$schema": DRAFT,
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
                "items": {"$ref": "plugin.json"},
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
        let ignored = std::cell::RefCell::default();
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
        "$schema": DRAFT,
        "title": "CNI result",
        "description": "What ADD prints, and prevResult, in version 1.0.0 and later.",
    });
    merge(&mut schema, own);
    schema
}

/// Every schema, by its file's name.
fn all() -> Vec<(String, Value)> {
    let mut all =
        vec![("conflist".to_owned(), list()), ("plugin".to_owned(), any_plugin()), ("result".to_owned(), result())];
    all.extend(confs::ALL.iter().map(|one| (one.name.to_owned(), plugin(one))));
    all
}

static ALL: LazyLock<Map<String, Value>> = LazyLock::new(|| all().into_iter().collect());

/// The validator of another make, with a schema as `cnitool schema` prints it. It checks the schema, too.
struct Validator(Schemas, SchemaIndex);

impl Validator {
    fn new(name: &str) -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.set_default_draft(Draft::V2020_12);
        compiler.add_resource("schema.json", libcni::schemas::find(name).unwrap()).unwrap();
        let index = compiler.compile("schema.json", &mut schemas).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        Self(schemas, index)
    }

    /// Why the value is refused.
    fn refused(&self, value: &Value) -> Option<String> {
        self.0.validate(value, self.1).err().map(|error| format!("{error:#}"))
    }
}

static LIST: LazyLock<Validator> = LazyLock::new(|| Validator::new("conflist"));
static RESULT: LazyLock<Validator> = LazyLock::new(|| Validator::new("result"));

/// What no schema says: rules about several keys, or about a text's meaning.
const BEYOND: &[&str] = &[
    "exclude each other",
    "is above maxID",
    "invalid range set",
    "no IP ranges specified",
    "sysctl.\"kernel.panic\"",
    "it needs key ingressBurst",
    "stands first",
    "has made already",
    "makes no interface",
    "it is no name of a device on a bus",
];

/// Schema and parser say the same of a list, but for what no schema says.
#[track_caller]
pub(crate) fn compare(text: &str, errors: &[&str]) {
    let Ok(value) = serde_json::from_str(text) else { return };
    if let Some(fault) = LIST.refused(&value) {
        assert!(!errors.is_empty(), "the schema refuses what the parser accepts: {text}: {fault}");
        return;
    }
    let unseen: Vec<_> = errors.iter().filter(|error| !BEYOND.iter().any(|text| error.contains(text))).collect();
    assert!(unseen.is_empty(), "the schema accepts what the parser refuses: {text}: {unseen:?}");
}

#[test]
fn schemas_are_what_the_parsers_say() {
    for (name, schema) in ALL.iter() {
        let path = folder("libcni/schemas").join(format!("{name}.json"));
        expect_file![path].assert_eq(&format!("{}\n", serde_json::to_string_pretty(schema).unwrap()));
    }
    let known: Vec<&str> = libcni::schemas::NAMES.to_vec();
    assert_eq!(known, ALL.keys().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(std::fs::read_dir(folder("libcni/schemas")).unwrap().count(), known.len() + 1, "and a README");
}

/// Values of every type, of which each key accepts some.
fn values() -> Vec<Value> {
    let texts = ["", "eth0", "a/b", "10.1.0.5", "10.1.0.0/24", "10.1.0.0/33", "fd00::1", "fd00::/64", "fd00::/129"];
    let words = ["02:00:00:00:00:05", "0200.0000.0005", "01:00:5e:00:00:01", "TRUE"];
    let numbers = ["-1", "0", "1", "32", "4095", "65535", "65536", "4294967296", "1.5"];
    let others = ["null", "true", "[]", "{}", "[null]", "[[]]", "[\"x\"]", "{\"a\": 1}", "{\"a\": \"b\"}"];
    let texts = texts.into_iter().chain(words).map(Value::from);
    texts.chain(numbers.into_iter().chain(others).map(|text| serde_json::from_str(text).unwrap())).collect()
}

/// The places of all values that a schema has keys for.
fn places(schema: &Value, place: &[String], found: &mut Vec<Vec<String>>) {
    found.push(place.to_vec());
    for (key, below) in schema["properties"].as_object().into_iter().flatten() {
        places(below, &[place, std::slice::from_ref(key)].concat(), found);
    }
    if schema.get("items").is_some() {
        places(&schema["items"], &[place, &["[0]".to_owned()]].concat(), found);
    }
}

/// Tries every value in every place: the schema refuses none that the parser accepts.
fn try_all(name: &str, validator: &Validator, base: &Value, accepts: &dyn Fn(&Value) -> bool) {
    let (mut all, mut refused) = (Vec::new(), 0);
    places(&ALL[name], &[], &mut all);
    for place in all.iter().skip(1) {
        for value in values() {
            let mut whole = base.clone();
            ask::put(&mut whole, place, value);
            if validator.refused(&whole).is_some() {
                refused += 1;
                assert!(
                    !accepts(&whole),
                    "schema {name} refuses what its parser accepts: {} in {whole}",
                    place.join(".")
                );
            }
        }
    }
    assert!(refused > 20, "{name}: the schema refuses {refused} values only");
}

#[test]
fn no_schema_refuses_what_the_parser_accepts() {
    for known in confs::ALL {
        try_all(known.name, &Validator::new(known.name), &accepted(known), &|value| {
            parse(known, value).error.is_none()
        });
    }
    let base = json!({"cniVersion": "1.1.0", "ips": [{"address": "10.1.0.5/24"}], "routes": [{"dst": "0.0.0.0/0"}]});
    try_all("result", &RESULT, &base, &|value| AddResult::from_value(value, SpecVersion::LATEST).is_ok());
    let base = json!({"cniVersion": "1.1.0", "name": "pods", "plugins": [{"type": "loopback"}]});
    try_all("conflist", &LIST, &base, &|value| {
        NetworkConf::parse(value.to_string().as_bytes())
            .is_ok_and(|list| list.network_name().is_ok() && list.version().is_ok())
    });
}

#[test]
fn values_that_another_key_decides_about_are_accepted() {
    for object in [
        r#"{"type": "ptp", "ipam": {"type": "static", "addresses": [{"address": "fd00::5/64", "gateway": "fd00::1"}]}}"#,
        r#"{"type": "ptp", "ipam": {"type": "host-local", "exclude": ["10.1.0.7 - 10.1.0.9"], "subnet": "10.1.0.0/24"}}"#,
        r#"{"type": "ptp", "ipam": {"type": "host-local", "ranges": [[{"subnet": "fd00::/64", "gateway": "fd00::1"}]]}}"#,
        r#"{"type": "portmap", "runtimeConfig": {"portMappings": [{"hostPort": 1, "containerPort": 65535, "protocol": "TCP"}]}}"#,
        r#"{"type": "bridge", "vlanTrunk": [{"minID": 1, "maxID": 4094}], "ipam": {}}"#,
        r#"{"type": "bandwidth", "ingressRate": 8000, "ingressBurst": 8000}"#,
        r#"{"type": "tap", "owner": "root", "group": 7, "ipam": null}"#,
        r#"{"type": "of-another-make", "mtu": "any", "ipam": {"type": "host-local", "subnet": "usePodCidr"}}"#,
    ] {
        let text =
            format!(r#"{{"cniVersion": "1.1.0", "name": "pods", "plugins": [{{"type": "loopback"}}, {object}]}}"#);
        let report = validate(vec![Source::file("x.conflist", text.as_bytes())], confs::ALL);
        let errors = report.findings.iter().filter(|finding| finding.level == Level::Error);
        let errors: Vec<_> =
            errors.filter(|finding| !BEYOND.iter().any(|text| finding.message.contains(text))).collect();
        assert!(errors.is_empty(), "{object}: {errors:?}");
        compare(&text, &[]);
    }
}

#[test]
fn every_key_stands_in_its_plugins_readme() {
    for known in confs::ALL {
        let own = match known.role {
            Role::Address => &ALL[known.name]["properties"]["ipam"],
            _ => &ALL[known.name],
        };
        for (key, schema) in own["properties"].as_object().unwrap() {
            let is_of_all = ["args", "dns", "ipam", "runtimeConfig", "type"].contains(&&**key);
            assert!(is_of_all || schema.get("description").is_some(), "{} {key}", known.name);
        }
    }
}

/// The networks in the plugins' READMEs and in the examples.
fn written() -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for known in confs::ALL {
        let path = readme::of(known);
        let text = std::fs::read_to_string(&path).unwrap();
        let blocks = text.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
        all.extend(blocks.filter(|block| block.contains("\"plugins\"")).map(|block| (path.clone(), block.to_owned())));
    }
    let mut files = Vec::new();
    crate::right::conflists_below(&folder("examples"), &mut files);
    all.extend(files.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())));
    all
}

#[test]
fn networks_of_documents_are_accepted() {
    let all = written();
    assert!(all.len() > 20, "{}", all.len());
    for (path, text) in all {
        let report = validate(vec![Source::file("x.conflist", text.as_bytes())], confs::ALL);
        assert_eq!(report.count(Level::Error), 0, "{}: {:?}", path.display(), report.findings);
        compare(&text, &[]);
    }
}
