//! SPEC 2, Parameters: variables, stdin, and the process itself.

use super::{newest, rule};
use crate::finding::{Finding, Stop};
use crate::rule::Source::{Relied, Spec};
use crate::runtime::judge::{self, Heard};
use crate::runtime::look::{End, holds, only, same};
use crate::runtime::stand::STALE;
use crate::runtime::{Request, Rule, Stand};
use serde_json::Value;
use testns::Verb;

pub(super) const RULES: &[Rule] = &[
    rule(
        "call.command",
        Spec(&["add/required", "check/required", "del/required", "gc/required"]),
        "CNI_COMMAND is the verb that was asked for, for every plugin.",
        &[
            newest("ADD", |stand| command(stand, Verb::Add)),
            newest("CHECK", |stand| command(stand, Verb::Check)),
            newest("DEL", |stand| command(stand, Verb::Del)),
            newest("GC", |stand| command(stand, Verb::Gc)),
        ],
    ),
    rule(
        "call.command-of-status",
        Spec(&["parameters/command"]),
        "CNI_COMMAND is STATUS, for every plugin.",
        &[newest("", |stand| command(stand, Verb::Status))],
    ),
    rule(
        "call.container-id",
        Spec(&["add/required", "check/required", "del/required"]),
        "CNI_CONTAINERID is the container's ID, the same one with each verb: an alphanumeric character, then any of \
         those, underscores, dots and hyphens.",
        &[
            newest("ADD", |stand| container_id(stand, Verb::Add)),
            newest("CHECK", |stand| container_id(stand, Verb::Check)),
            newest("DEL", |stand| container_id(stand, Verb::Del)),
        ],
    ),
    rule(
        "call.netns",
        Spec(&["add/required", "check/required"]),
        "CNI_NETNS is the path of the container's network namespace, which the runtime makes before any plugin runs.",
        &[newest("ADD", |stand| netns(stand, Verb::Add)), newest("CHECK", |stand| netns(stand, Verb::Check))],
    ),
    rule(
        "call.netns-of-del",
        Spec(&["attachment/variables"]),
        "CNI_NETNS of DEL is that of ADD.",
        &[newest("", |stand| netns(stand, Verb::Del))],
    ),
    rule(
        "call.ifname",
        Spec(&["add/required", "check/required", "del/required"]),
        "CNI_IFNAME is the name of the interface in the container, the same one with each verb.",
        &[
            newest("ADD", |stand| ifname(stand, Verb::Add)),
            newest("CHECK", |stand| ifname(stand, Verb::Check)),
            newest("DEL", |stand| ifname(stand, Verb::Del)),
        ],
    ),
    rule(
        "call.args",
        Spec(&["attachment/variables"]),
        "CNI_ARGS has what the user said at invocation: KEY=VALUE pairs with semicolons between them.",
        &[newest("", |stand| args(stand, Verb::Add))],
    ),
    rule(
        "call.args-of-check",
        Spec(&["check/same-parameters", "checking/same-parameters"]),
        "CNI_ARGS of CHECK are those of ADD.",
        &[newest("", |stand| args(stand, Verb::Check))],
    ),
    rule(
        "call.args-of-del",
        Spec(&["attachment/variables"]),
        "CNI_ARGS of DEL are those of ADD.",
        &[newest("", |stand| args(stand, Verb::Del))],
    ),
    rule(
        "call.path",
        Spec(&["attachment/path"]),
        "CNI_PATH lists the folders of plugins, with colons between them.",
        &[
            newest("ADD", |stand| path(stand, Verb::Add)),
            newest("DEL", |stand| path(stand, Verb::Del)),
            newest("GC", |stand| path(stand, Verb::Gc)),
        ],
    ),
    rule(
        "call.nothing-stale",
        Relied("plugins, which take what is set for this call"),
        "Variables of the protocol in the runtime's own environment do not reach a plugin, not even with verbs \
             that need none.",
        &[
            newest("ADD", |stand| nothing_stale(stand, Verb::Add)),
            newest("GC", |stand| nothing_stale(stand, Verb::Gc)),
            newest("STATUS", |stand| nothing_stale(stand, Verb::Status)),
        ],
    ),
    rule(
        "call.one-object",
        Spec(&["overview/json"]),
        "stdin is one JSON object and then ends.",
        &[
            newest("ADD", |stand| one_object(stand, Verb::Add)),
            newest("DEL", |stand| one_object(stand, Verb::Del)),
            newest("GC", |stand| one_object(stand, Verb::Gc)),
            newest("STATUS", |stand| one_object(stand, Verb::Status)),
        ],
    ),
    rule(
        "call.in-own-namespace",
        Spec(&["overview/domain"]),
        "A plugin runs in the network namespace of the runtime, not in that of the container.",
        &[
            newest("ADD", |stand| own_namespace(stand, Verb::Add)),
            newest("DEL", |stand| own_namespace(stand, Verb::Del)),
        ],
    ),
    rule(
        "call.no-other-files",
        Relied("runtimes, whose files and sockets a daemon of a plugin would hold"),
        "A plugin inherits stdin, stdout and stderr, and no other open file of the runtime.",
        &[newest("", no_other_files)],
    ),
];

