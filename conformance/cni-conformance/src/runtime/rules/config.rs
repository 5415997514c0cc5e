//! SPEC 1: how a runtime reads a network's list, and finds the executables that it names.

use super::{newest, rule};
use crate::finding::Stop;
use crate::rule::Source::{Relied, Spec};
use crate::rule::Versions;
use crate::runtime::judge::{Heard, PREFIX};
use crate::runtime::look::{End, holds, only, order, same};
use crate::runtime::{Case, Rule, Stand};
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
        Spec(&["objects/type"]),
        "A type with a slash in it is refused: it names an executable, not a path.",
        &[
            newest("relative", |stand| refuses_type(stand, &format!("../bin/{PREFIX}-a"))),
            newest("absolute", |stand| {
                refuses_type(stand, &stand.node.bin_dir().join(format!("{PREFIX}-a")).display().to_string())
            }),
            newest("empty", |stand| refuses_type(stand, "")),
        ],
    ),
    rule(
        "config.names-are-checked",
        Spec(&["format/name", "parameters/container-id"]),
        "Names of networks and IDs of containers that the specification forbids reach no plugin.",
        &[newest("network", bad_network), newest("container", bad_container)],
    ),
    rule(
        "config.ifnames-are-checked",
        Relied("plugins and the kernel, which would refuse them late"),
        "Names that no interface may have reach no plugin.",
        &[
            newest("ifname-slash", |stand| bad_ifname(stand, "a/b")),
            newest("ifname-long", |stand| bad_ifname(stand, "sixteen-letters-")),
            newest("ifname-space", |stand| bad_ifname(stand, "a b")),
            newest("ifname-colon", |stand| bad_ifname(stand, "a:b")),
            newest("ifname-dots", |stand| bad_ifname(stand, "..")),
        ],
    ),
    rule(
        "config.search-order",
        Relied("operators, who replace a plugin by a folder before the others"),
        "An executable is looked up in the folders of plugins in their order: the first that has it counts.",
        &[newest("first", |stand| found_in(stand, "a", 0)), newest("second", |stand| found_in(stand, "far", 1))],
    ),
    rule(
        "config.missing-executable",
        Spec(&["adding/executable"]),
        "A plugin whose executable is not there is an error.",
        &[
            newest("ADD", missing_with_add),
            newest("CHECK", |stand| missing_later(stand, Check)),
            newest("DEL", |stand| missing_later(stand, Del)),
            Case { name: "GC", versions: Versions::From("1.1.0"), run: |stand| missing_later(stand, Gc) },
        ],
    ),
    rule(
        "config.broken-neighbour",
        Relied("operators with several networks"),
        "A file of another network that cannot be read as a list does not hinder this one.",
        &[newest("", broken_neighbour)],
    ),
];

fn newest_version(stand: &Stand) -> End {
    let mut list = stand.list(&[stand.judge(1)]);
    list["cniVersion"] = json!("0.4.0");
    list["cniVersions"] = json!(["0.4.0", stand.version, "1.0.0", "99.0.0"]);
    stand.lay(&list);
    stand.does(Add, &stand.request())?;
    same("cniVersion", &json!(stand.version), &only(&stand.heard())?.config()["cniVersion"])
}

fn unknown_keys(stand: &Stand) -> End {
    let mut list = stand.list(&[stand.judge(1)]);
    for (key, value) in [("example.com/key", json!({ "a": [1] })), ("Plugins", json!(1)), ("x", json!(null))] {
        list[key] = value;
    }
    stand.lay(&list);
    stand.does(Add, &stand.request())?;
    order(&stand.heard(), &[(Add, 1)])
}

fn aside(stand: &Stand) {
    stand.lay_aside("20-last.conf", &stand.judge(3));
    stand.lay_aside("10-first.conf", &stand.judge(2));
    stand.lay_aside("30-note.txt", &json!("no plugin object"));
}

fn plugins_aside(stand: &Stand) -> End {
    stand.lay(&stand.list(&[stand.judge(1)]));
    aside(stand);
    stand.does(Add, &stand.request())?;
    order(&stand.heard(), &[(Add, 1), (Add, 2), (Add, 3)])
}

fn plugins_aside_alone(stand: &Stand) -> End {
    let mut list = stand.list(&[]);
    list.as_object_mut().and_then(|list| list.shift_remove("plugins"));
    stand.lay(&list);
    aside(stand);
    stand.does(Add, &stand.request())?;
    order(&stand.heard(), &[(Add, 2), (Add, 3)])
}

fn aside_come_last(stand: &Stand) -> End {
    stand.lay(&stand.list(&[stand.judge(1)]));
    aside(stand);
    stand.does(Add, &stand.request())?;
    let heard = stand.heard();
    match heard.first().map(Heard::place) {
        Some(1) if heard.len() == 1 => Err(Stop::Skips("it loads no plugins from elsewhere".to_owned())),
        place => same("the plugin that is called first", &Some(1), &place),
    }
}

