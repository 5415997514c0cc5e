//! A page of a node that has something of everything.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::doctor::{Finding, Kind, Level};
use crate::log::read_back::Counts;
use crate::node_networks::sample_for_tests::{self, attachment, network, range};
use crate::node_networks::{Attachment, Network, OfCluster, View};
use call_log::{By, Record};
use expect_test::expect;
use libcni::inventory::Life;

use super::*;

fn view(name: &str) -> View {
    let of = |life| Attachment { life, ..attachment("c1", "10.1.0.2") };
    let network = Network {
        cluster: Some(OfCluster {
            in_no_run: 2,
            memory: on_node::Memory { runs: 3, left: 5, claims: 4, trust_seconds: 3600, ..on_node::Memory::default() },
        }),
        ranges: vec![
            range("10.1.0.1", "10.1.0.254", 3, 253),
            range("fd00::1", "fd00:fd00:fd00:fd00:fd00:fd00:fd00:fd00", 3, 1 << 64),
        ],
        by_hand: vec![[10, 1, 0, 9].into()],
        attachments: [Life::Lives, Life::Lives, Life::Gone].map(of).into(),
        ..network(name)
    };
    View { unowned: vec!["veth1".to_owned()], ..sample_for_tests::view(vec![network]) }
}

fn record(verb: &str, error: Option<u32>) -> Record {
    Record {
        by: By::Plugin,
        begin_us: 1_700_000_000_500_000,
        verb: verb.to_owned(),
        plugin: "bridge".to_owned(),
        duration_us: 4200,
        error: error.map(|code| (code, "no".to_owned())),
        ..Record::default()
    }
}

fn finding() -> Finding {
    Finding {
        kind: Kind::RangeFull,
        level: Level::Warning,
        network: None,
        what: String::new(),
        evidence: Vec::new(),
        remedy: String::new(),
        fix: None,
        has_addresses: true,
    }
}

fn page(view: &View, calls: Option<&Calls>) -> String {
    let page = Page::new("1.9.1+rust.0.1.0").unwrap();
    page.add_view(view).unwrap();
    page.add_findings(&[finding(), finding()]).unwrap();
    page.add_calls(calls).unwrap();
    page.add_duration(Duration::from_millis(20)).unwrap();
    page.text().unwrap()
}

