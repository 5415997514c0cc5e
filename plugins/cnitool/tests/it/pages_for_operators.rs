//! The pages for operators: their configurations are valid, their folders those that `install --platform` knows, and each of their
//! command blocks says what runs it, or what it needs.

use crate::fixture::Tool;
use crate::install::with_release;
use std::path::{Path, PathBuf};

const PAGES: [&str; 4] =
    ["README.md", "plugins/packages/README.md", "plugins/packages/PLATFORMS.md", "plugins/packages/UPGRADE.md"];

/// The root of the source tree, if it is on this machine.
fn root() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    if !root.exists() {
        testns::skip("pages", "the source is not on this machine");
        return None;
    }
    Some(root)
}

/// The fenced blocks of a page: the line before each, its language, its text.
fn blocks(page: &str) -> Vec<(&str, &str, String)> {
    let lines: Vec<&str> = page.lines().collect();
    let fences: Vec<usize> = (0..lines.len()).filter(|index| lines[*index].starts_with("```")).collect();
    let block = |pair: &[usize]| {
        let (begin, end) = (pair[0], pair[1]);
        let before = begin.checked_sub(1).map_or("", |index| lines[index]);
        (before, lines[begin].trim_start_matches('`'), lines[begin + 1..end].join("\n"))
    };
    fences.chunks_exact(2).map(block).collect()
}

#[test]
fn every_configuration_is_valid() {
    let Some(root) = root() else { return };
    let tool = Tool::new();
    let mut count = 0;
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        for (_, _, conflist) in blocks(&text).into_iter().filter(|(_, language, _)| *language == "json") {
            let file = tool.write("page.conflist", &conflist);
            let ended = tool.run(&["validate", "--offline", "--strict", file.to_str().unwrap()]);
            assert_eq!(ended.code, 0, "{page}: {}", ended.stderr);
            count += 1;
        }
    }
    assert!(count >= 1, "{count} configurations");
}

#[test]
fn every_block_of_commands_says_what_runs_it_or_what_it_needs() {
    let Some(root) = root() else { return };
    let mut wrong = Vec::new();
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        for (before, _, commands) in
            blocks(&text).into_iter().filter(|(_, language, _)| !["json", "toml"].contains(language))
        {
            let mark = before.strip_prefix("<!-- ").and_then(|mark| mark.strip_suffix(" -->")).unwrap_or_default();
            let is_right = match mark.strip_prefix("run by ") {
                Some(file) => std::fs::read_to_string(root.join(file)).is_ok_and(|file| runs(&file, page, &commands)),
                None => mark.starts_with("needs "),
            };
            if !is_right {
                wrong.push(format!("{page}: above {commands:?} is {before:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "<!-- run by FILE --> or <!-- needs WHAT -->:\n{}", wrong.join("\n"));
}

/// Whether a script or a test reads the page, or has each command's program and verb.
fn runs(script: &str, page: &str, commands: &str) -> bool {
    let is_placeholder = |word: &&str| word.starts_with(|first: char| first.is_ascii_uppercase() || first == '-');
    let begins =
        |line: &str| line.split(' ').take(2).filter(|word| !is_placeholder(word)).collect::<Vec<_>>().join(" ");
    script.contains(&format!("page {page}\n"))
        || script.contains(&format!("../{page}"))
        || commands.lines().filter(|line| !line.is_empty()).all(|line| script.contains(&begins(line)))
}

/// Commands in the text and in tables.
#[test]
fn every_call_of_cnitool_is_one_that_it_accepts() {
    let Some(root) = root() else { return };
    let tool = Tool::new();
    let mut count = 0;
    for page in PAGES {
        let text = std::fs::read_to_string(root.join(page)).unwrap();
        let is_call = |words: &&str| words.starts_with("cnitool ") || words.starts_with("bin/cnitool ");
        for call in text.split('`').skip(1).step_by(2).filter(is_call) {
            // In the place of `$(…)` a shell puts words that depend on the node.
            let words = call.split(" $(").next().unwrap_or(call).split(' ').skip(1);
            let words = words.map(|word| if word == "NAME" { "kubeadm" } else { word });
            let ended = tool.run(&words.chain(["--help"]).collect::<Vec<_>>());
            assert_eq!(ended.code, 0, "{page}: {call}: {}", ended.stderr);
            count += 1;
        }
    }
    assert!(count > 15, "{count} calls");
}

/// What the page says about containerd is what `install` reads there.
#[test]
fn the_settings_of_containerd_name_the_packages_folder() {
    let Some(root) = root() else { return };
    let tool = with_release();
    let text = std::fs::read_to_string(root.join("plugins/packages/PLATFORMS.md")).unwrap();
    let (_, _, settings) = blocks(&text).into_iter().find(|(_, language, _)| *language == "toml").unwrap();
    tool.write("node/etc/containerd/config.toml", &settings);
    let mut command = tool.on_path(env!("CARGO_BIN_EXE_cnitool").as_ref());
    command.args(["install", "--platform", "containerd", "--root"]).arg(tool.path("node"));
    tool.ended(command.arg("--from").arg(tool.path("from/cni-plugins"))).ok();
    assert_eq!(tool.files("node/usr/libexec/cni"), ["bridge", "cnitool", "host-local"]);
}

#[test]
fn the_page_of_platforms_has_the_folders_that_install_knows() {
    let Some(root) = root() else { return };
    let tool = with_release();
    let text = std::fs::read_to_string(root.join("plugins/packages/PLATFORMS.md")).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .map(|line| line.split('|').map(|cell| cell.trim().trim_matches('`')).collect::<Vec<_>>())
        .filter(|cells| cells.len() == 4)
        .collect();
    let node = tool.path("node");
    let on_node = |path: &str| format!("{}{}", node.display(), path.replacen('~', "/home", 1));
    let platforms = rows.iter().flat_map(|cells| cells[0].split("`, `").map(move |platform| (platform, cells)));
    for (platform, cells) in platforms {
        let [_, plugins, networks, _] = cells[..] else { unreachable!() };
        let mut command = tool.on_path(env!("CARGO_BIN_EXE_cnitool").as_ref());
        command.args(["install", "--platform", platform, "--root"]).arg(&node).env("HOME", "/home");
        let output = command.arg("--from").arg(tool.path("from/cni-plugins")).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        for (what, path) in [("plugins", plugins), ("networks", networks)] {
            let line =
                said.lines().find(|line| line.starts_with(&format!("note: {platform}: {what} "))).unwrap_or(&said);
            assert!(line.contains(&format!("{what} {}:", on_node(path))), "{platform}: the page has {path}: {line}");
        }
    }
    let mut listed: Vec<&str> = rows.iter().flat_map(|cells| cells[0].split("`, `")).collect();
    listed.sort_unstable();
    let known = tool.run(&["install", "--platform", "?"]).stderr;
    let known =
        known.split_once("It is one of ").unwrap().1.split_once(".\n").unwrap().0.split(", ").collect::<Vec<_>>();
    assert_eq!(listed, known);
}
