//! SPEC 1: how a runtime reads a network's list, and finds the executables that it names.

use super::{newest, old, rule};
use crate::finding::Stop;
use crate::rule::Source::{Relied, Spec};
use crate::rule::Versions;
use crate::runtime::look::{End, holds, only, order, same};
use crate::runtime::mock_plugin::{PREFIX, Received};
use crate::runtime::{Case, Rule, RuntimeBench};
use serde_json::json;
use std::fs;
use testns::Verb::{Add, Check, Del, Gc};

pub(super) const RULES: &[Rule] = &[
    rule(
        "config.newest-version",
        Spec(&["versions/highest"]),
        "Of the versions in cniVersions a runtime uses the newest that it speaks.",
        &[Case { name: "", versions: Versions::From("1.1.0"), run: newest_version }],
    ),
    rule(
        "config.unknown-keys",
        Relied("lists that were written for a newer runtime"),
        "Keys of a list that a runtime does not know are ignored.",
        &[newest("", unknown_keys)],
    ),
    rule(
        "config.plugins-aside",
        Relied("operators whose plugins lay a file beside a list, as libcni reads it"),
        "Plugin objects in the folder of the network's name belong to it, in the order of their names.",
        &[
            Case { name: "beside-the-lists-own", versions: Versions::From("1.1.0"), run: plugins_aside },
            Case { name: "alone", versions: Versions::From("1.1.0"), run: plugins_aside_alone },
        ],
    ),
    rule(
        "config.aside-come-last",
        Spec(&["format/aside-is-appended"]),
        "Plugin objects that a runtime has from elsewhere, from the folder of the network's name for example, follow \
         those in the list.",
        &[Case { name: "", versions: Versions::From("1.1.0"), run: aside_come_last }],
    ),
    rule(
        "config.aside-is-validated",
        Spec(&["objects/aside-is-validated"]),
        "A plugin object from elsewhere that is not valid, as its type is a path, is not called.",
        &[Case { name: "", versions: Versions::From("1.1.0"), run: aside_is_validated }],
    ),
    rule(
        "config.only-inlined",
        Spec(&["format/only-inlined"]),
        "With loadOnlyInlinedPlugins nothing is loaded but what the list has itself, and it has to have something.",
        &[
            Case { name: "beside-others", versions: Versions::From("1.1.0"), run: only_inlined },
            Case { name: "without-plugins", versions: Versions::From("1.1.0"), run: nothing_inlined },
        ],
    ),
    rule(
        "config.type-is-no-path",
        Relied("operators, whose lists name plugins and no other executables"),
        "A type with a slash in it is refused: it names an executable, not a path.",
        &[
            newest("relative", |bench| refuses_type(bench, &format!("../bin/{PREFIX}-a"))),
            newest("absolute", |bench| {
                refuses_type(bench, &bench.node.bin_dir().join(format!("{PREFIX}-a")).display().to_string())
            }),
            newest("empty", |bench| refuses_type(bench, "")),
        ],
    ),
    rule(
        "config.names-are-checked",
        Relied("plugins, which build paths of the name"),
        "Names of networks that the specification forbids reach no plugin.",
        &[newest("", bad_network)],
    ),
    rule(
        "config.container-ids-are-checked",
        Spec(&["parameters/container-id"]),
        "IDs of containers that the specification forbids reach no plugin.",
        &[newest("", bad_container)],
    ),
    rule(
        "config.ifnames-are-checked",
        Relied("plugins and the kernel, which would refuse them late"),
        "Names that no interface may have reach no plugin.",
        &[
            newest("ifname-slash", |bench| bad_ifname(bench, "a/b")),
            newest("ifname-long", |bench| bad_ifname(bench, "sixteen-letters-")),
            newest("ifname-space", |bench| bad_ifname(bench, "a b")),
            newest("ifname-colon", |bench| bad_ifname(bench, "a:b")),
            newest("ifname-dots", |bench| bad_ifname(bench, "..")),
        ],
    ),
    rule(
        "config.ifnames-in-0.4.0",
        Spec(&["parameters/ifname-0.4.0"]),
        "The name of the interface is one that Linux allows.",
        &[
            old("ifname-slash", "1.0.0", |bench| bad_ifname(bench, "a/b")),
            old("ifname-long", "1.0.0", |bench| bad_ifname(bench, "sixteen-letters-")),
            old("ifname-dots", "1.0.0", |bench| bad_ifname(bench, "..")),
        ],
    ),
    rule(
        "config.search-order",
        Relied("operators, who replace a plugin by a folder before the others"),
        "An executable is looked up in the folders of plugins in their order: the first that has it counts.",
        &[newest("first", |bench| found_in(bench, "a", 0)), newest("second", |bench| found_in(bench, "far", 1))],
    ),
    rule(
        "config.missing-executable",
        Spec(&["adding/executable"]),
        "A plugin whose executable is not there is an error.",
        &[
            newest("ADD", missing_with_add),
            newest("CHECK", |bench| missing_later(bench, Check)),
            newest("DEL", |bench| missing_later(bench, Del)),
            Case { name: "GC", versions: Versions::From("1.1.0"), run: |bench| missing_later(bench, Gc) },
        ],
    ),
    rule(
        "config.broken-neighbour",
        Relied("operators with several networks"),
        "A file of another network that cannot be read as a list does not hinder this one.",
        &[newest("", broken_neighbour)],
    ),
];

