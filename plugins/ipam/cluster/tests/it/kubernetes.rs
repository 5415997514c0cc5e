//! The custom resource that PROTOCOL.md describes: valid for Kubernetes' API, its schema structural, and a network's document in it kept whole.

use std::fs;
use std::path::Path;
use std::process::Command;

use cluster::protocol::{self, Key, Shard};
use host_local::address::Address;
use host_local::range::Span;
use serde_json::{Value, json};

/// The definition as the page has it.
fn definition() -> String {
    let page = include_str!("../../PROTOCOL.md");
    let (_, from) = page.split_once("```yaml\n").unwrap();
    from.split_once("```").unwrap().0.to_owned()
}

/// The schema of the stored version.
fn schema(definition: &Value) -> &Value {
    let versions = definition["spec"]["versions"].as_array().unwrap();
    let stored: Vec<_> = versions.iter().filter(|version| version["storage"] == true).collect();
    assert_eq!(stored.len(), 1, "one version is stored");
    &stored[0]["schema"]["openAPIV3Schema"]
}

/// "Specifying a structural schema" of Kubernetes' documentation: each value has a type, and no keyword that defines one elsewhere.
fn faults(schema: &Value, place: &str, found: &mut Vec<String>) {
    if schema["type"].as_str().is_none_or(str::is_empty) && schema["x-kubernetes-int-or-string"] != true {
        found.push(format!("{place} has no type"));
    }
    for word in [
        "$ref",
        "definitions",
        "dependencies",
        "deprecated",
        "id",
        "patternProperties",
        "readOnly",
        "xml",
        "uniqueItems",
    ] {
        if !schema[word].is_null() {
            found.push(format!("{place} has {word}"));
        }
    }
    if !schema["properties"].is_null() && !schema["additionalProperties"].is_null() {
        found.push(format!("{place} has properties and additionalProperties"));
    }
    for (key, below) in schema["properties"].as_object().into_iter().flatten() {
        faults(below, &format!("{place}.{key}"), found);
    }
    for word in ["items", "additionalProperties"] {
        if schema[word].is_object() {
            faults(&schema[word], &format!("{place}.{word}"), found);
        }
    }
}

/// What an API server keeps of a value: the fields that the schema names, or all where it says so.
fn pruned(value: &Value, schema: &Value) -> Value {
    let keeps_all = schema["x-kubernetes-preserve-unknown-fields"] == true;
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter_map(|(key, value)| {
                let below = schema["properties"].get(key).or_else(|| schema.get("additionalProperties"));
                let whole = keeps_all.then(|| value.clone());
                below.map(|below| pruned(value, below)).or(whole).map(|value| (key.clone(), value))
            })
            .collect(),
        Value::Array(items) => items.iter().map(|item| pruned(item, &schema["items"])).collect(),
        plain => plain.clone(),
    }
}

#[test]
fn the_schema_of_the_custom_resource_is_structural_and_keeps_a_record() {
    let definition: Value = serde_saphyr::from_str(&definition()).unwrap();
    let (names, group) = (&definition["spec"]["names"], definition["spec"]["group"].as_str().unwrap());
    let full = format!("{}.{group}", names["plural"].as_str().unwrap());
    assert_eq!(definition["metadata"]["name"], full, "the API server refuses another name");
    let mut found = Vec::new();
    faults(schema(&definition), "the object", &mut found);
    assert_eq!(found, [] as [String; 0]);

    let address = Address::from_file_name("10.0.0.1").unwrap();
    let mut shard = Shard::default();
    shard.take(Span { first: address, last: address }, "a").unwrap();
    let base = protocol::base_of(address);
    let record: Value = serde_json::from_str(&shard.encode(base).unwrap()).unwrap();
    let object = json!({ "network": "lan", "key": Key::Runs(base).to_string(), "record": record });
    assert_eq!(pruned(&object, schema(&definition)), object, "nothing of it is dropped");
    assert_eq!(pruned(&json!({ "other": 1 }), schema(&definition)), json!({}));
}

#[test]
fn the_custom_resource_is_valid_for_the_api() {
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/pypi");
    let tool = target.join("bin/kubernetes-validate");
    if !tool.exists() {
        let why = "there is no kubernetes-validate: python3 -m pip install --target target/pypi kubernetes-validate";
        return testns::skip("the_custom_resource_is_valid_for_the_api", why);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("crd.yaml");
    let validate = |text: &str| {
        fs::write(&path, text).unwrap();
        let mut command = Command::new(&tool);
        command.env("PYTHONPATH", &target).args(["--kubernetes-version", "1.37", "--strict"]).arg(&path);
        let output = command.output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
    };
    let (is_valid, said) = validate(&definition());
    assert!(is_valid, "{said}");
    let (is_valid, said) = validate(&definition().replace("scope:", "scoop:"));
    assert!(!is_valid && said.contains("scope"), "{said}");
}