/// Lines that do not differ between two buckets or two kinds that are zero.
fn telling(text: &str) -> String {
    let is_telling = |line: &&str| (line.contains("0.005") || !line.contains("le=\"")) && !line.ends_with("\"} 0");
    text.lines().filter(is_telling).map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn a_page_has_state_findings_and_calls() {
    let mut calls = Calls::new().unwrap();
    [record("ADD", None), record("ADD", Some(11)), record("DEL", None)]
        .into_iter()
        .for_each(|record| calls.add(record));
    expect![[r##"
        # HELP cni_addresses_held_by_hand Addresses of host-local that an operator holds for no container.
        # TYPE cni_addresses_held_by_hand gauge
        cni_addresses_held_by_hand{network="pods"} 1
        # HELP cni_addresses_in_no_run Reserved addresses that are in no run of this node: another node may give them.
        # TYPE cni_addresses_in_no_run gauge
        cni_addresses_in_no_run{network="pods"} 2
        # HELP cni_attachments Attachments, by whether their container lives (see cnitool show).
        # TYPE cni_attachments gauge
        cni_attachments{network="pods",state="gone"} 1
        cni_attachments{network="pods",state="lives"} 2
        # HELP cni_build_info The version of the program that wrote this page.
        # TYPE cni_build_info gauge
        cni_build_info{version="1.9.1+rust.0.1.0"} 1
        # HELP cni_call_duration_seconds How long the calls in the log took.
        # TYPE cni_call_duration_seconds histogram
        cni_call_duration_seconds_bucket{plugin="bridge",side="plugin",verb="ADD",le="0.005"} 2
        cni_call_duration_seconds_sum{plugin="bridge",side="plugin",verb="ADD"} 0.0084
        cni_call_duration_seconds_count{plugin="bridge",side="plugin",verb="ADD"} 2
        cni_call_duration_seconds_bucket{plugin="bridge",side="plugin",verb="DEL",le="0.005"} 1
        cni_call_duration_seconds_sum{plugin="bridge",side="plugin",verb="DEL"} 0.0042
        cni_call_duration_seconds_count{plugin="bridge",side="plugin",verb="DEL"} 1
        # HELP cni_call_errors_total Calls in the log that failed, by the code of their error.
        # TYPE cni_call_errors_total counter
        cni_call_errors_total{code="11",plugin="bridge",side="plugin",verb="ADD"} 1
        # HELP cni_calls_total Calls in the log: of plugins, or operations of a runtime on a network.
        # TYPE cni_calls_total counter
        cni_calls_total{plugin="bridge",side="plugin",verb="ADD"} 2
        cni_calls_total{plugin="bridge",side="plugin",verb="DEL"} 1
        # HELP cni_cluster_addresses_left Addresses that were in no run where this node looked for room last.
        # TYPE cni_cluster_addresses_left gauge
        cni_cluster_addresses_left{network="pods"} 5
        # HELP cni_cluster_claims Claims that containers of this node hold.
        # TYPE cni_cluster_claims gauge
        cni_cluster_claims{network="pods"} 4
        # HELP cni_cluster_runs Runs of addresses that this node has.
        # TYPE cni_cluster_runs gauge
        cni_cluster_runs{network="pods"} 3
        # HELP cni_cluster_store_away 1 if the store did not answer when a call asked it last.
        # TYPE cni_cluster_store_away gauge
        # HELP cni_cluster_trust_seconds For how long this node gives addresses after that.
        # TYPE cni_cluster_trust_seconds gauge
        cni_cluster_trust_seconds{network="pods"} 3600
        # HELP cni_cluster_view_timestamp_seconds When this node has last written to the store.
        # TYPE cni_cluster_view_timestamp_seconds gauge
        # HELP cni_doctor_findings Findings of cnitool doctor, by kind.
        # TYPE cni_doctor_findings gauge
        cni_doctor_findings{kind="range-full"} 2
        # HELP cni_doctor_findings_by_level Findings of cnitool doctor, by level.
        # TYPE cni_doctor_findings_by_level gauge
        cni_doctor_findings_by_level{level="warning"} 2
        # HELP cni_log_oldest_record_timestamp_seconds When the oldest call in the log began: counts start anew when a log is rotated.
        # TYPE cni_log_oldest_record_timestamp_seconds gauge
        cni_log_oldest_record_timestamp_seconds 1700000000.5
        # HELP cni_log_up Whether the log of calls could be read: 1 or 0.
        # TYPE cni_log_up gauge
        cni_log_up 1
        # HELP cni_range_addresses Addresses of a range of host-local that containers may get: without gateways.
        # TYPE cni_range_addresses gauge
        cni_range_addresses{network="pods",range="10.1.0.1-10.1.0.254",set="0"} 253
        cni_range_addresses{network="pods",range="fd00::1-fd00:fd00:fd00:fd00:fd00:fd00:fd00:fd00",set="0"} 18446744073709552000
        # HELP cni_range_addresses_free Addresses of a range of host-local that are free.
        # TYPE cni_range_addresses_free gauge
        cni_range_addresses_free{network="pods",range="10.1.0.1-10.1.0.254",set="0"} 250
        cni_range_addresses_free{network="pods",range="fd00::1-fd00:fd00:fd00:fd00:fd00:fd00:fd00:fd00",set="0"} 18446744073709552000
        # HELP cni_range_addresses_used Addresses of a range of host-local that are reserved.
        # TYPE cni_range_addresses_used gauge
        cni_range_addresses_used{network="pods",range="10.1.0.1-10.1.0.254",set="0"} 3
        cni_range_addresses_used{network="pods",range="fd00::1-fd00:fd00:fd00:fd00:fd00:fd00:fd00:fd00",set="0"} 3
        # HELP cni_scrape_duration_seconds How long it took to collect this page.
        # TYPE cni_scrape_duration_seconds gauge
        cni_scrape_duration_seconds 0.02
        # HELP cni_unowned_objects Objects on the node that belong to no known network.
        # TYPE cni_unowned_objects gauge
        cni_unowned_objects 1
        # HELP cni_unseen_places Places that could not be looked at for this page.
        # TYPE cni_unseen_places gauge
        cni_unseen_places 0
    "##]].assert_eq(&telling(&page(&view("pods"), Some(&calls))));
}

#[test]
fn without_a_log_the_page_says_so_and_has_the_rest() {
    let text = page(&view("pods"), None);
    assert!(text.contains("\ncni_log_up 0\n") && text.contains("\ncni_attachments{"), "{text}");
    assert!(!text.contains("cni_calls_total"), "{text}");
}

/// A reader of the format: its lines are comments, or a name, labels whose values have no raw quote or line feed, and a number.
#[test]
fn names_from_outside_cannot_end_a_label() {
    let text = page(&view("a\"} 1\nevil{x=\"\\"), None);
    assert!(text.contains(r#"{network="a\"} 1\nevil{x=\"\\",state="lives"} 2"#), "{text}");
    for line in text.lines() {
        let number = line.rsplit(' ').next().unwrap();
        assert!(line.starts_with("# ") || number.parse::<f64>().is_ok(), "{line}");
        assert!(line.starts_with("# ") || line.starts_with("cni_"), "{line}");
    }
}

/// The page may be read on a terminal.
#[test]
fn names_from_outside_do_not_act_on_a_terminal() {
    let text = page(&view("a\u{1b}[2J\u{9b}\t\u{202e}"), None);
    assert!(text.contains(r#"{network="a\\u{1b}[2J\\u{9b}\\t\\u{202e}",state="lives"} 2"#), "{text}");
    assert!(!text.contains(|c: char| c != '\n' && acts(c)));
}

#[test]
fn a_log_of_foreign_names_makes_few_series() {
    let mut calls = Calls::new().unwrap();
    for index in 0..1000 {
        let plugin = format!("p{index}");
        calls.add(Record { plugin, ..record(&format!("V{index}"), Some(index)) });
    }
    let text = page(&view("pods"), Some(&calls));
    let plugins: BTreeSet<&str> = text.split("plugin=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    assert_eq!(plugins.len(), 65);
    assert!(text.contains(r#"cni_calls_total{plugin="other",side="plugin",verb="other"} 936"#), "{text}");
}