fn aside_is_validated(stand: &Stand) -> End {
    stand.works()?;
    let list = stand.list(&[stand.judge(1)]);
    let mut invalid = stand.judge(2);
    invalid["type"] = json!(format!("../bin/{PREFIX}-a"));
    stand.lay(&list);
    stand.lay_aside("10-invalid.conf", &invalid);
    // Whether it goes on without that one is its own affair.
    stand.run(Add, &stand.request())?;
    let called: Vec<_> = stand.heard().iter().map(Heard::place).filter(|place| *place == 2).collect();
    same("calls of the plugin whose object is not valid", [0; 0].as_slice(), called.as_slice())
}

fn nothing_inlined(stand: &Stand) -> End {
    stand.works()?;
    stand.works()?;
    let mut list = stand.list(&[]);
    list.as_object_mut().and_then(|list| list.shift_remove("plugins"));
    list["loadOnlyInlinedPlugins"] = json!(true);
    stand.lay(&list);
    aside(stand);
    stand.run(Add, &stand.request())?.fails("the list has no plugins, and may have none from elsewhere")?;
    order(&stand.heard(), &[])
}

fn only_inlined(stand: &Stand) -> End {
    let mut list = stand.list(&[stand.judge(1)]);
    list["loadOnlyInlinedPlugins"] = json!(true);
    stand.lay(&list);
    aside(stand);
    stand.does(Add, &stand.request())?;
    order(&stand.heard(), &[(Add, 1)])
}

fn refuses_type(stand: &Stand, kind: &str) -> End {
    stand.works()?;
    let mut object = stand.judge(1);
    object["type"] = json!(kind);
    stand.lay(&stand.list(&[object]));
    stand.run(Add, &stand.request())?.fails(&format!("type is {kind:?}"))?;
    order(&stand.heard(), &[])
}

fn bad_network(stand: &Stand) -> End {
    stand.needs("network")?;
    stand.works()?;
    let mut list = stand.list(&[stand.judge(1)]);
    list["name"] = json!("../conformance");
    stand.lay(&list);
    let mut request = stand.request();
    request.network = "../conformance".to_owned();
    stand.run(Add, &request)?.fails("the network's name has slashes")?;
    order(&stand.heard(), &[])
}

fn bad_ifname(stand: &Stand, name: &str) -> End {
    stand.needs("ifname")?;
    stand.works()?;
    stand.lay(&stand.list(&[stand.judge(1)]));
    let mut request = stand.request();
    request.attachment.ifname = name.to_owned();
    stand.run(Add, &request)?.fails(&format!("no interface may be called {name:?}"))?;
    order(&stand.heard(), &[])
}

fn bad_container(stand: &Stand) -> End {
    stand.needs("container")?;
    stand.works()?;
    stand.lay(&stand.list(&[stand.judge(1)]));
    let mut request = stand.request();
    request.attachment.container_id = "../container".to_owned();
    stand.run(Add, &request)?.fails("the container's ID has slashes")?;
    order(&stand.heard(), &[])
}

fn found_in(stand: &Stand, ending: &str, folder: usize) -> End {
    stand.needs("bin_dir")?;
    let mut object = stand.judge(1);
    object["type"] = json!(format!("{PREFIX}-{ending}"));
    stand.lay(&stand.list(&[object]));
    stand.does(Add, &stand.request())?;
    let heard = stand.heard();
    let called = only(&heard)?.arguments.first().cloned().unwrap_or_default();
    let expected = stand.bin_dirs()[folder].join(format!("{PREFIX}-{ending}")).display().to_string();
    same("the executable", &expected, &called)
}

fn missing_with_add(stand: &Stand) -> End {
    stand.works()?;
    let mut object = stand.judge(2);
    object["type"] = json!("there-is-no-such-plugin");
    stand.lay(&stand.list(&[stand.judge(1), object]));
    stand.run(Add, &stand.request())?.fails("an executable is missing").map(|_| ())
}

fn missing_later(stand: &Stand, verb: testns::Verb) -> End {
    stand.lay(&stand.list(&[stand.judge(1), stand.judge(2)]));
    let request = stand.request();
    stand.does(Add, &request)?;
    let removed = fs::remove_file(stand.node.bin_dir().join(format!("{PREFIX}-b")));
    removed.unwrap_or_else(|error| panic!("cannot remove a judge: {error}"));
    stand.run(verb, &request)?.fails("an executable is missing").map(|_| ())
}

fn broken_neighbour(stand: &Stand) -> End {
    let written = fs::write("/etc/cni/net.d/05-broken.conflist", "{\"name\":");
    written.unwrap_or_else(|error| panic!("cannot write: {error}"));
    stand.lay(&stand.list(&[stand.judge(1)]));
    stand.does(Add, &stand.request())?;
    let heard = stand.heard();
    holds(heard.len() == 1, "the plugin is called", "it was not")
}
