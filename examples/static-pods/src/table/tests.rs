//! What operators see.

use super::*;
use crate::board::Readiness;
use expect_test::{Expect, expect};
use std::collections::BTreeMap;

const NOW: u64 = 1_800_000_000;

fn pod(phase: Phase, addresses: &[&str], networks: &[&str], age: Option<u64>, error: Option<&str>) -> PodStatus {
    PodStatus {
        phase,
        addresses: addresses.iter().map(|ip| ip.parse().unwrap()).collect(),
        networks: networks.iter().map(|&network| network.to_owned()).collect(),
        warnings: Vec::new(),
        host_network: false,
        pid: Some(4711),
        created: age.map(|age| NOW - age),
        error: error.map(str::to_owned),
    }
}

fn key(namespace: &str, name: &str) -> Key {
    Key { namespace: namespace.to_owned(), name: name.to_owned() }
}

fn board() -> Board {
    let mut board = Board::new();
    board.network = Readiness::Ready { names: vec!["pods".to_owned(), "storage".to_owned()], passed_over: Vec::new() };
    let failed = "network pods, interface eth0: plugin type=\"bridge\" failed (add): cannot create bridge cni0 on the \
                  host: the kernel has no device type bridge; RTM_NEWLINK kind=bridge: EOPNOTSUPP (95)\n\u{1b}[31mred";
    board.pods = BTreeMap::from([
        (key("default", "web"), pod(Phase::Running, &["10.88.0.2", "fd00:88::2"], &["pods:eth0"], Some(12), None)),
        (key("default", "broken"), pod(Phase::Failed, &[], &[], None, Some(failed))),
        (
            key("monitoring", "a-pod-with-a-name-as-long-as-generated-ones-7d4b9c6f5-x2x9z"),
            pod(Phase::Running, &["10.88.0.3"], &["pods:eth0", "storage:eth1"], Some(200_000), None),
        ),
        (
            key("default", "second"),
            pod(Phase::Waiting, &[], &[], None, Some("hostPort 8080/tcp is taken by pod default/web")),
        ),
        (
            key("kube-system", "node-agent"),
            PodStatus { host_network: true, ..pod(Phase::Running, &[], &[], Some(3600), None) },
        ),
    ]);
    let problem = "spec.containers[0].ports[0].containerPort: invalid value: integer `70000`, expected u16".to_owned();
    board.problems = BTreeMap::from([("bad.yaml".to_owned(), vec![problem])]);
    board
}

fn check(board: &Board, width: usize, expected: Expect) {
    let lines = render(board, NOW, width);
    assert!(lines.iter().all(|line| line.chars().count() <= width.max(20)), "too wide for {width}");
    expected.assert_eq(&format!("{}\n", lines.join("\n")));
}

#[test]
fn a_table_of_80_columns() {
    check(
        &board(),
        80,
        expect![[r#"
        network ready: pods, storage

        POD                                      PHASE    ADDRESSES   NETWORKS      AGE
        default/broken                           Failed   -           -             -
          network pods, interface eth0: plugin type="bridge" failed (add): cannot create
          bridge cni0 on the host: the kernel has no device type bridge; RTM_NEWLINK
          kind=bridge: EOPNOTSUPP (95) [31mred
        default/second                           Waiting  -           -             -
          hostPort 8080/tcp is taken by pod default/web
        default/web                              Running  10.88.0.2   pods:eth0     12s
                                                          fd00:88::2
        kube-system/node-agent                   Running  the node's  -             60m
        monitoring/a-pod-with-a-name-as-long-a…  Running  10.88.0.3   pods:eth0     2d7h
                                                                      storage:eth1
        bad.yaml rejected:
          spec.containers[0].ports[0].containerPort: invalid value: integer `70000`,
          expected u16
    "#]],
    );
}

#[test]
fn a_table_of_120_columns() {
    check(
        &board(),
        120,
        expect![[r#"
        network ready: pods, storage

        POD                                                                     PHASE    ADDRESSES   NETWORKS      AGE
        default/broken                                                          Failed   -           -             -
          network pods, interface eth0: plugin type="bridge" failed (add): cannot create bridge cni0 on the host: the kernel has
          no device type bridge; RTM_NEWLINK kind=bridge: EOPNOTSUPP (95) [31mred
        default/second                                                          Waiting  -           -             -
          hostPort 8080/tcp is taken by pod default/web
        default/web                                                             Running  10.88.0.2   pods:eth0     12s
                                                                                         fd00:88::2
        kube-system/node-agent                                                  Running  the node's  -             60m
        monitoring/a-pod-with-a-name-as-long-as-generated-ones-7d4b9c6f5-x2x9z  Running  10.88.0.3   pods:eth0     2d7h
                                                                                                     storage:eth1
        bad.yaml rejected:
          spec.containers[0].ports[0].containerPort: invalid value: integer `70000`, expected u16
    "#]],
    );
}

#[test]
fn a_table_as_narrow_as_it_gets() {
    for width in 0..80 {
        let lines = render(&board(), NOW, width);
        assert!(width < 60 || lines.iter().all(|line| line.chars().count() <= width), "too wide for {width}");
    }
}

#[test]
fn an_empty_table_says_what_to_do() {
    check(
        &Board::new(),
        80,
        expect![[r#"
        network collecting what earlier runs left

        no pods: put a manifest into the folder
    "#]],
    );
}

#[test]
fn ages_are_kubectls() {
    let ages = [0, 119, 120, 599, 600, 10_799, 10_800, 28_800, 172_800, 691_200].map(age);
    expect!["0s 119s 2m0s 9m59s 10m 179m 3h0m 8h 2d0h 8d"].assert_eq(&ages.join(" "));
}

#[test]
fn a_change_is_one_line() {
    let lines: String = board().pods.iter().map(|(key, pod)| format!("{}\n", change(key, pod))).collect();
    expect![[r#"
        pod default/broken: Failed: network pods, interface eth0: plugin type="bridge" failed (add): cannot create bridge cni0 on the host: the kernel has no device type bridge; RTM_NEWLINK kind=bridge: EOPNOTSUPP (95) [31mred
        pod default/second: Waiting: hostPort 8080/tcp is taken by pod default/web
        pod default/web: Running addresses=10.88.0.2,fd00:88::2 networks=pods:eth0 pid=4711
        pod kube-system/node-agent: Running in the node's network pid=4711
        pod monitoring/a-pod-with-a-name-as-long-as-generated-ones-7d4b9c6f5-x2x9z: Running addresses=10.88.0.3 networks=pods:eth0,storage:eth1 pid=4711
    "#]].assert_eq(&lines);
}
