//! `cnitool doctor` and packet filters as other programs write them: what drops the packets of containers is named at each
//! hook, with commands that open it, and a filter that lets them pass is no fault.

use super::cases::{cases, parse};
use super::lost_packets::{Sick, sh};
use std::net::IpAddr;
use std::time::Duration;
use testns::Container;

const OUTSIDE: &str = "192.168.1.1";

const SHORT: Duration = Duration::from_millis(300);

const LONG: Duration = Duration::from_secs(10);

fn with_pod() -> (Sick, Container) {
    let sick = Sick::new();
    let pod = sick.add("office", "web", None);
    (sick, pod)
}

fn gets_out(pod: &Container, within: Duration) -> bool {
    pod.namespace().pings(OUTSIDE.parse::<IpAddr>().unwrap(), within)
}

const DROPPING: &str = include_str!("tables/dropping_filters.txt");

#[test]
fn a_filter_that_drops_packets_is_named_at_each_hook_and_opened_by_its_remedy() {
    for case in cases(DROPPING) {
        let (sick, pod) = with_pod();
        let case = sick.tour.with_addresses(&case);
        let (script, expected) = parse(&case);
        assert!(gets_out(&pod, LONG), "before {script}");
        sh(script);
        assert!(!gets_out(&pod, SHORT), "{script} drops nothing");
        sick.expect(script, &expected);
        assert!(gets_out(&pod, LONG), "after the remedy of {script}");
    }
}

/// Chains of other programs by which packets of containers pass though a policy drops others.
const PASSING: &str = include_str!("tables/passing_filters.txt");

#[test]
fn a_filter_that_lets_packets_pass_is_no_fault() {
    for case in cases(PASSING) {
        let (sick, pod) = with_pod();
        sh(parse(&sick.tour.with_addresses(&case)).0);
        assert!(gets_out(&pod, LONG), "{case} drops packets");
        assert_eq!(sick.doctor(), (0, Vec::new()), "{case}");
    }
}

/// Filters whose findings have no remedy that opens them, and filters that are no fault.
const SOME: &str = include_str!("tables/filters_of_some_packets.txt");

#[test]
fn rules_for_some_packets_are_told_from_those_for_all() {
    for case in cases(SOME) {
        let sick = Sick::new();
        let _pod = sick.add("office", "web", Some(8080));
        let case = sick.tour.with_addresses(&case);
        let (script, expected) = parse(&case);
        sh(script);
        sick.expect(script, &expected);
    }
}
