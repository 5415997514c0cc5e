//! Plugins that break the protocol: a clear error for that pod only, others undisturbed, nothing lost.

use crate::set_up::on;
use crate::site::{GOOD, Site, but, on_node};
use expect_test::{Expect, expect};
use pods::libcni::cni_spec::NetworkName;
use std::time::{Duration, Instant};

/// A pod on a good network and on one whose plugin misbehaves in `verb`, while two others come up and go.
fn check(verb: &str, script: &str, expected: &Expect) {
    on_node(async |site| misbehave(site, verb, script, expected).await);
}

async fn misbehave(site: &Site, verb: &str, script: &str, expected: &Expect) {
    site.bridge("10-office", "office", 1);
    site.plugin("bad", &but(verb, script));
    site.network("20-bad", "net-bad", &["bad"]);
    let name = std::thread::current().name().unwrap().replace(':', ".").replace('_', "-");
    let pods = site.builder().deadline(Duration::from_secs(20)).build().unwrap();
    let (mut bad, container) = site.pod(&name);
    bad.networks = vec![on("office"), on("net-bad")];
    let (quick, quick_container) = site.pod("quick");
    let (other, _) = site.pod("other");
    pods.set_up(&other).await.unwrap();
    let before = site.leases("office");

    let begin = Instant::now();
    let undisturbed = async {
        let status = pods.set_up(&quick).await.unwrap();
        assert!(quick_container.namespace().find_link("eth0").is_some());
        pods.check(&quick.id).await.unwrap();
        pods.tear_down(&quick.id).await.unwrap();
        status
    };
    let (outcome, _) = futures::future::join(pods.set_up(&bad), undisturbed).await;
    // The deadline, and the rollback.
    assert!(begin.elapsed() < Duration::from_secs(35), "{:?}", begin.elapsed());
    let text = match (verb, outcome) {
        ("ADD", outcome) => outcome.unwrap_err().to_string(),
        (_, outcome) => {
            outcome.unwrap();
            let error = pods.tear_down(&bad.id).await.unwrap_err().to_string();
            // The good network is gone, and the failed one is in the cache.
            assert_eq!(site.leases("office"), before);
            assert_eq!(site.cache_files(), [&format!("net-bad-sandbox-{name}-eth1"), "office-sandbox-other-eth0"]);
            site.plugin("bad", GOOD);
            pods.tear_down(&bad.id).await.unwrap();
            error
        }
    };
    // The time that was left differs.
    let digits = |text: &str| text.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect::<String>();
    let text = match text.split_once(" within ") {
        Some((start, end)) => {
            let mut end: Vec<char> = digits(end).chars().collect();
            end.dedup_by(|one, other| (*one, *other) == ('#', '#'));
            format!("{start} within {}", end.into_iter().collect::<String>())
        }
        None => text,
    };
    // The plugin may also have written nothing valid.
    expected.assert_eq(&text.replace(&name, "bad").replace("\\0", ""));
    assert_eq!(site.leases("office"), before);
    assert_eq!(site.cache_files(), ["office-sandbox-other-eth0"]);
    assert!(container.namespace().find_link("eth0").is_none());
    assert_eq!(pods.networks().await.default().unwrap().conf.network_name(), NetworkName::parse("office"));
    pods.tear_down(&other.id).await.unwrap();
    site.assert_nothing_left();
}

#[test]
fn it_never_ends() {
    check(
        "ADD",
        r#"trap "" TERM; sleep 1000 & wait; sleep 1000"#,
        &expect![[
            r#"cannot set up the network of pod default/bad (sandbox sandbox-bad): network net-bad, interface eth1: plugin type="bad" failed (add): cannot finish ADD of plugin /run/testns/bin/bad: it did not end within # ms. It was sent SIGTERM, and SIGKILL where that did not end it. Rolled back: bad."#
        ]],
    );
}

#[test]
fn it_never_ends_in_del() {
    check(
        "DEL",
        r#"trap "" TERM; sleep 1000 & wait; sleep 1000"#,
        &expect![[
            r#"network net-bad, interface eth1: plugin type="bad" failed (delete): cannot finish DEL of plugin /run/testns/bin/bad: it did not end within # ms. It was sent SIGTERM, and SIGKILL where that did not end it."#
        ]],
    );
}
