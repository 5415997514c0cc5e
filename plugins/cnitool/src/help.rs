//! Examples at the end of each verb's `--help` and man page.

use clap::Command;
use clap::builder::StyledStr;

/// The help of the whole program, and of each verb: what it does, and the command line.
#[rustfmt::skip]
const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    ("", &[
        ("", "cnitool add pods /run/netns/c1"),
    ]),
    ("add", &[
        ("A second interface, with a given address", "cnitool add pods /run/netns/c1 -i eth1 --args 'IgnoreUnknown=1;IP=10.1.0.7'"),
        ("A host port", "cnitool add pods /run/netns/c1 --cap-args \\\n'{\"portMappings\":[{\"hostPort\":8080,\"containerPort\":80,\"protocol\":\"tcp\"}]}'"),
    ]),
    ("plan", &[
        ("Before it happens", "cnitool plan pods /run/netns/c1"),
        ("With a host port", "cnitool plan pods /run/netns/c1 --cap-args \\\n'{\"portMappings\":[{\"hostPort\":8080,\"containerPort\":80,\"protocol\":\"tcp\"}]}'"),
    ]),
    ("check", &[("", "cnitool check pods /run/netns/c1"), ("", "cnitool check shop/web-0")]),
    ("del", &[
        ("", "cnitool del pods /run/netns/c1"),
        ("All that a pod has", "cnitool del shop/web-0"),
        ("Only its entry in the cache, as its DEL fails for ever", "cnitool del pods /run/netns/c1 --container-id 4f5e6d7c --forget"),
        ("The namespace is gone, and was another container's", "cnitool del pods /run/netns/c1 --container-id 4f5e6d7c"),
    ]),
    ("repair", &[
        ("What the node has lost, after a reload of the firewall", "cnitool repair --dry-run"),
        ("", "cnitool repair shop/web-0"),
    ]),
    ("gc", &[
        ("What would go, of all networks", "cnitool gc --dry-run"),
        ("Of the cache, all but two", "cnitool gc pods --keep shop/web-0 --keep 7c8b9a0d/eth1 --dry-run"),
    ]),
    ("status", &[("", "cnitool status pods")]),
    ("prepare", &[("Before a scheduler looks for the bridge", "cnitool prepare pods --check")]),
    ("version", &[("", "cnitool version bridge host-local")]),
    ("validate", &[
        ("All files of the folder", "cnitool validate"),
        ("One file, on a machine without the plugins", "cnitool validate --offline --strict ./new.conflist"),
    ]),
    ("doctor", &[("", "cnitool doctor"), ("Remove what is left over", "cnitool doctor --fix")]),
    ("log", &[("", "cnitool log"), ("Calls, as they end", "cnitool log -f --since 10m"), ("What took long for one pod", "cnitool log shop/web-0 --slowest -n 5")]),
    ("metrics", &[
        ("For node_exporter, from a timer", "cnitool metrics --output /var/lib/prometheus/node-exporter/cni.prom"),
        ("For Prometheus on this node", "cnitool metrics --listen 127.0.0.1:9990"),
    ]),
    ("explain", &[
        ("A pod, whose port does not answer", "cnitool explain shop/web-0"),
        ("Who has this address?", "cnitool explain 10.1.0.7"),
    ]),
    ("show", &[
        ("One network of the node", "cnitool show pods"),
        ("What changes, as it changes", "cnitool show --watch"),
        ("A page for a ticket, which needs no network", "cnitool show --format html"),
    ]),
    ("ipam", &[
        ("How full are the ranges?", "cnitool ipam free"),
        ("Reserve an address for no container", "cnitool ipam reserve pods 10.1.0.9"),
        ("Give it back", "cnitool ipam release pods 10.1.0.9"),
    ]),
    ("cluster", &[
        ("Whose are the addresses?", "cnitool cluster show lan"),
        ("Is an address held twice?", "cnitool cluster check lan"),
    ]),
    ("cluster forget", &[("The node is lost, and its machine is off", "cnitool cluster forget lan node7 --fenced")]),
    ("list", &[("", "cnitool list pods"), ("For programs", "cnitool list shop/web-0 --json")]),
    ("install", &[
        ("", "cnitool install --bin-dir /opt/cni/bin"),
        ("Where k3s looks; its own links are kept in .replaced", "cnitool install --platform k3s --replace-foreign"),
        ("Two plugins, in place of other executables of their names", "cnitool install --bin-dir /opt/cni/bin --plugin bridge \\\n  --plugin host-local --replace-foreign"),
    ]),
    ("verify", &[
        ("What this node's package has installed", "cnitool verify"),
        ("By the manifest of a release", "cnitool verify /usr/libexec/cni --manifest manifest-linux-amd64-v0.9.0.json"),
    ]),
    ("generate", &[
        ("For an editor", "cnitool generate schema conflist"),
        ("For bash, in ~/.bashrc: source <(cnitool generate completions bash)", "cnitool generate completions bash"),
        ("", "cnitool generate man /usr/local/share/man"),
    ]),
];

