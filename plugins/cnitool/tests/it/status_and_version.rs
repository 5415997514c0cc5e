//! `cnitool status` and `cnitool version`: what plugins say of themselves.

use crate::fixture::{NETNS, Tool};
use expect_test::expect;

#[test]
fn status_takes_the_word_that_the_reference_wants() {
    let tool = Tool::new();
    tool.run(&["status", "net", NETNS]).ok();
    tool.run(&["status", "net"]).ok();
    expect![[r#"
        STATUS    []
        STATUS    []
    "#]]
    .assert_eq(&tool.log());
}

#[test]
fn versions_of_all_plugins_or_of_some() {
    let tool = Tool::new();
    tool.plugin("old", r#"echo '{"code":4,"msg":"unknown CNI_COMMAND: VERSION"}'; exit 1"#);
    tool.plugin("silent", "exit 3");
    tool.executable("bin/cni-plugins", "#!/bin/sh\nexit 1\n");
    tool.executable("bin/.hidden", "#!/bin/sh\nexit 1\n");
    tool.write("bin/README", "no plugin");
    let runs: [&[&str]; 3] = [&["version"], &["version", "silent", "old"], &["--json", "version", "good"]];
    let texts = runs.map(|words| tool.run(words).shown());
    expect![[r#"
        0
        stdout: PLUGIN  PATH                      RELEASE  VERSIONS
        good    $DIR/bin/good  -        1.0.0 1.1.0
        old     $DIR/bin/old   -        0.1.0

        stderr: warning: plugin type="silent" failed (version): netplugin failed with no error message: exit status 3. How it ended: exit status 3.

        1
        stdout: PLUGIN  PATH                     RELEASE  VERSIONS
        old     $DIR/bin/old  -        0.1.0

        stderr: error: plugin type="silent" failed (version): netplugin failed with no error message: exit status 3
          How it ended: exit status 3.

        0
        stdout: [
            {
                "plugin": "good",
                "path": "$DIR/bin/good",
                "release": "",
                "versions": [
                    "1.0.0",
                    "1.1.0"
                ]
            }
        ]

        stderr: "#]].assert_eq(&texts.join("\n"));
}

/// Below 1.1.0 there is no STATUS: success has no meaning, and the output says so.
#[test]
fn status_says_when_no_plugin_was_asked() {
    let tool = Tool::new();
    tool.write("net.d/old.conflist", r#"{"cniVersion":"1.0.0","name":"old","plugins":[{"type":"good"}]}"#);
    let runs: [&[&str]; 3] = [&["status", "old"], &["--json", "status", "old"], &["--json", "status", "net"]];
    expect![[r#"
        0
        stdout: 
        stderr: warning: network old is of version 1.0.0, which has no STATUS: no plugin was asked

        0
        stdout: {
            "network": "old",
            "cniVersion": "1.0.0",
            "asked": false
        }

        stderr: {"level":"warn","msg":"network old is of version 1.0.0, which has no STATUS: no plugin was asked"}

        0
        stdout: {
            "network": "net",
            "cniVersion": "1.1.0",
            "asked": true
        }

        stderr: "#]]
    .assert_eq(&runs.map(|words| tool.run(words).shown()).join("\n"));
    assert_eq!(tool.log(), "STATUS    []\n");
}
