//! Examples at the end of each verb's `--help` and man page, and the pages themselves.

use crate::args;
use anyhow::Context;
use clap::Command;
use clap::builder::StyledStr;
use std::path::Path;

/// Of the whole program, and of each verb: what it does, and the command line.
#[rustfmt::skip]
const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    ("", &[
        ("The network pods for a namespace of `ip netns`, and away again", "cnitool add pods /run/netns/c1"),
        ("", "cnitool del pods /run/netns/c1"),
        ("Is everything right?", "cnitool validate"),
        ("", "cnitool doctor"),
    ]),
    ("add", &[
        ("A second interface, with a given address", "cnitool add pods /run/netns/c1 -i eth1 --args 'IgnoreUnknown=1;IP=10.1.0.7'"),
        ("A host port", "cnitool add pods /run/netns/c1 --cap-args '{\"portMappings\":[{\"hostPort\":8080,\"containerPort\":80,\"protocol\":\"tcp\"}]}'"),
        ("A network that is in no folder yet", "cnitool add ./new.conflist /run/netns/c1"),
    ]),
    ("plan", &[
        ("Before it happens", "cnitool plan pods /run/netns/c1"),
        ("With a host port", "cnitool plan pods /run/netns/c1 --cap-args '{\"portMappings\":[{\"hostPort\":8080,\"containerPort\":80,\"protocol\":\"tcp\"}]}'"),
    ]),
    ("check", &[("", "cnitool check pods /run/netns/c1")]),
    ("del", &[
        ("", "cnitool del pods /run/netns/c1"),
        ("The namespace is gone, and was another container's", "cnitool del pods /run/netns/c1 --container-id 4f5e6d7c"),
    ]),
    ("forget", &[("", "cnitool forget pods /run/netns/c1 --container-id 4f5e6d7c")]),
    ("repair", &[
        ("What the node has lost, after a reload of the firewall", "cnitool repair --dry-run"),
        ("", "cnitool repair pods"),
    ]),
    ("gc", &[
        ("What would go, and what stays", "cnitool gc pods --dry-run"),
        ("Keep two containers, and remove all others of the cache", "cnitool gc pods --keep 4f5e6d7c --keep 7c8b9a0d/eth1"),
    ]),
    ("status", &[("", "cnitool status pods")]),
    ("version", &[("", "cnitool version bridge host-local")]),
    ("validate", &[
        ("All files of the folder", "cnitool validate"),
        ("One file, on a machine without the plugins", "cnitool validate --offline --strict ./new.conflist"),
    ]),
    ("doctor", &[("", "cnitool doctor"), ("Remove what is left over", "cnitool doctor --fix")]),
    ("log", &[("", "cnitool log"), ("What took long for one container", "cnitool log 4f5e6d7c --slowest -n 5")]),
    ("metrics", &[
        ("For node_exporter, from a timer", "cnitool metrics --output /var/lib/prometheus/node-exporter/cni.prom"),
        ("For Prometheus on this node", "cnitool metrics --listen 127.0.0.1:9990"),
    ]),
    ("show", &[
        ("One network of the node", "cnitool show pods"),
        ("What changes, as it changes", "cnitool show --watch"),
        ("A page for a ticket, which needs no network", "cnitool show --format html"),
    ]),
    ("ipam", &[
        ("How full are the ranges?", "cnitool ipam free"),
        ("Hold an address for no container", "cnitool ipam reserve pods 10.1.0.7"),
    ]),
    ("attachments", &[("For programs", "cnitool attachments pods --json")]),
    ("install", &[
        ("", "cnitool install --bin-dir /opt/cni/bin"),
        ("Two plugins, in place of other executables of their names", "cnitool install --bin-dir /opt/cni/bin --plugin bridge --plugin host-local --replace-foreign"),
    ]),
    ("schema", &[("For an editor", "cnitool schema conflist"), ("", "cnitool schema bridge")]),
    ("completions", &[("For bash, in ~/.bashrc: source <(cnitool completions bash)", "cnitool completions bash")]),
    ("man", &[("", "cnitool man /usr/local/share/man/man1")]),
];

/// The command with examples in its help.
pub(crate) fn with_examples(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (verb, lines)| match *verb {
        "" => add(command, lines),
        verb => command.mut_subcommand(verb, |verb| add(verb, lines)),
    })
}

fn add(command: Command, lines: &[(&str, &str)]) -> Command {
    let before = command.get_after_help().map(StyledStr::to_string);
    let line = |(what, line): &(&str, &str)| match *what {
        "" => format!("  {line}\n"),
        what => format!("  # {what}\n  {line}\n"),
    };
    let examples = format!("Examples:\n{}", lines.iter().map(line).collect::<String>());
    command.after_help(before.into_iter().chain([examples.trim_end().to_owned()]).collect::<Vec<_>>().join("\n\n"))
}

/// Writes a man page of the program and of each verb into a folder.
pub(crate) fn write_pages(dir: &Path) -> anyhow::Result<()> {
    let made = || -> std::io::Result<()> {
        // A page in the place of a link, not in what that leads to.
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_page = name.to_str().is_some_and(|name| name.starts_with("cnitool") && name.ends_with(".1"));
            if is_page && entry.file_type()?.is_symlink() {
                std::fs::remove_file(entry.path())?;
            }
        }
        clap_mangen::generate_to(args::grammar(), dir)
    };
    made().with_context(|| format!("cannot write man pages into {}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn examples_are_command_lines() {
        for (verb, lines) in EXAMPLES {
            for (_, line) in *lines {
                let words: Vec<OsString> = line.split(' ').map(|word| word.trim_matches('\'').into()).collect();
                assert!(args::parse(&words).is_ok(), "{line}");
                assert!(verb.is_empty() || line.starts_with(&format!("cnitool {verb}")), "{line}");
            }
        }
    }
}
