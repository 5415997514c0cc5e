//! SPEC 1: how a runtime reads a network's list, and finds the executables that it names.

use super::RUNTIMES;
use crate::finding::{Finding, Stop};
use crate::rule::{before, newest, relied, since, spec};
use crate::runtime::assertions::{End, only, order, same};
use crate::runtime::mock_plugin::{PREFIX, Received};
use crate::runtime::{Rule, RuntimeTestbed};
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
            newest("relative", |testbed| refuses_type(testbed, &format!("../bin/{PREFIX}-a")))
                .does("A type that leads to a mock plugin by \"..\"."),
            newest("absolute", |testbed| {
                refuses_type(testbed, &testbed.node.bin_dir().join(format!("{PREFIX}-a")).display().to_string())
            })
            .does("A type that is the absolute path of a mock plugin."),
            newest("empty", |testbed| refuses_type(testbed, "")).does("An empty type."),
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
            newest("ifname-slash", |testbed| bad_ifname(testbed, "a/b")).does("ADD with the interface name a/b."),
            newest("ifname-long", |testbed| bad_ifname(testbed, "sixteen-letters-"))
                .does("ADD with a name of 16 letters."),
            newest("ifname-space", |testbed| bad_ifname(testbed, "a b")).does("ADD with a name that has a space."),
            newest("ifname-colon", |testbed| bad_ifname(testbed, "a:b")).does("ADD with a:b."),
            newest("ifname-dots", |testbed| bad_ifname(testbed, "..")).does("ADD with \"..\"."),
        ]),
    spec("config.ifnames-in-0.4.0", &["parameters/ifname-0.4.0"], RUNTIMES)
        .says("The name of the interface is one that Linux allows.")
        .by(&[
            before("1.0.0", "ifname-slash", |testbed| bad_ifname(testbed, "a/b"))
                .does("ADD with the interface name a/b."),
            before("1.0.0", "ifname-long", |testbed| bad_ifname(testbed, "sixteen-letters-"))
                .does("ADD with a name of 16 letters."),
            before("1.0.0", "ifname-dots", |testbed| bad_ifname(testbed, "..")).does("ADD with \"..\"."),
        ]),
    relied("config.search-order", "operators, who replace a plugin by a folder before the others", RUNTIMES)
        .says("An executable is looked up in the folders of plugins in their order: the first that has it counts.")
        .by(&[
            newest("first", |testbed| found_in(testbed, "a", 0)).does("ADD with a type that both folders have."),
            newest("second", |testbed| found_in(testbed, "far", 1))
                .does("ADD with a type that only the second folder has."),
        ]),
    spec("config.missing-executable", &["adding/executable"], RUNTIMES)
        .says("A plugin whose executable is not there is an error.")
        .by(&[
            newest("ADD", missing_with_add).does("ADD of a list whose second plugin there is not."),
            newest("CHECK", |testbed| missing_later(testbed, Check))
                .does("CHECK when the second plugin's executable was deleted."),
            newest("DEL", |testbed| missing_later(testbed, Del))
                .does("DEL when the second plugin's executable was deleted."),
            since("1.1.0", "GC", |testbed| missing_later(testbed, Gc))
                .does("GC when the second plugin's executable was deleted."),
        ]),
    relied("config.broken-neighbour", "operators with several networks", RUNTIMES)
        .says("A file of another network that cannot be read as a list does not hinder this one.")
        .by(&[newest("", broken_neighbour).does("A file of half an object lies before the network's own.")]),
];

fn newest_version(testbed: &RuntimeTestbed) -> End {
    let mut list = testbed.list(&[testbed.plugin(1)]);
    list["cniVersion"] = json!("0.4.0");
    list["cniVersions"] = json!(["0.4.0", testbed.version, "1.0.0", "99.0.0"]);
    testbed.lay(&list);
    testbed.does(Add, &testbed.request())?;
    same("cniVersion", &json!(testbed.version), &only(&testbed.received())?.config()["cniVersion"])
}

fn unknown_keys(testbed: &RuntimeTestbed) -> End {
    let mut list = testbed.list(&[testbed.plugin(1)]);
    for (key, value) in [("example.com/key", json!({ "a": [1] })), ("Plugins", json!(1)), ("x", json!(null))] {
        list[key] = value;
    }
    testbed.lay(&list);
    testbed.does(Add, &testbed.request())?;
    order(&testbed.received(), &[(Add, 1)])
}

fn aside(testbed: &RuntimeTestbed) {
    testbed.lay_aside("20-last.conf", &testbed.plugin(3));
    testbed.lay_aside("10-first.conf", &testbed.plugin(2));
    testbed.lay_aside("30-note.txt", &json!("no plugin object"));
}

fn plugins_aside(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    aside(testbed);
    testbed.does(Add, &testbed.request())?;
    order(&testbed.received(), &[(Add, 1), (Add, 2), (Add, 3)])
}

fn plugins_aside_alone(testbed: &RuntimeTestbed) -> End {
    let mut list = testbed.list(&[]);
    list.as_object_mut().and_then(|list| list.shift_remove("plugins"));
    testbed.lay(&list);
    aside(testbed);
    testbed.does(Add, &testbed.request())?;
    order(&testbed.received(), &[(Add, 2), (Add, 3)])
}

