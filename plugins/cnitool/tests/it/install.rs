//! Installation.

mod platforms;
mod watch;

use crate::fixture::{Ended, Tool};
use expect_test::expect;
use libcni::cni_spec::SUITE_MARK;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;

/// A script in the place of `cni-plugins`: two plugins and noop, distinguished by name, of this release.
pub(crate) fn multicall(tool: &Tool, release: &str) -> PathBuf {
    let script = r#"#!/bin/sh
# MARK, release RELEASE
case "${0##*/} ${CNI_COMMAND-}" in
*' ') printf 'bridge\nhost-local\nnoop\n';;
'cni-plugins '*) exit 1;;
*' VERSION') echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}';;
esac
"#;
    tool.executable("from/cni-plugins", &script.replace("MARK", SUITE_MARK).replace("RELEASE", release))
}

/// A folder with release 1, which is not installed.
pub(crate) fn with_release() -> Tool {
    let tool = Tool::new();
    multicall(&tool, "1");
    tool
}

/// A folder with release 1 installed.
fn installed() -> Tool {
    let tool = with_release();
    install(&tool, &[]).ok();
    tool
}

/// Installs from the script into `target`.
pub(crate) fn install(tool: &Tool, words: &[&str]) -> Ended {
    install_by(tool, tool.on_path(env!("CARGO_BIN_EXE_cnitool").as_ref()), words)
}

/// Installs after these commands of a shell, which is in the folder of the test and has mounts of its own.
fn install_after(tool: &Tool, script: &str, words: &[&str]) -> Ended {
    let mut command = tool.on_path("unshare".as_ref());
    command.args(["--mount", "/bin/sh", "-ec", &format!("{script}; exec \"$0\" \"$@\"")]);
    command.arg(env!("CARGO_BIN_EXE_cnitool")).current_dir(tool.path(""));
    install_by(tool, command, words)
}

fn install_by(tool: &Tool, mut command: Command, words: &[&str]) -> Ended {
    command.arg("install").arg("--bin-dir").arg(tool.path("target")).arg("--from").arg(tool.path("from/cni-plugins"));
    tool.ended(command.args(words))
}

