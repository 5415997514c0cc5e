//! Lists: syntax, their own keys, the order of plugins.

use crate::validate::marked_places::{check, check_plugins, find};
use expect_test::expect;

#[test]
fn syntax() {
    let texts = [
        "{\n  \"name\": \"é\", «}»\n",
        "{\n  «/»/ a comment\n  \"name\": \"a\"}",
        "{\n  \"name\": «'»a'}",
        "{\n  \"name\": \"a\"\n  «\"»plugins\": []}",
        "{\"name\": \"a\"«»",
        "«»",
        "{} «x»",
        "«\u{feff}»{}",
        "{\"name\": \"a«»",
        "{\"name\": «\u{201c}»a\u{201d}}",
        "{«\u{a0}»\"name\": \"a\"}",
        "{\"a\": «T»rue}",
        "{\"a\": tru«}»",
        "{\"a\"«}»",
        "{\"a\": \"10.1.0.0\\«2»4\"}",
        "«<»<<<<<< HEAD\n{}\n=======\n>>>>>>> b\n",
        "«c»niVersion: 1.0.0\nname: pods\n",
        "«\0»\0\0",
        "«\u{fffd}»\u{fffd}{\0\"\0",
    ];
    let all = texts.map(|text| find(&[("x.conflist", text)]));
    expect![[r#"
        error: key must be a string [JSON allows no comma after the last entry.]
        error: key must be a string [JSON has no comments.]
        error: expected value [JSON has double quotes only.]
        error: expected `,` or `}` [A comma is missing before this place, or a bracket.]
        error: EOF while parsing an object [The end is missing: a bracket is not closed, or the file was cut off while it was written.]
        error: the file is empty [Remove it, or write a network into it.]
        error: trailing characters [A file has one network: remove what comes behind it, or give it a file of its own.]
        error: the file begins with a byte order mark [Save it as UTF-8 without one.]
        error: EOF while parsing a string [The " that ends a text is missing.]
        error: expected value [These quotation marks are typographic: write " in their place.]
        error: key must be a string [An invisible character is here that is no blank, as from a web page: replace it by a blank.]
        error: expected value [JSON has true, false and null, in small letters.]
        error: expected ident [JSON has true, false and null, in small letters.]
        error: expected `:`
        error: invalid escape [Write \\ for a backslash; a prefix length comes after /.]
        error: expected value [Lines of a merge that was not finished begin with <<<<<<<, ======= and >>>>>>>: resolve it.]
        error: expected value [The file looks like YAML, and runtimes read JSON only.]
        error: expected value [The file has zero bytes only, as after a loss of power: write it anew.]
        error: the file is UTF-16 [Save it as UTF-8 without a byte order mark.]"#]]
    .assert_eq(&all.join("\n"));
}

#[test]
fn keys_of_the_list() {
    check(
        "x.conflist",
        &expect![[r#"
            «[»]
            => error: cannot parse network config: invalid type: sequence, expected a JSON object
            {"cniVersion": "1.0.0", "name": "n", «"type"»: "bridge", "plugins": [{"type": "loopback"}]}
            => warning: key type is ignored: the plugins of the file are those of key plugins [Remove it.]
            «{»"cniVersion": "1.0.0", "plugins": [{"type": "loopback"}]}
            => error: missing network name
            {"cniVersion": "1.0.0", "name": «"a b"», "plugins": [{"type": "loopback"}]}
            => error: invalid characters found in network name ["a b" is no name: write letters, digits and _ . -, of which the first is a letter or digit.]
            {"cniVersion": «"1.2.0"», "name": "a", "plugins": [{"type": "loopback"}]}
            => error: incompatible CNI versions: network a has cniVersion "1.2.0" [Known are 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0.]
            {"cniVersion": «1», "name": "a", "plugins": [{"type": "loopback"}]}
            => error: key cniVersion = 1: invalid type: integer `1`, expected a string
            «{»"cniVersion": "1.0.0", "name": "a", «"plugin"»: [{"type": "loopback"}]}
            => warning: key plugins is missing: only plugins of a folder beside the file, of the network's name, are called
            => warning: key plugin is unknown and is ignored [Did you mean plugins?]
            {"cniVersion": "1.0.0", "name": "a", "plugins": «[»]}
            => error: no plugins in list
            {"cniVersion": "1.0.0", "name": "a", "plugins": «{»"type": "loopback"}}
            => error: key plugins = {"type": "loopback"}: invalid type: map, expected a sequence
            {"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "loopback"}, {«"typ"»: "bridge"}]}
            => error: key type is missing: the file name of an executable in CNI_PATH [Did you mean type? The key is "typ".]
            {"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "loopback"}, {«"type:"»: "vrf", "vrfname": "blue"}]}
            => error: key type is missing: the file name of an executable in CNI_PATH [Did you mean type? The key is "type:".]
            {"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "loopback"}, «{»"bridge": "cni0"}]}
            => error: key type is missing: the file name of an executable in CNI_PATH
            {"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": «"../bridge"»}]}
            => error: key type = "../bridge": invalid plugin type: a file name, not a path, is looked up in CNI_PATH
            {"cniVersion": "1.0.0", "name": "a", "disableCheck": «"maybe"», "plugins": [{"type": "loopback"}]}
            => error: key disableCheck = "maybe": want true or false
            «{»"cniVersion": "1.0.0", "name": "a", "type": "loopback"}
            => error: key plugins is missing [Call the file *.conf if it is a single plugin's.]
        "#]],
    );
    check(
        "x.conf",
        &expect![[r#"
            {"cniVersion": "1.0.0", "name": "a", "plugins": «[»{"type": "loopback"}]}
            => error: key plugins has a list, and this file is read as one plugin's [Files with a list of plugins are called *.conflist: rename it.]
            «{»"apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition", "spec": {"config": "{}"}}
            => error: key type is missing: the file name of an executable in CNI_PATH [This is an object of a cluster, for kubectl. A runtime's file has what is the text of its spec.config.]
            {«"version"»: "0.3.0", "name": "a", "type": "dummy", "ipam": {"type": "dhcp"}}
            => warning: key version is unknown and is ignored: the network is of version 0.1.0 [Did you mean cniVersion?]
            «{»"cniVersion": "1.0.0", "type": "loopback"}
            => note: missing network name [Remove the file: runtimes set lo up without it. CRI-O calls such a network by its file's name.]
            «{»"cniVersion": "1.0.0", "type": "vlan", "master": "eth0", "vlanId": 5}
            => error: missing network name [Add key name: CRI-O takes the file's name in its place, other runtimes refuse the network.]
            => error: plugin vlan needs key ipam [Name an address plugin by ipam.type, such as host-local.]
        "#]],
    );
}

#[test]
fn keys_that_an_object_has_twice() {
    check(
        "x.conflist",
        &expect![[r#"
            {"cniVersion": "1.0.0", "name": "b", «"name"»: "a", "plugins": [{"type": "loopback"}]}
            => warning: key name is in this object twice: the last value counts, and the one before it is ignored [Remove one of both.]
            {"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "ptp", "name": "w", «"type"»: "bridge"}]}
            => warning: key type is in this object twice: the last value counts, and the one before it is ignored [Remove one of both.]
            {"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24", "gateway": "10.1.0.7", «"gateway"»: "10.1.0.1"}]]}}]}
            => warning: key gateway is in this object twice: the last value counts, and the one before it is ignored [Remove one of both.]
            {"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"}, {"type": "tuning", "sysctl": {"net.core.somaxconn": "5", «"net.core.somaxconn"»: "6"}}]}
            => warning: key net.core.somaxconn is in this object twice: the last value counts, and the one before it is ignored [Remove one of both.]
        "#]],
    );
}

/// What a plugin's parser only warns of has its place, too: of two plugins of one type, that of the one it is about.
#[test]
fn what_a_plugin_only_warns_of() {
    check_plugins(&expect![[r#"
        {"type": "bridge"}, {"type": "firewall", "backend": "iptables"}, {"type": «"firewall"», "backend": «"ipfw"»}
        => warning: firewall is in the list twice [Remove one of both.]
        => warning: key backend = "ipfw": the backend is unknown: firewalld is used if it runs, else iptables
    "#]]);
}

#[test]
fn plugins_that_do_not_fit_together() {
    check_plugins(&expect![[r#"
        {"type": «"tuning"»}
        => error: tuning changes what an earlier plugin made, and comes first [Put the plugin that makes the interface before it.]
        {"type": "bridge"}, {"type": «"bridge"»}
        => error: bridge makes the container's interface, which bridge has made already [Give each interface a network of its own.]
        {"type": "bridge"}, {"type": «"host-local"», "ipam": {"type": "host-local", "subnet": "10.1.0.0/24"}}
        => error: host-local makes no interface [It belongs into another plugin's ipam object: "ipam": {"type": "host-local"}.]
        {"type": "bridge"}, {"type": «"portmap"»}
        => warning: without capability portMappings no runtime gives portmap anything to do [Add "capabilities": {"portMappings": true}.]
        {"type": "bridge"}, {"type": «"portmap"», "capabilities": {«"portMapping"»: true}}
        => warning: without capability portMappings no runtime gives portmap anything to do [Add "capabilities": {"portMappings": true}.]
        => warning: no runtime knows capability portMapping [Did you mean portMappings?]
        {"type": "bridge"}, {"type": «"bandwidth"»}
        => warning: without capability bandwidth no runtime gives bandwidth anything to do [Add "capabilities": {"bandwidth": true}.]
        {"type": "bridge", "capabilities": {"mac": true}, «"runtimeConfig"»: {}}
        => warning: a runtime replaces key runtimeConfig by what the capabilities ask for
        {"type": "bridge"}, {"type": "portmap", "capabilities": {"portMappings": true, «"snat"»: true}}
        => note: no runtime knows capability snat [It is a key of portmap itself: write it beside capabilities.]
        {"type": "bridge"}, {"type": "firewall"}, {"type": «"firewall"»}
        => warning: firewall is in the list twice [Remove one of both.]
        {"type": "bridge", "isGateway": «true»}
        => warning: key isGateway does nothing without ipam: the bridge gets no address, and containers none [Name an address plugin by ipam.type, such as host-local.]
        {"type": "bridge", «"master"»: "eth0", "ipam": {"type": "host-local", "subnet": "10.1.0.0/24", «"range"»: "10.1.0.5-10.1.0.9", "exclude": ["10.1.0.1/32"]}}
        => warning: key master is none of bridge's, and is ignored [Put the link of the node into the bridge: ip link set LINK master BRIDGE; or use macvlan.]
        => warning: key ipam.range is unknown and is ignored [Did you mean ranges?]
        {"type": «"calico"»}
        => note: plugin calico is not part of this suite: its keys are not checked
        {"type": «"brigde"»}
        => warning: plugin brigde is unknown [Did you mean bridge?]
    "#]]);
}
