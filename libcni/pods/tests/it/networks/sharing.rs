//! Many callers at the same time, and callers that give up.

use super::node::{ALL_VERSIONS, DEADLINE, Node, names, wait};
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

fn ready() -> Node {
    let node = Node::new();
    node.plugin("bin/a", ALL_VERSIONS).network("net.d/5.conflist", "n");
    node
}

#[test]
fn callers_at_the_same_time_share_one_reading() {
    wait(async {
        let node = ready();
        let folder = node.open();
        for name in ["m", "k"] {
            node.network("net.d/1.conflist", name);
            let all = join_all((0..50).map(|_| folder.networks())).await;
            assert!(all.iter().all(|networks| Arc::ptr_eq(networks, &all[0])));
            assert_eq!(names(&all[0]), format!("{name} n"));
        }
        assert_eq!(node.asked(), "a");
    });
}

#[test]
fn every_waiting_task_is_notified() {
    wait(async {
        let node = ready();
        let folder = Arc::new(node.open());
        let seen = folder.networks().await;
        let waiting = |_| {
            let (folder, seen) = (folder.clone(), seen.clone());
            tokio::spawn(async move {
                // The first task that is notified reads; that must not hide the change from the others.
                folder.changed().await;
                folder.networks().await;
                folder.changed_since(&seen).await;
                names(&folder.networks().await)
            })
        };
        let tasks: Vec<_> = (0..20).map(waiting).collect();
        tokio::task::yield_now().await;
        node.network("net.d/1.conflist", "m");
        for task in tasks {
            assert_eq!(timeout(DEADLINE, task).await.unwrap().unwrap(), "m n");
        }
    });
}

/// A task that calls `networks` reads the kernel's events that others wait for.
#[test]
fn a_reader_does_not_take_the_change_from_those_who_wait() {
    wait(async {
        let node = ready();
        let folder = Arc::new(node.open());
        folder.networks().await;
        let waiting = tokio::spawn({
            let folder = folder.clone();
            async move { folder.changed().await }
        });
        tokio::task::yield_now().await;
        node.network("net.d/1.conflist", "m");
        assert_eq!(names(&folder.networks().await), "m n");
        timeout(DEADLINE, waiting).await.unwrap().unwrap();
    });
}

#[test]
fn callers_that_give_up_lose_nothing() {
    wait(async {
        let node = ready();
        let folder = node.open();
        folder.networks().await;
        for round in 0..20 {
            let name = format!("m{round}");
            node.network("net.d/1.conflist", &name).plugin("bin/a", ALL_VERSIONS);
            // Dropped before, while or after it is notified, and while the executable is asked.
            drop(timeout(Duration::ZERO, folder.changed()).await);
            drop(timeout(Duration::from_micros(round * 200), folder.networks()).await);
            drop(timeout(Duration::ZERO, folder.networks()).await);
            assert_eq!(names(&folder.networks().await), format!("{name} n"));
        }
    });
}

/// Several threads, a writer that never pauses: no task sees an old name after the new one was written.
#[test]
fn readers_on_many_threads_see_every_change() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    let node = ready();
    runtime.block_on(async {
        let folder = Arc::new(node.open());
        let followers: Vec<_> = (0..4)
            .map(|_| {
                let folder = folder.clone();
                tokio::spawn(async move {
                    loop {
                        let networks = folder.networks().await;
                        if names(&networks).starts_with("last") {
                            return;
                        }
                        folder.changed_since(&networks).await;
                    }
                })
            })
            .collect();
        for round in 0..200 {
            node.network("new", &format!("m{round}")).rename("new", "net.d/1.conflist");
            assert_eq!(names(&folder.networks().await), format!("m{round} n"));
        }
        node.network("new", "last").rename("new", "net.d/1.conflist");
        for follower in followers {
            timeout(DEADLINE, follower).await.unwrap().unwrap();
        }
    });
}
