//! SPEC 2, Parameters: what a plugin reads from its environment.

use super::attached::{Attached, lay_network, refused, skip};
use crate::finding::{Finding, Stop};
use crate::profile::Role;
use crate::rule::{Rule, newest, relied, since, spec};
use crate::testbed::Testbed;
use serde_json::Value;
use std::os::unix::fs::symlink;
use testns::{Attachment, Namespace, Verb};

pub(super) const RULES: &[Rule] = &[
    relied("parameters.required", "skel, which names what is missing", Role::PLUGINS)
        .says("A call without a variable that it requires is an error and changes nothing.")
        .by(&[
            newest("add-container-id", |testbed| add_needs(testbed, "CNI_CONTAINERID"))
                .does("ADD without CNI_CONTAINERID, and with an empty one; the node is compared with before."),
            newest("add-netns", |testbed| add_needs(testbed, "CNI_NETNS")).does("The same with CNI_NETNS."),
            newest("add-ifname", |testbed| add_needs(testbed, "CNI_IFNAME")).does("The same with CNI_IFNAME."),
            newest("del-container-id", |testbed| later_needs(testbed, Verb::Del, "CNI_CONTAINERID"))
                .does("DEL without CNI_CONTAINERID; the node is compared with before."),
            newest("del-ifname", |testbed| later_needs(testbed, Verb::Del, "CNI_IFNAME"))
                .does("The same with CNI_IFNAME."),
            since(SINCE, "check-container-id", |testbed| later_needs(testbed, Verb::Check, "CNI_CONTAINERID"))
                .does("CHECK without CNI_CONTAINERID."),
            since(SINCE, "check-netns", |testbed| later_needs(testbed, Verb::Check, "CNI_NETNS"))
                .does("CHECK without CNI_NETNS."),
            since(SINCE, "check-ifname", |testbed| later_needs(testbed, Verb::Check, "CNI_IFNAME"))
                .does("CHECK without CNI_IFNAME."),
            since("1.1.0", "gc-path", gc_needs_a_path)
                .does("GC without CNI_PATH, by which it finds delegates; it has to fail."),
        ]),
    spec("parameters.path-is-optional", &["add/optional"], Role::PLUGINS)
        .says("CNI_PATH may be missing on ADD and DEL of a plugin that delegates to none.")
        .by(&[newest("", needs_no_path).does("ADD and DEL without CNI_PATH.")]),
    relied(
        "parameters.unknown-command-is-an-error",
        "libcni, which so knows plugins older than VERSION",
        Role::PLUGINS,
    )
    .says("CNI_COMMAND is one of the specification's words; any other is an error and changes nothing.")
    .by(&[
        newest("no-word", |testbed| refuses_command(testbed, "REPAIR"))
            .does("A call with CNI_COMMAND=REPAIR; the node is compared with before."),
        newest("lower-case", |testbed| refuses_command(testbed, "add")).does("The same with CNI_COMMAND=add."),
    ]),
    spec("parameters.config-is-one-json-object", &["overview/json"], Role::PLUGINS)
        .says("The config is a JSON object on stdin; anything else is an error and changes nothing.")
        .by(&[
            newest("nothing", |testbed| refuses_stdin(testbed, |_| String::new()))
                .does("ADD with an empty stdin; the node is compared with before."),
            newest("half", |testbed| refuses_stdin(testbed, |config| config[..config.len() / 2].to_owned()))
                .does("The same with the first half of the config."),
            newest("no-json", |testbed| refuses_stdin(testbed, |_| "name = \"conformance\"\n".to_owned()))
                .does("The same with a line that is no JSON."),
            newest("array", |testbed| refuses_stdin(testbed, |config| format!("[{config}]")))
                .does("The same with the config in an array."),
        ]),
    relied("parameters.container-id-is-a-name", "libcni and skel, which build paths of it", Role::PLUGINS)
        .says("A container ID that does not start with a letter or digit, or could be a path, is refused.")
        .by(&[
            newest("path", |testbed| refuses_id(testbed, "../../outside"))
                .does("ADD with the ID ../../outside; the node is compared with before."),
            newest("dots", |testbed| refuses_id(testbed, "..")).does("The same with \"..\"."),
            newest("hyphen", |testbed| refuses_id(testbed, "-pod")).does("The same with -pod."),
            newest("white-space", |testbed| refuses_id(testbed, "two words")).does("The same with a space in it."),
            newest("line-break", |testbed| refuses_id(testbed, "pod\neth0")).does("The same with a line break in it."),
        ]),
    relied(
        "parameters.every-container-id-works",
        "runtimes, each of which makes IDs of its own within the rules",
        Role::PLUGINS,
    )
    .says(
        "A container ID starts with a letter or digit; then letters, digits, underscores, dots and hyphens \
              follow.",
    )
    .by(&[
        newest("one-letter", |testbed| takes_id(testbed, "c")).does("ADD and DEL with the ID c."),
        newest("all-kinds", |testbed| takes_id(testbed, "9.Pod_x--y.")).does("ADD and DEL with the ID 9.Pod_x--y."),
        newest("runtimes", |testbed| takes_id(testbed, DIGEST)).does("ADD and DEL with a SHA-256 in hex."),
    ]),
    spec("parameters.ifname-is-used-or-refused", &["parameters/ifname"], &[Role::Interface])
        .says("The interface is called CNI_IFNAME; a plugin that cannot use the name returns an error.")
        .by(&[
            newest("longest", |testbed| uses_ifname(testbed, "abcdefghijklmno"))
                .does("ADD with a name of 15 letters; if it succeeds, the link has to have it."),
            newest("dot", |testbed| uses_ifname(testbed, "eth0.100")).does("The same with eth0.100."),
            newest("signs", |testbed| uses_ifname(testbed, "a_b-c@d%e")).does("The same with a_b-c@d%e."),
            newest("digits", |testbed| uses_ifname(testbed, "0")).does("The same with 0."),
        ]),
    spec("parameters.impossible-ifname-is-an-error", &["parameters/ifname"], &[Role::Interface])
        .says("A name that the kernel gives no interface is an error.")
        .by(&[
            newest("too-long", |testbed| refuses_ifname(testbed, "abcdefghijklmnop"))
                .does("ADD with a name of 16 letters."),
            newest("slash", |testbed| refuses_ifname(testbed, "a/b")).does("ADD with a/b."),
            newest("colon", |testbed| refuses_ifname(testbed, "a:b")).does("ADD with a:b."),
            newest("white-space", |testbed| refuses_ifname(testbed, "a b")).does("ADD with a name that has a space."),
            newest("dot", |testbed| refuses_ifname(testbed, ".")).does("ADD with \".\"."),
            newest("dots", |testbed| refuses_ifname(testbed, "..")).does("ADD with \"..\"."),
        ]),
    spec("parameters.netns-is-any-path", &["parameters/netns"], &[Role::Interface])
        .says("CNI_NETNS is a path to the namespace: a bind mount, a link to one, or a file of /proc.")
        .by(&[
            newest("proc", takes_a_netns_of_proc).does("ADD and DEL with the path of a thread's namespace in /proc."),
            newest("symlink", takes_a_link_to_a_netns).does("ADD and DEL with a symbolic link to the namespace."),
        ]),
    spec("parameters.args-are-pairs", &["parameters/args"], Role::PLUGINS)
        .says("CNI_ARGS are pairs with semicolons between them, for all plugins of a chain: others' are no error.")
        .by(&[
            newest("one", |testbed| takes_args(testbed, "IgnoreUnknown=1"))
                .does("ADD and DEL with CNI_ARGS of one pair."),
            newest("of-others", |testbed| takes_args(testbed, "IgnoreUnknown=1;FOO=BAR;ABC=123"))
                .does("ADD and DEL with pairs that are for others, and IgnoreUnknown."),
            newest("empty", |testbed| takes_args(testbed, "")).does("ADD and DEL with empty CNI_ARGS."),
        ]),
];

