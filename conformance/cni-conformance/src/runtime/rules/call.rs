//! SPEC 2, Parameters: variables, stdin, and the process itself.

use super::chain::{nothing_collected, places};
use crate::rules::prelude::*;
use crate::runtime::assertions::{End, each, runs, same};
use crate::runtime::mock_plugin::{self, Received};
use crate::runtime::runtime_testbed::STALE;
use crate::runtime::{Request, RuntimeTestbed};

pub(super) const CASES: &[Code<RuntimeTestbed>] = &[
    ("call.command/ADD", |testbed| command(testbed, Verb::Add)),
    ("call.command/CHECK", |testbed| command(testbed, Verb::Check)),
    ("call.command/DEL", |testbed| command(testbed, Verb::Del)),
    ("call.command/GC", |testbed| command(testbed, Verb::Gc)),
    ("call.command-of-status", |testbed| command(testbed, Verb::Status)),
    ("call.container-id/ADD", |testbed| container_id(testbed, Verb::Add)),
    ("call.container-id/CHECK", |testbed| container_id(testbed, Verb::Check)),
    ("call.container-id/DEL", |testbed| container_id(testbed, Verb::Del)),
    ("call.netns/ADD", |testbed| netns(testbed, Verb::Add)),
    ("call.netns/CHECK", |testbed| netns(testbed, Verb::Check)),
    ("call.netns-of-del", |testbed| netns(testbed, Verb::Del)),
    ("call.ifname/ADD", |testbed| ifname(testbed, Verb::Add)),
    ("call.ifname/CHECK", |testbed| ifname(testbed, Verb::Check)),
    ("call.ifname/DEL", |testbed| ifname(testbed, Verb::Del)),
    ("call.args", |testbed| args(testbed, Verb::Add)),
    ("call.args-of-check", |testbed| args(testbed, Verb::Check)),
    ("call.args-of-del", |testbed| args(testbed, Verb::Del)),
    ("call.path/ADD", |testbed| path(testbed, Verb::Add)),
    ("call.path/DEL", |testbed| path(testbed, Verb::Del)),
    ("call.path/GC", |testbed| path(testbed, Verb::Gc)),
    ("call.nothing-stale/ADD", |testbed| nothing_stale(testbed, Verb::Add)),
    ("call.nothing-stale/GC", |testbed| nothing_stale(testbed, Verb::Gc)),
    ("call.nothing-stale/STATUS", |testbed| nothing_stale(testbed, Verb::Status)),
    ("call.same-environment-in-0.4.0/ADD", |testbed| same_environment(testbed, Verb::Add)),
    ("call.same-environment-in-0.4.0/DEL", |testbed| same_environment(testbed, Verb::Del)),
    ("call.stdin-in-0.4.0/ADD", |testbed| one_object(testbed, Verb::Add)),
    ("call.stdin-in-0.4.0/DEL", |testbed| one_object(testbed, Verb::Del)),
    ("call.one-object/ADD", |testbed| one_object(testbed, Verb::Add)),
    ("call.one-object/DEL", |testbed| one_object(testbed, Verb::Del)),
    ("call.one-object/GC", |testbed| one_object(testbed, Verb::Gc)),
    ("call.one-object/STATUS", |testbed| one_object(testbed, Verb::Status)),
    ("call.no-arguments", no_arguments),
    ("call.in-own-namespace/ADD", |testbed| own_namespace(testbed, Verb::Add)),
    ("call.in-own-namespace/DEL", |testbed| own_namespace(testbed, Verb::Del)),
    ("call.no-other-files", no_other_files),
];

/// The request of a container that was added, if the verb is about one, and what mock plugins received of the verb.
fn calls(testbed: &RuntimeTestbed, verb: Verb) -> Result<(Request, Vec<Received>), Stop> {
    testbed.lay_three();
    calls_as_laid(testbed, verb, testbed.request())
}

