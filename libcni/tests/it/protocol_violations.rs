//! Plugins that do not keep to the protocol. The error names the plugin and says what it did, an ADD is rolled back, and
//! nothing is left of it. (What they print that is no result, or none, is in `add`.)

use crate::test_folder::{Folder, GOOD, assert_ends, network, own, wait};
use expect_test::expect;
use libcni::Runtime;
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

/// The error of an ADD through a plugin that misbehaves, between two good ones.
fn add_fails(folder: &Folder, runtime: &Runtime) -> String {
    let error = wait(runtime.add(&network("1.0.0", &["a", "bad", "c"]), &own())).unwrap_err();
    assert_eq!(folder.log(), "ADD a, ADD bad, DEL bad, DEL a");
    assert_eq!(folder.cache_files(), [""; 0]);
    folder.stable(&error.to_string())
}

fn with_bad(verb: &str, script: &str) -> Folder {
    Folder::with(&[("a", GOOD), ("bad", &plugin(verb, script)), ("c", GOOD)])
}

const DEADLINE: Duration = Duration::from_secs(2);

/// Ignores SIGTERM, as does what it has started: only SIGKILL for the whole group ends them.
const NEVER_ENDS: &str = r#"trap "" TERM; sleep 1000 & echo $! > "$dir/sleeping"; wait; sleep 1000"#;

#[test]
fn add_of_a_plugin_that_never_ends() {
    let folder = with_bad("ADD", NEVER_ENDS);
    let begin = Instant::now();
    let error = add_fails(&folder, &folder.builder().plugin_deadline(DEADLINE).build());
    expect![[r#"plugin type="bad" failed (add): cannot finish ADD of plugin $DIR/bad: it did not end within 2000 ms. It was sent SIGTERM, and SIGKILL where that did not end it. Rolled back: bad, a."#]].assert_eq(&error);
    assert!(begin.elapsed() < BOUND);
    assert_ends(&folder.read("sleeping"));
}

/// A result that the plugin printed before a signal does not count.
#[test]
fn add_of_a_plugin_that_prints_garbage_or_dies_by_a_signal() {
    let errors = [
        r#"echo "garbage <&>"; exit 0"#,
        r#"echo garbage; echo "and why" >&2; exit 1"#,
        r#"printf '{"cniVersion":"1.0.0","ips":[{"addr'; exit 0"#,
        "kill -SEGV $$",
        r#"echo '{"cniVersion":"1.0.0"}'; kill -KILL $$"#,
    ]
    .map(|script| {
        let folder = with_bad("ADD", script);
        add_fails(&folder, &folder.runtime())
    });
    expect![[r#"
        plugin type="bad" failed (add): cannot use result: cannot parse JSON: expected value at line 1 column 1. It printed "garbage <&>". Rolled back: bad, a.
        plugin type="bad" failed (add): netplugin failed but its stdout is no error object: stdout "garbage", stderr "and why". How it ended: exit status 1. Rolled back: bad, a.
        plugin type="bad" failed (add): cannot use result: cannot parse JSON: EOF while parsing a string at line 1 column 35. It printed "{\"cniVersion\":\"1.0.0\",\"ips\":[{\"addr". Rolled back: bad, a.
        plugin type="bad" failed (add): netplugin failed with no error message: killed by SIGSEGV. How it ended: killed by SIGSEGV. Rolled back: bad, a.
        plugin type="bad" failed (add): netplugin failed but its stdout is no error object: stdout "{\"cniVersion\":\"1.0.0\"}", stderr "". How it ended: killed by SIGKILL. Rolled back: bad, a."#]].assert_eq(&errors.join("\n"));
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
    expect![[r#"plugin type="bad" failed (add): cannot use plugin $DIR/bad: it printed more than 16777216 bytes. Rolled back: bad, a."#]].assert_eq(&add_fails(&folder, &folder.runtime()));
    assert!(peak() < before + 96, "{before} MB and then {} MB", peak());
    let folder = with_bad("ADD", "head -c 100000000 /dev/zero >&2; exit 1");
    let before = peak();
    let error = wait(folder.runtime().add(&network("1.0.0", &["a", "bad"]), &own())).unwrap_err();
    assert!(error.to_string().len() < 1 << 17, "{} bytes of text", error.to_string().len());
    assert!(peak() < before + 96, "{before} MB and then {} MB", peak());
}
