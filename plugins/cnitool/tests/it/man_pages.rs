//! Man pages.

use crate::fixture::Tool;
use crate::metrics::run;
use serde_json::Value;
use std::path::PathBuf;

#[test]
fn each_verb_has_a_man_page_with_its_options_and_examples() {
    let tool = Tool::new();
    let dir = tool.path("man");
    let write = || tool.run(&["generate", "man", dir.to_str().unwrap()]);
    assert_eq!(write().code, 1, "there is no such folder");
    assert!(!dir.exists());
    let elsewhere = tool.write("elsewhere", "another's");
    std::fs::create_dir_all(dir.join("man1")).unwrap();
    std::os::unix::fs::symlink(&elsewhere, dir.join("man1/cnitool.1")).unwrap();
    write().ok();
    assert_eq!(tool.read("elsewhere"), "another's");
    for (page, words) in [("cnitool", ["doctor", "cnitool add pods"]), ("cnitool-gc", ["keep", "cnitool gc pods"])] {
        let text = tool.read(&format!("man/man1/{page}.1"));
        for section in ["EXAMPLES", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES"] {
            assert_eq!(text.matches(&format!(".SH {section}\n")).count(), 1, "{section}: {text}");
        }
        // Without a date the next word would be the date.
        assert!(text.contains(&format!(".TH {page} 1 \"\" \"cni-plugins 1.9.1")), "{text}");
        let examples = text.split_once(".SH EXAMPLES\n").unwrap().1.split_once(".SH").unwrap().0;
        assert!(!examples.contains("Exit codes"), "{examples}");
        assert!(text.contains(".SH OPTIONS") && words.iter().all(|word| text.contains(word)), "{text}");
    }
    let pages = tool.files("man/man1");
    assert!(pages.contains(&"cnitool-ipam-list.1".to_owned()) && !pages.contains(&"cnitool-mark.1".to_owned()));
}

/// The keys of a schema, as its page names them.
fn keys(before: &str, schema: &Value) -> Vec<String> {
    let properties = schema["properties"].as_object().into_iter().flatten();
    let key = |(name, property): (&String, &Value)| {
        let (mut below, mut path) = (property, format!("{before}{name}"));
        let own = path.clone();
        while below["items"].is_object() {
            below = &below["items"];
            path += "[]";
        }
        [vec![own], keys(&format!("{path}."), below)].concat()
    };
    properties.flat_map(key).collect()
}

#[test]
fn each_plugin_and_the_files_of_networks_have_a_man_page_with_each_key() {
    let tool = Tool::new();
    let dir = tool.path("man");
    std::fs::create_dir(&dir).unwrap();
    tool.run(&["generate", "man", dir.to_str().unwrap()]).ok();
    let pages = cnitool::keys::ALL.iter().map(|plugin| (format!("man8/cni-{}.8", plugin.name), plugin.name));
    for (page, schema) in pages.chain([("man5/cni-conflist.5".to_owned(), "conflist")]) {
        let text = tool.read(&format!("man/{page}"));
        let schema: Value = serde_json::from_str(&tool.run(&["generate", "schema", schema]).ok()).unwrap();
        for key in keys("", &schema) {
            assert!(text.contains(&format!("\\fB{}\\fR", key.replace('-', "\\-"))), "{page}: {key}: {text}");
        }
        assert!(text.contains(" \"\" \"cni-plugins 1.9.1"), "{page}: {text}");
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "\"SEE ALSO\""] {
            assert_eq!(text.matches(&format!(".SH {section}\n")).count(), 1, "{page}: {section}");
        }
        let example = text.split_once(".SH EXAMPLES\n").unwrap().1.split_once(".RS 2\n").unwrap().1;
        let example = example.split_once("\n.RE\n").unwrap().0.replace("\\-", "-");
        let kind = if example.contains("\"plugins\"") { "conflist" } else { "conf" };
        let file = tool.write(&format!("example.{kind}"), &example);
        let valid = tool.run(&["validate", "--offline", file.to_str().unwrap()]);
        assert_eq!(valid.code, 0, "{page}: {}: {example}", valid.stderr);
        for left in ["`", "](", "**"] {
            assert!(!text.contains(left), "{page} has Markdown: {left}");
        }
    }
}

/// Every page, by the programs that people read it with.
#[test]
fn the_readers_of_man_pages_have_no_complaint() {
    let tool = Tool::new();
    let dir = tool.path("man");
    std::fs::create_dir(&dir).unwrap();
    tool.run(&["generate", "man", dir.to_str().unwrap()]).ok();
    for section in ["man1", "man5", "man8"] {
        let pages: Vec<_> =
            tool.files(&format!("man/{section}")).iter().map(|page| dir.join(section).join(page)).collect();
        assert!(!pages.is_empty(), "{section}");
        let words = |options: &[&str]| options.iter().map(PathBuf::from).chain(pages.clone()).collect::<Vec<_>>();
        let run = |program, options: &[&str]| {
            let words = words(options);
            run(program, &words.iter().map(PathBuf::as_path).collect::<Vec<_>>())
        };
        if let Some(said) = run("groff", &["-k", "-man", "-Tutf8", "-ww", "-z"]) {
            assert_eq!(said, "", "{section}");
        }
        run("mandoc", &["-T", "lint", "-W", "error"]);
    }
}
