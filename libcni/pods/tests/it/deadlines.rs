//! Deadlines, cancellation, and dropped futures.

use crate::set_up::on;
use crate::test_node::{GOOD, PATIENCE, TestNode, but, on_node};
use expect_test::expect;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use pods::libcni::Cancellation;
use pods::{Error, Pod};
use std::time::{Duration, Instant};

/// Reports that it has begun and the pids of its children, ignores SIGTERM as they do, and never ends.
const NEVER_ENDS: &str = r#"trap "" TERM; sleep 1000 & echo $! > "$dir/begun"; wait; sleep 1000"#;
/// Ends on SIGTERM, as plugins do.
const WAITS: &str = r#"echo $$ > "$dir/begun"; exec sleep 1000"#;

/// A pod on a bridge and a network whose ADD does not end.
fn node_with(test_node: &TestNode, name: &str, script: &str) -> Pod {
    mkfifo(&test_node.dir().join("begun"), Mode::S_IRWXU).unwrap();
    test_node.bridge("10-office", "office", 1);
    test_node.plugin("slow", &but("ADD", script));
    test_node.network("20-slow", "slow", &["slow"]);
    let (mut pod, _) = test_node.pod(name);
    pod.networks = vec![on("office"), on("slow")];
    pod
}

/// The process that has reported its pid.
async fn begun(test_node: &TestNode) -> String {
    let path = test_node.dir().join("begun");
    let read = libcni::aside(move || std::fs::read_to_string(path));
    tokio::time::timeout(PATIENCE, read).await.unwrap().unwrap().unwrap().trim().to_owned()
}

fn has_ended(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| stat.contains(") Z "))
}

#[test]
fn the_deadline_reaches_the_process_group_and_the_rest_is_undone() {
    on_node(async |test_node| {
        let pod = node_with(test_node, "deaf", NEVER_ENDS);
        let pods = test_node.builder().deadline(Duration::from_secs(4)).build().unwrap();
        let begin = Instant::now();
        let (outcome, pid) = futures::future::join(pods.set_up(&pod), begun(test_node)).await;
        let error = outcome.unwrap_err();
        // 4 s, 5 s for plugins that ignore SIGTERM, and the rollback, in which no plugin hangs.
        assert!(begin.elapsed() < Duration::from_secs(13), "{:?}", begin.elapsed());
        assert!(has_ended(&pid));
        assert_eq!((error.errors.len(), error.errors[0].code().unwrap().0), (1, 104), "{error}");
        assert!(error.left.is_empty(), "{error}");
        test_node.assert_nothing_left();
    });
}

/// In ADD and in the rollback: a kubelet still gets its answer before it gives up, and the cache has what is left.
#[test]
fn the_worst_plugin_does_not_take_longer_than_both_deadlines() {
    on_node(async |test_node| {
        test_node.plugin(
            "worst",
            &format!("[ \"$CNI_COMMAND\" = VERSION ] || {{ trap '' TERM; sleep 1000 & wait; sleep 1000; }}\n{GOOD}"),
        );
        test_node.network("10-worst", "worst", &["worst"]);
        let pods = test_node.builder().deadline(Duration::from_secs(1)).build().unwrap();
        let (pod, _) = test_node.pod("worst");
        let begin = Instant::now();
        let error = pods.set_up(&pod).await.unwrap_err();
        assert!(begin.elapsed() < Duration::from_secs(1) + pods::DEFAULT_UNDO_DEADLINE, "{:?}", begin.elapsed());
        assert!(error.to_string().contains("Left behind: plugin type=\"worst\" failed (delete)"), "{error}");
        assert_eq!(pods.known().unwrap(), std::slice::from_ref(&pod.id));
        test_node.plugin("worst", GOOD);
        pods.tear_down(&pod.id).await.unwrap();
        test_node.assert_nothing_left();
    });
}

