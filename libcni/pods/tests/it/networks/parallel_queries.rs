//! Many callers at the same time, and callers that give up.

use super::test_folders::{ALL_VERSIONS, TestFolders, names, wait};
use futures::future::join_all;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

fn ready() -> TestFolders {
    let node = TestFolders::new();
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
fn callers_that_give_up_lose_nothing() {
    wait(async {
        let node = ready();
        let folder = node.open();
        folder.networks().await;
        for round in 0..20 {
            let name = format!("m{round}");
            node.network("net.d/1.conflist", &name).plugin("bin/a", ALL_VERSIONS);
            // Dropped while or after the executable is asked.
            drop(timeout(Duration::from_micros(round * 200), folder.networks()).await);
            drop(timeout(Duration::ZERO, folder.networks()).await);
            assert_eq!(names(&folder.networks().await), format!("{name} n"));
        }
    });
}
