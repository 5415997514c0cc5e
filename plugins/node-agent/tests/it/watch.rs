//! The watch of the API: faults, breaks, lost history, credentials that end.

use crate::bench::{Bench, FILE, wait_for_range, wait_until};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube_api::{Api, Fault};
use node_agent::plugin_credentials;
use secrecy::ExposeSecret;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

const CREDENTIALS: &str = "/etc/cni/net.d/cluster.kubeconfig";

#[test]
fn each_fault_of_the_api_passes_and_the_file_follows_afterwards() {
    let (bench, api) = (Bench::new(), Api::start());
    api.put("a", &["10.1.0.0/24"], &[]);
    let mut agent = bench.start_for(&api, &[]);
    wait_for_range("10.1.0.0/24");
    let first = fs::metadata(FILE).unwrap().ino();
    let faults = [Fault::Status(429), Fault::Status(500), Fault::Status(409), Fault::Drop, Fault::Half];
    for (number, fault) in faults.into_iter().enumerate() {
        api.fail([fault]);
        wait_until("the fault has come", || api.faults_left() == 0);
        // An event that is no change of the range writes nothing.
        api.put("a", &["10.1.0.0/24"], &["192.0.2.1"]);
        assert_eq!(fs::metadata(FILE).unwrap().ino(), first, "after fault {number}");
    }
    api.put("a", &["10.1.1.0/24"], &[]);
    wait_for_range("10.1.1.0/24");
    agent.0.wait_for("the API of Kubernetes: status 409");
    agent.end();
}

/// A connection that is accepted and says nothing is given up: its time is that of a watch and ten seconds.
#[test]
fn an_api_that_says_nothing_is_asked_again() {
    let (bench, api) = (Bench::new(), Api::start());
    api.put("a", &["10.1.0.0/24"], &[]);
    api.fail([Fault::Hang]);
    let agent = bench.start_for(&api, &[]);
    wait_for_range("10.1.0.0/24");
    agent.end();
}

#[test]
fn nothing_changes_while_the_api_is_away_and_a_new_agent_waits_for_it() {
    let (bench, api) = (Bench::new(), Api::start());
    api.put("a", &["10.1.0.0/24"], &[]);
    let mut agent = bench.start_for(&api, &[]);
    wait_for_range("10.1.0.0/24");
    api.is_away(true);
    agent.0.wait_for("nothing changes until it answers");
    agent.end();
    let mut agent = bench.start_for(&api, &[]);
    agent.0.wait_for("the API of Kubernetes has not answered yet");
    api.delete("a");
    api.put("a", &["10.1.1.0/24"], &[]);
    wait_for_range("10.1.0.0/24");
    api.is_away(false);
    wait_for_range("10.1.1.0/24");
    agent.end();
}

#[test]
fn a_watch_resumes_by_its_bookmark_and_lists_again_when_history_is_gone() {
    let (bench, api) = (Bench::new(), Api::start());
    api.put("a", &["10.1.0.0/24"], &[]);
    let agent = bench.start_for(&api, &[]);
    wait_for_range("10.1.0.0/24");
    wait_until("a watch runs", || api.requests().len() >= 2);
    // A change of another node, of which this watch has only a bookmark.
    api.put("b", &[], &[]);
    wait_until("the next watch begins there", || api.requests().contains(&"WATCH 2 a".to_owned()));
    let lists = || api.requests().iter().filter(|request| request.starts_with("LIST")).count();
    assert_eq!(lists(), 1, "{:?}", api.requests());
    api.compact();
    wait_until("the nodes are listed again", || lists() == 2);
    api.put("a", &["10.1.1.0/24"], &[]);
    wait_for_range("10.1.1.0/24");
    agent.end();
}

#[test]
fn a_refused_token_is_read_again_from_the_kubeconfig() {
    let (bench, api) = (Bench::new(), Api::start());
    api.put("a", &["10.1.0.0/24"], &[]);
    api.accept_token("first");
    let mut agent = bench.start_for(&api, &["--cluster-kubeconfig", CREDENTIALS]);
    wait_for_range("10.1.0.0/24");
    wait_until("the plugin has the token", || has_token("first"));
    assert_eq!(fs::metadata(CREDENTIALS).unwrap().mode() & 0o777, 0o600);
    api.accept_token("second");
    agent.0.wait_for("status 401");
    api.put("a", &["10.1.1.0/24"], &[]);
    wait_for_range("10.1.0.0/24");
    bench.kubeconfig(api.address, "second");
    wait_for_range("10.1.1.0/24");
    wait_until("the plugin has the next token", || has_token("second"));
    agent.end();
}

fn has_token(token: &str) -> bool {
    fs::read_to_string(CREDENTIALS).is_ok_and(|text| text.contains(&format!("\"{token}\"")))
}

/// A service account's token comes from a file, which changes, and the API's authority from another.
#[tokio::test]
async fn the_plugins_kubeconfig_has_the_token_of_now_and_the_authority() {
    let bench = Bench::new();
    bench.write("token", "first\n");
    let mut config = Config::new("https://10.0.0.1:6443/".parse().unwrap());
    config.root_cert = Some(vec![vec![7; 100], vec![9; 48]]);
    config.auth_info.token_file = Some(bench.path("token").display().to_string());
    let path = bench.path("cluster.kubeconfig");
    let settle = || plugin_credentials::settle(&path, &config).unwrap();
    assert_eq!([settle(), settle()], [true, false]);
    bench.write("token", "second\n");
    assert!(settle());
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert_eq!([settle(), settle()], [true, false], "the plugin refuses what others may read");
    let read = Kubeconfig::read_from(&path).unwrap();
    let read = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await.unwrap();
    assert_eq!((read.cluster_url, read.root_cert), (config.cluster_url.clone(), config.root_cert.clone()));
    assert_eq!(read.auth_info.token.map(|token| token.expose_secret().to_owned()).as_deref(), Some("second"));
    config.auth_info.token_file = None;
    let refused = plugin_credentials::settle(&path, &config).unwrap_err();
    assert!(refused.to_string().contains("no token"), "{refused}");
}

/// The test's server is judged by the tool of Kubernetes itself.
#[test]
fn kubectl_lists_and_watches_the_nodes_of_the_test_server() {
    let (bench, api) = (Bench::new(), Api::start());
    api.put("a", &["10.1.0.0/24"], &["192.0.2.1"]);
    let kubeconfig = bench.kubeconfig(api.address, "first");
    let kubectl = |words: &[&str]| {
        let mut command = Command::new("kubectl");
        command.arg("--kubeconfig").arg(&kubeconfig).args(words).env("HOME", bench.path("home"));
        command
    };
    if kubectl(&["version", "--client"]).output().is_err() {
        return testns::skip("kubectl_lists_and_watches_the_nodes_of_the_test_server", "no kubectl");
    }
    let listed = kubectl(&["get", "nodes", "-o", "jsonpath={.items[*].spec.podCIDRs}"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout), r#"["10.1.0.0/24"]"#, "{listed:?}");
    let words = ["get", "nodes", "--field-selector", "metadata.name=b", "--watch", "-o", "jsonpath={.spec.podCIDR} "];
    let mut watching = testns::Background::with_stdout(kubectl(&words));
    wait_until("kubectl watches", || {
        api.requests().iter().any(|request| request.starts_with("WATCH") && request.ends_with(" b"))
    });
    api.put("b", &["10.1.1.0/24\n"], &[]);
    watching.wait_for("10.1.1.0/24");
}