/// The request of a container that was added, if the verb is about one, and what judges heard of the verb.
fn calls(stand: &Stand, verb: Verb) -> Result<(Request, Vec<Heard>), Stop> {
    stand.lay_three();
    calls_as_laid(stand, verb, stand.request())
}

fn calls_as_laid(stand: &Stand, verb: Verb, mut request: Request) -> Result<(Request, Vec<Heard>), Stop> {
    if verb != Verb::Add {
        stand.does(Verb::Add, &request)?;
        let added = stand.heard_of(Verb::Add);
        request.keep = added
            .first()
            .map(|c| vec![format!("{}/{}", c.variable("CNI_CONTAINERID"), c.variable("CNI_IFNAME"))])
            .unwrap_or_default();
        stand.forget();
    }
    stand.does(verb, &request)?;
    let heard = stand.heard();
    match heard.is_empty() {
        true => Err(Finding::new(format!("plugins are called with {verb}"), "none was").into()),
        false => Ok((request, heard)),
    }
}

fn command(stand: &Stand, verb: Verb) -> End {
    let (_, heard) = calls(stand, verb)?;
    let seen: Vec<_> = heard.iter().map(|call| call.verb().to_owned()).collect();
    same("CNI_COMMAND of the calls", &vec![verb.to_string(); seen.len()], &seen)
}

/// A variable as a runtime gives it with a verb, and as it gave it with ADD.
fn with_add(stand: &Stand, verb: Verb, name: &str) -> Result<(Request, Vec<Heard>), Stop> {
    stand.lay_three();
    let request = stand.request();
    stand.does(Verb::Add, &request)?;
    let added = stand.heard_of(Verb::Add);
    let first = added.first().map(|call| call.variable(name).to_owned()).unwrap_or_default();
    if verb != Verb::Add {
        stand.forget();
        stand.does(verb, &request)?;
    }
    let heard = stand.heard();
    holds(!heard.is_empty(), format!("plugins are called with {verb}"), "none was")?;
    for call in &heard {
        same(
            &format!("{name} with {} of plugin {}, as with the first ADD", call.verb(), call.place()),
            first.as_str(),
            call.variable(name),
        )?;
    }
    Ok((request, heard))
}

fn container_id(stand: &Stand, verb: Verb) -> End {
    let (request, heard) = with_add(stand, verb, "CNI_CONTAINERID")?;
    for call in &heard {
        let seen = call.variable("CNI_CONTAINERID");
        holds(is_id(seen), "a well-formed CNI_CONTAINERID", format!("it was {seen:?}"))?;
        holds(seen != STALE, "the container's ID", "it was that of the runtime's own environment")?;
        if stand.driver.gives("container") {
            same("CNI_CONTAINERID", request.attachment.container_id.as_str(), seen)?;
        }
    }
    Ok(())
}

