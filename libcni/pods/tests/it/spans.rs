//! Observability: spans for a pod's operation, for each network and each plugin, and how these ended.

use crate::set_up::on;
use crate::test_node::{GOOD, but, failing, on_node};
use expect_test::expect;
use pods::libcni::TraceContext;
use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::sync::Once;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

thread_local! {
    /// The events on this thread, on which a test and its runtime are.
    static EVENTS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    /// The texts of warnings.
    static WARNED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Records each event about the end of an operation, with the spans around it. For all threads: whether a subscriber is
/// interested is asked once for each place in the code, on whichever thread is there first.
struct Recorder;

fn record() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(tracing_subscriber::registry().with(Recorder)).unwrap());
    EVENTS.take();
    WARNED.take();
}

/// Fields as text, without what differs from run to run.
#[derive(Default)]
struct Fields {
    text: String,
    message: String,
    has_duration: bool,
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "duration_us" => self.has_duration = true,
            "message" => self.message = format!("{value:?}"),
            "error" => {}
            name => write!(self.text, " {name}={value:?}").unwrap(),
        }
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        context.span(id).unwrap().extensions_mut().insert(fields);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        if *event.metadata().level() == tracing::Level::WARN {
            WARNED.with_borrow_mut(|warned| warned.push(fields.message.clone()));
        }
        if !fields.has_duration {
            return;
        }
        let spans = context.event_scope(event).into_iter().flat_map(|scope| scope.from_root());
        let spans: Vec<_> = spans
            .map(|span| format!("{}{}", span.name(), span.extensions().get::<Fields>().unwrap().text.replace('"', "")))
            .collect();
        let line = format!("{}:{}", spans.join(" > "), fields.text.replace('"', ""));
        EVENTS.with_borrow_mut(|events| events.push(line));
    }
}

#[test]
fn the_span_of_each_network_and_plugin_reports_how_it_ended_within_the_pods() {
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
        pods.set_up(&pod).await.unwrap();
        pods.tear_down(&pod.id).await.unwrap();
        pod.networks = vec![on("net-b")];
        pods.set_up(&pod).await.unwrap_err();
        pods.gc(&[]).without_inventory().await.unwrap();
        let events = EVENTS.take().join("\n");
        expect![[r#"
            pod operation=set-up namespace=default name=web uid=0f1e sandbox=sandbox-web > operation operation=ADD network=net-a container=sandbox-web ifname=eth0 > plugin plugin=a command=ADD: outcome=ok
            pod operation=set-up namespace=default name=web uid=0f1e sandbox=sandbox-web > operation operation=ADD network=net-a container=sandbox-web ifname=eth0: outcome=ok
            pod operation=tear-down namespace=default name=web uid=0f1e sandbox=sandbox-web > operation operation=DEL network=net-a container=sandbox-web ifname=eth0 > plugin plugin=a command=DEL: outcome=ok
            pod operation=tear-down namespace=default name=web uid=0f1e sandbox=sandbox-web > operation operation=DEL network=net-a container=sandbox-web ifname=eth0: outcome=ok
            pod operation=set-up namespace=default name=web uid=0f1e sandbox=sandbox-web > operation operation=ADD network=net-b container=sandbox-web ifname=eth0 > plugin plugin=b command=ADD: outcome=error code=11
            pod operation=set-up namespace=default name=web uid=0f1e sandbox=sandbox-web > operation operation=ADD network=net-b container=sandbox-web ifname=eth0 > plugin plugin=b command=DEL: outcome=ok
            pod operation=set-up namespace=default name=web uid=0f1e sandbox=sandbox-web > operation operation=ADD network=net-b container=sandbox-web ifname=eth0: outcome=error code=11
            node operation=garbage collection live=0 > operation operation=GC network=net-a > plugin plugin=a command=GC: outcome=ok
            node operation=garbage collection live=0 > operation operation=GC network=net-a: outcome=ok
            node operation=garbage collection live=0 > operation operation=GC network=net-b > plugin plugin=b command=GC: outcome=ok
            node operation=garbage collection live=0 > operation operation=GC network=net-b: outcome=ok"#]]
        .assert_eq(&events);
    });
}

#[test]
fn trace_context_is_handed_to_each_plugin() {
    on_node(async |test_node| {
        test_node.plugin("a", &format!("echo \"$CNI_COMMAND $TRACEPARENT\" >> \"$dir/traces\"\n{GOOD}"));
        test_node.network("10-a", "net-a", &["a"]);
        let trace = || TraceContext {
            traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
            ..TraceContext::default()
        };
        let pods = test_node.builder().trace_context(move || Some(trace())).build().unwrap();
        let (pod, _) = test_node.pod("web");
        pods.set_up(&pod).await.unwrap();
        pods.tear_down(&pod.id).await.unwrap();
        pods.ready().await.unwrap();
        let traces = test_node.read("traces");
        let expected = ["ADD", "DEL", "STATUS"]
            .map(|verb| format!("{verb} 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"));
        let lines: Vec<_> = traces.lines().filter(|line| !line.starts_with("VERSION")).collect();
        assert_eq!(lines, expected);
    });
}

#[test]
fn a_capability_that_no_plugin_wants_is_logged_with_pod_and_network() {
    on_node(async |test_node| {
        test_node.plugin("a", GOOD);
        test_node.network("10-a", "net-a", &["a"]);
        let pods = test_node.pods();
        record();
        let (mut pod, _) = test_node.pod("web");
        let protocol = "tcp".to_owned();
        pod.port_mappings = vec![pods::PortMapping { host_port: 8080, container_port: 80, protocol, host_ip: None }];
        pods.set_up(&pod).await.unwrap();
        expect!["pod default/web: network net-a has no plugin with capability portMappings: it has no effect"]
            .assert_eq(&WARNED.take().join("\n"));
        pods.tear_down(&pod.id).await.unwrap();
    });
}
