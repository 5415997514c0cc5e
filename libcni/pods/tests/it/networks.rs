//! The networks of a folder, with real files, links and executables, and the reasons for skipped files.

use crate::test_node::{GOOD, TestNode, on_node};
use expect_test::{Expect, expect};
use futures::future::join_all;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use pods::{Networks, Pods};
use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

/// The networks, a line each, without what differs from run to run.
fn show(networks: &Networks) -> String {
    let types = |network: &pods::Network| {
        network.conf.plugins.iter().map(|plugin| plugin.plugin_type.to_string()).collect::<Vec<_>>().join("+")
    };
    let usable = networks.usable.iter().map(|network| format!("{} {}", network.conf.name, types(network)));
    let other = networks.passed_over.iter().map(ToString::to_string);
    let problem = networks.problem.iter().map(ToString::to_string);
    usable.chain(other).chain(problem).collect::<Vec<_>>().join("\n").replace("/run/testns", "$DIR")
}

async fn check(test_node: &TestNode, expected: &Expect) {
    let networks = test_node.pods().networks().await;
    expected.assert_eq(&show(&networks));
}

async fn names(pods: &Pods) -> String {
    pods.networks().await.usable.iter().map(|network| network.conf.name.as_str()).collect::<Vec<_>>().join(" ")
}