/// The verbs as the help of the whole program shows them.
const GROUPS: &[(&str, &[&str])] = &[
    ("A container's network", &["add", "check", "del", "plan"]),
    ("Look", &["show", "list", "explain", "doctor", "ipam", "log", "metrics"]),
    ("Mend", &["repair", "gc", "cluster"]),
    ("Configurations and plugins", &["validate", "status", "prepare", "version", "install", "verify"]),
    ("For editors, shells and readers", &["generate", "help"]),
];

/// The common options that a verb uses; the others are taken from scripts, and not shown.
fn used_options(verb: &str) -> &'static [&'static str] {
    match verb {
        "add" | "plan" | "check" | "del" | "prepare" => &COMMON,
        "repair" => &["conf_dir", "cni_path", "cache_dir", "container_id", "timeout", "json", "verbose"],
        "gc" => &["conf_dir", "cni_path", "cache_dir", "ifname", "timeout", "json", "verbose"],
        "doctor" => &["conf_dir", "cni_path", "cache_dir", "timeout", "json", "verbose"],
        "status" => &["conf_dir", "cni_path", "timeout", "json", "verbose"],
        "version" => &["cni_path", "timeout", "json", "verbose"],
        "validate" => &["conf_dir", "cni_path", "timeout", "json"],
        "show" | "explain" => &["conf_dir", "cache_dir", "json"],
        "list" => &["conf_dir", "cache_dir", "container_id", "json"],
        "log" => &["cache_dir", "json"],
        "metrics" => &["conf_dir", "cni_path", "cache_dir", "timeout"],
        "ipam" => &["conf_dir", "cache_dir", "timeout", "json"],
        "cluster" => &["conf_dir", "cni_path", "json"],
        "install" | "verify" => &["json"],
        _ => &[],
    }
}

/// The meaning of a common option to a verb that names no single attachment.
fn other_words(verb: &str, option: &str) -> Option<&'static str> {
    match (verb, option) {
        ("repair" | "list", "container_id") => Some("Only attachments of this container [default: all]"),
        ("gc", "ifname") => Some("The interface that --keep means where it names none [default: eth0]"),
        _ => None,
    }
}

const COMMON: [&str; 10] =
    ["conf_dir", "cni_path", "cache_dir", "ifname", "container_id", "args", "cap_args", "timeout", "json", "verbose"];

/// The command whose verbs show only the common options that they use.
pub(crate) fn with_used_options(mut command: Command) -> Command {
    // Gives each verb its copies of the common options.
    command.build();
    let verbs: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    verbs.iter().fold(command, |command, name| command.mut_subcommand(name, |verb| only(verb, used_options(name))))
}

fn hidden(command: Command, unused: &[&str]) -> Command {
    command.mut_args(|arg| if unused.contains(&arg.get_id().as_str()) { arg.hide(true) } else { arg })
}

fn only(verb: Command, used: &[&str]) -> Command {
    let unused: Vec<&str> = COMMON.into_iter().filter(|option| !used.contains(option)).collect();
    let name = verb.get_name().to_owned();
    let verb = hidden(verb, &unused).mut_args(|arg| match other_words(&name, arg.get_id().as_str()) {
        Some(words) => arg.help(words),
        None => arg,
    });
    let parts: Vec<String> = verb.get_subcommands().map(|part| part.get_name().to_owned()).collect();
    parts.iter().fold(verb, |verb, name| verb.mut_subcommand(name, |part| only(part, used)))
}