#[test]
fn each_plugin_is_a_file_of_its_own() {
    let tool = with_release();
    expect![[r#"
        0
        stdout: NAME        PATH                               REPLACED
        bridge      $DIR/target/bridge      -
        host-local  $DIR/target/host-local  -
        cnitool     $DIR/target/cnitool     -

        stderr: warning: $DIR/target did not exist and was made
    "#]]
    .assert_eq(&install(&tool, &[]).shown());
    assert_eq!(tool.files("target"), ["bridge", "cnitool", "host-local"]);
    assert_eq!(install(&tool, &[]).stderr, "", "it exists");
    let meta = |name: &str| tool.path(name).metadata().unwrap();
    assert_eq!(tool.read("target/bridge"), tool.read("target/host-local"));
    for name in ["target/bridge", "target/host-local", "target/cnitool"] {
        assert_eq!((meta(name).nlink(), meta(name).mode() & 0o7777), (1, 0o755), "{name}");
    }
    // An installed executable installs again: elsewhere, and over itself.
    let mut again = tool.on_path(&tool.path("target/cnitool"));
    again.args(["install", "--json", "--plugin", "bridge", "--bin-dir"]).arg(tool.path("target"));
    again.arg("--from").arg(tool.path("from/cni-plugins"));
    expect![[r#"
        [
            {
                "name": "bridge",
                "path": "$DIR/target/bridge",
                "replaced": "ours"
            },
            {
                "name": "cnitool",
                "path": "$DIR/target/cnitool",
                "replaced": "ours"
            }
        ]
    "#]]
    .assert_eq(&tool.ended(&mut again).ok());
}

/// Third-party installers do this: `cp` writes into the existing file.
#[test]
fn a_file_written_over_one_plugin_changes_no_other() {
    let tool = installed();
    let theirs = tool.executable("theirs", "theirs");
    std::fs::copy(theirs, tool.path("target/host-local")).unwrap();
    assert!(tool.read("target/bridge").contains("release 1"), "bridge is bridge");
}

#[test]
fn hard_links_are_for_who_asks_and_an_upgrade_parts_them() {
    let tool = with_release();
    let meta = |name: &str| tool.path(name).metadata().unwrap();
    install(&tool, &["--link", "hard"]).ok();
    assert_eq!(meta("target/bridge").ino(), meta("target/host-local").ino());
    assert_eq!((meta("target/bridge").nlink(), meta("target/cnitool").nlink()), (2, 1));
    assert_ne!(meta("target/bridge").ino(), meta("from/cni-plugins").ino(), "a rebuild must not reach the copy");
    multicall(&tool, "2");
    install(&tool, &[]).ok();
    assert_eq!((meta("target/bridge").nlink(), meta("target/host-local").nlink()), (1, 1));
    assert!(tool.read("target/bridge").contains("release 2") && tool.read("target/host-local").contains("release 2"));
}

/// noop writes to any path that its caller's arguments name.
#[test]
fn noop_is_installed_only_by_name() {
    let tool = installed();
    assert_eq!(tool.files("target"), ["bridge", "cnitool", "host-local"]);
    install(&tool, &["--plugin", "noop"]).ok();
    install(&tool, &["--plugin", "bridge"]).ok();
    assert_eq!(tool.files("target"), ["bridge", "cnitool", "host-local", "noop"], "what is there by name stays");
}

#[test]
fn a_noop_of_ours_is_removed_and_a_foreign_one_stays() {
    let tool = with_release();
    install(&tool, &["--plugin", "noop"]).ok();
    expect![[r#"
        NAME        PATH                               REPLACED
        bridge      $DIR/target/bridge      -
        host-local  $DIR/target/host-local  -
        cnitool     $DIR/target/cnitool     ours
        noop        $DIR/target/noop        removed
    "#]]
    .assert_eq(&install(&tool, &[]).ok());
    tool.executable("target/noop", "theirs");
    install(&tool, &[]).ok();
    assert_eq!(tool.read("target/noop"), "theirs");
}

#[test]
fn what_is_installed_installs_elsewhere() {
    let tool = installed();
    let mut installed = tool.on_path(&tool.path("target/cnitool"));
    tool.ended(installed.args(["install", "--bin-dir"]).arg(tool.path("elsewhere"))).ok();
    assert_eq!(tool.files("elsewhere"), ["bridge", "cnitool", "host-local"]);
}

#[test]
fn an_executable_that_is_cnitool_too_is_copied_once() {
    let tool = with_release();
    let both = tool.read("from/cni-plugins").replace(r"noop\n'", r"noop\ncnitool\n'");
    tool.executable("from/cni-plugins", &both);
    install(&tool, &["--link", "hard"]).ok();
    assert_eq!(tool.files("target"), ["bridge", "cnitool", "host-local"]);
    assert_eq!(tool.path("target/cnitool").metadata().unwrap().nlink(), 3);
    assert_eq!(install(&tool, &["--plugin", "cnitool"]).code, 1, "it is always installed, and no plugin");
}

#[test]
fn an_upgrade_replaces_ours() {
    let tool = installed();
    let old = std::fs::File::open(tool.path("target/bridge")).unwrap();
    multicall(&tool, "2");
    expect![[r#"
        NAME        PATH                               REPLACED
        bridge      $DIR/target/bridge      ours
        host-local  $DIR/target/host-local  ours
        cnitool     $DIR/target/cnitool     ours
    "#]]
    .assert_eq(&install(&tool, &[]).ok());
    assert!(tool.read("target/bridge").contains("release 2") && tool.read("target/host-local").contains("release 2"));
    assert!(std::io::read_to_string(old).unwrap().contains("release 1"), "who runs the old one keeps it");
    assert_eq!(tool.files("target"), ["bridge", "cnitool", "host-local"]);
}

#[test]
fn foreign_files_are_replaced_only_on_request() {
    let tool = with_release();
    tool.executable("target/bridge", "theirs");
    std::os::unix::fs::symlink("/usr/lib/cni/host-local", tool.path("target/host-local")).unwrap();
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot install into $DIR/target: files that are not of this suite are in the way: bridge, host-local
          Nothing was changed. --plugin chooses others; --replace-foreign replaces them and keeps them in $DIR/target/.replaced.
    "#]].assert_eq(&install(&tool, &[]).shown());
    assert_eq!((tool.files("target").len(), tool.read("target/bridge").as_str()), (2, "theirs"));
    expect![[r#"
        NAME        PATH                               REPLACED
        bridge      $DIR/target/bridge      foreign
        host-local  $DIR/target/host-local  foreign
        cnitool     $DIR/target/cnitool     -
    "#]]
    .assert_eq(&install(&tool, &["--replace-foreign"]).ok());
    assert_eq!(tool.read("target/.replaced/bridge"), "theirs");
    assert_eq!(tool.path("target/.replaced/host-local").read_link().unwrap(), PathBuf::from("/usr/lib/cni/host-local"));
    assert!(!tool.path("target/host-local").is_symlink());
    assert_eq!(tool.files("target"), [".replaced", "bridge", "cnitool", "host-local"]);
    // From now on they are ours.
    install(&tool, &[]).ok();
    assert_eq!(tool.read("target/.replaced/bridge"), "theirs");
    // What is kept is what was there last.
    std::fs::remove_file(tool.path("target/bridge")).unwrap();
    tool.executable("target/bridge", "newer");
    expect![[r#"
        warning: $DIR/target/.replaced has what was replaced: bridge
        warning: $DIR/target/.replaced had another bridge: overwritten
    "#]]
    .assert_eq(&install(&tool, &["--replace-foreign"]).stderr);
    assert_eq!(tool.read("target/.replaced/bridge"), "newer");
}

/// The full tarball has a manifest beside its folder of executables. Any other file of that name is no manifest.
#[test]
fn a_release_whose_bytes_were_changed_is_not_installed() {
    let tool = with_release();
    let manifest = |bytes: &str| {
        let text = r#"{"release": "1.9.1+rust.1.0.0", "platform": "linux/amd64", "files": {"loopback": "DIGEST"}}"#;
        tool.write("manifest.json", &text.replace("DIGEST", bytes));
    };
    manifest("00");
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot install from $DIR/from/cni-plugins: it is not as release 1.9.1+rust.1.0.0 has it
          Unpack the release again, and compare its tarball with SHA256SUMS.
    "#]]
    .assert_eq(&install(&tool, &[]).shown());
    assert!(!tool.path("target").exists());
    let sum = Command::new("sha256sum").arg(tool.path("from/cni-plugins")).output().unwrap().stdout;
    manifest(String::from_utf8(sum).unwrap().split(' ').next().unwrap());
    install(&tool, &[]).ok();
    tool.write("manifest.json", "{}");
    install(&tool, &[]).ok();
    // Anybody may put something there, where the release was unpacked in a shared folder: a fifo without a writer is not waited for.
    std::fs::remove_file(tool.path("manifest.json")).unwrap();
    assert!(Command::new("mkfifo").arg(tool.path("manifest.json")).status().unwrap().success());
    install(&tool, &[]).ok();
}

/// A newcomer's first call after a package came, whose folder is not the usual one.
#[test]
fn an_installed_cnitool_finds_the_plugins_beside_it() {
    let tool = with_release();
    let version = || {
        let mut installed = tool.on_path(&tool.path("target/cnitool"));
        tool.ended(installed.env_remove("CNI_PATH").args(["version", "only-here"]))
    };
    install(&tool, &[]).ok();
    // No folder of this machine has a plugin of this name.
    std::fs::rename(tool.path("target/bridge"), tool.path("target/only-here")).unwrap();
    expect![[r#"
        1
        stdout: 
        stderr: error: plugin type="only-here" failed (version): failed to find plugin "only-here" in path [/opt/cni/bin]
          Install only-here into one of these folders, or correct the type.
    "#]].assert_eq(&version().shown());
    std::fs::rename(tool.path("target/host-local"), tool.path("target/loopback")).unwrap();
    expect![[r#"
        0
        stdout: PLUGIN     PATH                              RELEASE  VERSIONS
        only-here  $DIR/target/only-here  -        1.1.0

        stderr: "#]]
    .assert_eq(&version().shown());
}

/// The plugin with an executable of its own.
#[test]
fn cluster_is_installed_where_it_is_beside_the_others() {
    let tool = with_release();
    let script = tool.read("from/cni-plugins").replace("printf 'bridge", "exit 1; '");
    tool.executable("from/cluster", &script);
    install(&tool, &[]).ok();
    assert_eq!(tool.files("target"), ["bridge", "cluster", "cnitool", "host-local"]);
    assert_eq!(tool.read("target/cluster"), script);
    // From an installation, too, also where that has no other plugin of the first letters.
    install(&tool, &["--plugin", "host-local", "--plugin", "cluster"]).ok();
    std::fs::remove_file(tool.path("target/bridge")).unwrap();
    let mut installed = tool.on_path(&tool.path("target/cnitool"));
    tool.ended(installed.args(["install", "--bin-dir"]).arg(tool.path("elsewhere"))).ok();
    assert_eq!(tool.files("elsewhere"), ["bridge", "cluster", "cnitool", "host-local"]);
    tool.executable("from/cluster", "theirs");
    tool.executable("target/cluster", "theirs");
    install(&tool, &[]).ok();
    assert_eq!(tool.read("target/cluster"), "theirs", "no executable of the suite is no plugin of it");
}

#[test]
fn some_plugins_leave_the_others_alone() {
    let tool = with_release();
    tool.executable("target/bridge", "theirs");
    install(&tool, &["--plugin", "host-local"]).ok();
    assert_eq!(tool.read("target/bridge"), "theirs");
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot install plugin vlan: $DIR/from/cni-plugins does not contain it
          It contains bridge, host-local, noop.
    "#]]
    .assert_eq(&install(&tool, &["--plugin", "vlan"]).shown());
}

#[test]
fn a_plugin_that_does_not_answer_changes_nothing() {
    let tool = installed();
    let broken =
        tool.read("from/cni-plugins").replace("*' VERSION')", "'bridge VERSION')").replace("release 1", "release 2");
    tool.executable("from/cni-plugins", &broken);
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot use the copy of host-local; nothing was changed: plugin type="host-local" failed (version): cannot use answer to VERSION: cannot parse JSON: EOF while parsing a value at line 1 column 0
    "#]].assert_eq(&install(&tool, &[]).shown());
    assert!(tool.read("target/bridge").contains("release 1"));
    assert_eq!(tool.files("target"), ["bridge", "cnitool", "host-local"]);
}

#[test]
fn what_is_no_executable_of_ours_is_not_installed() {
    let tool = Tool::new();
    tool.executable("from/cni-plugins", "#!/bin/sh\necho bridge\n");
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot install from $DIR/from/cni-plugins: it is no executable of this suite
          Name the executable cni-plugins of a release by --from.
    "#]]
    .assert_eq(&install(&tool, &[]).shown());
    std::fs::remove_file(tool.path("from/cni-plugins")).unwrap();
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot install from $DIR/from/cni-plugins: it does not exist
          Name the executable cni-plugins by --from. cargo build --release -p cni-plugins makes it.
    "#]]
    .assert_eq(&install(&tool, &[]).shown());
    assert!(!tool.path("target").exists());
}

#[test]
fn a_folder_in_the_way_is_an_error() {
    let tool = with_release();
    std::fs::create_dir_all(tool.path("target/bridge")).unwrap();
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot install $DIR/target/bridge: a folder is in its place
          Nothing was changed. Move the folder elsewhere.
    "#]]
    .assert_eq(&install(&tool, &["--replace-foreign"]).shown());
}

#[test]
fn errors_of_the_system_name_the_file_and_what_is_to_be_done() {
    let tool = with_release();
    let failed = |script: &str| install_after(&tool, script, &["--replace-foreign"]).shown();
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot keep $DIR/target/bridge; nothing was changed: cannot make folder $DIR/target/.replaced: File exists
    "#]]
    .assert_eq(&failed("mkdir target; echo theirs >target/bridge; echo >target/.replaced"));
    std::fs::remove_file(tool.path("target/.replaced")).unwrap();
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot put in place $DIR/target/bridge; all is as before: Device or resource busy
          Another file may be mounted there, as findmnt shows: unmount it, or choose another folder.
    "#]]
    .assert_eq(&failed("mount --bind from/cni-plugins target/bridge"));
    std::fs::remove_file(tool.path("target/bridge")).unwrap();
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot ask $DIR/from/cni-plugins what it contains: Too many open files
          The limit of open files is reached: raise it, as by ulimit -n 1024.
    "#]]
    .assert_eq(&failed("ulimit -n 8"));
}

/// The plugins' own mode does not depend on the umask either.
#[test]
fn a_folder_that_was_made_is_for_all_users_to_read() {
    let tool = with_release();
    assert_eq!(install_after(&tool, "umask 077; rm -rf target", &[]).code, 0);
    for path in ["target", "target/bridge"] {
        assert_eq!(std::fs::metadata(tool.path(path)).unwrap().mode() & 0o777, 0o755, "{path}");
    }
}

#[test]
fn only_one_install_at_a_time() {
    let tool = with_release();
    let path = tool.write("target/.cni-install.lock", "");
    let lock = std::fs::File::open(&path).unwrap();
    lock.lock().unwrap();
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot install into $DIR/target: another install is under way: process PID (it)
    "#]]
    .assert_eq(&without_pid(&install(&tool, &[]).shown()));
    // A killed install leaves the lock file, unlocked.
    lock.unlock().unwrap();
    install(&tool, &[]).ok();
    assert_eq!(tool.files("target"), ["bridge", "cnitool", "host-local"]);
}

#[test]
fn a_file_that_another_program_is_writing_is_not_replaced() {
    let tool = installed();
    let mut cp = std::fs::File::create(tool.path("target/bridge")).unwrap();
    let want = expect![[r#"
        1
        stdout: 
        stderr: error: cannot replace $DIR/target/bridge: another program is writing it; nothing was changed, try again
    "#]];
    for words in [&[][..], &["--replace-foreign"]] {
        want.assert_eq(&install(&tool, words).shown());
    }
    cp.write_all(b"theirs").unwrap();
    drop(cp);
    // A child that another test starts has this process's files open until it executes its program.
    let settled = || {
        let mut runs = std::iter::repeat_with(|| install(&tool, &[])).take(100);
        runs.find(|run| !run.stderr.contains("another program is writing it")).unwrap()
    };
    assert!(settled().stderr.contains("not of this suite are in the way: bridge"));
    // No other program writes what is only the beginning of ours: that is an installer's that was killed.
    std::fs::File::create(tool.path("target/bridge")).unwrap();
    settled().ok();
    assert_eq!(tool.read("target/bridge"), tool.read("from/cni-plugins"));
}

/// The time between the look at a file and its replacement is that of copying and trying all others.
#[test]
fn a_file_that_is_changed_during_an_installation_is_not_replaced() {
    let tool = installed();
    // Another installer's copy comes while the new files are tried.
    let script =
        tool.read("from/cni-plugins").replace("*' VERSION')", "*' VERSION') echo theirs >\"${0%/*}/../../bridge\";");
    tool.executable("from/cni-plugins", &script);
    let ended = install(&tool, &[]);
    assert!(
        ended.stderr.contains("cannot replace $DIR/target/bridge: another program is writing it"),
        "{}",
        ended.stderr
    );
    assert_eq!((tool.read("target/bridge"), tool.files("target").len()), ("theirs\n".to_owned(), 3));
}

fn without_pid(text: &str) -> String {
    text.replace(&format!("process {}", std::process::id()), "process PID")
        .replace(&std::fs::read_to_string("/proc/self/comm").unwrap().trim_end().to_owned(), "it")
}

/// Any user can open, and so lock, the folder.
#[test]
fn another_users_lock_on_the_folder_does_not_block_an_install() {
    let tool = with_release();
    std::fs::create_dir_all(tool.path("target")).unwrap();
    let folder = std::fs::File::open(tool.path("target")).unwrap();
    folder.lock().unwrap();
    install(&tool, &[]).ok();
    // While an install runs, the file that it locks is closed to others.
    let script = tool.read("from/cni-plugins");
    let looking = script.replace("*' VERSION')", "*' VERSION') stat -c %a \"${0%/*}/../../.cni-install.lock\" >&2;");
    tool.executable("from/cni-plugins", &looking);
    let ended = install(&tool, &[]);
    assert!(ended.stderr.lines().all(|line| line == "600") && !ended.stderr.is_empty(), "{}", ended.stderr);
}
