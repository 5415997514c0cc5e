//! Busy neighbours, many files, and changes that were not read for a long time.

use super::node::{ALL_VERSIONS, DEADLINE, Node, names, network, wait};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The folder's parents are watched too, and much happens in some.
#[test]
fn busy_neighbours_cause_no_reading() {
    wait(async {
        let node = Node::bare();
        node.make_dir("bin").plugin("bin/a", ALL_VERSIONS).network("etc/cni/net.d/1.conflist", "n");
        let folder = node.open_at(&node.path("etc/cni/net.d"));
        let before = folder.networks().await;
        for round in 0..1000 {
            node.write("etc/resolv.conf.new", "x").rename("etc/resolv.conf.new", "etc/resolv.conf");
            node.write("etc/cni/other", "x").mode("etc/cni/other", 0o600).remove("etc/cni/other");
            node.write("bin/.new", "x").rename("bin/.new", "bin/other").make_dir("etc/x").remove("etc/x");
            if round % 100 == 0 {
                let outcome = timeout(Duration::from_millis(1), folder.changed()).await;
                assert!(outcome.is_err(), "a neighbour was taken for a change");
            }
        }
        assert!(Arc::ptr_eq(&before, &folder.networks().await), "read again without a reason");
        node.after(&folder, |node| node.network("etc/cni/net.d/1.conflist", "m"), "m").await;
    });
}

/// The kernel keeps at most max_queued_events and reports that it dropped some.
#[test]
fn an_overflown_queue_is_a_change() {
    wait(async {
        let node = Node::new();
        node.plugin("bin/a", ALL_VERSIONS).network("net.d/1.conflist", "n");
        let folder = node.open();
        folder.networks().await;
        let limit = std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
        let limit: u32 = limit.trim().parse().unwrap();
        // Two names by turns: equal announcements in a row are joined into one.
        for _ in 0..limit / 2 + 1 {
            node.rename("asked", "net.d/x").rename("net.d/x", "asked");
        }
        let overflow = |node: &Node| node.network("net.d/0.conflist", "m");
        let before = folder.networks().await;
        for _ in 0..limit / 2 + 1 {
            node.rename("asked", "net.d/x").rename("net.d/x", "asked");
        }
        overflow(&node);
        timeout(DEADLINE, folder.changed_since(&before)).await.unwrap();
        assert_eq!(names(&folder.networks().await), "m n");
    });
}

#[test]
fn a_thousand_files_of_which_most_are_broken() {
    wait(async {
        let node = Node::new();
        node.plugin("bin/a", ALL_VERSIONS);
        for number in 0..1000 {
            let text = match number % 5 {
                0 if number % 100 == 0 => network(&format!("n{number:03}")),
                0 => "{".to_owned(),
                1 => {
                    format!(r#"{{"cniVersion":"1.0.0","name":"m{number}","plugins":[{{"type":"missing-{number}"}}]}}"#)
                }
                2 => r#"{"name":"n","plugins":[]}"#.to_owned(),
                3 => network("n000"),
                _ => r#"{"cniVersion":"9.0.0","name":"n","type":"a"}"#.to_owned(),
            };
            node.write(&format!("net.d/{number:03}.conflist"), &text);
        }
        let folder = node.open();
        let begin = Instant::now();
        let networks = folder.networks().await;
        let first = begin.elapsed();
        assert_eq!(names(&networks), "n000 n100 n200 n300 n400 n500 n600 n700 n800 n900");
        assert_eq!(networks.passed_over.len(), 990);
        assert_eq!(node.asked(), "a");
        let begin = Instant::now();
        node.plugin("bin/missing-501", ALL_VERSIONS);
        assert!(folder.networks().await.find("m501").is_some());
        eprintln!("1000 files, first reading: {first:?}, next: {:?}", begin.elapsed());
        assert_eq!(node.asked(), "missing-501");
    });
}

/// The bounds are a hundred times the usual time: they detect a reading where none is needed, not a slow machine.
#[test]
fn what_it_costs() {
    wait(async {
        let node = Node::new();
        node.plugin("bin/a", ALL_VERSIONS).network("net.d/1.conflist", "n");
        let folder = node.open();
        folder.networks().await;
        let begin = Instant::now();
        for _ in 0..10_000 {
            folder.networks().await;
        }
        let unchanged = begin.elapsed() / 10_000;
        let (mut noticed, mut read) = (Vec::new(), Vec::new());
        for round in 0..200 {
            node.network("new", &format!("n{round}"));
            let begin = Instant::now();
            node.rename("new", "net.d/1.conflist");
            folder.changed().await;
            noticed.push(begin.elapsed());
            folder.networks().await;
            read.push(begin.elapsed());
        }
        noticed.sort_unstable();
        read.sort_unstable();
        eprintln!("unchanged: {unchanged:?}; rename until changed(): {:?}, until read: {:?}", noticed[100], read[100]);
        assert!(unchanged < Duration::from_micros(150), "{unchanged:?}");
        assert!(noticed[100] < Duration::from_millis(40), "{:?}", noticed[100]);
    });
}
