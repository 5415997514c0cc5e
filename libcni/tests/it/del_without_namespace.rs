//! DEL when the namespace is gone.

use crate::test_folder::{Folder, network, wait};
use expect_test::expect;
use libcni::{AbsenceErrors, Attachment, DelErrors, NetworkConf};
use std::path::Path;

/// Prints `$dir/<name>.says` as its error.
const SAYING: &str = r#"
echo "$CNI_COMMAND $name [$CNI_NETNS]" >> "$dir/log"
cat "$dir/$name.says"; exit 1
"#;

fn gone() -> Attachment {
    Attachment::new("c1", "eth0").unwrap().netns("/run/netns/no-such-namespace")
}

#[test]
fn del_says_with_an_empty_variable_that_the_namespace_is_gone() {
    let folder = Folder::with(&[("a", r#"echo "$CNI_COMMAND [$CNI_NETNS]" >> "$dir/log"; echo {}"#)]);
    let (runtime, net) = (folder.runtime(), network("1.0.0", &["a"]));
    wait(runtime.add(&net, &gone())).unwrap();
    wait(runtime.del(&net, &gone())).unwrap();
    // A plain file, which is what unmounting leaves, is no namespace either.
    let file = folder.write("file", "").to_str().unwrap().to_owned();
    wait(runtime.del(&net, &gone().netns(file))).unwrap();
    wait(runtime.del(&net, &gone().netns("/proc/self/ns/net"))).unwrap();
    expect!["ADD [/run/netns/no-such-namespace], DEL [], DEL [], DEL [/proc/self/ns/net]"].assert_eq(&folder.log());
}

/// The output of plugins whose namespace is gone, and whether that counts as done where the caller wants it to.
#[test]
fn a_printed_error_about_an_absent_thing_may_count_as_done() {
    let folder = Folder::with(&[("a", SAYING)]);
    let forgiving = folder.builder().absence_errors(AbsenceErrors::CountAsDone).build();
    let net = network("1.0.0", &["a"]);
    let is_done = |runtime: &libcni::Runtime, netns: &str, says: &str| {
        folder.write("a.says", says);
        wait(runtime.del(&net, &gone().netns(netns))).is_ok()
    };
    let absent = r#"{"code":999,"msg":"failed to open netns: no such file or directory"}"#;
    assert!(is_done(&forgiving, "/run/netns/no-such-namespace", absent));
    assert!(is_done(&forgiving, "", r#"{"code":999,"msg":"cannot","details":"no such file or directory"}"#));
    assert!(!is_done(&folder.runtime(), "/run/netns/no-such-namespace", absent), "the option is off");
    assert!(!is_done(&forgiving, "/proc/self/ns/net", absent), "the namespace is there");
    for other in [
        r#"{"code":999,"msg":"device is busy"}"#,
        r#"{"code":999,"msg":"failed: fork/exec /sbin/iptables: no such file or directory"}"#,
        r#"{"code":999,"msg":"exec: \"ip\": executable file not found: no such file or directory"}"#,
        r#"{"code":108,"msg":"cannot start plugin x: no such file or directory"}"#,
        "sh: no such file or directory",
    ] {
        assert!(!is_done(&forgiving, "/run/netns/no-such-namespace", other), "{other}");
    }
}

#[test]
fn a_missing_executable_never_counts_as_done() {
    let folder = Folder::new();
    let runtime = folder.builder().absence_errors(AbsenceErrors::CountAsDone).build();
    assert!(wait(runtime.del(&network("1.0.0", &["absent"]), &gone())).is_err());
    std::fs::write(folder.plugin("b", ""), "#!/no/such/interpreter\n").unwrap();
    let error = wait(runtime.del(&network("1.0.0", &["b"]), &gone())).unwrap_err();
    assert!(error.to_string().contains("its interpreter /no/such/interpreter does not exist"), "{error}");
}

/// All of the reference's plugins that can be called without their devices. sbr wants to lock the namespace.
#[test]
fn the_references_plugins_succeed() {
    let Some(theirs) = testns::reference_or_skip("the_references_plugins_succeed") else { return };
    let folder = Folder::new();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    let ipam = format!(r#""ipam":{{"type":"host-local","subnet":"10.9.0.0/24","dataDir":"{data}"}}"#);
    let plugins = [
        format!(r#"{{"type":"bridge","ipMasq":true,{ipam}}}"#),
        format!(r#"{{"type":"ptp",{ipam}}}"#),
        format!(r#"{{"type":"ipvlan","master":"eth9",{ipam}}}"#),
        r#"{"type":"host-device","device":"eth9"}"#.to_owned(),
        r#"{"type":"loopback"}"#.to_owned(),
        r#"{"type":"portmap","snat":true}"#.to_owned(),
        r#"{"type":"bandwidth","ingressRate":1000,"ingressBurst":1000}"#.to_owned(),
        r#"{"type":"firewall","backend":"iptables"}"#.to_owned(),
        r#"{"type":"tuning","mtu":1400}"#.to_owned(),
        r#"{"type":"vrf","vrfname":"v"}"#.to_owned(),
        r#"{"type":"sbr"}"#.to_owned(),
    ];
    let list = format!(r#"{{"cniVersion":"1.0.0","name":"net","plugins":[{}]}}"#, plugins.join(","));
    let net = NetworkConf::parse(list.as_bytes()).unwrap();
    let builder = || folder.builder().plugin_dirs([theirs]).del_errors(DelErrors::CarryOn);
    let error = wait(builder().build().del(&net, &gone())).unwrap_err();
    expect![[r#"plugin type="sbr" failed (delete): no such file or directory"#]].assert_eq(&error.to_string());
    wait(builder().absence_errors(AbsenceErrors::CountAsDone).build().del(&net, &gone())).unwrap();
    assert!(!Path::new("/run/netns/no-such-namespace").exists());
}
