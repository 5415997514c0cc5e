//! Deadlines, cancellation, and dropped futures.

use crate::set_up::on;
use crate::test_node::{GOOD, PATIENCE, TestNode, but, on_node};
use expect_test::expect;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use pods::libcni::Cancellation;
use pods::{Error, Pod};
use std::time::{Duration, Instant};
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

/// Other pods are not delayed, and no plugin runs for the calls that wait.
#[test]
fn a_pod_that_hangs_blocks_its_own_calls_only_which_name_it_and_can_be_cancelled() {
    on_node(async |test_node| {
        let slow = node_with(test_node, "long", WAITS);
        let cancellation = Cancellation::default();
        let pods = test_node.pods();
        let called_off = pods.cancelled_by(cancellation.clone());
        let others = async {
            let pid = begun(test_node).await;
            let soon = || pods.until(Instant::now() + Duration::from_millis(300));
            let another = pods::PodId::new("default", "long", "", "another").unwrap();
            let errors = [
                soon().tear_down(&slow.id).await.unwrap_err(),
                soon().tear_down(&another).await.unwrap_err(),
                soon().check(&slow.id).await.unwrap_err(),
                soon().gc_without_inventory(&[]).await.unwrap_err(),
            ];
            assert_eq!(test_node.log(), "");
            let (quick, _) = test_node.pod("quick");
            pods.set_up(&quick).await.unwrap();
            pods.tear_down(&quick.id).await.unwrap();
            assert_eq!(pods.known().unwrap(), std::slice::from_ref(&slow.id));
            cancellation.cancel();
            (errors, pid)
        };
        let (outcome, (errors, pid)) = futures::future::join(called_off.set_up(&slow), others).await;
        expect![[r#"cannot set up the network of pod default/long (sandbox sandbox-long): network slow, interface eth1: plugin type="slow" failed (add): cannot finish ADD: the operation was cancelled. It was sent SIGTERM, and SIGKILL where that did not end it. Rolled back: slow."#]]
        .assert_eq(&outcome.unwrap_err().to_string());
        assert!(has_ended(&pid));
        for error in errors {
            assert!(matches!(error, Error::Busy(_)), "{error}");
            let text = error.to_string();
            assert!(
                text.contains(": in its way set-up of pod default/long (sandbox sandbox-long), running for "),
                "{text}"
            );
        }
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
    let error = pods.check(&slow.id).await.unwrap_err().to_string();
    assert!(error.contains("network slow, interface eth1: its set-up did not finish; tear the pod down"), "{error}");
    assert!(pods.status(&slow.id).await.unwrap().networks.iter().any(|network| network.result.is_none()));
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
