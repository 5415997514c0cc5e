//! The schemas: another validator reads them the way the parsers read configurations.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::LazyLock;

use boon::{Compiler, Draft, SchemaIndex, Schemas};
use cni_spec::{AddResult, ConfObject, SpecVersion};
use cnitool::schema::{accepted, find, put};
use cnitool::validate::{KnownPlugin, Level, Role, Source, validate};
use libcni::NetworkConf;
use serde_json::{Value, json};

fn folder(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn parser_accepts(plugin: &KnownPlugin, value: &Value) -> bool {
    ConfObject::parse(value.to_string().as_bytes())
        .is_ok_and(|object| (plugin.parse)(&Rc::new(object), SpecVersion::LATEST).is_ok())
}

/// The validator of another project, with a schema as `cnitool generate schema` prints it. It checks the schema, too.
struct Validator(Schemas, SchemaIndex);

impl Validator {
    fn new(name: &str) -> Self {
        let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
        compiler.set_default_draft(Draft::V2020_12);
        compiler.add_resource("schema.json", find(name).unwrap()).unwrap();
        let index = compiler.compile("schema.json", &mut schemas).unwrap_or_else(|error| panic!("{name}: {error:#}"));
        Self(schemas, index)
    }

    fn refused(&self, value: &Value) -> Option<String> {
        self.0.validate(value, self.1).err().map(|error| format!("{error:#}"))
    }
}

static LIST: LazyLock<Validator> = LazyLock::new(|| Validator::new("conflist"));
static RESULT: LazyLock<Validator> = LazyLock::new(|| Validator::new("result"));

/// Rules that no schema states: those about several keys, or about a text's meaning.
const BEYOND: &[&str] = &[
    "exclude each other",
    "is above maxID",
    "invalid range set",
    "no IP ranges specified",
    "sysctl.\"kernel.panic\"",
    "it needs key ingressBurst",
    "comes first",
    "has made already",
    "makes no interface",
    "it is no name of a device on a bus",
    "is outside of",
    "are of different families",
    "its destination is an address",
    "gives it to no link",
    "contains a zero byte",
    "it is the loopback link",
    ": ADD fails",
    "disableContainerInterface needs",
    "overlaps with",
    "the path must begin with /",
    "a node's name has",
    "key ipam.store",
    "as the interface before it",
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

/// Values of every type, of which each key accepts some.
fn values() -> Vec<Value> {
    let texts = ["", "eth0", "a/b", "10.1.0.5", "10.1.0.0/24", "10.1.0.0/33", "fd00::1", "fd00::/64", "fd00::/129"];
    let words = ["02:00:00:00:00:05", "0200.0000.0005", "01:00:5e:00:00:01", "TRUE"];
    let numbers = ["-1", "0", "1", "32", "4095", "65535", "65536", "4294967296", "1.5"];
    let others = ["null", "true", "[]", "{}", "[null]", "[[]]", "[\"x\"]", "{\"a\": 1}", "{\"a\": \"b\"}"];
    let texts = texts.into_iter().chain(words).map(Value::from);
    texts.chain(numbers.into_iter().chain(others).map(|text| serde_json::from_str(text).unwrap())).collect()
}

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
    places(&find(name).unwrap(), &[], &mut all);
    for place in all.iter().skip(1) {
        for value in values() {
            let mut whole = base.clone();
            put(&mut whole, place, value);
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
    for known in cnitool::keys::ALL {
        let base = accepted(known);
        assert!(parser_accepts(known, &base), "{base}");
        try_all(known.name, &Validator::new(known.name), &base, &|value| parser_accepts(known, value));
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
        let report = validate(vec![Source::file("x.conflist", text.as_bytes())], cnitool::keys::ALL);
        let errors = report.findings.iter().filter(|finding| finding.level == Level::Error);
        let errors: Vec<_> =
            errors.filter(|finding| !BEYOND.iter().any(|text| finding.message.contains(text))).collect();
        assert!(errors.is_empty(), "{object}: {errors:?}");
        compare(&text, &[]);
    }
}

/// Keys of every plugin, which no page of one explains.
const COMMON: [&str; 6] = ["args", "dns", "ipam", "log", "runtimeConfig", "type"];

/// What the parser says about each value was understood.
#[track_caller]
fn assert_typed(schema: &Value, place: &str) {
    let has_type = ["type", "enum", "anyOf"].iter().any(|word| schema.get(word).is_some());
    assert!(has_type, "{place}: {schema}");
    for (key, below) in schema["properties"].as_object().into_iter().flatten() {
        assert_typed(below, &format!("{place}.{key}"));
    }
    for word in ["items", "additionalProperties"] {
        schema.get(word).into_iter().for_each(|below| assert_typed(below, &format!("{place}.{word}")));
    }
}

#[test]
fn every_key_has_a_type_and_is_explained_in_its_plugins_readme() {
    for known in cnitool::keys::ALL {
        let schema = find(known.name).unwrap();
        let own = match known.role {
            Role::Address => &schema["properties"]["ipam"],
            _ => &schema,
        };
        assert_typed(own, known.name);
        for (key, schema) in own["properties"].as_object().unwrap() {
            assert!(COMMON.contains(&&**key) || schema.get("description").is_some(), "{} {key}", known.name);
        }
    }
}

fn conflists_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            conflists_below(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "conflist") {
            found.push(path);
        }
    }
}

/// The networks in the plugins' READMEs and in the examples.
fn written() -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for known in cnitool::keys::ALL {
        let path = PathBuf::from(known.name);
        let blocks = known.readme.split("```json\n").skip(1).filter_map(|rest| rest.split("```").next());
        all.extend(blocks.filter(|block| block.contains("\"plugins\"")).map(|block| (path.clone(), block.to_owned())));
    }
    let mut files = Vec::new();
    conflists_below(&folder("examples"), &mut files);
    all.extend(files.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())));
    all
}

#[test]
fn networks_of_documents_have_no_fault() {
    let all = written();
    assert!(all.len() > 20, "{}", all.len());
    for (path, text) in all {
        let report = validate(vec![Source::file("x.conflist", text.as_bytes())], cnitool::keys::ALL);
        // An example may have a plugin of another project.
        assert!(report.findings.iter().all(|it| it.level == Level::Note), "{}: {:?}", path.display(), report.findings);
        compare(&text, &[]);
    }
}

#[test]
fn every_plugin_is_known() {
    let mut known: Vec<&str> = cnitool::keys::ALL.iter().map(|known| known.name).collect();
    // noop's keys are its control file's business.
    known.push("noop");
    known.sort_unstable();
    let mut all: Vec<&str> = cni_plugins::ENTRIES.iter().map(|entry| entry.name).collect();
    all.push("cluster"); // an executable of its own
    all.sort_unstable();
    assert_eq!(known, all);
}
