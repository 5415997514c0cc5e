use expect_test::expect;
use unicode_width::UnicodeWidthStr;

use super::*;
use crate::sample::{attachment, full, network, view};

/// A node whose names try to be markup in each format.
fn hostile() -> View {
    let evil = "</title><script>alert(1)</script>\"];\n n9 --- n1 \\\" -- end `x` #quot; &amp; \u{202e}\u{1b}[2J";
    let mut bad = network(&format!("bad {evil}"));
    bad.plugins.push(evil.to_owned());
    bad.nameless.push(format!("link {evil} {}", "x".repeat(10_000)));
    let mut web = attachment("web", "10.7.0.2");
    web.netns = format!("/run/netns/{evil}");
    web.rules.push(evil.to_owned());
    bad.attachments.push(web);
    let mut seen = view(vec![bad]);
    seen.unowned.push(evil.to_owned());
    seen.unseen.push(evil.to_owned());
    seen
}

#[test]
fn attachments_are_linked_to_the_bridge_that_they_are_on() {
    let drawing = drawing(&view(vec![full()]));
    let first = |place: usize| plain(&drawing.cells[place].text[0]);
    let lines: Vec<_> = drawing.lines.iter().map(|(from, to)| (first(*from), first(*to))).collect();
    let text: Vec<_> = lines.iter().map(|(from, to)| format!("{from} -- {to}\n")).collect();
    expect![[r#"
        office  bridge, portmap -- bridge cni0  up  10.7.0.1/24, mtu 1500, 2
        bridge cni0  up  10.7.0.1/24, mtu 1500, 2 -- web  eth0  10.7.0.2  lives  3h
        bridge cni0  up  10.7.0.1/24, mtu 1500, 2 -- cnitool-82e215debf7df4651d36  eth0  10.7.0.3
        bridge cni0  up  10.7.0.1/24, mtu 1500, 2 -- unnamed  link veth00000000 (no container was
    "#]]
    .assert_eq(&text.concat());
}

#[test]
fn graphviz_gets_a_box_for_each() {
    expect![[r#"
        graph cni {
          rankdir=LR;
          node [shape=box, fontname=monospace];
          n0 [label="office  bridge, portmap\l/etc/cni/net.d/10-office.conflist\l10.7.0.1 - 10.7.0.254  █░░░░░░░░░░░░░░░░░░░\l2 used, 251 free\lfd00::1 - fd00::a  ██████████████████░░  9\lused, 1 free\l10.8.0.1 - 10.8.0.2  ████████████████████  2\lused, 0 free\l10.7.0.9 held by hand\l", color=red3];
          n1 [label="bridge cni0  up  10.7.0.1/24, mtu 1500, 2\lports\l", color=green4];
          n2 [label="web  eth0  10.7.0.2  lives  3h\lnamespace /run/netns/web\llink veth1f2e3d4c on cni0\lport 8080/tcp of the node to port 80\lat most 1 Mbit/s to the container\lat most 8 bit/s from the container\liptables masquerade of 10.7.0.2\l", color=green4];
          n3 [label="cnitool-82e215debf7df4651d36  eth0  10.7.0.3\lfd00:1234:5678:9abc:def0:1234:5678:9abc\lgone\lnot in this cache: another runtime's\lmade by the reference or another plugin: no\lmark\l", color=red3];
          n4 [label="unnamed  link veth00000000 (no container was\lfound that uses it)\l", color=orange3];
          n0 -- n1;
          n1 -- n2;
          n1 -- n3;
          n1 -- n4;
        }
    "#]].assert_eq(&dot::dot(&drawing(&view(vec![full()]))));
}

#[test]
fn lines_fit_their_boxes_and_nothing_is_left_out() {
    let drawing = drawing(&hostile());
    let lines = || drawing.cells.iter().flat_map(|cell| &cell.text).map(|line| plain(line));
    assert!(lines().all(|line| line.width() <= COLUMNS), "{drawing:?}");
    assert_eq!(lines().collect::<String>().matches('x').count(), 10_000 + 8);
}

#[test]
fn names_are_no_markup_in_any_format() {
    let view = hostile();
    let drawing = drawing(&view);
    let (svg, html) = (svg::svg(&drawing), html::html(&view, &drawing));
    let parsed = roxmltree::Document::parse(&svg).unwrap();
    let elements = ["svg", "title", "style", "path", "rect", "text", "tspan"];
    assert!(
        parsed.descendants().filter(|node| node.is_element()).all(|node| elements.contains(&node.tag_name().name()))
    );
    for text in [&svg, &html] {
        assert!(!text.contains("<script") && text.contains("&lt;script&gt;"));
        assert!(!text.contains('\u{202e}') && !text.contains('\u{1b}'));
    }
    let dot = dot::dot(&drawing);
    assert_eq!(dot.lines().count(), drawing.cells.len() + drawing.lines.len() + 4);
    // Each quote that ends no label is escaped.
    let quotes = dot.replace("\\\\", "").replace("\\\"", "").matches('"').count();
    assert_eq!(quotes, 2 * drawing.cells.len());
}

#[test]
fn the_page_needs_no_network_and_has_each_attachment() {
    let view = view(vec![full()]);
    let html = html::html(&view, &drawing(&view));
    // The name of the namespace of SVG is the only address.
    assert_eq!(html.matches("http").count(), 1, "{html}");
    for words in
        ["<td data-label=\"container\">web</td>", "8080/tcp to 80", "1 Mbit/s in", "<span class=\"gone\">gone</span>"]
    {
        assert!(html.contains(words), "{words}: {html}");
    }
}
