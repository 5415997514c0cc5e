//! Errors as objects: a code by the table, the message, and the details apart.

use crate::test_folder::{Folder, GOOD, eth0, failing, network, own, wait};
use expect_test::{Expect, expect};
use libcni::cni_spec::{Code, PluginType};
use libcni::{Error, Execute, NetworkConf, blocking};
use std::process::{Child, Command};
use std::{fs, io};

#[track_caller]
fn check(folder: &Folder, error: &Error, expected: &Expect) {
    let object = error.to_cni_error();
    assert_eq!(error.code(), Some(object.code));
    let text = format!("{}: {}\n{}", object.code.0, object.msg, object.details);
    expected.assert_eq(folder.stable(&text).trim_end());
}

#[test]
fn several_errors_are_one_object() {
    let folder = Folder::with(&[("a", &failing("GC")), ("b", &failing("GC"))]);
    let error = wait(folder.runtime().gc(&network("1.1.0", &["a", "b"]), &[]).without_inventory()).unwrap_err();
    check(
        &folder,
        &error,
        &expect![[r#"
            11: plugin type="a" failed (gc): a cannot
            more words Also: plugin type="b" failed (gc): b cannot; more words."#]],
    );
}

fn versions(script: &str) -> String {
    let folder = Folder::with(&[("a", script)]);
    match wait(folder.runtime().version(&PluginType::parse("a").unwrap())) {
        Ok(info) => info.supported.join(" "),
        Err(error) => error.to_string(),
    }
}

#[test]
fn answers_to_version() {
    let texts = [
        r#"[ "$CNI_NETNS$CNI_IFNAME$CNI_PATH" = dummydummydummy ] && [ "$(cat)" = '{"cniVersion":"1.1.0"}' ] && echo '{"cniVersion":"1.1.0","supportedVersions":["0.4.0","1.1.0"]}'"#,
        r#"echo '{"code":4,"msg":"unknown CNI_COMMAND: VERSION"}'; exit 1"#,
        r#"echo '{"cniVersion":"0.2.0"}'"#,
        r#"echo '{"cniVersion":"1.0.0"}'"#,
        r#"echo '{"supportedVersions":["1.0.0"]}'"#,
        r#"echo nonsense"#,
        r#"echo why >&2; exit 3"#,
    ]
    .map(versions);
    expect![[r#"
        0.4.0 1.1.0
        0.1.0
        0.1.0 0.2.0
        plugin type="a" failed (version): cannot use answer to VERSION: cniVersion is "1.0.0", but supportedVersions is missing
        plugin type="a" failed (version): cannot use answer to VERSION: it has no cniVersion
        plugin type="a" failed (version): cannot use answer to VERSION: cannot parse JSON: expected ident at line 1 column 2
        plugin type="a" failed (version): netplugin failed: "why". How it ended: exit status 3."#]]
    .assert_eq(&texts.join("\n"));
}

const SPEAKS: &str = r#"echo '{"cniVersion":"1.0.0","supportedVersions":["0.1.0","1.0.0"]}'"#;

#[test]
fn validation_finds_every_fault() {
    let folder = Folder::with(&[("a", SPEAKS)]);
    folder.write("data", "no program");
    let error = wait(folder.runtime().validate(&network("1.1.0", &["a", "absent", "data"]))).unwrap_err();
    expect![[r#"
        plugin type="a" failed (version): plugin a does not support config version "1.1.0". It speaks 0.1.0, 1.0.0.
        plugin type="absent" failed (version): failed to find plugin "absent" in path [$DIR]. Install absent into one of these folders, or correct the type.
        plugin type="data" failed (version): cannot run plugin data: $DIR/data: EACCES: Permission denied. Make it executable, by chmod 755. Nothing was run."#]]
    .assert_eq(&folder.stable(&error.to_string()));
    assert_eq!(error.code(), Some(Code::INCOMPATIBLE_VERSION));
}

#[test]
fn validation_returns_the_enabled_capabilities() {
    let folder = Folder::with(&[("a", SPEAKS)]);
    let list = br#"{"name":"n","plugins":[{"type":"a","capabilities":{"mac":true,"dns":false}},
                                           {"type":"a","capabilities":{"portMappings":true,"mac":true}}]}"#;
    let capabilities = wait(folder.runtime().validate(&NetworkConf::parse(list).unwrap())).unwrap();
    assert_eq!(capabilities.into_iter().collect::<Vec<_>>(), ["mac", "portMappings"]);
}

fn with_bad(script: &str) -> Folder {
    let bad = format!(r#"echo "$CNI_COMMAND $name" >> "$dir/log"; [ $CNI_COMMAND = DEL ] || {{ {script}; }}"#);
    Folder::with(&[("a", GOOD), ("bad", &bad)])
}

#[test]
fn add_of_a_plugin_that_prints_100_mb_takes_bounded_memory() {
    let peak = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    };
    let folder = with_bad("head -c 100000000 /dev/zero; exit 0");
    let before = peak();
    let error = wait(folder.runtime().add(&network("1.0.0", &["a", "bad"]), &own())).unwrap_err();
    expect![[r#"plugin type="bad" failed (add): cannot use plugin $DIR/bad: it printed more than 16777216 bytes. Rolled back: bad, a."#]].assert_eq(&folder.stable(&error.to_string()));
    assert!(peak() < before + 96, "{before} MB and then {} MB", peak());
    let folder = with_bad("head -c 100000000 /dev/zero >&2; exit 1");
    let before = peak();
    let error = wait(folder.runtime().add(&network("1.0.0", &["a", "bad"]), &own())).unwrap_err();
    assert!(error.to_string().len() < 1 << 17, "{} bytes of text", error.to_string().len());
    assert!(peak() < before + 96, "{before} MB and then {} MB", peak());
}

/// The kernel ends these plugins first where memory is short: as with a cgroup, the process is there before it is told.
#[derive(Debug)]
struct Expendable;

impl Execute for Expendable {
    fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let plugin = command.spawn()?;
        fs::write(format!("/proc/{}/oom_score_adj", plugin.id()), "500")?;
        Ok(plugin)
    }
}

#[test]
fn a_plugin_begins_after_its_process_was_prepared() {
    let folder = Folder::with(&[(
        "a",
        r#"cat > /dev/null; cat /proc/self/oom_score_adj > "$dir/score"; echo '{"cniVersion":"1.0.0"}'"#,
    )]);
    let runtime = folder.builder().execute(Expendable).build();
    blocking::wait(runtime.add(&network("1.0.0", &["a"]), &own())).unwrap();
    assert_eq!(folder.read("score"), "500\n");
}

#[test]
fn an_operation_that_would_stop_an_event_loop_is_refused() {
    let folder = Folder::new();
    let error = wait(async { blocking::wait(folder.runtime().del(&network("1.0.0", &["a"]), &eth0())) }).unwrap_err();
    assert!(matches!(error, Error::NoEventLoop(_)) && error.code() == Some(Code::IO), "{error}");
}
