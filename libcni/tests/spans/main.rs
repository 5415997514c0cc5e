//! Observability: spans, their fields, the events that end them, and the trace context in them.
//!
//! A process of its own, in which nothing runs without a subscriber: for each span and event `tracing` caches whether a
//! subscriber is interested. A thread that first meets one without a subscriber may cache that none is, just after
//! another thread installed its subscriber.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "shared with the other tests")]
#[path = "../it/test_folder.rs"]
mod test_folder;

use crate::test_folder::{Folder, GOOD, eth0, failing, network, own, wait};
use expect_test::{Expect, expect};
use libcni::cni_spec::PluginType;
use libcni::{Builder, Runtime, TraceContext};
use std::fmt::{Debug, Write};
use std::future::Future;
use std::sync::{Arc, Mutex};
use tokio::sync::Notify;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::Registry;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// Writes spans as they open and events as they come, a line each, indented by the spans they are in.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<String>>);

struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        match field.name() {
            "message" => self.0 = format!("{value:?}{}", self.0),
            // The duration differs, but the field is always there.
            "duration_us" => self.0.push_str(" duration_us"),
            name => write!(self.0, " {name}={value:?}").unwrap(),
        }
    }
}

impl Recorder {
    fn line(&self, depth: usize, text: &str) {
        writeln!(self.0.lock().unwrap(), "{}{text}", "  ".repeat(depth)).unwrap();
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Recorder {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields(String::new());
        attributes.record(&mut fields);
        let span = context.span(id).unwrap();
        self.line(span.scope().skip(1).count(), &format!("{}:{}", span.name(), fields.0));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields(String::new());
        event.record(&mut fields);
        self.line(context.event_scope(event).into_iter().flatten().count(), &fields.0);
    }
}

/// Compares what is recorded while `work` runs with `expected`.
fn record(folder: &Folder, work: impl Future<Output = ()>, expected: &Expect) {
    let recorder = Recorder::default();
    let subscriber = Registry::default().with(recorder.clone());
    tracing::subscriber::with_default(subscriber, || wait(work));
    let text = recorder.0.lock().unwrap().replace(&own().netns, "$NETNS");
    expected.assert_eq(&folder.stable(&text));
}

#[test]
fn an_operation_is_a_span_with_a_span_for_each_plugin() {
    let folder = Folder::with(&[("a", GOOD), ("b", GOOD)]);
    let (runtime, net) = (folder.runtime(), network("1.1.0", &["a", "b"]));
    let work = async {
        runtime.add(&net, &eth0()).await.unwrap();
        runtime.check(&net, &eth0()).await.unwrap();
        runtime.del(&net, &eth0()).await.unwrap();
    };
    record(
        &folder,
        work,
        &expect![[r#"
        operation: operation="ADD" network="net" container="c1" ifname="eth0"
          plugin: plugin="a" command="ADD"
            plugin ended duration_us outcome="ok"
          plugin: plugin="b" command="ADD"
            plugin ended duration_us outcome="ok"
          operation ended duration_us outcome="ok"
        operation: operation="CHECK" network="net" container="c1" ifname="eth0"
          plugin: plugin="a" command="CHECK"
            plugin ended duration_us outcome="ok"
          plugin: plugin="b" command="CHECK"
            plugin ended duration_us outcome="ok"
          operation ended duration_us outcome="ok"
        operation: operation="DEL" network="net" container="c1" ifname="eth0"
          plugin: plugin="b" command="DEL"
            plugin ended duration_us outcome="ok"
          plugin: plugin="a" command="DEL"
            plugin ended duration_us outcome="ok"
          operation ended duration_us outcome="ok"
    "#]],
    );
}

#[test]
fn errors_are_recorded_with_their_code_and_the_rollback_is_in_the_span_of_the_add() {
    let folder = Folder::with(&[("a", GOOD), ("b", &failing("ADD"))]);
    let (runtime, net) = (folder.runtime(), network("1.0.0", &["a", "b"]));
    record(
        &folder,
        async { drop(runtime.add(&net, &eth0()).await) },
        &expect![[r#"
        operation: operation="ADD" network="net" container="c1" ifname="eth0"
          plugin: plugin="a" command="ADD"
            plugin ended duration_us outcome="ok"
          plugin: plugin="b" command="ADD"
            plugin ended duration_us outcome="error" code=11 error=b cannot; more words
          plugin: plugin="b" command="DEL"
            plugin ended duration_us outcome="ok"
          plugin: plugin="a" command="DEL"
            plugin ended duration_us outcome="ok"
          operation ended duration_us outcome="error" code=11 error=plugin type="b" failed (add): b cannot; more words. Rolled back: b, a.
    "#]],
    );
}

#[test]
fn an_error_before_any_plugin_has_no_span_of_one() {
    let folder = Folder::new();
    let work = async {
        drop(folder.runtime().add(&network("1.0.0", &["absent"]), &eth0()).await);
        drop(folder.runtime().check(&network("0.3.1", &["absent"]), &eth0()).await);
    };
    record(
        &folder,
        work,
        &expect![[r#"
            operation: operation="ADD" network="net" container="c1" ifname="eth0"
              operation ended duration_us outcome="error" code=108 error=plugin type="absent" failed (add): failed to find plugin "absent" in path [$DIR]. Install absent into one of these folders, or correct the type.
            operation: operation="CHECK" network="net" container="c1" ifname="eth0"
              operation ended duration_us outcome="error" code=1 error=configuration version "0.3.1" of network net does not support the CHECK command
        "#]],
    );
}

#[test]
fn gc_holds_its_dels_and_operations_without_an_attachment_have_no_container() {
    let script = r#"[ $CNI_COMMAND != VERSION ] || echo '{"cniVersion":"1.1.0","supportedVersions":["1.1.0"]}'"#;
    let folder = Folder::with(&[("a", &format!("{GOOD}{script}"))]);
    let (runtime, net) = (folder.runtime(), network("1.1.0", &["a"]));
    tracing::subscriber::with_default(Registry::default(), || wait(runtime.add(&net, &eth0())).unwrap());
    let work = async {
        runtime.gc(&net, &[]).without_inventory().await.unwrap();
        runtime.status(&net).await.unwrap();
        runtime.validate(&net).await.unwrap();
        runtime.version(&PluginType::parse("a").unwrap()).await.unwrap();
    };
    record(
        &folder,
        work,
        &expect![[r#"
        operation: operation="GC" network="net"
          operation: operation="DEL" network="net" container="c1" ifname="eth0"
            plugin: plugin="a" command="DEL"
              plugin ended duration_us outcome="ok"
            operation ended duration_us outcome="ok"
          plugin: plugin="a" command="GC"
            plugin ended duration_us outcome="ok"
          operation ended duration_us outcome="ok"
        operation: operation="STATUS" network="net"
          plugin: plugin="a" command="STATUS"
            plugin ended duration_us outcome="ok"
          operation ended duration_us outcome="ok"
        operation: operation="VERSION" network="net"
          plugin: plugin="a" command="VERSION"
            plugin ended duration_us outcome="ok"
          operation ended duration_us outcome="ok"
        operation: operation="VERSION"
          plugin: plugin="a" command="VERSION"
            plugin ended duration_us outcome="ok"
          operation ended duration_us outcome="ok"
    "#]],
    );
}

#[test]
fn a_future_that_is_dropped_ends_its_spans_as_dropped() {
    let folder = Folder::with(&[("a", "echo >&2; exec sleep 1000")]);
    let (begun, net, attachment) = (Arc::new(Notify::new()), network("1.0.0", &["a"]), own());
    let begins = begun.clone();
    let runtime = folder.builder().stderr(move |_, _| begins.notify_one()).build();
    let work = async {
        tokio::select! {
            outcome = runtime.add(&net, &attachment) => panic!("{outcome:?}"),
            () = begun.notified() => {}
        }
    };
    record(
        &folder,
        work,
        &expect![[r#"
        operation: operation="ADD" network="net" container="c1" ifname="eth0"
          plugin: plugin="a" command="ADD"
            plugin ended duration_us outcome="dropped"
          operation ended duration_us outcome="dropped"
    "#]],
    );
    assert_eq!(folder.cache_files(), ["net-c1-eth0"], "the intent stays, for the DEL that is due");
}

/// The variables that plugin `a` sees.
fn trace_seen(build: impl FnOnce(Builder) -> Runtime) -> String {
    let folder = Folder::with(&[(
        "a",
        r#"env | grep -E '^(TRACE|BAGGAGE)' | sort | tr '\n' ' ' >> "$dir/seen"; echo >> "$dir/seen"; echo {}"#,
    )]);
    let runtime = build(folder.builder());
    tracing::subscriber::with_default(Registry::default(), || {
        wait(runtime.add(&network("1.0.0", &["a", "a"]), &eth0())).unwrap();
    });
    folder.read("seen")
}

#[test]
fn the_trace_context_is_that_of_each_plugins_span() {
    let current = || {
        let name = tracing::Span::current().metadata()?.name();
        let id = tracing::Span::current().id()?.into_u64();
        let traceparent = format!("00-{name}-{id:x}-01");
        Some(TraceContext { traceparent, tracestate: "a=b".into(), baggage: "c=d".into() })
    };
    let seen = trace_seen(|builder| builder.trace_context(current).build());
    let lines: Vec<_> = seen.lines().collect();
    assert!(lines.iter().all(|line| line.starts_with("BAGGAGE=c=d TRACEPARENT=00-plugin-")), "{seen}");
    assert!(lines.len() == 2 && lines[0] != lines[1], "a span each: {seen}");
}

#[test]
fn what_is_said_for_one_operation_is_stronger() {
    let said = TraceContext { traceparent: "00-1-2-01".into(), ..TraceContext::default() };
    let current = || Some(TraceContext { traceparent: "00-3-4-01".into(), ..TraceContext::default() });
    let both = trace_seen(|builder| builder.trace_context(current).build().traced(said.clone()));
    expect!["TRACEPARENT=00-1-2-01 \nTRACEPARENT=00-1-2-01 \n"].assert_eq(&both);
    assert_eq!(trace_seen(|builder| builder.trace_context(|| None).build().traced(said)), both);
    assert_eq!(trace_seen(|builder| builder.trace_context(|| None).build()), "\n\n");
}

/// Operations can be spawned, and go on on other threads.
#[test]
fn operations_can_move_between_threads() {
    fn is_send<T: Send>(_: T) {}
    let (runtime, net) = (Folder::new().runtime(), network("1.0.0", &["a"]));
    let cached = runtime.cache().list(None).unwrap().cached;
    is_send(runtime.add(&net, &eth0()));
    is_send(runtime.check(&net, &eth0()));
    is_send(runtime.del(&net, &eth0()));
    is_send(runtime.gc(&net, &[]).without_inventory());
    is_send(runtime.status(&net));
    is_send(runtime.validate(&net));
    for cached in &cached {
        is_send(runtime.del_cached(cached));
    }
}
