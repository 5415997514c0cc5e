//! Completion, as bash asks for it; man pages.

use crate::fixture::{NETNS, Tool};
use crate::monitoring_folder::run;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Sources the script, and completes the last word.
const COMPLETE: &str = r#"
source <(cnitool generate completions bash)
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_TYPE=9
_clap_complete_cnitool cnitool "${COMP_WORDS[COMP_CWORD]}"
printf '%s\n' "${COMPREPLY[@]}"
"#;

/// The words that may stand in place of the last one.
fn complete(tool: &Tool, words: &[&str]) -> Vec<String> {
    let mut bash = tool.on_path(Path::new("bash"));
    let program = Path::new(env!("CARGO_BIN_EXE_cnitool"));
    let path = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
    bash.args(["--norc", "-c", COMPLETE, "bash", "cnitool"]).args(words).env("PATH", path);
    let ended = tool.ended(&mut bash);
    assert_eq!((ended.code, &*ended.stderr), (0, ""));
    ended.stdout.lines().map(|word| word.trim_end().to_owned()).filter(|word| !word.is_empty()).collect()
}

#[test]
fn verbs_networks_and_plugins_are_completed() {
    let tool = Tool::new();
    assert_eq!(complete(&tool, &["gen"]), ["generate"]);
    assert_eq!(complete(&tool, &["add", "n"]), ["net"]);
    assert_eq!(complete(&tool, &["version", "g"]), ["good"]);
    assert_eq!(complete(&tool, &["generate", "schema", "ho"]), ["host-device", "host-local"]);
    tool.write("other/a.conflist", r#"{"cniVersion":"1.1.0","name":"far","plugins":[{"type":"good"}]}"#);
    let other = tool.path("other");
    let other = other.to_str().unwrap();
    assert_eq!(complete(&tool, &["--conf-dir", other, "add", "f"]), ["far"]);
    assert_eq!(complete(&tool, &[&format!("--conf-dir={other}"), "ipam", "free", "f"]), ["far"]);
    // The shell would run a command in the name of a file.
    tool.write("other/a$(touch b).conflist", "{}");
    let files = complete(&tool, &["add", &format!("{other}/")]);
    assert_eq!(files, ["$DIR/other/a.conflist"]);
}

#[test]
fn containers_and_attachments_are_completed() {
    let tool = Tool::new();
    let cache = tool.path("cache");
    let after = |words: &[&str]| complete(&tool, &[&["--cache-dir", cache.to_str().unwrap()], words].concat());
    assert!(after(&["del", "net", "/x", "--container-id", ""]).is_empty(), "no cache, no words and no error");
    tool.run(&["add", "net", NETNS, "--container-id", "c1"]).ok();
    assert_eq!(after(&["del", "net", "/x", "--container-id", ""]), ["c1"]);
    assert_eq!(after(&["gc", "net", "--keep", "c"]), ["c1", "c1/eth0"]);
    assert_eq!(after(&["del", "net", "/proc/self/ns/n"]), [NETNS]);
    tool.run(&["add", "net", NETNS, "--container-id", "x1", "--args", "K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0"])
        .ok();
    for words in
        [&["check"][..], &["del", "net"], &["repair"], &["explain"], &["list"], &["log"], &["gc", "net", "--keep"]]
    {
        assert_eq!(after(&[words, &["sh"]].concat()), ["shop/web-0"], "{words:?}");
    }
    assert_eq!(after(&["ipam", "release", "net", "x"]), ["x1"]);
}

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
        serde_json::from_str::<Value>(&example).unwrap_or_else(|error| panic!("{page}: {error}: {example}"));
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

#[test]
fn completions_are_scripts() {
    let tool = Tool::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = tool.run(&["generate", "completions", shell]).ok();
        assert!(script.contains("CNITOOL_COMPLETE") && script.contains("cnitool"), "{shell}");
    }
}
