//! Lists: syntax, their own keys, the order of plugins.

use crate::keys::check;
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
            error: the file is empty [Remove it, or write a network into it.]
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
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "loopback"}, {«"typ"»: "bridge"}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "loopback"}, {«"type:"»: "vrf", "vrfname": "blue"}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "loopback"}, «{»"bridge": "cni0"}]}"#,
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
            error: key type is missing: the file name of an executable in CNI_PATH [Did you mean type? The key is "typ".]
            error: key type is missing: the file name of an executable in CNI_PATH [Did you mean type? The key is "type:".]
            error: key type is missing: the file name of an executable in CNI_PATH
            error: key type = "../bridge": invalid plugin type: a file name, not a path, is looked up in CNI_PATH
            error: key disableCheck = "maybe": want true or false
            error: key plugins is missing [Call the file *.conf if it is a single plugin's.]"#]],
    );
    check(
        "x.conf",
        &[
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": «[»{"type": "loopback"}]}"#,
            r#"«{»"cniVersion": "1.0.0", "type": "loopback"}"#,
            r#"«{»"cniVersion": "1.0.0", "type": "vlan", "master": "eth0", "vlanId": 5}"#,
        ],
        &expect![[r#"
            error: key plugins has a list, and this file is read as one plugin's [Files with a list of plugins are called *.conflist: rename it.]
            note: missing network name [Remove the file: runtimes set lo up without it. CRI-O calls such a network by its file's name.]
            error: missing network name [Add key name: CRI-O takes the file's name in its place, other runtimes refuse the network.]
            error: plugin vlan needs key ipam [Name an address plugin by ipam.type, such as host-local.]"#]],
    );
}

#[test]
fn keys_that_an_object_has_twice() {
    check(
        "x.conflist",
        &[
            r#"{"cniVersion": "1.0.0", "name": "b", «"name"»: "a", "plugins": [{"type": "loopback"}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "ptp", "name": "w", «"type"»: "bridge"}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24", "gateway": "10.1.0.7", «"gateway"»: "10.1.0.1"}]]}}]}"#,
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"}, {"type": "tuning", "sysctl": {"net.core.somaxconn": "5", «"net.core.somaxconn"»: "6"}}]}"#,
        ],
        &expect![[r#"
            warning: key name is in this object twice: the last value counts, and the one before it is ignored [Remove one of both.]
            warning: key type is in this object twice: the last value counts, and the one before it is ignored [Remove one of both.]
            warning: key gateway is in this object twice: the last value counts, and the one before it is ignored [Remove one of both.]
            warning: key net.core.somaxconn is in this object twice: the last value counts, and the one before it is ignored [Remove one of both.]"#]],
    );
}

/// What a plugin's parser only warns of has its place, too: of two plugins of one type, that of the one it is about.
#[test]
fn what_a_plugin_only_warns_of() {
    check(
        "x.conflist",
        &[
            r#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"}, {"type": "firewall", "backend": "iptables"}, {"type": "firewall", "backend": «"ipfw"»}]}"#,
        ],
        &expect![[
            r#"warning: key backend = "ipfw": the backend is unknown: firewalld is used if it runs, else iptables"#
        ]],
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
