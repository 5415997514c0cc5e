//! Filters for some packets of containers, told from those for all: what other programs and administrators write, and what of it is
//! no fault.

use super::cases::{cases, parse};
use super::lost_packets::{Sick, sh};

/// Filters whose findings have no remedy that opens them, and filters that are no fault.
const OTHERS: &str = include_str!("tables/filters_of_some_packets.txt");

#[test]
fn rules_for_some_packets_are_told_from_those_for_all() {
    for case in cases(OTHERS) {
        let sick = Sick::new();
        let _pod = sick.add("office", "web", Some(8080));
        let case = sick.tour.with_addresses(&case);
        let (script, expected) = parse(&case);
        sh(script);
        sick.expect(script, &expected);
    }
}