fn is_id(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

fn netns(stand: &Stand, verb: Verb) -> End {
    let (request, heard) = with_add(stand, verb, "CNI_NETNS")?;
    let given = judge::namespace(request.container.namespace().path());
    for call in &heard {
        let path = call.variable("CNI_NETNS");
        holds(path.starts_with('/'), "an absolute path in CNI_NETNS", format!("it was {path:?}"))?;
        if verb == Verb::Del {
            continue; // it may be gone by then; that it is the same path was seen
        }
        let Some(inode) = call.container_netns else {
            return Err(Finding::new("a network namespace at CNI_NETNS", format!("{path:?} was none")).into());
        };
        holds(inode != call.netns, "a network namespace of the container's own", "it was that of the runtime")?;
        if stand.driver.gives("netns") {
            same("the namespace at CNI_NETNS, by its inode", &given, &Some(inode))?;
        }
    }
    Ok(())
}

fn ifname(stand: &Stand, verb: Verb) -> End {
    let (request, heard) = with_add(stand, verb, "CNI_IFNAME")?;
    for call in &heard {
        let seen = call.variable("CNI_IFNAME");
        let is_name = (1..=15).contains(&seen.len())
            && ![".", ".."].contains(&seen)
            && !seen.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
        holds(is_name && seen != STALE, "a name for an interface in CNI_IFNAME", format!("it was {seen:?}"))?;
        if stand.driver.gives("ifname") {
            same("CNI_IFNAME", request.attachment.ifname.as_str(), seen)?;
        }
    }
    Ok(())
}

fn args(stand: &Stand, verb: Verb) -> End {
    stand.needs("args")?;
    stand.lay(&stand.list(&[stand.judge(1)]));
    let mut request = stand.request();
    request.args = [("IgnoreUnknown", "1"), ("K8S_POD_NAME", "web-0"), ("IP", "10.1.0.9")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    stand.does(Verb::Add, &request)?;
    if verb != Verb::Add {
        stand.does(verb, &request)?;
    }
    let heard = stand.heard_of(verb);
    let mut seen: Vec<_> = only(&heard)?.variable("CNI_ARGS").split(';').collect();
    seen.sort_unstable();
    same(
        "pairs of CNI_ARGS, sorted",
        ["IP=10.1.0.9", "IgnoreUnknown=1", "K8S_POD_NAME=web-0"].as_slice(),
        seen.as_slice(),
    )
}

fn path(stand: &Stand, verb: Verb) -> End {
    let (_, heard) = calls(stand, verb)?;
    let expected = stand.bin_dirs();
    for call in &heard {
        let seen: Vec<_> = std::env::split_paths(call.variable("CNI_PATH")).collect();
        let is_there =
            expected.iter().take(if stand.driver.gives("bin_dir") { 2 } else { 1 }).all(|dir| seen.contains(dir));
        let folder = std::path::Path::new(call.arguments.first().map(String::as_str).unwrap_or_default()).parent();
        let has_own = folder.is_some_and(|folder| seen.iter().any(|dir| dir == folder));
        holds(
            is_there || (!stand.driver.gives("bin_dir") && has_own),
            format!("{expected:?} in CNI_PATH"),
            format!("it was {:?}", call.variable("CNI_PATH")),
        )?;
    }
    Ok(())
}

fn nothing_stale(stand: &Stand, verb: Verb) -> End {
    let (_, heard) = calls(stand, verb)?;
    for call in &heard {
        let stale: Vec<_> =
            call.environment.iter().filter(|(_, value)| *value == STALE).map(|(name, _)| name.as_str()).collect();
        same(
            &format!("stale variables with {} of plugin {}", call.verb(), call.place()),
            [""; 0].as_slice(),
            stale.as_slice(),
        )?;
    }
    Ok(())
}

fn one_object(stand: &Stand, verb: Verb) -> End {
    let (_, heard) = calls(stand, verb)?;
    for call in &heard {
        let read = serde_json::from_str::<Value>(&call.stdin);
        let is_object = read.as_ref().is_ok_and(Value::is_object);
        holds(
            is_object,
            "one JSON object in stdin",
            format!("{} of plugin {} got {:?}", call.verb(), call.place(), call.stdin),
        )?;
        let arguments = call.arguments.len();
        holds(arguments == 1, "a command line without arguments", format!("it had {:?}", call.arguments))?;
        holds(
            call.stdin_ended,
            "an end of stdin",
            format!("{} of plugin {} waited in vain", call.verb(), call.place()),
        )?;
    }
    Ok(())
}

fn own_namespace(stand: &Stand, verb: Verb) -> End {
    let (_, heard) = calls(stand, verb)?;
    let own = judge::namespace(std::path::Path::new("/proc/thread-self/ns/net"));
    for call in &heard {
        same("inode of the plugin's network namespace", &own, &Some(call.netns))?;
    }
    Ok(())
}

fn no_other_files(stand: &Stand) -> End {
    let (_, heard) = calls(stand, Verb::Add)?;
    // The runtime may have been born with some: the kit's, from whoever started that.
    let inherited = judge::descriptors();
    for call in &heard {
        let own: Vec<_> = call.descriptors.iter().filter(|open| !inherited.contains(open)).collect();
        same("open descriptors beyond stderr", &Vec::new(), &own)?;
    }
    Ok(())
}