/// The other pod is not delayed, and a call that waits for this one reports what it waits for.
#[test]
fn other_pods_go_on_and_a_waiting_call_reports_what_it_waits_for() {
    on_node(async |test_node| {
        let mut slow = node_with(test_node, "called-off", WAITS);
        slow.networks.remove(0);
        let cancellation = Cancellation::default();
        let pods = test_node.pods();
        let slow_pods = pods.cancelled_by(cancellation.clone());
        let set_up = slow_pods.set_up(&slow);
        let others = async {
            let pid = begun(test_node).await;
            let (pod, _) = test_node.pod("quick");
            pods.set_up(&pod).await.unwrap();
            pods.tear_down(&pod.id).await.unwrap();
            assert_eq!(pods.known().unwrap(), std::slice::from_ref(&slow.id));
            cancellation.cancel();
            pid
        };
        let (outcome, pid) = futures::future::join(set_up, others).await;
        let error = outcome.unwrap_err();
        assert!(has_ended(&pid));
        expect![[r#"cannot set up the network of pod default/called-off (sandbox sandbox-called-off): network slow, interface eth0: plugin type="slow" failed (add): cannot finish ADD: the operation was cancelled. It was sent SIGTERM, and SIGKILL where that did not end it. Rolled back: slow."#]]
        .assert_eq(&error.to_string());
        test_node.assert_nothing_left();
    });
}

#[test]
fn waiting_for_a_turn_counts_and_the_error_names_who_has_it() {
    on_node(async |test_node| {
        let slow = node_with(test_node, "long", WAITS);
        let cancellation = Cancellation::default();
        let pods = test_node.pods();
        let called_off = pods.cancelled_by(cancellation.clone());
        let others = async {
            begun(test_node).await;
            let soon = || pods.until(Instant::now() + Duration::from_millis(300));
            let another = pods::PodId::new("default", "long", "", "another").unwrap();
            let errors = [
                soon().tear_down(&slow.id).await.unwrap_err(),
                soon().tear_down(&another).await.unwrap_err(),
                soon().check(&slow.id).await.unwrap_err(),
                soon().gc(&[]).without_inventory().await.unwrap_err(),
            ];
            let log = test_node.log();
            cancellation.cancel();
            (errors, log)
        };
        let (outcome, (errors, log)) = futures::future::join(called_off.set_up(&slow), others).await;
        outcome.unwrap_err();
        for error in errors {
            assert!(matches!(error, Error::Busy(_)), "{error}");
            let text = error.to_string();
            assert!(
                text.contains(": in its way set-up of pod default/long (sandbox sandbox-long), running for "),
                "{text}"
            );
        }
        // No plugin has run for them.
        assert_eq!(log, "");
        test_node.assert_nothing_left();
    });
}

/// Nothing is rolled back, the lock is free at once, and a tear-down finds all of it, as does the next set-up if the caller has
/// forgotten the tear-down.
#[test]
fn a_dropped_set_up_is_taken_down_from_the_cache() {
    for is_forgotten in [false, true] {
        on_node(async |test_node| dropped(test_node, is_forgotten).await);
    }
}

async fn dropped(test_node: &TestNode, is_forgotten: bool) {
    let slow = node_with(test_node, "dropped", WAITS);
    let pods = test_node.pods();
    let mut set_up = Box::pin(pods.set_up(&slow));
    let pid = tokio::select! {
        outcome = set_up.as_mut() => panic!("it should not end: {outcome:?}"),
        pid = begun(test_node) => pid,
    };
    drop(set_up);
    assert_eq!(pods.known().unwrap(), std::slice::from_ref(&slow.id));
    if !is_forgotten {
        pods.tear_down(&slow.id).await.unwrap();
        assert!(has_ended(&pid));
        test_node.assert_nothing_left();
    }
    // The same pod can be set up again, by the same handle.
    test_node.plugin("slow", GOOD);
    let status = pods.set_up(&slow).await.unwrap();
    assert!(status.networks.iter().all(|network| network.result.is_some()));
    assert_eq!(test_node.leases("office").len(), 2);
    pods.tear_down(&slow.id).await.unwrap();
    test_node.assert_nothing_left();
}