fn newest_version(bench: &RuntimeBench) -> End {
    let mut list = bench.list(&[bench.plugin(1)]);
    list["cniVersion"] = json!("0.4.0");
    list["cniVersions"] = json!(["0.4.0", bench.version, "1.0.0", "99.0.0"]);
    bench.lay(&list);
    bench.does(Add, &bench.request())?;
    same("cniVersion", &json!(bench.version), &only(&bench.received())?.config()["cniVersion"])
}

fn unknown_keys(bench: &RuntimeBench) -> End {
    let mut list = bench.list(&[bench.plugin(1)]);
    for (key, value) in [("example.com/key", json!({ "a": [1] })), ("Plugins", json!(1)), ("x", json!(null))] {
        list[key] = value;
    }
    bench.lay(&list);
    bench.does(Add, &bench.request())?;
    order(&bench.received(), &[(Add, 1)])
}

fn aside(bench: &RuntimeBench) {
    bench.lay_aside("20-last.conf", &bench.plugin(3));
    bench.lay_aside("10-first.conf", &bench.plugin(2));
    bench.lay_aside("30-note.txt", &json!("no plugin object"));
}

fn plugins_aside(bench: &RuntimeBench) -> End {
    bench.lay(&bench.list(&[bench.plugin(1)]));
    aside(bench);
    bench.does(Add, &bench.request())?;
    order(&bench.received(), &[(Add, 1), (Add, 2), (Add, 3)])
}

fn plugins_aside_alone(bench: &RuntimeBench) -> End {
    let mut list = bench.list(&[]);
    list.as_object_mut().and_then(|list| list.shift_remove("plugins"));
    bench.lay(&list);
    aside(bench);
    bench.does(Add, &bench.request())?;
    order(&bench.received(), &[(Add, 2), (Add, 3)])
}

fn aside_come_last(bench: &RuntimeBench) -> End {
    bench.lay(&bench.list(&[bench.plugin(1)]));
    aside(bench);
    bench.does(Add, &bench.request())?;
    let received = bench.received();
    match received.first().map(Received::place) {
        Some(1) if received.len() == 1 => Err(Stop::Skips("it loads no plugins from elsewhere".to_owned())),
        place => same("the plugin that is called first", &Some(1), &place),
    }
}

fn aside_is_validated(bench: &RuntimeBench) -> End {
    bench.works()?;
    let list = bench.list(&[bench.plugin(1)]);
    let mut invalid = bench.plugin(2);
    invalid["type"] = json!(format!("../bin/{PREFIX}-a"));
    bench.lay(&list);
    bench.lay_aside("10-invalid.conf", &invalid);
    // The runtime may go on without the invalid object, or not.
    bench.run(Add, &bench.request())?;
    let called: Vec<_> = bench.received().iter().map(Received::place).filter(|place| *place == 2).collect();
    same("calls of the plugin whose object is not valid", [0; 0].as_slice(), called.as_slice())
}