/// The first version with CHECK.
const SINCE: &str = "0.4.0";

/// An ID as containerd and CRI-O make them: a SHA-256 in hex.
const DIGEST: &str = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d";

fn add_needs(testbed: &Testbed, variable: &str) -> Result<(), Stop> {
    lay_network(testbed)?;
    let pod = testbed.pod();
    refused(testbed, &testbed.call(Verb::Add, &pod).without(variable))?;
    refused(testbed, &testbed.call(Verb::Add, &pod).variable(variable, ""))
}

fn later_needs(testbed: &Testbed, verb: Verb, variable: &str) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    let call = testbed.call(verb, &attached.attachment).prev_result(&attached.result);
    refused(testbed, &call.without(variable))
}

fn needs_no_path(testbed: &Testbed) -> Result<(), Stop> {
    Stop::skip_if(
        testbed.profile.role != Role::Ipam && testbed.profile.delegate_of(&mut testbed.config()).is_some(),
        "it delegates to an IPAM plugin, which it has to find",
    )?;
    let pod = testbed.pod();
    let result = testbed.make(&testbed.call(Verb::Add, &pod).without("CNI_PATH"))?.succeeds()?;
    let del = testbed.call(Verb::Del, &pod).prev_result(&result).without("CNI_PATH");
    testbed.make(&del)?.succeeds().map(drop)
}

