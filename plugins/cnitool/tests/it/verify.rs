//! Comparison of a folder with releases' manifests.

use crate::fixture::{Ended, Tool};
use crate::install::multicall;
use expect_test::expect;
use std::process::Command;

fn sha256(tool: &Tool, name: &str) -> String {
    let output = Command::new("sha256sum").arg(tool.path(name)).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split(' ').next().unwrap().to_owned()
}

/// Writes a manifest of `from/cni-plugins` for bridge, host-local and vlan.
fn manifest(tool: &Tool, release: &str) {
    multicall(tool, release);
    let digest = sha256(tool, "from/cni-plugins");
    tool.write(
        &format!("{release}.json"),
        &format!(
            r#"{{"release": "1.9.1+rust.{release}.0.0", "platform": "linux/amd64", "optional": {{"cnitool": "{digest}"}},
                "files": {{"bridge": "{digest}", "host-local": "{digest}", "vlan": "{digest}"}}}}"#
        ),
    );
}

/// Copies the executable to its names.
fn place(tool: &Tool, names: &[&str]) {
    for name in names {
        tool.executable(&format!("target/{name}"), &tool.read("from/cni-plugins"));
    }
}

fn verify(tool: &Tool, manifests: &[&str]) -> Ended {
    let mut command = tool.command();
    command.arg("verify").arg(tool.path("target"));
    for manifest in manifests {
        command.arg("--manifest").arg(tool.path(manifest));
    }
    tool.ended(&mut command)
}

#[test]
fn a_release_verifies_beside_files_of_others() {
    let tool = Tool::new();
    manifest(&tool, "1");
    place(&tool, &["bridge", "host-local", "vlan", "cnitool", ".cni-install.lock"]);
    tool.executable("target/flannel", "theirs");
    std::fs::create_dir(tool.path("target/folder")).unwrap();
    expect![[r#"
        NAME        STATE        RELEASE
        bridge      as released  1.9.1+rust.1.0.0
        cnitool     as released  1.9.1+rust.1.0.0
        flannel     foreign      -
        folder      foreign      -
        host-local  as released  1.9.1+rust.1.0.0
        vlan        as released  1.9.1+rust.1.0.0
    "#]]
    .assert_eq(&verify(&tool, &["1.json"]).ok());
    // The folder may be a link, and so may a name.
    std::fs::rename(tool.path("target"), tool.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", tool.path("target")).unwrap();
    std::fs::remove_file(tool.path("target/vlan")).unwrap();
    std::os::unix::fs::symlink("bridge", tool.path("target/vlan")).unwrap();
    verify(&tool, &["1.json"]).ok();
}

#[test]
fn a_changed_a_foreign_and_a_missing_file_are_named() {
    let tool = Tool::new();
    manifest(&tool, "1");
    place(&tool, &["bridge"]);
    let changed = tool.read("target/bridge") + "#";
    tool.executable("target/bridge", &changed);
    tool.executable("target/host-local", "theirs");
    expect![[r#"
        1
        stdout: NAME        STATE    RELEASE
        bridge      changed  -
        host-local  foreign  -
        vlan        missing  -

        stderr: error: $DIR/target is not as release 1.9.1+rust.1.0.0 has it: bridge: changed; host-local: foreign; vlan: missing
          Its package puts them back, or `cnitool install --bin-dir $DIR/target`, with --replace-foreign also over foreign files. A mode is mended by chmod 755.
    "#]]
    .assert_eq(&verify(&tool, &["1.json"]).shown());
}

#[test]
fn a_mode_by_which_others_write_or_nobody_executes_and_an_empty_file_are_named() {
    let tool = Tool::new();
    manifest(&tool, "1");
    place(&tool, &["bridge", "host-local", "vlan"]);
    tool.write("target/flannel", "theirs");
    tool.write("target/LICENSE", "");
    let chmod = |name: &str, mode| {
        std::fs::set_permissions(tool.path(name), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    chmod("target/bridge", 0o700);
    verify(&tool, &["1.json"]).ok();
    for (name, mode) in [("bridge", 0o644), ("host-local", 0o757), ("flannel", 0o666), ("", 0o777)] {
        chmod(&format!("target/{name}"), mode);
    }
    tool.write("target/vlan", "");
    // The group is root's.
    chmod("target/vlan", 0o775);
    expect![[r#"
        1
        stdout: NAME        STATE                            RELEASE
        .           writable by others               -
        LICENSE     empty                            -
        bridge      as released, not executable      1.9.1+rust.1.0.0
        flannel     foreign, writable by others      -
        host-local  as released, writable by others  1.9.1+rust.1.0.0
        vlan        empty                            -

        stderr: error: $DIR/target is not as release 1.9.1+rust.1.0.0 has it: the folder itself: writable by others; bridge: as released, not executable; flannel: foreign, writable by others; host-local: as released, writable by others; vlan: empty
          Its package puts them back, or `cnitool install --bin-dir $DIR/target`, with --replace-foreign also over foreign files. A mode is mended by chmod 755.
    "#]]
    .assert_eq(&verify(&tool, &["1.json"]).shown());
}

#[test]
fn each_file_names_its_release() {
    let tool = Tool::new();
    manifest(&tool, "1");
    place(&tool, &["bridge", "host-local", "vlan"]);
    manifest(&tool, "2");
    place(&tool, &["bridge"]);
    expect![[r#"
        NAME        STATE        RELEASE
        bridge      as released  1.9.1+rust.2.0.0
        host-local  as released  1.9.1+rust.1.0.0
        vlan        as released  1.9.1+rust.1.0.0
    "#]]
    .assert_eq(&verify(&tool, &["2.json", "1.json"]).ok());
    // By the old release alone the new file is changed.
    let ended = verify(&tool, &["1.json"]);
    assert!(ended.code == 1 && ended.stdout.contains("bridge      changed"), "{}", ended.shown());
    // Another plugin's bytes under a name are not that plugin, where releases have a file for each.
    let swapped = tool.read("2.json").replacen(&sha256(&tool, "target/bridge"), &"0".repeat(64), 2);
    tool.write("swapped.json", &swapped);
    assert_eq!(verify(&tool, &["swapped.json"]).code, 1);
}

#[test]
fn a_manifest_or_folder_that_cannot_be_read_is_an_error() {
    let tool = Tool::new();
    manifest(&tool, "1");
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot list $DIR/target: No such file or directory
          Name the plugins' folder.
    "#]]
    .assert_eq(&verify(&tool, &["1.json"]).shown());
    place(&tool, &["bridge"]);
    tool.write("cut.json", &tool.read("1.json")[..40]);
    tool.write("empty.json", r#"{"release": "1", "files": {}}"#);
    let errors: Vec<_> = ["cut.json", "empty.json", "absent.json"].map(|name| verify(&tool, &[name]).stderr).into();
    expect![[r#"
        error: cannot read manifest $DIR/cut.json: EOF while parsing a string at line 1 column 40
          Each release has one: manifest-linux-ARCH-vVERSION.json.
        error: cannot read manifest $DIR/empty.json: it names no file
          Each release has one: manifest-linux-ARCH-vVERSION.json.
        error: cannot read manifest $DIR/absent.json: No such file or directory
          Each release has one: manifest-linux-ARCH-vVERSION.json.
    "#]]
    .assert_eq(&errors.concat());
}