fn nothing_inlined(bench: &RuntimeBench) -> End {
    bench.works()?;
    bench.works()?;
    let mut list = bench.list(&[]);
    list.as_object_mut().and_then(|list| list.shift_remove("plugins"));
    list["loadOnlyInlinedPlugins"] = json!(true);
    bench.lay(&list);
    aside(bench);
    bench.run(Add, &bench.request())?.fails("the list has no plugins, and may have none from elsewhere")?;
    order(&bench.received(), &[])
}

fn only_inlined(bench: &RuntimeBench) -> End {
    let mut list = bench.list(&[bench.plugin(1)]);
    list["loadOnlyInlinedPlugins"] = json!(true);
    bench.lay(&list);
    aside(bench);
    bench.does(Add, &bench.request())?;
    order(&bench.received(), &[(Add, 1)])
}

fn refuses_type(bench: &RuntimeBench, kind: &str) -> End {
    bench.works()?;
    let mut object = bench.plugin(1);
    object["type"] = json!(kind);
    bench.lay(&bench.list(&[object]));
    bench.run(Add, &bench.request())?.fails(&format!("type is {kind:?}"))?;
    order(&bench.received(), &[])
}

fn bad_network(bench: &RuntimeBench) -> End {
    bench.needs("network")?;
    bench.works()?;
    let mut list = bench.list(&[bench.plugin(1)]);
    list["name"] = json!("../conformance");
    bench.lay(&list);
    let mut request = bench.request();
    request.network = "../conformance".to_owned();
    bench.run(Add, &request)?.fails("the network's name has slashes")?;
    order(&bench.received(), &[])
}

fn bad_ifname(bench: &RuntimeBench, name: &str) -> End {
    bench.needs("ifname")?;
    bench.works()?;
    bench.lay(&bench.list(&[bench.plugin(1)]));
    let mut request = bench.request();
    request.attachment.ifname = name.to_owned();
    bench.run(Add, &request)?.fails(&format!("no interface may be called {name:?}"))?;
    order(&bench.received(), &[])
}

fn bad_container(bench: &RuntimeBench) -> End {
    bench.needs("container")?;
    bench.works()?;
    bench.lay(&bench.list(&[bench.plugin(1)]));
    let mut request = bench.request();
    request.attachment.container_id = "../container".to_owned();
    bench.run(Add, &request)?.fails("the container's ID has slashes")?;
    order(&bench.received(), &[])
}

fn found_in(bench: &RuntimeBench, ending: &str, folder: usize) -> End {
    bench.needs("bin_dir")?;
    let mut object = bench.plugin(1);
    object["type"] = json!(format!("{PREFIX}-{ending}"));
    bench.lay(&bench.list(&[object]));
    bench.does(Add, &bench.request())?;
    let received = bench.received();
    let called = only(&received)?.arguments.first().cloned().unwrap_or_default();
    let expected = bench.bin_dirs()[folder].join(format!("{PREFIX}-{ending}")).display().to_string();
    same("the executable", &expected, &called)
}

fn missing_with_add(bench: &RuntimeBench) -> End {
    bench.works()?;
    let mut object = bench.plugin(2);
    object["type"] = json!("there-is-no-such-plugin");
    bench.lay(&bench.list(&[bench.plugin(1), object]));
    bench.run(Add, &bench.request())?.fails("an executable is missing").map(|_| ())
}

fn missing_later(bench: &RuntimeBench, verb: testns::Verb) -> End {
    bench.lay(&bench.list(&[bench.plugin(1), bench.plugin(2)]));
    let request = bench.request();
    bench.does(Add, &request)?;
    let removed = fs::remove_file(bench.node.bin_dir().join(format!("{PREFIX}-b")));
    removed.unwrap_or_else(|error| panic!("cannot remove a plugin: {error}"));
    bench.run(verb, &request)?.fails("an executable is missing").map(|_| ())
}

fn broken_neighbour(bench: &RuntimeBench) -> End {
    let written = fs::write("/etc/cni/net.d/05-broken.conflist", "{\"name\":");
    written.unwrap_or_else(|error| panic!("cannot write: {error}"));
    bench.lay(&bench.list(&[bench.plugin(1)]));
    bench.does(Add, &bench.request())?;
    let received = bench.received();
    holds(received.len() == 1, "the plugin is called", "it was not")
}
