//! Observability: the spans of operations on a pod and on the node, around those of `libcni`, and the trace context.

use crate::test_node::{GOOD, on_node};
use expect_test::expect;
use pods::libcni::TraceContext;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use tracing::Level;

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The subscriber is for all threads, as whether one is interested is asked once for each place in the code, on whichever
/// thread is there first. Other tests have other pods.
#[test]
fn operations_are_logged_in_the_spans_of_pod_and_node() {
    let lines = tracing_subscriber::fmt().with_writer(|| Log).with_max_level(Level::DEBUG).without_time();
    tracing::subscriber::set_global_default(lines.with_target(false).with_ansi(false).finish()).unwrap();
    on_node(async |test_node| {
        test_node.plugin("a", &format!("echo \"$CNI_COMMAND $TRACEPARENT\" >> \"$dir/traces\"\n{GOOD}"));
        test_node.network("10-a", "traced", &["a"]);
        let trace = || Some(TraceContext { traceparent: "00-1-2-01".into(), ..TraceContext::default() });
        let pods = test_node.builder().trace_context(trace).build().unwrap();
        let (mut pod, _) = test_node.pod("traced");
        pod.id.uid = "0f1e".into();
        let protocol = "tcp".to_owned();
        pod.port_mappings = vec![pods::PortMapping { host_port: 8080, container_port: 80, protocol, host_ip: None }];
        pods.set_up(&pod).await.unwrap();
        pods.gc_without_inventory(std::slice::from_ref(&pod.id.sandbox)).await.unwrap();
        let text = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
        let ends = text.lines().filter(|line| line.contains("traced") && !line.contains("}:plugin{"));
        let ends: Vec<_> = ends.map(|line| line.split(" duration_us=").next().unwrap()).collect();
        expect![[r#"
            DEBUG pod{operation=set-up namespace="default" name="traced" uid="0f1e" sandbox="sandbox-traced"}:operation{operation="VERSION"}: operation ended
            DEBUG pod{operation=set-up namespace="default" name="traced" uid="0f1e" sandbox="sandbox-traced"}:operation{operation="ADD" network="traced" container="sandbox-traced" ifname="eth0"}: operation ended
             WARN pod{operation=set-up namespace="default" name="traced" uid="0f1e" sandbox="sandbox-traced"}: pod default/traced: network traced has no plugin with capability portMappings: it has no effect
            DEBUG node{operation=garbage collection live=1}:operation{operation="GC" network="traced"}: operation ended"#]]
        .assert_eq(&ends.join("\n"));
        assert_eq!(
            test_node.read("traces").lines().filter(|line| !line.ends_with(" 00-1-2-01")).collect::<Vec<_>>(),
            [""; 0]
        );
    });
}