fn calls_as_laid(testbed: &RuntimeTestbed, verb: Verb, mut request: Request) -> Result<(Request, Vec<Received>), Stop> {
    if verb != Verb::Add {
        testbed.does(Verb::Add, &request)?;
        let added = testbed.received_of(Verb::Add);
        request.keep = added
            .first()
            .map(|c| vec![format!("{}/{}", c.variable("CNI_CONTAINERID"), c.variable("CNI_IFNAME"))])
            .unwrap_or_default();
        testbed.forget();
    }
    testbed.does(verb, &request)?;
    let received = testbed.received_of(verb);
    match received.is_empty() {
        true if verb == Verb::Gc && testbed.received().is_empty() => Err(nothing_collected(testbed)),
        true => Err(Finding::new(format!("plugins are called with {verb}"), "none was").into()),
        false => Ok((request, received)),
    }
}

fn command(testbed: &RuntimeTestbed, verb: Verb) -> End {
    let (_, received) = calls(testbed, verb)?;
    same(&format!("places of plugins that were called with {verb}"), [1, 2, 3].as_slice(), places(&received).as_slice())
}

/// A variable as a runtime gives it with a verb, and as it gave it with ADD.
fn with_add(testbed: &RuntimeTestbed, verb: Verb, name: &str) -> Result<(Request, Vec<Received>), Stop> {
    testbed.lay_three();
    let request = testbed.request();
    testbed.does(Verb::Add, &request)?;
    let added = testbed.received_of(Verb::Add);
    let first = added.first().map(|call| call.variable(name).to_owned()).unwrap_or_default();
    if verb != Verb::Add {
        testbed.forget();
        testbed.does(verb, &request)?;
    }
    let received = testbed.received_of(verb);
    Finding::unless(!received.is_empty(), format!("plugins are called with {verb}"), "none was")?;
    for call in &received {
        same(
            &format!("{name} with {} of plugin {}, as with the first ADD", call.verb(), call.place()),
            first.as_str(),
            call.variable(name),
        )?;
    }
    Ok((request, received))
}

fn container_id(testbed: &RuntimeTestbed, verb: Verb) -> End {
    let (request, received) = with_add(testbed, verb, "CNI_CONTAINERID")?;
    for call in &received {
        let seen = call.variable("CNI_CONTAINERID");
        Finding::unless(is_id(seen), "a well-formed CNI_CONTAINERID", format!("it was {seen:?}"))?;
        Finding::unless(seen != STALE, "the container's ID", "it was that of the runtime's own environment")?;
        if testbed.driver.gives("container") {
            same("CNI_CONTAINERID", request.attachment.container_id.as_str(), seen)?;
        }
    }
    Ok(())
}

