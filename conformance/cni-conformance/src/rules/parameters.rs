//! SPEC 2, Parameters: what a plugin reads from its environment.

use super::attached::{Attached, lay_network, refused, skip};
use super::cases::{newest, since};
use crate::bench::Bench;
use crate::finding::{Finding, Stop};
use crate::profile::Role;
use crate::rule::{Proof, Rule, Source};
use serde_json::Value;
use std::os::unix::fs::symlink;
use testns::{Attachment, Namespace, Verb};

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "parameters.required-of-add",
        source: Source::Relied("skel, which names what is missing"),
        sentence: "ADD without a required variable is an error and changes nothing.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[
            newest("container-id", |bench| add_needs(bench, "CNI_CONTAINERID")),
            newest("netns", |bench| add_needs(bench, "CNI_NETNS")),
            newest("ifname", |bench| add_needs(bench, "CNI_IFNAME")),
        ]),
    },
    Rule {
        id: "parameters.required-of-del",
        source: Source::Relied("skel, which names what is missing"),
        sentence: "DEL without a required variable is an error and changes nothing.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[
            newest("container-id", |bench| later_needs(bench, Verb::Del, "CNI_CONTAINERID")),
            newest("ifname", |bench| later_needs(bench, Verb::Del, "CNI_IFNAME")),
        ]),
    },
    Rule {
        id: "parameters.required-of-check",
        source: Source::Relied("skel, which names what is missing"),
        sentence: "CHECK without a required variable is an error.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[
            since(SINCE, "container-id", |bench| later_needs(bench, Verb::Check, "CNI_CONTAINERID")),
            since(SINCE, "netns", |bench| later_needs(bench, Verb::Check, "CNI_NETNS")),
            since(SINCE, "ifname", |bench| later_needs(bench, Verb::Check, "CNI_IFNAME")),
        ]),
    },
    Rule {
        id: "parameters.required-of-gc",
        source: Source::Relied("skel, which names what is missing"),
        sentence: "GC without CNI_PATH, by which it finds delegates, is an error.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[since("1.1.0", "", gc_needs_a_path)]),
    },
    Rule {
        id: "parameters.path-is-optional",
        source: Source::Spec(&["add/optional"]),
        sentence: "CNI_PATH may be missing on ADD and DEL of a plugin that delegates to none.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[newest("", needs_no_path)]),
    },
    Rule {
        id: "parameters.unknown-command-is-an-error",
        source: Source::Relied("libcni, which so knows plugins older than VERSION"),
        sentence: "CNI_COMMAND is one of the specification's words; any other is an error and changes nothing.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[
            newest("no-word", |bench| refuses_command(bench, "REPAIR")),
            newest("lower-case", |bench| refuses_command(bench, "add")),
        ]),
    },
    Rule {
        id: "parameters.config-is-one-json-object",
        source: Source::Spec(&["overview/json"]),
        sentence: "The config is a JSON object on stdin; anything else is an error and changes nothing.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[
            newest("nothing", |bench| refuses_stdin(bench, |_| String::new())),
            newest("half", |bench| refuses_stdin(bench, |config| config[..config.len() / 2].to_owned())),
            newest("no-json", |bench| refuses_stdin(bench, |_| "name = \"conformance\"\n".to_owned())),
            newest("array", |bench| refuses_stdin(bench, |config| format!("[{config}]"))),
        ]),
    },
    Rule {
        id: "parameters.container-id-is-a-name",
        source: Source::Relied("libcni and skel, which build paths of it"),
        sentence: "A container ID that does not start with a letter or digit, or could be a path, is refused.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[
            newest("path", |bench| refuses_id(bench, "../../outside")),
            newest("dots", |bench| refuses_id(bench, "..")),
            newest("hyphen", |bench| refuses_id(bench, "-pod")),
            newest("white-space", |bench| refuses_id(bench, "two words")),
            newest("line-break", |bench| refuses_id(bench, "pod\neth0")),
        ]),
    },
    Rule {
        id: "parameters.every-container-id-works",
        source: Source::Relied("runtimes, each of which makes IDs of its own within the rules"),
        sentence: "A container ID starts with a letter or digit; then letters, digits, underscores, dots and hyphens follow.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[
            newest("one-letter", |bench| takes_id(bench, "c")),
            newest("all-kinds", |bench| takes_id(bench, "9.Pod_x--y.")),
            newest("runtimes", |bench| takes_id(bench, DIGEST)),
        ]),
    },
    Rule {
        id: "parameters.ifname-is-used-or-refused",
        source: Source::Spec(&["parameters/ifname"]),
        sentence: "The interface is called CNI_IFNAME; a plugin that cannot use the name returns an error.",
        roles: &[Role::Interface],
        proof: Proof::Cases(&[
            newest("longest", |bench| uses_ifname(bench, "abcdefghijklmno")),
            newest("dot", |bench| uses_ifname(bench, "eth0.100")),
            newest("signs", |bench| uses_ifname(bench, "a_b-c@d%e")),
            newest("digits", |bench| uses_ifname(bench, "0")),
        ]),
    },
    Rule {
        id: "parameters.impossible-ifname-is-an-error",
        source: Source::Spec(&["parameters/ifname"]),
        sentence: "A name that the kernel gives no interface is an error.",
        roles: &[Role::Interface],
        proof: Proof::Cases(&[
            newest("too-long", |bench| refuses_ifname(bench, "abcdefghijklmnop")),
            newest("slash", |bench| refuses_ifname(bench, "a/b")),
            newest("colon", |bench| refuses_ifname(bench, "a:b")),
            newest("white-space", |bench| refuses_ifname(bench, "a b")),
            newest("dot", |bench| refuses_ifname(bench, ".")),
            newest("dots", |bench| refuses_ifname(bench, "..")),
        ]),
    },
    Rule {
        id: "parameters.netns-is-any-path",
        source: Source::Spec(&["parameters/netns"]),
        sentence: "CNI_NETNS is a path to the namespace: a bind mount, a link to one, or a file of /proc.",
        roles: &[Role::Interface],
        proof: Proof::Cases(&[newest("proc", takes_a_netns_of_proc), newest("symlink", takes_a_link_to_a_netns)]),
    },
    Rule {
        id: "parameters.args-are-pairs",
        source: Source::Spec(&["parameters/args"]),
        sentence: "CNI_ARGS are pairs with semicolons between them, for all plugins of a chain: others' are no error.",
        roles: Role::PLUGINS,
        proof: Proof::Cases(&[
            newest("one", |bench| takes_args(bench, "IgnoreUnknown=1")),
            newest("of-others", |bench| takes_args(bench, "IgnoreUnknown=1;FOO=BAR;ABC=123")),
            newest("empty", |bench| takes_args(bench, "")),
        ]),
    },
    Rule {
        id: "parameters.runs-in-the-runtimes-namespace",
        source: Source::Spec(&["overview/domain"]),
        sentence: "A plugin runs in the runtime's networking domain.",
        roles: Role::PLUGINS,
        proof: Proof::Untestable("it binds runtimes, as which the kit keeps to it in every case"),
    },
];

