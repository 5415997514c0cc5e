//! Completion, as bash asks for it; man pages.

use crate::tool::{NETNS, Tool};
use std::path::Path;

/// Sources the script, and completes the last word.
const COMPLETE: &str = r#"
source <(cnitool completions bash)
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
    assert_eq!(complete(&tool, &["comp"]), ["completions"]);
    assert_eq!(complete(&tool, &["add", "n"]), ["net"]);
    assert_eq!(complete(&tool, &["version", "g"]), ["good"]);
    assert_eq!(complete(&tool, &["schema", "ho"]), ["host-device", "host-local"]);
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
    assert_eq!(after(&["gc", "net", "--keep", "c"]), ["c1/eth0"]);
    assert_eq!(after(&["del", "net", "/proc/self/ns/n"]), [NETNS]);
}

#[test]
fn each_verb_has_a_man_page_with_its_options_and_examples() {
    let tool = Tool::new();
    let dir = tool.path("man1");
    let write = || tool.run(&["man", dir.to_str().unwrap()]);
    assert_eq!(write().code, 1, "there is no such folder");
    assert!(!dir.exists());
    std::fs::create_dir(&dir).unwrap();
    let elsewhere = tool.write("elsewhere", "another's");
    std::os::unix::fs::symlink(&elsewhere, dir.join("cnitool.1")).unwrap();
    write().ok();
    assert_eq!(tool.read("elsewhere"), "another's");
    for (page, words) in [("cnitool", ["doctor", "cnitool add pods"]), ("cnitool-gc", ["keep", "cnitool gc pods"])] {
        let text = tool.read(&format!("man1/{page}.1"));
        for section in ["EXAMPLES", "\"EXIT STATUS\"", "ENVIRONMENT", "FILES"] {
            assert_eq!(text.matches(&format!(".SH {section}\n")).count(), 1, "{section}: {text}");
        }
        assert!(text.contains(".SH OPTIONS") && words.iter().all(|word| text.contains(word)), "{text}");
    }
    let pages = tool.files("man1");
    assert!(pages.contains(&"cnitool-ipam-list.1".to_owned()) && !pages.contains(&"cnitool-mark.1".to_owned()));
}
