//! Routes to the other nodes' ranges.

use crate::bench::{Agent, Bench, FILE, wait_for_range, wait_until};
use kube_api::Api;
use nix::sys::signal::Signal;
use node_agent::routes::PROTOCOL;
use serde_json::Value;
use std::fs;
use std::net::{IpAddr, TcpListener};
use std::sync::mpsc::channel;
use std::time::Duration;
use testns::{Container, Namespace, Subject, Verb};

/// The agent's routes, as `10.1.1.0/24 via 192.0.2.2`.
fn routes(namespace: &Namespace) -> Vec<String> {
    let routes = namespace.routes().into_iter().filter(|route| route.protocol == PROTOCOL);
    routes.map(|route| format!("{} via {}", route.to, route.hops[0].via.unwrap())).collect()
}

/// A node `a` of two families, on a link with others, whose agent keeps routes.
fn node_a(bench: &Bench, api: &Api) -> Agent {
    bench.node.host().add_veth("lan0", &bench.node.remote("lan"), "lan0");
    bench.node.host().add_address("lan0", "192.0.2.1/24");
    bench.node.host().add_address("lan0", "fd00::1/64");
    api.put("a", &["10.1.0.0/24", "fd00:1:0::/64"], &["192.0.2.1"]);
    bench.start_for(api, &["--routes"])
}

#[test]
fn routes_follow_the_nodes_and_foreign_routes_stay() {
    let (bench, api) = (Bench::new(), Api::start());
    let host = bench.node.host();
    let mut agent = node_a(&bench, &api);
    wait_for_range("10.1.0.0/24");
    host.add_route("10.1.3.0/24", "192.0.2.77", "lan0");
    api.put("b", &["10.1.1.0/24", "fd00:1:1::/64"], &["192.0.2.2", "fd00::2"]);
    api.put("c", &["10.1.2.0/24"], &["fd00::3"]);
    api.put("d", &["10.1.3.0/24"], &["192.0.2.4"]);
    api.put("e", &["10.1.0.128/25"], &["192.0.2.5"]);
    api.put("f", &["10.1.1.0/24"], &["192.0.2.6"]);
    api.put("g", &["10.1.6.0/24"], &["203.0.113.1"]);
    api.put("h", &["192.0.2.8/31"], &["192.0.2.8"]);
    agent.0.wait_for_all([
        "node c with 10.1.2.0/24 has no InternalIP of the range's family",
        "a route to 10.1.3.0/24 is there that is not the agent's: it stays",
        "node e with 10.1.0.128/25 has a range that overlaps this node's",
        "node f with 10.1.1.0/24 has the range of another node",
        "cannot add route 10.1.6.0/24 via 203.0.113.1",
        "node h with 192.0.2.8/31 has a range that has the address of a node",
    ]);
    let of_b = ["10.1.1.0/24 via 192.0.2.2", "fd00:1:1::/64 via fd00::2"];
    wait_until("routes to b", || routes(host) == of_b);
    // A route that is lost comes back; a node's new address takes the place of the former one.
    host.delete_route("10.1.1.0/24");
    wait_until("the route is there again", || routes(host) == of_b);
    api.put("b", &["10.1.1.0/24", "fd00:1:1::/64"], &["192.0.2.12", "fd00::2"]);
    wait_until("the route has the new hop", || routes(host)[0] == "10.1.1.0/24 via 192.0.2.12");
    // Neither an API that is away nor the agent's death nor a list without this node takes routes.
    api.is_away(true);
    agent.0.wait_for("nothing changes until it answers");
    agent.0.end(Signal::SIGKILL);
    api.delete("a");
    api.is_away(false);
    let mut agent = bench.start_for(&api, &["--routes"]);
    agent.0.wait_for("Kubernetes has no node a");
    assert_eq!(routes(host).len(), 2);
    api.put("a", &["10.1.0.0/24"], &["192.0.2.1"]);
    agent.0.wait_for("is as it should be");
    api.delete("b");
    api.delete("f");
    wait_until("the routes have gone with their node", || routes(host).is_empty());
    let foreign = host.routes().into_iter().find(|route| route.to == "10.1.3.0/24").unwrap();
    assert_eq!(foreign.hops[0].via.unwrap().to_string(), "192.0.2.77");
    agent.end();
}

/// Attaches a container to the network of a node's file, by its first plugin.
fn pod(bench: &Bench, range: &str) -> Container {
    wait_for_range(range);
    let network: Value = serde_json::from_slice(&fs::read(FILE).unwrap()).unwrap();
    let mut config = network["plugins"][0].clone();
    config["name"] = network["name"].clone();
    config["cniVersion"] = network["cniVersion"].clone();
    let pod = bench.node.container_without_probes();
    bench.node.call(Verb::Add, &config, &pod).ok();
    pod
}

/// Two nodes are two threads, as a node's mounts are its thread's. One API serves both, by a listener in each namespace.
#[test]
fn pods_of_two_nodes_reach_each_other_until_a_node_goes() {
    let (from_b, to_a) = channel();
    let (from_a, to_b) = channel();
    let b = std::thread::spawn(move || {
        let bench = Bench::new();
        bench.node.install(&Subject::ours());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        from_b.send(Some((listener, bench.node.host().path().to_owned()))).unwrap();
        to_b.recv().unwrap();
        let agent = bench.start_at(address, "b", &["--routes"]);
        let _pod = pod(&bench, "10.1.1.0/24");
        from_b.send(None).unwrap();
        to_b.recv().unwrap();
        agent.end();
    });
    let bench = Bench::new();
    bench.node.install(&Subject::ours());
    let (listener, path) = to_a.recv().unwrap().unwrap();
    let (host, other) = (bench.node.host(), Namespace::at(path));
    host.add_veth("lan0", &other, "lan0");
    host.add_address("lan0", "192.0.2.1/24");
    other.add_address("lan0", "192.0.2.2/24");
    let api = Api::start_with(vec![TcpListener::bind("127.0.0.1:0").unwrap(), listener]);
    api.put("a", &["10.1.0.0/24"], &["192.0.2.1"]);
    api.put("b", &["10.1.1.0/24"], &["192.0.2.2"]);
    from_a.send(()).unwrap();
    let agent = bench.start_for(&api, &["--routes"]);
    let pod = pod(&bench, "10.1.0.0/24");
    assert!(to_a.recv().unwrap().is_none());
    let pod_of_b: IpAddr = "10.1.1.2".parse().unwrap();
    pod.namespace().ping(pod_of_b);
    api.delete("b");
    wait_until("the route has gone with its node", || routes(host).is_empty());
    assert!(!pod.namespace().pings(pod_of_b, Duration::from_millis(300)));
    from_a.send(()).unwrap();
    agent.end();
    b.join().unwrap();
}
