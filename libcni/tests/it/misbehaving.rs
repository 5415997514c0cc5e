//! Plugins that do not keep to the protocol. The error names the plugin and says what it did, an ADD is rolled back, and
//! nothing is left of it. (What they print that is no result, or none, is in `add`.)

use crate::folder::{Folder, GOOD, assert_ends, eth0, network, own, wait};
use expect_test::{Expect, expect};
use libcni::cni_spec::Code;
use libcni::{NetworkConf, Runtime};
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_secs(60);

/// A plugin that misbehaves so in one verb, and is good else.
fn plugin(verb: &str, script: &str) -> String {
    format!(
        r#"
[ $CNI_COMMAND != {verb} ] || {{ echo "$CNI_COMMAND $name" >> "$dir/log"; {script}
}}
{GOOD}"#
    )
}

/// An ADD through a plugin that misbehaves, between two good ones.
fn add_fails(folder: &Folder, runtime: &Runtime, expected: &Expect) {
    let error = wait(runtime.add(&network("1.0.0", &["a", "bad", "c"]), &own())).unwrap_err();
    expected.assert_eq(&folder.stable(&error.to_string()));
    assert_eq!(folder.log(), "ADD a, ADD bad, DEL bad, DEL a");
    assert_eq!(folder.cache_files(), [""; 0]);
}

fn with_bad(verb: &str, script: &str) -> Folder {
    Folder::with(&[("a", GOOD), ("bad", &plugin(verb, script)), ("c", GOOD)])
}

/// A DEL through a plugin that misbehaves: the plugins before it keep what they have, and DEL can be repeated.
fn del_fails(script: &str, deadline: Duration, expected: &Expect) {
    let folder = with_bad("DEL", script);
    let net = network("1.0.0", &["a", "bad", "c"]);
    wait(folder.runtime().add(&net, &own())).unwrap();
    folder.clear_log();
    let error = wait(folder.builder().plugin_deadline(deadline).build().del(&net, &own())).unwrap_err();
    expected.assert_eq(&folder.stable(&error.to_string()));
    assert_eq!((folder.log().as_str(), folder.cache_files().len()), ("DEL c, DEL bad", 1));
    folder.plugin("bad", GOOD);
    wait(folder.runtime().del(&net, &own())).unwrap();
    assert_eq!(folder.cache_files(), [""; 0]);
}

const DEADLINE: Duration = Duration::from_secs(2);

/// Ignores SIGTERM, as does what it has started: only SIGKILL for the whole group ends them.
const NEVER_ENDS: &str = r#"trap "" TERM; sleep 1000 & echo $! > "$dir/sleeping"; wait; sleep 1000"#;

#[test]
fn add_of_a_plugin_that_never_ends() {
    let folder = with_bad("ADD", NEVER_ENDS);
    let begin = Instant::now();
    add_fails(
        &folder,
        &folder.builder().plugin_deadline(DEADLINE).build(),
        &expect![[
            r#"plugin type="bad" failed (add): cannot finish ADD of plugin $DIR/bad: it did not end within 2000 ms. It was sent SIGTERM, and SIGKILL where that did not end it. Rolled back: bad, a."#
        ]],
    );
    assert!(begin.elapsed() < BOUND);
    assert_ends(&folder.read("sleeping"));
}

