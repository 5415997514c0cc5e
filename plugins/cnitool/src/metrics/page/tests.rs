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
            view: serde_json::from_str(
                r#"{"runs":[["::1","::1"],["::2","::2"],["::3","::3"]],"claims":{"a":[],"b":[],"c":[],"d":[]},"left":5,"trustSeconds":3600}"#,
            )
            .unwrap(),
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
    Kind::RangeFull.finding(Level::Warning, None, "")
}

fn page(view: &View, calls: Option<&Calls>) -> String {
    let page = Page::new("1.9.1+rust.0.1.0").unwrap();
    page.add_view(view).unwrap();
    page.add_findings(&[finding(), finding()]).unwrap();
    page.add_calls(calls).unwrap();
    page.add_duration(Duration::from_millis(20)).unwrap();
    page.text().unwrap()
}

/// Series that do not differ between two buckets or two kinds that are zero.
fn telling(text: &str) -> String {
    let is_telling = |line: &&str| {
        !line.starts_with('#') && (line.contains("0.005") || !line.contains("le=\"")) && !line.ends_with("\"} 0")
    };
    text.lines().filter(is_telling).map(|line| line.to_owned() + "\n").collect()
}

#[test]
fn a_page_has_state_findings_and_calls() {
    let mut calls = Calls::new().unwrap();
    [record("ADD", None), record("ADD", Some(11)), record("DEL", None)]
        .into_iter()
        .for_each(|record| calls.add(record));
    expect![[r##"
        cni_addresses_held_by_hand{network="pods"} 1
        cni_addresses_in_no_run{network="pods"} 2
        cni_attachments{network="pods",state="gone"} 1
        cni_attachments{network="pods",state="lives"} 2
        cni_build_info{version="1.9.1+rust.0.1.0"} 1
        cni_call_duration_seconds_bucket{plugin="bridge",side="plugin",verb="ADD",le="0.005"} 2
        cni_call_duration_seconds_sum{plugin="bridge",side="plugin",verb="ADD"} 0.0084
        cni_call_duration_seconds_count{plugin="bridge",side="plugin",verb="ADD"} 2
        cni_call_duration_seconds_bucket{plugin="bridge",side="plugin",verb="DEL",le="0.005"} 1
        cni_call_duration_seconds_sum{plugin="bridge",side="plugin",verb="DEL"} 0.0042
        cni_call_duration_seconds_count{plugin="bridge",side="plugin",verb="DEL"} 1
        cni_call_errors_total{code="11",plugin="bridge",side="plugin",verb="ADD"} 1
        cni_calls_total{plugin="bridge",side="plugin",verb="ADD"} 2
        cni_calls_total{plugin="bridge",side="plugin",verb="DEL"} 1
        cni_cluster_addresses_left{network="pods"} 5
        cni_cluster_claims{network="pods"} 4
        cni_cluster_runs{network="pods"} 3
        cni_cluster_trust_seconds{network="pods"} 3600
        cni_doctor_findings{kind="range-full"} 2
        cni_doctor_findings_by_level{level="warning"} 2
        cni_log_oldest_record_timestamp_seconds 1700000000.5
        cni_log_up 1
        cni_range_addresses{network="pods",range="10.1.0.1-10.1.0.254",set="0"} 253
        cni_range_addresses{network="pods",range="fd00::1-fd00:fd00:fd00:fd00:fd00:fd00:fd00:fd00",set="0"} 18446744073709552000
        cni_range_addresses_free{network="pods",range="10.1.0.1-10.1.0.254",set="0"} 250
        cni_range_addresses_free{network="pods",range="fd00::1-fd00:fd00:fd00:fd00:fd00:fd00:fd00:fd00",set="0"} 18446744073709552000
        cni_range_addresses_used{network="pods",range="10.1.0.1-10.1.0.254",set="0"} 3
        cni_range_addresses_used{network="pods",range="fd00::1-fd00:fd00:fd00:fd00:fd00:fd00:fd00:fd00",set="0"} 3
        cni_scrape_duration_seconds 0.02
        cni_unowned_objects 1
        cni_unseen_places 0
    "##]].assert_eq(&telling(&page(&view("pods"), Some(&calls))));
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