/// The first version with CHECK.
const SINCE: &str = "0.4.0";

/// An ID as containerd and CRI-O make them: a SHA-256 in hex.
const DIGEST: &str = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d";

fn add_needs(bench: &Bench, variable: &str) -> Result<(), Stop> {
    lay_network(bench)?;
    let pod = bench.pod();
    refused(bench, &bench.call(Verb::Add, &pod).without(variable))?;
    refused(bench, &bench.call(Verb::Add, &pod).variable(variable, "")).map(drop)
}

fn later_needs(bench: &Bench, verb: Verb, variable: &str) -> Result<(), Stop> {
    let attached = Attached::add(bench)?;
    let call = bench.call(verb, &attached.attachment).prev_result(&attached.result);
    refused(bench, &call.without(variable)).map(drop)
}

fn needs_no_path(bench: &Bench) -> Result<(), Stop> {
    if bench.profile.role != Role::Ipam && bench.profile.delegate_of(&mut bench.config()).is_some() {
        return Err(skip("it delegates to an IPAM plugin, which it has to find"));
    }
    let pod = bench.pod();
    let result = bench.make(&bench.call(Verb::Add, &pod).without("CNI_PATH"))?.succeeds()?;
    let del = bench.call(Verb::Del, &pod).prev_result(&result).without("CNI_PATH");
    bench.make(&del)?.succeeds().map(drop)
}

