//! `cnitool generate schema`.

pub(crate) mod schemas_and_parsers;

use crate::fixture::Tool;
use expect_test::expect;
use serde_json::Value;

/// The schemas that a text refers to.
fn refers(text: &str) -> Vec<&str> {
    text.split("\"$ref\": \"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

#[test]
fn a_schema_is_complete_by_itself() {
    let tool = Tool::new();
    for name in ["conflist", "plugin", "result", "bridge"] {
        let text = tool.run(&["generate", "schema", name]).ok();
        let schema: Value = serde_json::from_str(&text).unwrap();
        for reference in refers(&text) {
            let path = reference.strip_prefix('#').unwrap_or_else(|| panic!("{name}: {reference} is another file"));
            assert!(schema.pointer(path).is_some(), "{name}: {reference}");
        }
    }
    assert!(refers(&tool.run(&["generate", "schema", "plugin"]).ok()).len() > 15);
    assert_eq!(tool.run(&["generate", "schema"]).ok(), tool.run(&["generate", "schema", "conflist"]).ok());
    // Parsers are asked for values that they warn of.
    assert_eq!(tool.run(&["generate", "schema", "firewall"]).stderr, "");
}

#[test]
fn an_unknown_schema_is_an_error_that_lists_the_known_ones() {
    let shown = Tool::new().run(&["generate", "schema", "brigde"]).shown();
    let (before, known) = shown.split_once("Schemas are ").unwrap();
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot print schema brigde: there is none of this name
          Did you mean bridge? "#]]
    .assert_eq(before);
    assert!(known.trim().split(", ").any(|name| name == "bridge"), "{known}");
}