fn is_id(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

fn netns(testbed: &RuntimeTestbed, verb: Verb) -> End {
    let (request, received) = with_add(testbed, verb, "CNI_NETNS")?;
    let given = mock_plugin::namespace(request.container.namespace().path());
    for call in &received {
        let path = call.variable("CNI_NETNS");
        Finding::unless(path.starts_with('/'), "an absolute path in CNI_NETNS", format!("it was {path:?}"))?;
        if verb == Verb::Del {
            continue; // the namespace may be gone by then; that it is the same path was seen
        }
        let Some(inode) = call.container_netns else {
            return Err(Finding::new("a network namespace at CNI_NETNS", format!("{path:?} was none")).into());
        };
        Finding::unless(
            inode != call.netns,
            "a network namespace of the container's own",
            "it was that of the runtime",
        )?;
        if testbed.driver.gives("netns") {
            same("the namespace at CNI_NETNS, by its inode", &given, &Some(inode))?;
        }
    }
    Ok(())
}

fn ifname(testbed: &RuntimeTestbed, verb: Verb) -> End {
    let (request, received) = with_add(testbed, verb, "CNI_IFNAME")?;
    for call in &received {
        let seen = call.variable("CNI_IFNAME");
        let is_name = (1..=15).contains(&seen.len())
            && ![".", ".."].contains(&seen)
            && !seen.contains(|c: char| c == '/' || c == ':' || c.is_whitespace());
        Finding::unless(is_name && seen != STALE, "a name for an interface in CNI_IFNAME", format!("it was {seen:?}"))?;
        if testbed.driver.gives("ifname") {
            same("CNI_IFNAME", request.attachment.ifname.as_str(), seen)?;
        }
    }
    Ok(())
}

fn args(testbed: &RuntimeTestbed, verb: Verb) -> End {
    testbed.needs("args")?;
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    let mut request = testbed.request();
    request.args = [("IgnoreUnknown", "1"), ("K8S_POD_NAME", "web-0"), ("IP", "10.1.0.9")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    testbed.does(Verb::Add, &request)?;
    if verb != Verb::Add {
        testbed.does(verb, &request)?;
    }
    each(&testbed.received_of(verb), |call| {
        let mut seen: Vec<_> = call.variable("CNI_ARGS").split(';').collect();
        seen.sort_unstable();
        let expected = ["IP=10.1.0.9", "IgnoreUnknown=1", "K8S_POD_NAME=web-0"];
        same("pairs of CNI_ARGS, sorted", expected.as_slice(), seen.as_slice())
    })
}

fn path(testbed: &RuntimeTestbed, verb: Verb) -> End {
    let (_, received) = calls(testbed, verb)?;
    let expected = testbed.bin_dirs();
    for call in &received {
        let seen: Vec<_> = std::env::split_paths(call.variable("CNI_PATH")).collect();
        let is_there =
            expected.iter().take(if testbed.driver.gives("bin_dir") { 2 } else { 1 }).all(|dir| seen.contains(dir));
        let folder = std::path::Path::new(call.arguments.first().map(String::as_str).unwrap_or_default()).parent();
        let has_own = folder.is_some_and(|folder| seen.iter().any(|dir| dir == folder));
        Finding::unless(
            is_there || (!testbed.driver.gives("bin_dir") && has_own),
            format!("{} in CNI_PATH", json!(expected)),
            format!("it was {}", call.variable("CNI_PATH")),
        )?;
    }
    Ok(())
}

fn nothing_stale(testbed: &RuntimeTestbed, verb: Verb) -> End {
    let (_, received) = calls(testbed, verb)?;
    for call in &received {
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

fn same_environment(testbed: &RuntimeTestbed, verb: Verb) -> End {
    let (_, received) = calls(testbed, verb)?;
    // Some shells set it to the executable that they start.
    let all = |call: &Received| {
        call.environment.iter().filter(|(name, _)| *name != "_").map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>()
    };
    runs(&received).into_iter().try_for_each(|run| {
        let first = run.first().map(all).unwrap_or_default();
        run.iter().try_for_each(|call| same(&format!("environment of plugin {}", call.place()), &first, &all(call)))
    })
}

fn one_object(testbed: &RuntimeTestbed, verb: Verb) -> End {
    let (_, received) = calls(testbed, verb)?;
    for call in &received {
        let read = serde_json::from_str::<Value>(&call.stdin);
        let is_object = read.as_ref().is_ok_and(Value::is_object);
        Finding::unless(
            is_object,
            "one JSON object in stdin",
            format!("{} of plugin {} got {:?}", call.verb(), call.place(), call.stdin),
        )?;
        Finding::unless(
            call.stdin_ended,
            "an end of stdin",
            format!("{} of plugin {} waited in vain", call.verb(), call.place()),
        )?;
    }
    Ok(())
}

fn no_arguments(testbed: &RuntimeTestbed) -> End {
    let (_, received) = calls(testbed, Verb::Add)?;
    received.iter().try_for_each(|call| {
        let more = call.arguments.get(1..).unwrap_or_default();
        Finding::unless(more.is_empty(), "a command line without arguments", format!("it had {more:?}"))
    })
}

fn own_namespace(testbed: &RuntimeTestbed, verb: Verb) -> End {
    let (_, received) = calls(testbed, verb)?;
    let own = mock_plugin::namespace(std::path::Path::new("/proc/thread-self/ns/net"));
    for call in &received {
        same("inode of the plugin's network namespace", &own, &Some(call.netns))?;
    }
    Ok(())
}

fn no_other_files(testbed: &RuntimeTestbed) -> End {
    let (_, received) = calls(testbed, Verb::Add)?;
    // The runtime may have been born with some: the kit's, from the process that started it.
    let inherited = mock_plugin::descriptors();
    for call in &received {
        let own: Vec<_> = call.descriptors.iter().filter(|open| !inherited.contains(open)).collect();
        same("open descriptors beyond stderr", &Vec::new(), &own)?;
    }
    Ok(())
}