fn aside_come_last(testbed: &RuntimeTestbed) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    aside(testbed);
    testbed.does(Add, &testbed.request())?;
    let received = testbed.received();
    match received.first().map(Received::place) {
        Some(1) if received.len() == 1 => Err(Stop::Skips("it loads no plugins from elsewhere".to_owned())),
        place => same("the plugin that is called first", &Some(1), &place),
    }
}

fn aside_is_validated(testbed: &RuntimeTestbed) -> End {
    testbed.works()?;
    let list = testbed.list(&[testbed.plugin(1)]);
    let mut invalid = testbed.plugin(2);
    invalid["type"] = json!(format!("../bin/{PREFIX}-a"));
    testbed.lay(&list);
    testbed.lay_aside("10-invalid.conf", &invalid);
    // The runtime may go on without the invalid object, or not.
    testbed.run(Add, &testbed.request())?;
    let called: Vec<_> = testbed.received().iter().map(Received::place).filter(|place| *place == 2).collect();
    same("calls of the plugin whose object is not valid", [0; 0].as_slice(), called.as_slice())
}

fn nothing_inlined(testbed: &RuntimeTestbed) -> End {
    testbed.works()?;
    testbed.works()?;
    let mut list = testbed.list(&[]);
    list.as_object_mut().and_then(|list| list.shift_remove("plugins"));
    list["loadOnlyInlinedPlugins"] = json!(true);
    testbed.lay(&list);
    aside(testbed);
    testbed.run(Add, &testbed.request())?.fails("the list has no plugins, and may have none from elsewhere")?;
    order(&testbed.received(), &[])
}

fn only_inlined(testbed: &RuntimeTestbed) -> End {
    let mut list = testbed.list(&[testbed.plugin(1)]);
    list["loadOnlyInlinedPlugins"] = json!(true);
    testbed.lay(&list);
    aside(testbed);
    testbed.does(Add, &testbed.request())?;
    order(&testbed.received(), &[(Add, 1)])
}

fn refuses_type(testbed: &RuntimeTestbed, kind: &str) -> End {
    testbed.works()?;
    let mut object = testbed.plugin(1);
    object["type"] = json!(kind);
    testbed.lay(&testbed.list(&[object]));
    testbed.run(Add, &testbed.request())?.fails(&format!("type is {kind:?}"))?;
    order(&testbed.received(), &[])
}

fn bad_network(testbed: &RuntimeTestbed) -> End {
    testbed.needs("network")?;
    testbed.works()?;
    let mut list = testbed.list(&[testbed.plugin(1)]);
    list["name"] = json!("../conformance");
    testbed.lay(&list);
    let mut request = testbed.request();
    request.network = "../conformance".to_owned();
    testbed.run(Add, &request)?.fails("the network's name has slashes")?;
    order(&testbed.received(), &[])
}

fn bad_ifname(testbed: &RuntimeTestbed, name: &str) -> End {
    testbed.needs("ifname")?;
    testbed.works()?;
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    let mut request = testbed.request();
    request.attachment.ifname = name.to_owned();
    testbed.run(Add, &request)?.fails(&format!("no interface may be called {name:?}"))?;
    order(&testbed.received(), &[])
}

fn bad_container(testbed: &RuntimeTestbed) -> End {
    testbed.needs("container")?;
    testbed.works()?;
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    let mut request = testbed.request();
    request.attachment.container_id = "../container".to_owned();
    testbed.run(Add, &request)?.fails("the container's ID has slashes")?;
    order(&testbed.received(), &[])
}

fn found_in(testbed: &RuntimeTestbed, ending: &str, folder: usize) -> End {
    testbed.needs("bin_dir")?;
    let mut object = testbed.plugin(1);
    object["type"] = json!(format!("{PREFIX}-{ending}"));
    testbed.lay(&testbed.list(&[object]));
    testbed.does(Add, &testbed.request())?;
    let received = testbed.received();
    let called = only(&received)?.arguments.first().cloned().unwrap_or_default();
    let expected = testbed.bin_dirs()[folder].join(format!("{PREFIX}-{ending}")).display().to_string();
    same("the executable", &expected, &called)
}

fn missing_with_add(testbed: &RuntimeTestbed) -> End {
    testbed.works()?;
    let mut object = testbed.plugin(2);
    object["type"] = json!("there-is-no-such-plugin");
    testbed.lay(&testbed.list(&[testbed.plugin(1), object]));
    testbed.run(Add, &testbed.request())?.fails("an executable is missing").map(|_| ())
}

fn missing_later(testbed: &RuntimeTestbed, verb: testns::Verb) -> End {
    testbed.lay(&testbed.list(&[testbed.plugin(1), testbed.plugin(2)]));
    let request = testbed.request();
    testbed.does(Add, &request)?;
    let removed = fs::remove_file(testbed.node.bin_dir().join(format!("{PREFIX}-b")));
    removed.unwrap_or_else(|error| panic!("cannot remove a plugin: {error}"));
    testbed.run(verb, &request)?.fails("an executable is missing").map(|_| ())
}

fn broken_neighbour(testbed: &RuntimeTestbed) -> End {
    let written = fs::write("/etc/cni/net.d/05-broken.conflist", "{\"name\":");
    written.unwrap_or_else(|error| panic!("cannot write: {error}"));
    testbed.lay(&testbed.list(&[testbed.plugin(1)]));
    testbed.does(Add, &testbed.request())?;
    let received = testbed.received();
    Finding::unless(received.len() == 1, "the plugin is called", "it was not")
}
