//! Network configurations, from memory and from folders.

use crate::test_folder::Folder;
use expect_test::{Expect, expect};
use libcni::{NetworkConf, conflist};

/// Parses each list of the table, and shows it, or why it is refused, in the line after it.
fn check(table: &Expect) {
    let lists = table.data().lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("=> "));
    let shown: String = lists.map(|list| format!("{list}\n=> {}\n", parsed(list))).collect();
    table.assert_eq(&shown);
}

fn parsed(list: &str) -> String {
    match NetworkConf::parse(list.as_bytes()) {
        Ok(net) => show(&net),
        Err(error) => format!("{}: {error}", error.code.0),
    }
}

fn show(net: &NetworkConf) -> String {
    let plugins: Vec<_> = net.plugins.iter().map(|plugin| plugin.plugin_type.as_str()).collect();
    let flags = [(net.disable_check, " disableCheck"), (net.disable_gc, " disableGC")];
    let flags: String = flags.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    format!("{:?} {:?} {plugins:?}{flags}", net.name, net.cni_version)
}

#[test]
fn bools_may_be_texts() {
    check(&expect![[r#"
        {"name":"n","disableCheck":"TRUE","disableGC":"false","plugins":[{"type":"a"}]}
        => "n" "" ["a"] disableCheck
        {"name":"n","disableGC":true}
        => "n" "" [] disableGC
        {"name":"n","disableGC":"yes"}
        => 7: cannot use network config: key disableGC = "yes": want true or false
        {"name":"n","disableGC":1}
        => 7: cannot use network config: key disableGC = 1: want true or false
    "#]]);
}

#[test]
fn the_highest_known_version_is_chosen() {
    check(&expect![[r#"
        {"name":"n","cniVersion":"0.4.0","plugins":[{"type":"a"}]}
        => "n" "0.4.0" ["a"]
        {"name":"n","cniVersion":"0.3.1","cniVersions":["1.0.0","0.4.0","1.2.0"],"plugins":[{"type":"a"}]}
        => "n" "1.0.0" ["a"]
        {"name":"n","cniVersion":"1.1.0","cniVersions":["0.4.0"],"plugins":[{"type":"a"}]}
        => "n" "1.1.0" ["a"]
        {"name":"n","cniVersion":"2.0.0","cniVersions":["3.0.0"],"plugins":[{"type":"a"}]}
        => "n" "2.0.0" ["a"]
        {"name":"n","cniVersions":["1.0.0"],"plugins":[{"type":"a"}]}
        => "n" "1.0.0" ["a"]
        {"name":"n","cniVersions":["1.0.x"],"plugins":[{"type":"a"}]}
        => 6: cannot parse version "1.0.x": want up to three numbers, such as 1.1.0
        {"name":"n","cniVersions":[1],"plugins":[{"type":"a"}]}
        => 7: cannot use network config: key cniVersions = [1]: invalid type: integer `1`, expected a string
    "#]]);
}

#[test]
fn what_is_wrong_is_named() {
    assert_eq!(parsed(""), "6: cannot parse network config: EOF while parsing a value at line 1 column 0");
    check(&expect![[r#"
        []
        => 6: cannot parse network config: invalid type: sequence, expected a JSON object at line 1 column 0
        {}
        => 7: cannot use network config: missing network name
        {"name":7}
        => 7: cannot use network config: key name = 7: invalid type: integer `7`, expected a string
        {"name":"n","plugins":[]}
        => 7: cannot use network config: no plugins in list
        {"name":"n","plugins":null}
        => 7: cannot use network config: key plugins = null: want an array of plugin objects
        {"name":"n","plugins":{}}
        => 7: cannot use network config: key plugins = {}: invalid type: map, expected a sequence
        {"name":"n","plugins":[{"type":"a"},{}]}
        => 7: cannot use network config: plugins[1]: key type is missing: the file name of an executable in CNI_PATH
        {"name":"n","plugins":[{"type":"../sh"}]}
        => 7: cannot use network config: plugins[0]: key type = "../sh": invalid plugin type: a file name, not a path, is looked up in CNI_PATH
        {"name":"n","plugins":["a"]}
        => 7: cannot use network config: plugins[0]: invalid type: string "a", expected a JSON object at line 1 column 3
        {"name":"n","plugins":[{"type":"a","capabilities":{"x":"yes"}}]}
        => 7: cannot use network config: plugins[0]: key capabilities = {"x":"yes"}: invalid type: string "yes", expected a boolean
        {"name":"n","loadOnlyInlinedPlugins":true}
        => 7: cannot use network config: key plugins is missing, and loadOnlyInlinedPlugins is true
    "#]]);
}

#[test]
fn a_single_plugin_is_a_list_of_one() {
    check(&expect![[r#"
        {"cniVersion":"0.4.0","name":"n","type":"a"}
        => "n" "0.4.0" ["a"]
        {"CNIVersion":"0.4.0","Name":"n","Type":"a"}
        => "n" "0.4.0" ["a"]
    "#]]);
}

fn find(folder: &Folder, name: &str, expected: &Expect) {
    let text = match conflist::find(folder.path(), name) {
        Ok(found) => {
            let passed: String = found.passed_over.iter().map(|file| format!("\n{file}")).collect();
            format!("{} from {}{passed}", show(&found.network), found.network.path().unwrap().display())
        }
        Err(error) => error.with_causes(),
    };
    expected.assert_eq(&folder.stable(&text));
}

#[test]
fn broken_files_are_skipped_and_reported() {
    let folder = Folder::new();
    folder.write("1.conflist", "{");
    folder.write("2.conflist", r#"{"name":"n"}"#);
    std::os::unix::fs::symlink("/nowhere", folder.path().join("3.conflist")).unwrap();
    folder.write("4.conflist", r#"{"name":"n","plugins":[{"type":"a"}]}"#);
    folder.write("5.conflist", "{");
    find(
        &folder,
        "n",
        &expect![[r#"
            "n" "" ["a"] from $DIR/4.conflist
            $DIR/1.conflist ignored: cannot parse network config: EOF while parsing an object at line 1 column 1
            $DIR/2.conflist ignored: cannot use network config: no plugins in list
            $DIR/3.conflist ignored: it is a link to /nowhere, which does not exist"#]],
    );
    std::fs::remove_file(folder.path().join("4.conflist")).unwrap();
    folder.write("6.conf", r#"{"name":"n"}"#);
    find(
        &folder,
        "n",
        &expect![[
            r#"no net configuration with name "n" in $DIR; $DIR/1.conflist ignored: cannot parse network config: EOF while parsing an object at line 1 column 1; $DIR/2.conflist ignored: cannot use network config: no plugins in list; $DIR/3.conflist ignored: it is a link to /nowhere, which does not exist; $DIR/5.conflist ignored: cannot parse network config: EOF while parsing an object at line 1 column 1; $DIR/6.conf ignored: cannot use network config: key type is missing: the file name of an executable in CNI_PATH"#
        ]],
    );
}

#[test]
fn a_name_that_is_a_path_leads_to_no_folder() {
    let folder = Folder::new();
    folder.write("x/10.conf", r#"{"type":"b"}"#);
    folder.write("conf/n.conflist", r#"{"name":"../x","plugins":[{"type":"a"}]}"#);
    let found = conflist::find(&folder.path().join("conf"), "../x").unwrap();
    assert_eq!(show(&found.network), r#""../x" "" ["a"]"#);
}

/// A text in another encoding, or half a surrogate pair: Go's decoder puts U+FFFD in their place.
#[test]
fn strings_that_are_no_unicode_are_read_as_go_reads_them() {
    let plugin = b"{\"type\":\"a\",\"x\":\"caf\xe9\",\"y\\ud800\":\"\\udc00\"}";
    let list = [b"{\"name\":\"n\",\"comment\":\"caf\xe9\",\"plugins\":[", &plugin[..], b"]}"].concat();
    let single = [b"{\"name\":\"n\",", &plugin[1..]].concat();
    let folder = Folder::new();
    for (file, text) in [("n.conflist", &list), ("n.conf", &single)] {
        let network = NetworkConf::read(&folder.write(file, text)).unwrap();
        assert_eq!(network.plugins[0].find("x"), Some("\"caf\u{fffd}\""), "{file}");
        assert_eq!(network.plugins[0].find("y\u{fffd}"), Some("\"\\ufffd\""), "{file}");
    }
    folder.write("n/10.conf", plugin);
    let network = NetworkConf::read(&folder.write("n.conflist", r#"{"name":"n"}"#)).unwrap();
    assert_eq!(network.plugins[0].find("x"), Some("\"caf\u{fffd}\""));
}
