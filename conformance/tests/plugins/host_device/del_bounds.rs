//! DEL's work has a bound, whatever the container does.

use super::{config, device_and_pod};
use crate::configs::Attached;
use conformance::shell::ip;
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use testns::Feature;

const MANY: usize = 150;

/// Links on top of the device end by a few requests: each waits for the kernel's grace period.
#[test]
fn many_links_on_the_device_end_at_once() {
    testns::needs!(Feature::Macvlan.or_skip());
    let (node, pod) = device_and_pod();
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    let file = node.work_dir().join("batch");
    let all = (0..MANY).map(|number| format!("link add mv{number} link eth0 type macvlan mode bridge\n"));
    std::fs::write(&file, all.collect::<String>()).unwrap();
    ip(pod.namespace(), &format!("-batch {}", file.display()));
    let traced = attached.call(testns::Verb::Del).trace(&node);
    traced.reply.ok();
    assert!(traced.counts()["sendto"] < 60, "{:#?}", traced.counts());
    assert_eq!(pod.namespace().links().iter().filter(|link| link.name.starts_with("mv")).count(), 0);
    assert!(node.host().find_link("dev1").is_some());
}

/// Each list of the container's links is interrupted by the next link.
#[test]
fn a_container_that_keeps_making_links_does_not_keep_the_device() {
    let (node, pod) = device_and_pod();
    let attached = Attached::add(&node, &config(json!({"ipam": {}})), &pod);
    pod.namespace().crowd_links(200);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                pod.namespace().pass_links(20);
            }
        });
        let begin = Instant::now();
        let reply = attached.del();
        is_over.store(true, Ordering::Relaxed);
        reply.ok();
        assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    });
    assert!(node.host().find_link("dev1").is_some());
}
