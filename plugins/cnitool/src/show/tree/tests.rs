use super::*;
use crate::node_networks::sample_for_tests::{attachment, network, view};
use crate::tree_text::{COLUMNS, text};
use expect_test::expect;

fn plain(view: &View) -> String {
    without_colours(&text(&tree(view, Shown::default())))
}

fn without_colours(text: &str) -> String {
    let mut pieces = text.split('\u{1b}');
    let first = pieces.next().unwrap_or_default().to_owned();
    first + &pieces.filter_map(|piece| piece.split_once('m')).map(|(_, rest)| rest).collect::<String>()
}

/// The node of a cluster: pods of real names and IDs, of which one is gone.
#[test]
fn attachments_of_which_nothing_needs_a_look_have_a_line_each_and_are_only_counted_in_brief() {
    let mut office = network("office");
    office.attachments = (0..200)
        .map(|number| {
            let mut pod = attachment(&format!("{number:064x}"), &format!("10.7.0.{}", number + 2));
            pod.name = format!("shop/web-{number}");
            pod
        })
        .collect();
    office.attachments[7].life = Life::Gone;
    let node = view(vec![office]);
    let whole = plain(&node);
    let lines: Vec<&str> = whole.lines().collect();
    expect![[r#"
        node-1  1 network, 200 attachments  199 live  1 gone
        office  bridge, portmap  /etc/cni/net.d/10-office.conflist
        ├─ shop/web-7  eth0  10.7.0.9  gone  3h
        │  └─ namespace /run/netns/web
        ├─ shop/web-0    eth0  10.7.0.2    lives  3h
        ├─ shop/web-1    eth0  10.7.0.3    lives  3h
    "#]]
    .assert_eq(&(lines[..6].join("\n") + "\n"));
    assert_eq!(lines.len(), 203);
    let brief = without_colours(&text(&tree(&node, Shown { is_brief: true })));
    expect![[r#"
        node-1  1 network, 200 attachments  199 live  1 gone
        office  bridge, portmap  /etc/cni/net.d/10-office.conflist
        ├─ shop/web-7  eth0  10.7.0.9  gone  3h
        │  └─ namespace /run/netns/web
        └─ 199 without a fault
    "#]]
    .assert_eq(&brief);
}

#[test]
fn one_address_of_a_range_of_ipv6_is_no_column_of_its_bar() {
    let mut office = network("office");
    let (first, last) = ("fd00::1".parse().unwrap(), "fd00::ffff:ffff:ffff:ffff".parse().unwrap());
    office.ranges = vec![host_local::inventory::Usage { set: 0, first, last, used: 1, total: (1 << 64) - 3 }];
    let shown = plain(&view(vec![office]));
    assert!(shown.contains("▏░") && shown.contains("about 2^64") && !shown.contains('█'), "{shown}");
}

/// 18446744073709551613 looks like an error.
#[test]
fn a_range_of_ipv6_has_about_a_power_of_two_of_addresses() {
    for (number, text) in [
        (0, "0"),
        ((1 << 40) - 1, "1099511627775"),
        (1 << 40, "about 2^40"),
        ((1 << 64) - 3, "about 2^64"),
        (u128::MAX, "about 2^128"),
    ] {
        assert_eq!(rounded(number), text);
    }
}

#[test]
fn a_reservation_that_cannot_be_read_is_not_called_held_by_hand() {
    let mut office = network("office");
    office.unreadable.push("10.7.0.9".parse().unwrap());
    let shown = plain(&view(vec![office]));
    assert!(shown.contains("10.7.0.9 reserved  owner unknown") && !shown.contains("by hand"), "{shown}");
}

#[test]
fn no_line_is_wider_than_a_terminal_and_nothing_acts_on_it() {
    let mut bad = network("bad");
    bad.origin = Origin::File(format!("/etc/\u{1b}[2J{}\u{202e}/x", "wide/".repeat(40)).into());
    bad.nameless.push(format!("link {} 漢字{}", "word ".repeat(30), "漢".repeat(60)));
    let mut web = attachment("web", "10.7.0.2");
    web.netns = format!("/run/{}\n\u{9b}31m", "n".repeat(200));
    web.life = Life::Gone;
    bad.attachments.push(web);
    let shown = view(vec![bad]);
    let lines = plain(&shown);
    assert!(lines.lines().all(|line| line.width() <= COLUMNS), "{lines}");
    assert!(lines.lines().all(|line| !line.chars().any(char::is_control)), "{lines:?}");
    assert!(lines.contains("\\u{1b}[2J") && lines.contains("\\u{202e}") && lines.contains("\\n\\u{9b}31m"), "{lines}");
    assert_eq!(lines.matches("word").count(), 30, "nothing is left out: {lines}");
}

#[test]
fn what_belongs_to_nothing_and_what_was_not_seen_is_named() {
    let mut seen = view(Vec::new());
    seen.unowned.push("link veth1, marked cni:old/web/eth0".into());
    seen.unseen.push("forwarded ports: refused".into());
    expect![[r#"
        node-1  0 networks, 0 attachments
        belongs to no known network
        └─ link veth1, marked cni:old/web/eth0
        could not be looked at
        └─ forwarded ports: refused
    "#]]
    .assert_eq(&plain(&seen));
}

#[test]
fn ages_and_rates_are_in_their_largest_unit() {
    let ages = [0, 59, 60, 3_599, 3_600, 86_399, 86_400, 864_000].map(age_of);
    assert_eq!(ages, ["0s", "59s", "1m", "59m", "1h", "23h", "1d", "10d"]);
    let rates = [1, 125, 125_000, 187_500, 125_000_000, u64::MAX].map(rate);
    assert_eq!(rates, ["8 bit/s", "1 kbit/s", "1 Mbit/s", "1500 kbit/s", "1 Gbit/s", "147573952589676412920 bit/s"]);
}