fn gc_needs_a_path(testbed: &Testbed) -> Result<(), Stop> {
    let calls = testbed.gc_calls(&[]).into_iter().map(|call| call.without("CNI_PATH"));
    calls.map(|call| testbed.make(&call)).try_for_each(|answer| answer?.fails().map(drop))
}

fn refuses_command(testbed: &Testbed, command: &str) -> Result<(), Stop> {
    let pod = testbed.pod();
    refused(testbed, &testbed.call(Verb::Add, &pod).variable("CNI_COMMAND", command))
}

fn refuses_stdin(testbed: &Testbed, spoil: fn(&str) -> String) -> Result<(), Stop> {
    let attachment = testbed.pod().attachment();
    let config = testbed.config_for(Verb::Add, &attachment).to_string();
    refused(testbed, &testbed.call_with(Verb::Add, spoil(&config), &attachment))
}

/// ADD with another ID than that of the pod.
fn refuses_id(testbed: &Testbed, id: &str) -> Result<(), Stop> {
    let pod = testbed.pod();
    refused(testbed, &testbed.call(Verb::Add, &pod).variable("CNI_CONTAINERID", id))
}

fn takes_id(testbed: &Testbed, id: &str) -> Result<(), Stop> {
    Attached::add_to(testbed, testbed.pod_named(id))?.dels()
}

fn uses_ifname(testbed: &Testbed, ifname: &str) -> Result<(), Stop> {
    let pod = testbed.pod();
    let before: Vec<_> = pod.namespace().links().into_iter().map(|link| link.name).collect();
    let answer = testbed.make(&testbed.call(Verb::Add, pod.attachment_as(ifname)))?;
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

fn refuses_ifname(testbed: &Testbed, ifname: &str) -> Result<(), Stop> {
    testbed.make(&testbed.call(Verb::Add, testbed.pod().attachment_as(ifname)))?.refuses()
}

/// ADD and DEL with another path to the namespace of a new container.
fn takes_netns(testbed: &Testbed, attachment: &Attachment) -> Result<(), Stop> {
    let result = testbed.add(attachment)?;
    testbed.del(attachment, &result)
}

/// The path of a thread of the kit that is in the container, as it would be that of a container's process.
fn takes_a_netns_of_proc(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let host = testbed.node.host();
    pod.namespace().enter(|| {
        let netns = Namespace::of_this_thread().path().display().to_string();
        let attachment = Attachment { netns, ..pod.attachment() };
        host.enter(|| takes_netns(testbed, &attachment))
    })
}

fn takes_a_link_to_a_netns(testbed: &Testbed) -> Result<(), Stop> {
    let attachment = testbed.pod().attachment();
    let link = testbed.node.work_dir().join("namespace");
    symlink(&attachment.netns, &link).unwrap_or_else(|error| panic!("cannot create {}: {error}", link.display()));
    takes_netns(testbed, &Attachment { netns: link.display().to_string(), ..attachment })
}

fn takes_args(testbed: &Testbed, args: &str) -> Result<(), Stop> {
    let pod = testbed.pod();
    let result: Value = testbed.make(&testbed.call(Verb::Add, &pod).args(args))?.succeeds()?;
    testbed.make(&testbed.call(Verb::Del, &pod).prev_result(&result).args(args))?.succeeds().map(drop)
}