fn gc_needs_a_path(bench: &Bench) -> Result<(), Stop> {
    let calls = bench.gc_calls(&[]).into_iter().map(|call| call.without("CNI_PATH"));
    calls.map(|call| bench.make(&call)).try_for_each(|answer| answer?.fails().map(drop))
}

fn refuses_command(bench: &Bench, command: &str) -> Result<(), Stop> {
    let pod = bench.pod();
    refused(bench, &bench.call(Verb::Add, &pod).variable("CNI_COMMAND", command)).map(drop)
}

fn refuses_stdin(bench: &Bench, spoil: fn(&str) -> String) -> Result<(), Stop> {
    let attachment = bench.pod().attachment();
    let config = bench.config_for(Verb::Add, &attachment).to_string();
    refused(bench, &bench.call_with(Verb::Add, spoil(&config), &attachment)).map(drop)
}

/// ADD with another ID than that of the pod.
fn refuses_id(bench: &Bench, id: &str) -> Result<(), Stop> {
    let pod = bench.pod();
    refused(bench, &bench.call(Verb::Add, &pod).variable("CNI_CONTAINERID", id)).map(drop)
}

fn takes_id(bench: &Bench, id: &str) -> Result<(), Stop> {
    Attached::add_to(bench, bench.pod_named(id))?.dels()
}

fn uses_ifname(bench: &Bench, ifname: &str) -> Result<(), Stop> {
    let pod = bench.pod();
    let before: Vec<_> = pod.namespace().links().into_iter().map(|link| link.name).collect();
    let answer = bench.make(&bench.call(Verb::Add, pod.attachment_as(ifname)))?;
    if !answer.is_success() {
        return answer.refuses();
    }
    let after = pod.namespace().links().into_iter().map(|link| link.name);
    let made: Vec<_> = after.filter(|name| !before.contains(name)).collect();
    match made.iter().any(|name| name == ifname) {
        true => Ok(()),
        false if made.is_empty() => Err(skip("its ADD makes no interface in the container")),
        false => Err(Finding::new(format!("an interface {ifname}, or an error"), format!("it made {made:?}")).into()),
    }
}

fn refuses_ifname(bench: &Bench, ifname: &str) -> Result<(), Stop> {
    bench.make(&bench.call(Verb::Add, bench.pod().attachment_as(ifname)))?.refuses()
}

/// ADD and DEL with another path to the namespace of a new container.
fn takes_netns(bench: &Bench, attachment: &Attachment) -> Result<(), Stop> {
    let result = bench.add(attachment)?;
    bench.del(attachment, &result)
}

/// The path of a thread of the kit that is in the container, as it would be that of a container's process.
fn takes_a_netns_of_proc(bench: &Bench) -> Result<(), Stop> {
    let pod = bench.pod();
    let host = bench.node.host();
    pod.namespace().enter(|| {
        let netns = Namespace::of_this_thread().path().display().to_string();
        let attachment = Attachment { netns, ..pod.attachment() };
        host.enter(|| takes_netns(bench, &attachment))
    })
}

fn takes_a_link_to_a_netns(bench: &Bench) -> Result<(), Stop> {
    let attachment = bench.pod().attachment();
    let link = bench.node.work_dir().join("namespace");
    symlink(&attachment.netns, &link).unwrap_or_else(|error| panic!("cannot create {}: {error}", link.display()));
    takes_netns(bench, &Attachment { netns: link.display().to_string(), ..attachment })
}

fn takes_args(bench: &Bench, args: &str) -> Result<(), Stop> {
    let pod = bench.pod();
    let result: Value = bench.make(&bench.call(Verb::Add, &pod).args(args))?.succeeds()?;
    bench.make(&bench.call(Verb::Del, &pod).prev_result(&result).args(args))?.succeeds().map(drop)
}
