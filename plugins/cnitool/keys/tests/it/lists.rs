//! Lists: syntax, their own keys, the order of plugins.

use crate::check;
use expect_test::expect;

#[test]
fn syntax() {
    check(
        "x.conflist",
        &[
            "{\n  \"name\": \"é\", «}»\n",
            "{\n  «/»/ a comment\n  \"name\": \"a\"}",
            "{\n  \"name\": «'»a'}",
            "{\n  \"name\": \"a\"\n  «\"»plugins\": []}",
            "{\"name\": \"a\"«»",
            "«»",
            "{} «x»",
            "«\u{feff}»{}",
        ],
        &expect![[r#"
            error: key must be a string [JSON allows no comma after the last entry.]
            error: key must be a string [JSON has no comments.]
            error: expected value [JSON has double quotes only.]
            error: expected `,` or `}`
            error: EOF while parsing an object
            error: EOF while parsing a value
            error: trailing characters
            error: expected value [The file begins with a byte order mark: save it as UTF-8 without one.]"#]],
    );
}

#[test]
fn keys_of_the_list() {
    check(
        "x.conflist",
        &[
            r#"«[»]"#,
            r#"«{»"cniVersion": "1.0.0", "plugins": [{"type": "loopback"}]}"#,
            r#"{"cniVersion": "1.0.0", "name": «"a b"», "plugins": [{"type": "loopback"}]}"#,
            r#"{"cniVersion": «"1.2.0"», "name": "a", "plugins": [{"type": "loopback"}]}"#,
            r#"{"cniVersion": «1», "name": "a", "plugins": [{"type": "loopback"}]}"#,
            r#"«{»"cniVersion": "1.0.0", "name": "a", «"plugin"»: [{"type": "loopback"}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": «[»]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": «{»"type": "loopback"}}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "loopback"}, «{»"typ": "bridge"}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": «"../bridge"»}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "disableCheck": «"maybe"», "plugins": [{"type": "loopback"}]}"#,
            r#"«{»"cniVersion": "1.0.0", "name": "a", "type": "loopback"}"#,
        ],
        &expect![[r#"
            error: cannot parse network config: invalid type: sequence, expected a JSON object
            error: missing network name
            error: invalid characters found in network name [a b]
            error: incompatible CNI versions: network a has cniVersion "1.2.0" [Known are 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0.]
            error: key cniVersion = 1: invalid type: integer `1`, expected a string
            warning: key plugins is missing: only plugins of a folder beside the file, of the network's name, are called
            warning: key plugin is unknown and is ignored [Did you mean plugins?]
            error: no plugins in list
            error: key plugins = {"type": "loopback"}: invalid type: map, expected a sequence
            error: key type is missing: the file name of an executable in CNI_PATH
            error: key type = "../bridge": invalid plugin type: a file name, not a path, is looked up in CNI_PATH
            error: key disableCheck = "maybe": want true or false
            error: key plugins is missing [Call the file *.conf if it is a single plugin's.]"#]],
    );
    check(
        "x.conf",
        &[r#"«{»"cniVersion": "1.0.0", "name": "a", «"plugins"»: [{"type": "loopback"}]}"#],
        &expect![[r#"
            error: key type is missing: the file name of an executable in CNI_PATH
            note: files with a list of plugins are called *.conflist"#]],
    );
}

#[test]
fn plugins_that_do_not_fit_together() {
    check(
        "x.conflist",
        &[
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": «"tuning"»}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"}, {"type": «"bridge"»}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"}, {"type": «"host-local"», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"}, {"type": «"portmap"»}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"}, {"type": «"portmap"», "capabilities": {«"portMapping"»: true}}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"}, {"type": «"bandwidth"»}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge", "capabilities": {"mac": true}, «"runtimeConfig"»: {}}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": «"calico"»}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": «"brigde"»}]}"#,
        ],
        &expect![[r#"
            error: tuning changes what an earlier plugin made, and stands first [Put the plugin that makes the interface before it.]
            error: bridge makes the container's interface, which bridge has made already [Give each interface a network of its own.]
            error: host-local makes no interface [It belongs into another plugin's ipam object: "ipam": {"type": "host-local"}.]
            warning: without capability portMappings no runtime gives portmap anything to do [Add "capabilities": {"portMappings": true}.]
            warning: without capability portMappings no runtime gives portmap anything to do [Add "capabilities": {"portMappings": true}.]
            warning: no runtime knows capability portMapping [Did you mean portMappings?]
            warning: without capability bandwidth no runtime gives bandwidth anything to do [Add "capabilities": {"bandwidth": true}.]
            warning: a runtime replaces key runtimeConfig by what the capabilities ask for
            note: plugin calico is not part of this suite: its keys are not checked
            warning: plugin brigde is unknown [Did you mean bridge?]"#]],
    );
}
