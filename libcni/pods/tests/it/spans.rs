//! Observability: spans for a pod's operation, for each network and each plugin, and how these ended.

use crate::set_up::on;
use crate::test_node::{GOOD, but, failing, on_node};
use expect_test::expect;
use pods::libcni::TraceContext;
use std::cell::RefCell;
use std::io::{self, Write};
use std::sync::Once;
use tracing::Level;

thread_local! {
    /// The log of this thread: a test and its runtime are on one thread.
    static LOG: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        LOG.with_borrow_mut(|log| log.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Begins to log, on all threads: whether a subscriber is interested is asked once for each place in the code, on whichever
/// thread is there first.
fn record() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let lines = tracing_subscriber::fmt().with_writer(|| Log).with_max_level(Level::DEBUG);
        let subscriber = lines.without_time().with_target(false).with_ansi(false).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    LOG.take();
}

/// The warnings and the ends of operations, each with the spans around it, without what differs from run to run.
fn logged() -> String {
    let text = String::from_utf8(LOG.take()).unwrap();
    let line = |line: &str| match line.split_once(" duration_us=") {
        Some((spans, fields)) => Some(format!("{spans}{}", fields.trim_start_matches(|c: char| c.is_ascii_digit()))),
        None => line.contains("WARN").then(|| line.to_owned()),
    };
    text.lines().filter_map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn ends_of_operations_and_lost_capabilities_are_logged_in_the_spans_of_pod_and_network() {
    on_node(async |test_node| {
        test_node.plugin("a", GOOD);
        test_node.plugin("b", &but("ADD", &failing(11, "not now")));
        test_node.network("10-a", "net-a", &["a"]);
        test_node.network("20-b", "net-b", &["b"]);
        let pods = test_node.pods();
        pods.networks().await;
        record();
        let (mut pod, _) = test_node.pod("web");
        pod.id.uid = "0f1e".into();
        let protocol = "tcp".to_owned();
        pod.port_mappings = vec![pods::PortMapping { host_port: 8080, container_port: 80, protocol, host_ip: None }];
        pods.set_up(&pod).await.unwrap();
        pod.port_mappings.clear();
        pods.tear_down(&pod.id).await.unwrap();
        pod.networks = vec![on("net-b")];
        pods.set_up(&pod).await.unwrap_err();
        pods.gc(&[]).without_inventory().await.unwrap();
        expect![[r#"
            DEBUG pod{operation=set-up namespace="default" name="web" uid="0f1e" sandbox="sandbox-web"}:operation{operation="ADD" network="net-a" container="sandbox-web" ifname="eth0"}:plugin{plugin="a" command="ADD"}: plugin ended outcome="ok"
            DEBUG pod{operation=set-up namespace="default" name="web" uid="0f1e" sandbox="sandbox-web"}:operation{operation="ADD" network="net-a" container="sandbox-web" ifname="eth0"}: operation ended outcome="ok"
             WARN pod{operation=set-up namespace="default" name="web" uid="0f1e" sandbox="sandbox-web"}: pod default/web: network net-a has no plugin with capability portMappings: it has no effect
            DEBUG pod{operation=tear-down namespace="default" name="web" uid="0f1e" sandbox="sandbox-web"}:operation{operation="DEL" network="net-a" container="sandbox-web" ifname="eth0"}:plugin{plugin="a" command="DEL"}: plugin ended outcome="ok"
            DEBUG pod{operation=tear-down namespace="default" name="web" uid="0f1e" sandbox="sandbox-web"}:operation{operation="DEL" network="net-a" container="sandbox-web" ifname="eth0"}: operation ended outcome="ok"
            DEBUG pod{operation=set-up namespace="default" name="web" uid="0f1e" sandbox="sandbox-web"}:operation{operation="ADD" network="net-b" container="sandbox-web" ifname="eth0"}:plugin{plugin="b" command="ADD"}: plugin ended outcome="error" code=11 error=not now
            DEBUG pod{operation=set-up namespace="default" name="web" uid="0f1e" sandbox="sandbox-web"}:operation{operation="ADD" network="net-b" container="sandbox-web" ifname="eth0"}:plugin{plugin="b" command="DEL"}: plugin ended outcome="ok"
            DEBUG pod{operation=set-up namespace="default" name="web" uid="0f1e" sandbox="sandbox-web"}:operation{operation="ADD" network="net-b" container="sandbox-web" ifname="eth0"}: operation ended outcome="error" code=11 error=plugin type="b" failed (add): not now. Rolled back: b.
            DEBUG node{operation=garbage collection live=0}:operation{operation="GC" network="net-a"}:plugin{plugin="a" command="GC"}: plugin ended outcome="ok"
            DEBUG node{operation=garbage collection live=0}:operation{operation="GC" network="net-a"}: operation ended outcome="ok"
            DEBUG node{operation=garbage collection live=0}:operation{operation="GC" network="net-b"}:plugin{plugin="b" command="GC"}: plugin ended outcome="ok"
            DEBUG node{operation=garbage collection live=0}:operation{operation="GC" network="net-b"}: operation ended outcome="ok""#]]
        .assert_eq(&logged());
    });
}

#[test]
fn trace_context_is_handed_to_each_plugin() {
    on_node(async |test_node| {
        test_node.plugin("a", &format!("echo \"$CNI_COMMAND $TRACEPARENT\" >> \"$dir/traces\"\n{GOOD}"));
        test_node.network("10-a", "net-a", &["a"]);
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let trace = move || TraceContext { traceparent: parent.into(), ..TraceContext::default() };
        let pods = test_node.builder().trace_context(move || Some(trace())).build().unwrap();
        let (pod, _) = test_node.pod("web");
        pods.set_up(&pod).await.unwrap();
        pods.tear_down(&pod.id).await.unwrap();
        pods.ready().await.unwrap();
        let traces = test_node.read("traces");
        let expected = ["ADD", "DEL", "STATUS"].map(|verb| format!("{verb} {parent}"));
        let lines: Vec<_> = traces.lines().filter(|line| !line.starts_with("VERSION")).collect();
        assert_eq!(lines, expected);
    });
}