#[test]
fn add_of_a_plugin_that_prints_garbage() {
    let folder = with_bad("ADD", r#"echo "garbage <&>"; exit 0"#);
    add_fails(
        &folder,
        &folder.runtime(),
        &expect![[
            r#"plugin type="bad" failed (add): cannot use result: cannot parse JSON: expected value at line 1 column 1. It printed "garbage <&>". Rolled back: bad, a."#
        ]],
    );
    let folder = with_bad("ADD", r#"echo garbage; echo "and why" >&2; exit 1"#);
    add_fails(
        &folder,
        &folder.runtime(),
        &expect![[
            r#"plugin type="bad" failed (add): netplugin failed but its stdout is no error object: stdout "garbage", stderr "and why". How it ended: exit status 1. Rolled back: bad, a."#
        ]],
    );
    let folder = with_bad("ADD", r#"printf '{"cniVersion":"1.0.0","ips":[{"addr'; exit 0"#);
    add_fails(
        &folder,
        &folder.runtime(),
        &expect![[
            r#"plugin type="bad" failed (add): cannot use result: cannot parse JSON: EOF while parsing a string at line 1 column 35. It printed "{\"cniVersion\":\"1.0.0\",\"ips\":[{\"addr". Rolled back: bad, a."#
        ]],
    );
}

#[test]
fn add_of_a_plugin_that_prints_100_mb_takes_bounded_memory() {
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    };
    let folder = with_bad("ADD", "head -c 100000000 /dev/zero; exit 0");
    let before = peak();
    add_fails(
        &folder,
        &folder.runtime(),
        &expect![[
            r#"plugin type="bad" failed (add): cannot use plugin $DIR/bad: it printed more than 16777216 bytes. Rolled back: bad, a."#
        ]],
    );
    assert!(peak() < before + 96, "{before} MB and then {} MB", peak());
    let folder = with_bad("ADD", "head -c 100000000 /dev/zero >&2; exit 1");
    let before = peak();
    let error = wait(folder.runtime().add(&network("1.0.0", &["a", "bad"]), &own())).unwrap_err();
    assert!(error.to_string().len() < 1 << 17, "{} bytes of text", error.to_string().len());
    assert!(peak() < before + 96, "{before} MB and then {} MB", peak());
}

#[test]
fn add_of_a_plugin_that_dies_by_a_signal() {
    let folder = with_bad("ADD", "kill -SEGV $$");
    add_fails(
        &folder,
        &folder.runtime(),
        &expect![[
            r#"plugin type="bad" failed (add): netplugin failed with no error message: killed by SIGSEGV. How it ended: killed by SIGSEGV. Rolled back: bad, a."#
        ]],
    );
    // A result that the plugin printed before the signal does not count.
    let folder = with_bad("ADD", r#"echo '{"cniVersion":"1.0.0"}'; kill -KILL $$"#);
    add_fails(
        &folder,
        &folder.runtime(),
        &expect![[
            r#"plugin type="bad" failed (add): netplugin failed but its stdout is no error object: stdout "{\"cniVersion\":\"1.0.0\"}", stderr "". How it ended: killed by SIGKILL. Rolled back: bad, a."#
        ]],
    );
}

#[test]
fn add_of_a_plugin_that_leaves_a_child_with_its_stdout_returns_at_once() {
    let folder = with_bad("ADD", r#"sleep 1000 & echo $! > "$dir/sleeping"; echo '{"cniVersion":"1.0.0"}'; exit 0"#);
    let begin = Instant::now();
    wait(folder.runtime().add(&network("1.0.0", &["a", "bad", "c"]), &eth0())).unwrap();
    assert!(begin.elapsed() < BOUND);
    let sleeping = folder.read("sleeping").trim().parse().unwrap();
    // The library leaves the plugin's child running, so the test ends it.
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(sleeping), nix::sys::signal::Signal::SIGKILL).unwrap();
}

#[test]
fn a_config_that_is_not_read_is_no_error() {
    let text = format!(
        r#"{{"cniVersion":"1.0.0","name":"net","plugins":[{{"type":"bad","big":"{}"}}]}}"#,
        "x".repeat(4 << 20)
    );
    let big = NetworkConf::parse(text.as_bytes()).unwrap();
    for script in ["exec <&-", ":"] {
        let folder = Folder::new();
        folder.plugin("bad", &format!(r#"{script}; [ $CNI_COMMAND = DEL ] || echo '{{"cniVersion":"1.0.0"}}'"#));
        wait(folder.runtime().add(&big, &eth0())).unwrap();
        wait(folder.runtime().del(&big, &eth0())).unwrap();
    }
    // A plugin that waits with its stdin open and unread is ended all the same.
    let folder = Folder::new();
    folder.plugin("bad", "[ $CNI_COMMAND = DEL ] || exec sleep 1000");
    let error = wait(folder.builder().plugin_deadline(DEADLINE).build().add(&big, &eth0())).unwrap_err();
    assert_eq!(error.code(), Some(Code::TIMEOUT));
}

#[test]
fn del_of_a_plugin_that_never_ends() {
    let begin = Instant::now();
    del_fails(
        &NEVER_ENDS.replace(r#"echo $! > "$dir/sleeping";"#, ""),
        DEADLINE,
        &expect![[
            r#"plugin type="bad" failed (delete): cannot finish DEL of plugin $DIR/bad: it did not end within 2000 ms. It was sent SIGTERM, and SIGKILL where that did not end it."#
        ]],
    );
    assert!(begin.elapsed() < BOUND);
}

#[test]
fn del_of_a_plugin_that_fails_in_its_own_way() {
    del_fails(
        "kill -KILL $$",
        BOUND,
        &expect![[
            r#"plugin type="bad" failed (delete): netplugin failed with no error message: killed by SIGKILL. How it ended: killed by SIGKILL."#
        ]],
    );
    del_fails(
        "echo garbage; exit 1",
        BOUND,
        &expect![[
            r#"plugin type="bad" failed (delete): netplugin failed but its stdout is no error object: stdout "garbage", stderr "". How it ended: exit status 1."#
        ]],
    );
    del_fails(
        "exit 1",
        BOUND,
        &expect![[
            r#"plugin type="bad" failed (delete): netplugin failed with no error message: exit status 1. How it ended: exit status 1."#
        ]],
    );
    del_fails(
        "head -c 100000000 /dev/zero; exit 0",
        BOUND,
        &expect![[
            r#"plugin type="bad" failed (delete): cannot use plugin $DIR/bad: it printed more than 16777216 bytes"#
        ]],
    );
    del_fails(r#"echo '{"code":7,"msg":"no"}'; exit 0"#, BOUND, &expect![[r#"plugin type="bad" failed (delete): no"#]]);
}

/// DEL has no result, so what is no error object is nothing.
#[test]
fn del_of_a_plugin_that_prints_garbage_and_succeeds() {
    let folder = with_bad("DEL", "echo garbage; exit 0");
    let net = network("1.0.0", &["a", "bad", "c"]);
    wait(folder.runtime().add(&net, &eth0())).unwrap();
    wait(folder.runtime().del(&net, &eth0())).unwrap();
    assert_eq!(folder.cache_files(), [""; 0]);
}
