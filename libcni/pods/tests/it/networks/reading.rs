//! The result of one reading, and its reasons for skipped files.

use super::test_folders::{ALL_VERSIONS, TestFolders, names, network, wait};
use expect_test::{Expect, expect};
use std::time::{Duration, Instant};

fn check(node: &TestFolders, expected: &Expect) {
    expected.assert_eq(&node.show(&wait(node.read())));
}

#[test]
fn all_three_kinds_of_files_count_together_in_the_order_of_their_names() {
    let node = TestFolders::new();
    node.plugin("bin/a", ALL_VERSIONS);
    node.write("net.d/30.conf", r#"{"cniVersion":"1.0.0","name":"third","type":"a"}"#);
    node.network("net.d/20.conflist", "second");
    node.write(
        "net.d/10.json",
        r#"{"cniVersion":"0.4.0","name":"first","type":"a","capabilities":{"ips":true,"mac":false}}"#,
    );
    node.write("net.d/05.txt", "").write("net.d/06.CONF", "").make_dir("net.d/00.conflist");
    let networks = wait(node.read());
    assert_eq!(names(&networks), "first second third");
    assert!(networks.passed_over.is_empty() && networks.problem.is_none(), "{}", node.show(&networks));
    assert_eq!(networks.default().unwrap().conf.name, "first");
    assert_eq!(networks.default().unwrap().capabilities.iter().collect::<Vec<_>>(), ["ips"]);
    assert_eq!(networks.find("second").unwrap().conf.path().unwrap(), node.path("net.d/20.conflist"));
    assert!(networks.find("fourth").is_none());
}

#[test]
fn each_file_passed_over_has_its_reason() {
    let node = TestFolders::new();
    node.plugin("bin/a", ALL_VERSIONS).plugin("more/bin/old", r#"echo '{"cniVersion":"0.2.0"}'"#);
    node.plugin("bin/first-days", r#"echo '{"code":4,"msg":"unknown CNI_COMMAND: VERSION"}'; exit 1"#);
    node.plugin("bin/mute", "exit 0").plugin("bin/broken", "exit 3").plugin("bin/babbler", "echo hello");
    node.write("bin/closed", "").mode("bin/closed", 0o644).make_dir("bin/folder");
    node.write("net.d/01.conflist", "{").write("net.d/02.conf", "");
    node.write("net.d/03.conflist", r#"{"name":"n"}"#).write("net.d/04.conflist", r#"{"name":"n","plugins":[]}"#);
    node.write("net.d/05.conf", r#"{"name":"n"}"#).write("net.d/06.json", r#"{"name":7,"type":"a"}"#);
    node.link("nowhere", "net.d/07.conf").link("08.conf", "net.d/08.conf");
    // Their name stays free for a file that can be used.
    let plugins = ["missing", "closed", "folder", "old", "first-days", "mute", "broken", "babbler"];
    for (number, plugin) in (9..).zip(plugins) {
        let list =
            format!(r#"{{"cniVersion":"1.0.0","name":"good","plugins":[{{"type":"a"}},{{"type":"{plugin}"}}]}}"#);
        node.write(&format!("net.d/{number:02}.conflist"), &list);
    }
    node.write("net.d/17.conf", r#"{"cniVersion":"7.0.0","name":"n","type":"a"}"#);
    node.write("net.d/18.conf", r#"{"cniVersion":"1.0.0","name":"a b","type":"a"}"#);
    node.write("net.d/19.conflist", r#"{"cniVersion":"1.0.0","name":"own"}"#)
        .write("net.d/own/1.conf", r#"{"type":7}"#);
    node.network("net.d/20.conflist", "good").network("net.d/21.conflist", "good");
    check(
        &node,
        &expect![[r#"
            good a
            $DIR/net.d/01.conflist ignored: cannot parse network config: EOF while parsing an object at line 1 column 1
            $DIR/net.d/02.conf ignored: cannot parse network config: EOF while parsing a value at line 1 column 0
            $DIR/net.d/03.conflist ignored: it has no plugins
            $DIR/net.d/04.conflist ignored: it has no plugins
            $DIR/net.d/05.conf ignored: cannot use network config: key type is missing: the file name of an executable in CNI_PATH
            $DIR/net.d/06.json ignored: cannot use network config: key name = 7: invalid type: integer `7`, expected a string
            $DIR/net.d/07.conf ignored: cannot read $DIR/net.d/07.conf: No such file or directory (os error 2)
            $DIR/net.d/08.conf ignored: cannot read $DIR/net.d/08.conf: Too many levels of symbolic links (os error 40)
            $DIR/net.d/09.conflist ignored: executable of plugin missing not found in $DIR/bin:$DIR/more/bin
            $DIR/net.d/10.conflist ignored: cannot run $DIR/bin/closed of plugin closed: EACCES: Permission denied
            $DIR/net.d/11.conflist ignored: executable of plugin folder not found in $DIR/bin:$DIR/more/bin
            $DIR/net.d/12.conflist ignored: plugin old does not speak cniVersion "1.0.0"; it speaks 0.1.0, 0.2.0
            $DIR/net.d/13.conflist ignored: plugin first-days does not speak cniVersion "1.0.0"; it speaks 0.1.0
            $DIR/net.d/14.conflist ignored: plugin mute does not answer VERSION: cannot use answer to VERSION: cannot parse JSON: EOF while parsing a value at line 1 column 0
            $DIR/net.d/15.conflist ignored: plugin broken does not answer VERSION: netplugin failed with no error message: exit status 3. How it ended: exit status 3.
            $DIR/net.d/16.conflist ignored: plugin babbler does not answer VERSION: cannot use answer to VERSION: cannot parse JSON: expected value at line 1 column 1
            $DIR/net.d/17.conf ignored: cniVersion "7.0.0" is not known; known are 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0
            $DIR/net.d/18.conf ignored: cannot use "a b" as network name: invalid characters found in network name
            $DIR/net.d/19.conflist ignored: $DIR/net.d/own/1.conf: cannot use network config: key type = 7: invalid type: integer `7`, expected a string
            $DIR/net.d/21.conflist ignored: network name "good" is taken by $DIR/net.d/20.conflist"#]],
    );
}

#[test]
fn a_network_without_name_takes_its_files() {
    let node = TestFolders::new();
    node.plugin("bin/a", ALL_VERSIONS);
    node.write("net.d/1.conf", r#"{"cniVersion":"1.0.0","type":"a"}"#);
    node.write("net.d/2.conflist", &network(""));
    node.write("net.d/3 x.conf", r#"{"cniVersion":"1.0.0","type":"a"}"#);
    check(
        &node,
        &expect![[r#"
        1.conf a
        2.conflist a
        $DIR/net.d/3 x.conf ignored: cannot use "3 x.conf" as network name: invalid characters found in network name"#]],
    );
}

#[test]
fn what_is_no_regular_file_is_not_opened() {
    let node = TestFolders::new();
    node.plugin("bin/a", ALL_VERSIONS);
    let fifo = |name: &str| nix::unistd::mkfifo(&node.path(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fifo("net.d/1.conf");
    node.link("/dev/zero", "net.d/2.conf");
    node.make_dir("net.d/n").network("net.d/3.conflist", "n");
    fifo("net.d/n/1.conf");
    std::fs::File::create(node.path("net.d/4.conf")).unwrap().set_len(1 << 40).unwrap();
    node.network("net.d/5.conflist", "good");
    check(
        &node,
        &expect![[r#"
        good a
        $DIR/net.d/1.conf ignored: cannot read $DIR/net.d/1.conf: not a regular file
        $DIR/net.d/2.conf ignored: cannot read $DIR/net.d/2.conf: not a regular file
        $DIR/net.d/3.conflist ignored: cannot read $DIR/net.d/n/1.conf: not a regular file
        $DIR/net.d/4.conf ignored: cannot read $DIR/net.d/4.conf: file too large"#]],
    );
}

#[test]
fn the_folder_itself_may_be_wrong() {
    let node = TestFolders::bare();
    check(&node, &expect!["no folder $DIR/net.d: no such file or directory"]);
    node.write("net.d", "");
    check(&node, &expect!["cannot read $DIR/net.d: Not a directory (os error 20)"]);
}

/// Asking all plugins takes as long as the slowest one, not as long as all of them.
#[test]
fn executables_that_hang_hide_nothing_and_are_asked_together() {
    let node = TestFolders::new();
    node.plugin("bin/a", ALL_VERSIONS);
    for name in ["h1", "h2", "h3"] {
        node.plugin(&format!("bin/{name}"), "trap '' TERM; exec sleep 60");
        node.write(
            &format!("net.d/{name}.conf"),
            &format!(r#"{{"cniVersion":"1.0.0","name":"{name}","type":"{name}"}}"#),
        );
    }
    node.network("net.d/z.conflist", "good");
    let begin = Instant::now();
    check(
        &node,
        &expect![[r#"
        good a
        $DIR/net.d/h1.conf ignored: plugin h1 does not answer VERSION: no answer within 5 s
        $DIR/net.d/h2.conf ignored: plugin h2 does not answer VERSION: no answer within 5 s
        $DIR/net.d/h3.conf ignored: plugin h3 does not answer VERSION: no answer within 5 s"#]],
    );
    let took = begin.elapsed();
    assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(9), "{took:?}");
}
