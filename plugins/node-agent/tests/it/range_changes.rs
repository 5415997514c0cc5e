//! A range that changes: the file follows, unless containers have addresses of the former one, and the pages say why.

use crate::bench::{Bench, FILE, get, wait_for_range, wait_until};
use kube_api::Api;
use std::fs;
use std::io::Write;
use std::net::TcpStream;

#[test]
fn the_file_appears_when_the_range_is_known_and_follows_while_no_container_lives() {
    let (bench, api) = (Bench::new(), Api::start());
    api.put("b", &["10.1.9.0/24"], &[]);
    let mut agent = bench.start_for(&api, &[]);
    agent.0.wait_for("Kubernetes has no node a");
    api.put("a", &[], &[]);
    agent.0.wait_for("node a: its spec has no podCIDRs");
    api.put("a", &["10.1.0.1/24"], &[]);
    agent.0.wait_for("10.1.0.1/24 has bits of a host");
    assert!(!fs::exists(FILE).unwrap());
    api.put("a", &["10.1.0.0/24", "fd00:1::/64"], &[]);
    wait_for_range("fd00:1::/64");
    api.put("a", &["10.1.1.0/24"], &[]);
    wait_for_range("10.1.1.0/24");
    // A node that is gone, and one that lost its range, change nothing; a new one of its name does.
    api.put("a", &[], &[]);
    agent.0.wait_for("node a: its spec has no podCIDRs");
    api.delete("a");
    agent.0.wait_for("Kubernetes has no node a");
    wait_for_range("10.1.1.0/24");
    api.put("a", &["10.1.2.0/24"], &[]);
    wait_for_range("10.1.2.0/24");
    assert!(api.requests().iter().all(|request| request.ends_with(" a")), "{:?}", api.requests());
    agent.end();
}

#[test]
fn a_file_stays_while_containers_have_addresses_of_its_former_range() {
    let (bench, api) = (Bench::new(), Api::start());
    api.put("a", &["10.1.0.0/24"], &[]);
    let mut agent = bench.start_for(&api, &["--listen", "127.0.0.1:0"]);
    let pages = agent.pages();
    wait_for_range("10.1.0.0/24");
    let reservation = bench.reserve("10.1.0.5");
    // An operator's note is no container.
    fs::write(reservation.with_file_name("10.1.0.6"), "kept for the printer").unwrap();
    // Other changes than of the range are made.
    bench.write("template", &crate::bench::TEMPLATE.replace("pods0", "pods1"));
    wait_until("the new template counts", || fs::read_to_string(FILE).unwrap().contains("pods1"));
    api.put("a", &["10.1.1.0/24"], &[]);
    let line = agent.0.wait_for("but /etc/cni/net.d/10-pods.conflist stays");
    assert!(
        line.contains("of the former ranges of network pods: 1, such as 10.1.0.5 by web. Drain the node"),
        "{line}"
    );
    wait_for_range("10.1.0.0/24");
    let (status, page) = get(&pages, "/healthz");
    assert!(status.contains(" 503 ") && page.contains("10.1.0.5 by web"), "{page}");
    assert!(get(&pages, "/metrics").1.contains("\ncni_node_agent_range_change_held 1\n"));
    // A new agent has no other memory than the file.
    agent.end();
    let mut agent = bench.start_for(&api, &["--listen", "127.0.0.1:0"]);
    agent.0.wait_for("stays: addresses in use");
    wait_for_range("10.1.0.0/24");
    fs::remove_file(reservation).unwrap();
    wait_for_range("10.1.1.0/24");
    agent.end();
}

#[test]
fn the_pages_show_the_state_also_beside_clients_that_say_nothing() {
    let bench = Bench::new();
    bench.write("cidrs", "");
    let cidrs = bench.path("cidrs").display().to_string();
    let mut agent = bench.start(&["--cidr-file", &cidrs, "--listen", "127.0.0.1:0"]);
    let pages = agent.pages();
    agent.0.wait_for("the range is unknown");
    let (status, text) = get(&pages, "/healthz");
    assert!(status.contains(" 503 ") && text.contains("the range is unknown: cannot read ranges"), "{text}");
    let mut silent: Vec<_> = (0..8).map(|_| TcpStream::connect(&pages).unwrap()).collect();
    silent[0].write_all(b"GET").unwrap();
    bench.write("cidrs", "10.1.0.0/24");
    wait_for_range("10.1.0.0/24");
    agent.0.wait_for("is as it should be");
    wait_until("healthy", || get(&pages, "/healthz").0.contains(" 200 "));
    let metrics = get(&pages, "/metrics").1;
    for row in ["range_known 1", "ready 1", "range_change_held 0", "file_writes_total 1", "api_errors_total 0"] {
        assert!(metrics.contains(&format!("\ncni_node_agent_{row}\n")), "{row}: {metrics}");
    }
    assert!(get(&pages, "/").0.contains(" 404 "));
    agent.end();
}
