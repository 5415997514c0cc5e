//! Observability: spans, their fields, the events that end them, and the trace context in them.
//!
//! A process of its own, in which nothing runs without a subscriber: for each span and event `tracing` caches whether a
//! subscriber is interested. A thread that first meets one without a subscriber may cache that none is, just after
//! another thread installed its subscriber.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[expect(dead_code, reason = "shared with the other tests")]
#[path = "../it/test_folder.rs"]
mod test_folder;

use crate::test_folder::{Folder, GOOD, eth0, network, own, wait};
use expect_test::{Expect, expect};
use libcni::cni_spec::PluginType;
use libcni::{Builder, Runtime, TraceContext};
use std::future::Future;
use std::sync::Arc;
use tokio::sync::Notify;
use tracing::Level;
use tracing_subscriber::Registry;

/// Compares the events that come while `work` runs, each with the spans that it is in, with `expected`.
fn record(folder: &Folder, work: impl Future<Output = ()>, expected: &Expect) {
    let log = tempfile::NamedTempFile::new().unwrap();
    let lines = tracing_subscriber::fmt().with_writer(Arc::new(log.reopen().unwrap())).with_max_level(Level::TRACE);
    let subscriber = lines.without_time().with_level(false).with_target(false).with_ansi(false).finish();
    tracing::subscriber::with_default(subscriber, || wait(work));
    let text = std::fs::read_to_string(log.path()).unwrap().replace(&own().netns, "$NETNS");
    // The duration differs, but the field is always there.
    let words = text.split(' ').map(|word| if word.starts_with("duration_us=") { "duration_us" } else { word });
    expected.assert_eq(&folder.stable(&words.collect::<Vec<_>>().join(" ")));
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
            operation{operation="GC" network="net"}:operation{operation="DEL" network="net" container="c1" ifname="eth0"}:plugin{plugin="a" command="DEL"}: plugin ended duration_us outcome="ok"
            operation{operation="GC" network="net"}:operation{operation="DEL" network="net" container="c1" ifname="eth0"}: operation ended duration_us outcome="ok"
            operation{operation="GC" network="net"}:plugin{plugin="a" command="GC"}: plugin ended duration_us outcome="ok"
            operation{operation="GC" network="net"}: operation ended duration_us outcome="ok"
            operation{operation="STATUS" network="net"}:plugin{plugin="a" command="STATUS"}: plugin ended duration_us outcome="ok"
            operation{operation="STATUS" network="net"}: operation ended duration_us outcome="ok"
            operation{operation="VERSION" network="net"}:plugin{plugin="a" command="VERSION"}: plugin ended duration_us outcome="ok"
            operation{operation="VERSION" network="net"}: operation ended duration_us outcome="ok"
            operation{operation="VERSION"}:plugin{plugin="a" command="VERSION"}: plugin ended duration_us outcome="ok"
            operation{operation="VERSION"}: operation ended duration_us outcome="ok"
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
            operation{operation="ADD" network="net" container="c1" ifname="eth0"}:plugin{plugin="a" command="ADD"}: plugin ended duration_us outcome="dropped"
            operation{operation="ADD" network="net" container="c1" ifname="eth0"}: operation ended duration_us outcome="dropped"
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

/// The futures of the other operations are parts of those of `pods`, whose own test asks the same.
#[test]
fn validation_can_move_between_threads() {
    fn is_send<T: Send>(_: T) {}
    is_send(Folder::new().runtime().validate(&network("1.0.0", &["a"])));
}
