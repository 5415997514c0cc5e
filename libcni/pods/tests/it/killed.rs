//! A runtime that is killed at any point, and the next one, which has only the cache.

use crate::set_up::on;
use crate::test_node::{PATIENCE, TestNode, on_node};
use futures::future::join_all;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use pods::{Pod, PodId, Pods};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};

const PODS: usize = 8;
/// Where a test's node has its files, and a line for each pod: name, sandbox, path of the namespace.
const DIR: &str = "/run/testns";
const LIST: &str = "/run/testns/pods";

/// The runtime that is killed, in a process of its own: the test below starts it on its node. Elsewhere it does
/// nothing.
#[test]
fn the_runtime_that_is_killed() {
    let Ok(list) = std::fs::read_to_string(LIST) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let pods = Pods::builder()
            .conf_dir(format!("{DIR}/net.d"))
            .cache_dir(format!("{DIR}/cache"))
            .plugin_dirs([format!("{DIR}/bin")])
            .stderr(|_, _| {})
            .build()
            .unwrap();
        let lines: Vec<_> = list.lines().map(|line| line.split(' ').collect::<Vec<_>>()).collect();
        let work = async |line: &[&str]| {
            let mut pod = Pod::new(PodId::new("default", line[0], "", line[1]).unwrap(), line[2]);
            pod.networks = vec![on("office"), on("lab")];
            loop {
                pods.set_up(&pod).await.unwrap();
                pods.tear_down(&pod.id).await.unwrap();
            }
        };
        join_all(lines.iter().map(|line| work(line))).await;
    });
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Starts the runtime and kills it at the `count`th change of the cache: an entry that was written, completed or
/// removed.
fn kill_at(test_node: &TestNode, count: usize) {
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).unwrap();
    let results = test_node.cache_dir().join("results");
    std::fs::create_dir_all(&results).unwrap();
    inotify.add_watch(&results, AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_DELETE).unwrap();
    let process = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::the_runtime_that_is_killed"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let runtime = Killed(process);
    let begin = std::time::Instant::now();
    let mut seen = 0;
    while seen < count {
        let left = PATIENCE.checked_sub(begin.elapsed()).expect("the runtime changes nothing any more");
        let timeout = nix::poll::PollTimeout::try_from(left).unwrap();
        nix::poll::poll(&mut [nix::poll::PollFd::new(inotify.as_fd(), nix::poll::PollFlags::POLLIN)], timeout).unwrap();
        seen += inotify.read_events().map_or(0, |events| events.len());
    }
    drop(runtime);
    // An entry that was being written then is garbage once it is old.
    for file in test_node.cache_files().iter().filter(|name| name.starts_with(".unfinished-")) {
        let file = std::fs::File::options().write(true).open(results.join(file)).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    }
}

async fn killed_at(test_node: &TestNode, count: usize) {
    test_node.bridge("10-office", "office", 1);
    test_node.bridge("20-lab", "lab", 2);
    let all: Vec<_> = (0..PODS).map(|number| test_node.pod(&format!("killed{count}-{number}"))).collect();
    let line = |(pod, _): &(Pod, _)| format!("{} {} {}\n", pod.id.name, pod.id.sandbox, pod.netns);
    test_node.write("pods", &all.iter().map(line).collect::<String>());
    kill_at(test_node, count);

    let pods = test_node.pods();
    let known = pods.known().unwrap();
    assert!(known.iter().all(|id| all.iter().any(|(pod, _)| pod.id == *id)), "{known:?}");
    // A third of the pods is taken down, a third is set up again, and the rest is stale.
    let (down, rest) = known.split_at(known.len() / 3);
    join_all(down.iter().map(|id| pods.tear_down(id))).await.into_iter().for_each(Result::unwrap);
    let (again, _) = rest.split_at(rest.len() / 2);
    let again: Vec<_> = all.iter().filter(|(pod, _)| again.contains(&pod.id)).collect();
    for outcome in join_all(again.iter().map(|(pod, _)| async {
        let mut pod = pod.clone();
        pod.networks = vec![on("office"), on("lab")];
        pods.set_up(&pod).await
    }))
    .await
    {
        assert_eq!(outcome.unwrap().networks.len(), 2);
    }
    let live: Vec<_> = again.iter().map(|(pod, _)| pod.id.sandbox.clone()).collect();
    pods.gc(&live).without_inventory().await.unwrap();
    assert_eq!(pods.known().unwrap().len(), again.len());
    assert_eq!(test_node.leases("office").len(), 2 * again.len());
    for (pod, container) in &again {
        assert_eq!(container.namespace().links().len(), 3);
        pods.tear_down(&pod.id).await.unwrap();
    }
    test_node.assert_nothing_left();
    for (_, container) in &all {
        assert_eq!(container.namespace().links().len(), 1);
    }
}

/// The changes of the cache before the kill: nothing is complete, all set-ups have begun, some are complete, some are being
/// taken down, and later.
#[test]
fn what_a_killed_runtime_leaves_is_taken_down_set_up_again_or_collected() {
    for count in [1, 2 * PODS, 3 * PODS, 5 * PODS, 7 * PODS + 3] {
        on_node(async |test_node| killed_at(test_node, count).await);
    }
}
