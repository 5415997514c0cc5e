//! Busy neighbours, many files, and what a query costs.

use super::test_folders::{ALL_VERSIONS, TestFolders, names, network, wait};
use std::time::{Duration, Instant};

#[test]
fn a_thousand_files_of_which_most_are_broken() {
    wait(async {
        let node = TestFolders::new();
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

/// The bound is ten times the usual time: it detects an executable that is asked where nothing has changed, not a slow machine.
#[test]
fn what_a_query_costs() {
    wait(async {
        let node = TestFolders::new();
        node.plugin("bin/a", ALL_VERSIONS).network("net.d/1.conflist", "n");
        let folder = node.open();
        folder.networks().await;
        let begin = Instant::now();
        for _ in 0..10_000 {
            folder.networks().await;
        }
        let unchanged = begin.elapsed() / 10_000;
        eprintln!("unchanged: {unchanged:?}");
        assert!(unchanged < Duration::from_micros(500), "{unchanged:?}");
    });
}
