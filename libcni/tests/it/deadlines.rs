//! Deadlines of whole operations, and what remains undone.

use crate::test_folder::{Folder, GOOD, eth0, network, own, wait};
use expect_test::expect;
use libcni::cni_spec::{Code, PluginType};
use libcni::{Runtime, RuntimeConf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Enough for a plugin on a busy machine.
const SOON: Duration = Duration::from_secs(3);
/// Far more than any deadline here, far less than the plugins would take.
const BOUND: Duration = Duration::from_secs(60);

/// Never ends with the verbs of `verbs`, and ends with the others at once.
fn stuck(verbs: &str) -> String {
    format!(
        r#"
echo "$CNI_COMMAND $name" >> "$dir/log"
case " {verbs} " in *" $CNI_COMMAND "*) exec sleep 1000;; esac
[ $CNI_COMMAND != ADD ] || echo '{{"cniVersion":"1.0.0"}}'
"#
    )
}

#[test]
fn an_operation_that_is_over_ends_its_plugin_and_is_rolled_back() {
    let folder = Folder::with(&[("a", GOOD), ("b", &stuck("ADD")), ("c", GOOD)]);
    let begin = Instant::now();
    // Of all deadlines the first one counts.
    let first = Instant::now() + SOON;
    let runtime = folder.builder().operation_deadline(BOUND).build().until(first).until(Instant::now() + BOUND);
    let error = wait(runtime.add(&network("1.0.0", &["a", "b", "c"]), &eth0())).unwrap_err();
    assert_eq!(error.code(), Some(Code::TIMEOUT));
    assert!(error.to_string().ends_with("Rolled back: b, a."), "{error}");
    expect!["ADD a, ADD b, DEL b, DEL a"].assert_eq(&folder.log());
    assert!(folder.cache_files().is_empty() && begin.elapsed() < BOUND);
}

#[test]
fn nothing_begins_when_the_time_is_over() {
    let folder = Folder::with(&[("a", &stuck("ADD DEL CHECK GC STATUS VERSION"))]);
    let net = network("1.1.0", &["a"]);
    wait(folder.runtime().until(Instant::now()).add(&net, &eth0())).unwrap_err();
    assert!(folder.cache_files().is_empty(), "nothing ran, so there is nothing to undo");
    let runtime = folder.runtime().until(Instant::now());
    let a = PluginType::parse("a").unwrap();
    let errors = [
        wait(runtime.add(&net, &eth0())).unwrap_err(),
        wait(runtime.check(&net, &eth0())).unwrap_err(),
        wait(runtime.del(&net, &eth0())).unwrap_err(),
        wait(runtime.gc(&net, &[]).without_inventory()).unwrap_err(),
        wait(runtime.status(&net)).unwrap_err(),
        wait(runtime.validate(&net)).unwrap_err(),
        wait(runtime.version(&a)).unwrap_err(),
    ];
    for error in &errors {
        assert_eq!(error.code(), Some(Code::TIMEOUT), "{error}");
    }
    expect![[r#"plugin type="a" failed (gc): cannot start GC: the deadline of the whole operation has passed"#]]
        .assert_eq(&errors[3].to_string());
    expect![""].assert_eq(&folder.log());
}

/// GC is one operation with all its DELs.
#[test]
fn the_deadline_of_gc_is_that_of_its_dels_together() {
    let folder = Folder::with(&[("a", GOOD)]);
    let (runtime, net) = (folder.runtime(), network("1.1.0", &["a"]));
    for container in ["c1", "c2", "c3"] {
        wait(runtime.add(&net, &RuntimeConf::new(container, "eth0").unwrap())).unwrap();
    }
    folder.plugin("a", &stuck("DEL"));
    folder.clear_log();
    let error = wait(folder.builder().operation_deadline(SOON).build().gc(&net, &[]).without_inventory()).unwrap_err();
    expect![[r#"
        plugin type="a" failed (delete): cannot finish DEL of plugin $DIR/a: it did not end within N ms. It was sent SIGTERM, and SIGKILL where that did not end it.
        plugin type="a" failed (delete): cannot start DEL: the deadline of the whole operation has passed
        plugin type="a" failed (delete): cannot start DEL: the deadline of the whole operation has passed
        plugin type="a" failed (gc): cannot start GC: the deadline of the whole operation has passed"#]]
    .assert_eq(&without_numbers(&folder.stable(&error.to_string())));
    expect!["DEL a"].assert_eq(&folder.log());
    assert_eq!(folder.cache_files().len(), 3);
}

/// The time that was left depends on how fast the machine is.
fn without_numbers(text: &str) -> String {
    let one = |line: &str| match line.split_once("within ") {
        Some((before, rest)) => format!("{before}within N{}", rest.trim_start_matches(|c: char| c.is_ascii_digit())),
        None => line.to_owned(),
    };
    text.lines().map(one).collect::<Vec<_>>().join("\n")
}

#[test]
fn a_rollback_has_a_deadline_of_its_own() {
    let folder = Folder::with(&[("a", GOOD), ("b", &stuck("DEL")), ("c", &crate::test_folder::failing("ADD"))]);
    let begin = Instant::now();
    let runtime: Runtime = folder.builder().rollback_deadline(SOON).build();
    let error = wait(runtime.add(&network("1.0.0", &["a", "b", "c"]), &own())).unwrap_err();
    expect![[r#"plugin type="c" failed (add): c cannot; more words. Rolled back: c. Left behind: plugin type="b" failed (delete): cannot finish DEL of plugin $DIR/b: it did not end within N ms. It was sent SIGTERM, and SIGKILL where that did not end it. Left behind: plugin type="a" failed (delete): cannot start DEL: the deadline of the rollback has passed. The cache keeps the attachment as incomplete: call DEL once the cause is gone."#]]
    .assert_eq(&without_numbers(&folder.stable(&error.to_string())));
    assert!(begin.elapsed() < BOUND);
    expect!["ADD a, ADD b, ADD c, DEL c, DEL b"].assert_eq(&folder.log());
    folder.plugin("b", GOOD);
    wait(folder.runtime().del_cached(&folder.runtime().cache().list(None).unwrap().cached[0])).unwrap();
    assert!(folder.cache_files().is_empty());
}

/// The stack of each thread: larger than any address space, so no thread can be made.
const NO_THREADS: (&str, &str) = ("RUST_MIN_STACK", "1125899906842624");

/// The test runs on the main thread if tests run one at a time.
#[test]
fn work_for_a_thread_that_cannot_be_made_is_an_error() {
    #[expect(clippy::disallowed_methods, reason = "the variable is one of this test's own process")]
    let has_threads = std::env::var_os(NO_THREADS.0).is_none();
    if has_threads {
        let name = "deadlines::work_for_a_thread_that_cannot_be_made_is_an_error";
        let mut again = Command::new(std::env::current_exe().unwrap());
        again.args(["--test-threads=1", "--exact", name]).env(NO_THREADS.0, NO_THREADS.1);
        let output = again.output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let outcome = runtime.block_on(libcni::aside(|| 7));
    match has_threads {
        true => assert_eq!(outcome.unwrap(), 7),
        false => assert!(outcome.unwrap_err().to_string().starts_with("cannot make a thread: ")),
    }
}
