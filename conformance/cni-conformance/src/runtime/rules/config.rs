//! SPEC 1: how a runtime reads a network's list, and finds the executables that it names.

use super::RUNTIMES;
use crate::finding::{Finding, Stop};
use crate::rule::{before, newest, relied, since, spec};
use crate::runtime::assertions::{End, only, order, same};
use crate::runtime::mock_plugin::{PREFIX, Received};
use crate::runtime::{Rule, RuntimeBench};
use serde_json::json;
use std::fs;
use testns::Verb::{Add, Check, Del, Gc};

pub(super) const RULES: &[Rule] = &[
    spec("config.newest-version", &["versions/highest"], RUNTIMES)
        .says("Of the versions in cniVersions a runtime uses the newest that it speaks.")
        .by(&[since("1.1.0", "", newest_version)
            .does("A list of 0.4.0 whose cniVersions have newer ones, and one that does not exist.")]),
    relied("config.unknown-keys", "lists that were written for a newer runtime", RUNTIMES)
        .says("Keys of a list that a runtime does not know are ignored.")
        .by(&[newest("", unknown_keys).does("ADD of a list with unknown keys.")]),
    relied("config.plugins-aside", "operators whose plugins lay a file beside a list, as libcni reads it", RUNTIMES)
        .says("Plugin objects in the folder of the network's name belong to it, in the order of their names.")
        .by(&[
            since("1.1.0", "beside-the-lists-own", plugins_aside)
                .does("A list of one plugin, and two objects in the folder of its name."),
            since("1.1.0", "alone", plugins_aside_alone).does("The same without plugins in the list."),
        ]),
    spec("config.aside-come-last", &["format/aside-is-appended"], RUNTIMES)
        .says(
            "Plugin objects that a runtime has from elsewhere, from the folder of the network's name for \
              example, follow those in the list.",
        )
        .by(&[since("1.1.0", "", aside_come_last)
            .does("A list of one plugin, and two objects in the folder of its name; the list's is called first.")]),
    spec("config.aside-is-validated", &["objects/aside-is-validated"], RUNTIMES)
        .says("A plugin object from elsewhere that is not valid, as its type is a path, is not called.")
        .by(&[since("1.1.0", "", aside_is_validated)
            .does("An object in the folder of the network's name whose type is a path.")]),
    spec("config.only-inlined", &["format/only-inlined"], RUNTIMES)
        .says(
            "With loadOnlyInlinedPlugins nothing is loaded but what the list has itself, and it has to have \
              something.",
        )
        .by(&[
            since("1.1.0", "beside-others", only_inlined)
                .does("A list with loadOnlyInlinedPlugins, and objects in the folder of its name."),
            since("1.1.0", "without-plugins", nothing_inlined).does("The same list without plugins; ADD has to fail."),
        ]),
    relied("config.type-is-no-path", "operators, whose lists name plugins and no other executables", RUNTIMES)
        .says("A type with a slash in it is refused: it names an executable, not a path.")
        .by(&[
            newest("relative", |bench| refuses_type(bench, &format!("../bin/{PREFIX}-a")))
                .does("A type that leads to a mock plugin by \"..\"."),
            newest("absolute", |bench| {
                refuses_type(bench, &bench.node.bin_dir().join(format!("{PREFIX}-a")).display().to_string())
            })
            .does("A type that is the absolute path of a mock plugin."),
            newest("empty", |bench| refuses_type(bench, "")).does("An empty type."),
        ]),
    relied("config.names-are-checked", "plugins, which build paths of the name", RUNTIMES)
        .says("Names of networks that the specification forbids reach no plugin.")
        .by(&[newest("", bad_network).does("ADD of the network ../conformance.")]),
    spec("config.container-ids-are-checked", &["parameters/container-id"], RUNTIMES)
        .says("IDs of containers that the specification forbids reach no plugin.")
        .by(&[newest("", bad_container).does("ADD with the container ID ../container.")]),
    relied("config.ifnames-are-checked", "plugins and the kernel, which would refuse them late", RUNTIMES)
        .says("Names that no interface may have reach no plugin.")
        .by(&[
            newest("ifname-slash", |bench| bad_ifname(bench, "a/b")).does("ADD with the interface name a/b."),
            newest("ifname-long", |bench| bad_ifname(bench, "sixteen-letters-")).does("ADD with a name of 16 letters."),
            newest("ifname-space", |bench| bad_ifname(bench, "a b")).does("ADD with a name that has a space."),
            newest("ifname-colon", |bench| bad_ifname(bench, "a:b")).does("ADD with a:b."),
            newest("ifname-dots", |bench| bad_ifname(bench, "..")).does("ADD with \"..\"."),
        ]),
    spec("config.ifnames-in-0.4.0", &["parameters/ifname-0.4.0"], RUNTIMES)
        .says("The name of the interface is one that Linux allows.")
        .by(&[
            before("1.0.0", "ifname-slash", |bench| bad_ifname(bench, "a/b")).does("ADD with the interface name a/b."),
            before("1.0.0", "ifname-long", |bench| bad_ifname(bench, "sixteen-letters-"))
                .does("ADD with a name of 16 letters."),
            before("1.0.0", "ifname-dots", |bench| bad_ifname(bench, "..")).does("ADD with \"..\"."),
        ]),
    relied("config.search-order", "operators, who replace a plugin by a folder before the others", RUNTIMES)
        .says("An executable is looked up in the folders of plugins in their order: the first that has it counts.")
        .by(&[
            newest("first", |bench| found_in(bench, "a", 0)).does("ADD with a type that both folders have."),
            newest("second", |bench| found_in(bench, "far", 1))
                .does("ADD with a type that only the second folder has."),
        ]),
    spec("config.missing-executable", &["adding/executable"], RUNTIMES)
        .says("A plugin whose executable is not there is an error.")
        .by(&[
            newest("ADD", missing_with_add).does("ADD of a list whose second plugin there is not."),
            newest("CHECK", |bench| missing_later(bench, Check))
                .does("CHECK when the second plugin's executable was deleted."),
            newest("DEL", |bench| missing_later(bench, Del))
                .does("DEL when the second plugin's executable was deleted."),
            since("1.1.0", "GC", |bench| missing_later(bench, Gc))
                .does("GC when the second plugin's executable was deleted."),
        ]),
    relied("config.broken-neighbour", "operators with several networks", RUNTIMES)
        .says("A file of another network that cannot be read as a list does not hinder this one.")
        .by(&[newest("", broken_neighbour).does("A file of half an object lies before the network's own.")]),
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
    Finding::unless(received.len() == 1, "the plugin is called", "it was not")
}