/// The command with its verbs in groups, for its help: clap has one list.
pub(crate) fn in_groups(command: Command) -> Command {
    let about = |name: &str| {
        let verb = command.find_subcommand(name).and_then(Command::get_about).map(StyledStr::to_string);
        format!("  {name:<12} {}\n", verb.unwrap_or_default())
    };
    let is_of_node = |name: &&&str| **name != "cluster" || has_cluster();
    let group = |(title, names): &(&str, &[&str])| {
        format!("{title}:\n{}", names.iter().filter(is_of_node).map(|name| about(name)).collect::<String>())
    };
    let groups: String = GROUPS.iter().map(group).collect();
    let verbs: Vec<String> = command.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
    // Each verb's help has the common options that it uses.
    let command = hidden(command, &COMMON)
        .override_usage("cnitool <VERB> [OPTIONS]")
        .before_help(groups.trim_end().to_owned())
        .help_template("{about-with-newline}\n{usage-heading} {usage}\n\n{before-help}{all-args}{after-help}");
    verbs.iter().fold(command, |command, name| command.mut_subcommand(name, |verb| verb.hide(true)))
}

/// Whether the node has the executable that the verb `cluster` is about: beside this one, or where runtimes look.
fn has_cluster() -> bool {
    let own = std::env::current_exe().ok().and_then(|file| file.parent().map(std::path::Path::to_owned));
    own.into_iter().chain([libcni::DEFAULT_PLUGIN_DIR.into()]).any(|dir| dir.join("cluster").is_file())
}

pub(crate) fn with_examples(command: Command) -> Command {
    EXAMPLES.iter().fold(command, |command, (verb, lines)| match verb.split_once(' ') {
        Some((verb, below)) => {
            command.mut_subcommand(verb, |verb| verb.mut_subcommand(below, |below| add(below, lines)))
        }
        None if verb.is_empty() => add(command, lines),
        None => command.mut_subcommand(verb, |verb| add(verb, lines)),
    })
}

fn add(command: Command, lines: &[(&str, &str)]) -> Command {
    let before = command.get_after_help().map(StyledStr::to_string);
    let line = |(what, line): &(&str, &str)| {
        let what = if what.is_empty() { String::new() } else { format!("  # {what}\n") };
        format!("{what}  {}\n", line.replace('\n', "\n  "))
    };
    let examples = format!("Examples:\n{}", lines.iter().map(line).collect::<String>());
    command.after_help(before.into_iter().chain([examples.trim_end().to_owned()]).collect::<Vec<_>>().join("\n\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use std::collections::BTreeSet;
    use std::ffi::OsString;

    #[test]
    fn the_help_has_each_verb_once() {
        let grammar = args::grammar();
        let visible = grammar.get_subcommands().filter(|verb| !verb.is_hide_set());
        let verbs: BTreeSet<&str> = visible.map(Command::get_name).collect();
        let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!((verbs.len(), verbs), (listed.len(), listed.into_iter().collect()));
    }

    /// A terminal of 80 columns and 40 rows.
    #[test]
    fn each_help_fits_a_screen() {
        let mut found = Vec::new();
        let verbs = ["", "ipam list", "ipam free", "ipam reserve", "ipam release", "cluster forget", "cluster import"];
        let verbs = verbs
            .into_iter()
            .chain(GROUPS.iter().flat_map(|(_, names)| *names).copied().filter(|name| *name != "help"));
        for verb in verbs {
            let words: Vec<OsString> =
                ["cnitool"].into_iter().chain(verb.split_whitespace()).chain(["--help"]).map(OsString::from).collect();
            let text = args::parse(&words).unwrap_err().to_string();
            let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
            found.push((verb, text.lines().count(), widest));
        }
        found.retain(|(_, lines, columns)| *lines > 40 || *columns > 80);
        assert!(found.is_empty(), "{found:?}");
    }

    /// A line that is cut off at the screen's end cannot be copied.
    #[test]
    fn examples_are_of_their_verb_and_fit_a_screen() {
        for (verb, lines) in EXAMPLES {
            for (what, line) in *lines {
                assert!(line.starts_with(format!("cnitool {verb}").trim_end()), "{line}");
                assert!(line.lines().chain([*what]).all(|line| line.chars().count() <= 76), "{line}");
            }
        }
    }
}