fn network(name: &str) -> String {
    format!(r#"{{"cniVersion":"1.0.0","name":"{name}","plugins":[{{"type":"a"}}]}}"#)
}

#[test]
fn all_three_kinds_of_files_count_together_in_the_order_of_their_names() {
    on_node(async |test_node| {
        test_node.plugin("a", GOOD);
        test_node.write("net.d/30.conf", r#"{"cniVersion":"1.0.0","name":"third","type":"a"}"#);
        test_node.write("net.d/20.conflist", &network("second"));
        let first = r#"{"cniVersion":"0.4.0","name":"first","type":"a","capabilities":{"ips":true,"mac":false}}"#;
        test_node.write("net.d/10.json", first);
        test_node.write("net.d/05.txt", "");
        test_node.write("net.d/06.CONF", "");
        fs::create_dir(test_node.conf_dir().join("00.conflist")).unwrap();
        let networks = test_node.pods().networks().await;
        assert_eq!(show(&networks), "first a\nsecond a\nthird a");
        assert_eq!(networks.default().unwrap().capabilities.iter().collect::<Vec<_>>(), ["ips"]);
        let second = networks.find("second").unwrap().conf.path().unwrap();
        assert_eq!(second, test_node.conf_dir().join("20.conflist"));
        assert!(networks.find("fourth").is_none());
    });
}

#[test]
fn each_file_passed_over_has_its_reason() {
    on_node(async |test_node| {
        for (name, script) in [
            ("a", GOOD),
            ("closed", ""),
            ("old", r#"echo '{"cniVersion":"0.2.0"}'"#),
            ("first-days", r#"echo '{"code":4,"msg":"unknown CNI_COMMAND: VERSION"}'; exit 1"#),
            ("mute", "exit 0"),
            ("broken", "exit 3"),
            ("babbler", "echo hello"),
        ] {
            test_node.plugin(name, script);
        }
        fs::set_permissions(test_node.node.bin_dir().join("closed"), Permissions::from_mode(0o644)).unwrap();
        fs::create_dir(test_node.node.bin_dir().join("folder")).unwrap();
        for (name, text) in [
            ("01.conflist", "{"),
            ("02.conf", ""),
            ("03.conflist", r#"{"name":"n"}"#),
            ("04.conflist", r#"{"name":"n","plugins":[]}"#),
            ("05.conf", r#"{"name":"n"}"#),
            ("06.json", r#"{"name":7,"type":"a"}"#),
            ("17.conf", r#"{"cniVersion":"7.0.0","name":"n","type":"a"}"#),
            ("18.conf", r#"{"cniVersion":"1.0.0","name":"a b","type":"a"}"#),
            ("19.conflist", r#"{"cniVersion":"1.0.0","name":"own"}"#),
            ("own/1.conf", r#"{"type":7}"#),
            ("20.conflist", &network("good")),
            ("21.conflist", &network("good")),
            // The name of the file, where it has none.
            ("22.conf", r#"{"cniVersion":"1.0.0","type":"a"}"#),
            ("23.conflist", &network("")),
            ("24 x.conf", r#"{"cniVersion":"1.0.0","type":"a"}"#),
        ] {
            test_node.write(&format!("net.d/{name}"), text);
        }
        symlink("nowhere", test_node.conf_dir().join("07.conf")).unwrap();
        symlink("08.conf", test_node.conf_dir().join("08.conf")).unwrap();
        // Their name stays free for a file that can be used.
        let plugins = ["missing", "closed", "folder", "old", "first-days", "mute", "broken", "babbler"];
        for (number, plugin) in (9..).zip(plugins) {
            let list =
                format!(r#"{{"cniVersion":"1.0.0","name":"good","plugins":[{{"type":"a"}},{{"type":"{plugin}"}}]}}"#);
            test_node.write(&format!("net.d/{number:02}.conflist"), &list);
        }
        check(
            test_node,
            &expect![[r#"
                good a
                22.conf a
                23.conflist a
                $DIR/net.d/01.conflist ignored: cannot parse network config: EOF while parsing an object at line 1 column 1
                $DIR/net.d/02.conf ignored: cannot parse network config: EOF while parsing a value at line 1 column 0
                $DIR/net.d/03.conflist ignored: it has no plugins
                $DIR/net.d/04.conflist ignored: it has no plugins
                $DIR/net.d/05.conf ignored: cannot use network config: key type is missing: the file name of an executable in CNI_PATH
                $DIR/net.d/06.json ignored: cannot use network config: key name = 7: invalid type: integer `7`, expected a string
                $DIR/net.d/07.conf ignored: cannot read $DIR/net.d/07.conf: No such file or directory (os error 2)
                $DIR/net.d/08.conf ignored: cannot read $DIR/net.d/08.conf: Too many levels of symbolic links (os error 40)
                $DIR/net.d/09.conflist ignored: executable of plugin missing not found in $DIR/bin
                $DIR/net.d/10.conflist ignored: cannot run $DIR/bin/closed of plugin closed: EACCES: Permission denied
                $DIR/net.d/11.conflist ignored: executable of plugin folder not found in $DIR/bin
                $DIR/net.d/12.conflist ignored: plugin old does not speak cniVersion "1.0.0"; it speaks 0.1.0, 0.2.0
                $DIR/net.d/13.conflist ignored: plugin first-days does not speak cniVersion "1.0.0"; it speaks 0.1.0
                $DIR/net.d/14.conflist ignored: plugin mute does not answer VERSION: cannot use answer to VERSION: cannot parse JSON: EOF while parsing a value at line 1 column 0
                $DIR/net.d/15.conflist ignored: plugin broken does not answer VERSION: netplugin failed with no error message: exit status 3. How it ended: exit status 3.
                $DIR/net.d/16.conflist ignored: plugin babbler does not answer VERSION: cannot use answer to VERSION: cannot parse JSON: expected value at line 1 column 1
                $DIR/net.d/17.conf ignored: cniVersion "7.0.0" is not known; known are 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0
                $DIR/net.d/18.conf ignored: cannot use "a b" as network name: invalid characters found in network name
                $DIR/net.d/19.conflist ignored: $DIR/net.d/own/1.conf: cannot use network config: key type = 7: invalid type: integer `7`, expected a string
                $DIR/net.d/21.conflist ignored: network name "good" is taken by $DIR/net.d/20.conflist
                $DIR/net.d/24 x.conf ignored: cannot use "24 x.conf" as network name: invalid characters found in network name"#]],
        )
        .await;
    });
}

#[test]
fn only_regular_files_are_opened() {
    on_node(async |test_node| {
        test_node.plugin("a", GOOD);
        let path = |name: &str| test_node.conf_dir().join(name);
        mkfifo(&path("1.conf"), Mode::S_IRWXU).unwrap();
        symlink("/dev/zero", path("2.conf")).unwrap();
        test_node.write("net.d/3.conflist", &network("n"));
        fs::create_dir(path("n")).unwrap();
        mkfifo(&path("n/1.conf"), Mode::S_IRWXU).unwrap();
        fs::File::create(path("4.conf")).unwrap().set_len(1 << 40).unwrap();
        test_node.write("net.d/5.conflist", &network("good"));
        check(
            test_node,
            &expect![[r#"
                good a
                $DIR/net.d/1.conf ignored: cannot read $DIR/net.d/1.conf: it is no regular file
                $DIR/net.d/2.conf ignored: cannot read $DIR/net.d/2.conf: it is no regular file
                $DIR/net.d/3.conflist ignored: cannot read $DIR/net.d/n/1.conf: it is no regular file
                $DIR/net.d/4.conf ignored: cannot read $DIR/net.d/4.conf: it is longer than 67108864 bytes"#]],
        )
        .await;
        fs::remove_dir_all(test_node.conf_dir()).unwrap();
        test_node.write("net.d", "");
        check(test_node, &expect!["cannot read $DIR/net.d: Not a directory (os error 20)"]).await;
    });
}

/// Asking all plugins takes as long as the slowest one, not as long as all of them.
#[test]
fn executables_that_hang_hide_nothing_and_are_asked_together() {
    on_node(async |test_node| {
        test_node.plugin("a", GOOD);
        for name in ["h1", "h2", "h3"] {
            test_node.plugin(name, "trap '' TERM; exec sleep 60");
            test_node.network(name, name, &[name]);
        }
        test_node.write("net.d/z.conflist", &network("good"));
        let begin = Instant::now();
        check(
            test_node,
            &expect![[r#"
                good a
                $DIR/net.d/h1.conflist ignored: plugin h1 does not answer VERSION: no answer within 5 s
                $DIR/net.d/h2.conflist ignored: plugin h2 does not answer VERSION: no answer within 5 s
                $DIR/net.d/h3.conflist ignored: plugin h3 does not answer VERSION: no answer within 5 s"#]],
        )
        .await;
        let took = begin.elapsed();
        assert!(took >= Duration::from_secs(5) && took < Duration::from_secs(9), "{took:?}");
    });
}

/// A file that is written in place is cut for a moment.
#[test]
fn a_network_stays_while_its_file_is_being_written() {
    on_node(async |test_node| {
        test_node.plugin("a", GOOD);
        let pods = test_node.pods();
        test_node.write("net.d/5.conflist", &network("n"));
        test_node.write("net.d/1.conflist", &network("m"));
        assert_eq!(names(&pods).await, "m n");
        let path = test_node.conf_dir().join("1.conflist");
        let mut file = OpenOptions::new().write(true).truncate(true).open(path).unwrap();
        file.write_all(&network("k").as_bytes()[..9]).unwrap();
        assert_eq!(names(&pods).await, "m n");
        file.write_all(&network("k").as_bytes()[9..]).unwrap();
        assert_eq!(names(&pods).await, "k n");
        test_node.write("net.d/1.conflist", "{");
        assert_eq!(names(&pods).await, "k n");
        // One that stays broken counts for a moment only.
        while names(&pods).await != "n" {}
    });
}

#[test]
fn only_executables_that_changed_are_asked_again_and_once() {
    on_node(async |test_node| {
        let asked = || {
            let log = fs::read_to_string(test_node.dir().join("log")).unwrap_or_default();
            fs::remove_file(test_node.dir().join("log")).ok();
            let mut names: Vec<_> = log.lines().filter_map(|line| line.split(' ').nth(1)).collect();
            names.sort_unstable();
            names.join(" ")
        };
        let bad = r#"echo "$CNI_COMMAND $name" >> "$dir/log"; exit 3"#;
        for (name, script) in [("a", GOOD), ("real", GOOD), ("bad", bad)] {
            test_node.plugin(name, script);
        }
        symlink("real", test_node.node.bin_dir().join("b")).unwrap();
        test_node.network("5", "n", &["a"]);
        test_node.network("6", "o", &["b"]);
        test_node.network("7", "p", &["bad"]);
        let pods = test_node.pods();
        join_all((0..50).map(|_| names(&pods))).await;
        assert_eq!(asked(), "a b bad");
        test_node.network("1", "m", &["a"]);
        assert_eq!(names(&pods).await, "m n o");
        assert_eq!(asked(), "");
        test_node.plugin("real", GOOD);
        assert_eq!(names(&pods).await, "m n o");
        assert_eq!(asked(), "b");
    });
}
