use expect_test::expect;
use unicode_width::UnicodeWidthStr;

use super::layout::{COLUMN, Item, LINE, Place, plan};
use super::*;
use crate::node_networks::View;
use crate::node_networks::sample_for_tests::{attachment, full, network, view};

/// A node whose names try to be markup in each format.
fn hostile() -> View {
    let evil = "</title><script>alert(1)</script>\"];\n n9 --- n1 \\\" -- end `x` #quot; &amp; \u{202e}\u{1b}[2J";
    let mut bad = network(&format!("bad {evil}"));
    bad.plugins.push(evil.to_owned());
    bad.nameless.push(format!("link {evil} {}", "x".repeat(10_000)));
    let mut web = attachment("web", "10.7.0.2");
    web.netns = format!("/run/netns/{evil}");
    web.rules.push(on_node::Rule { text: evil.to_owned(), ..Default::default() });
    bad.attachments.push(web);
    let mut seen = view(vec![bad]);
    seen.unowned.push(evil.to_owned());
    seen.unseen.push(evil.to_owned());
    seen
}

/// The node of a cluster: pods of real names and IDs, every tenth of them with a fault.
fn cluster(pods: usize) -> View {
    let mut office = full();
    office.attachments = (0..pods)
        .map(|number| {
            let mut pod = attachment(&format!("{number:064x}"), &format!("10.7.{}.{}", number / 250, number % 250 + 2));
            pod.name = format!("kube-system/web-frontend-7d9c4f5b{number:03}-x{number:04}");
            pod.links.push(crate::node_networks::HostLink {
                name: format!("veth{number:08x}"),
                master: Some("cni0".into()),
                up: true,
            });
            match number % 30 {
                9 => pod.life = libcni::inventory::Life::Gone,
                19 => pod.life = libcni::inventory::Life::Unknown,
                29 => pod.links[0].up = false,
                _ => {}
            }
            pod
        })
        .collect();
    view(vec![office, network("second")])
}

fn contains(outer: Place, inner: Place) -> bool {
    outer.x <= inner.x
        && outer.y <= inner.y
        && inner.x + inner.width <= outer.x + outer.width
        && inner.y + inner.height <= outer.y + outer.height
}

/// The rectangle that the item takes; `None` for a wire.
fn place(item: &Item) -> Option<Place> {
    match item {
        Item::Frame { place, .. } | Item::Tile { place, .. } => Some(*place),
        Item::Text { at: (x, y), line } => {
            Some(Place { x: *x, y: *y, width: plain(line).width() * COLUMN, height: LINE })
        }
        Item::Wire { .. } => None,
    }
}

fn overlap(one: Place, other: Place) -> bool {
    one.x < other.x + other.width
        && other.x < one.x + one.width
        && one.y < other.y + other.height
        && other.y < one.y + one.height
}

#[test]
fn nothing_on_a_plan_is_cut_or_overlaps() {
    let views = [cluster(3), cluster(50), cluster(200), view(vec![full()]), view(Vec::new()), hostile()];
    for (view, width) in views.iter().flat_map(|view| [1196, 1160, 356, 1].map(|width| (view, width))) {
        let plan = plan(view, width);
        let page = Place { x: 0, y: 0, width: plan.width, height: plan.height };
        let mut places: Vec<(&Item, Place)> = plan.items.iter().filter_map(|item| Some((item, place(item)?))).collect();
        // Text and tiles are compared with each other only where they are near: by lines.
        places.sort_by_key(|(_, place)| place.y);
        for (at, (item, place)) in places.iter().enumerate() {
            assert!(contains(page, *place), "{item:?} is cut at {width}");
            let near = places[at + 1..].iter().take_while(|(_, other)| other.y < place.y + place.height);
            for (other, second) in near.filter(|(_, second)| overlap(*place, *second)) {
                let is_frame = |item: &Item| matches!(item, Item::Frame { .. });
                let is_in = is_frame(item) && contains(*place, *second) || is_frame(other) && contains(*second, *place);
                assert!(is_in, "{item:?} and {other:?} overlap at {width}");
            }
        }
    }
}

#[test]
fn each_attachment_is_on_the_plan_and_those_with_a_fault_are_named() {
    for pods in [3, 50, 200] {
        let view = cluster(pods);
        let plan = plan(&view, 1160);
        let tiles = plan.items.iter().filter(|item| matches!(item, Item::Tile { .. })).count();
        let text = plan.items.iter().filter_map(|item| match item {
            Item::Text { line, .. } => Some(plain(line)),
            _ => None,
        });
        let text = text.collect::<String>();
        let named = |attachment: &&crate::node_networks::Attachment| text.contains(&attachment.name);
        let attachments = &view.networks[0].attachments;
        assert!(attachments.iter().filter(|it| !it.is_well()).all(|it| named(&it)), "{text}");
        assert_eq!(tiles + attachments.iter().filter(named).count(), pods, "{text}");
        assert!(text.contains("node-1  2 networks") && text.contains("way out  IPv4 by 192.168.1.1 on ens3"), "{text}");
        assert!(plan.height < 2_000, "{pods} pods fit two screens: {}", plan.height);
    }
}

#[test]
fn graphviz_gets_a_box_for_each() {
    expect![[r#"
        graph cni {
          rankdir=LR;
          node [shape=box, fontname=monospace];
          n0 [label="node-1  1 network, 2 attachments  1 live  1\lgone\lIPv4 by 192.168.1.1 on ens3\l", color=gray40];
          n1 [label="office  bridge, portmap\l/etc/cni/net.d/10-office.conflist\l10.7.0.1 - 10.7.0.254  ▏░░░░░░░░░░░░░░░░░░░\l2 used, 251 free\lfd00::1 - fd00::a  ██████████████████░░  9\lused, 1 free\l10.8.0.1 - 10.8.0.2  ████████████████████  2\lused, 0 free\l10.7.0.9 reserved by hand\l", color=gray40];
          n0 -- n1;
          n2 [label="bridge cni0  up  10.7.0.1/24, mtu 1500, 2\lports\l", color=green4];
          n1 -- n2;
          n3 [label="web  eth0  10.7.0.2  lives  3h\lnamespace /run/netns/web\llink veth1f2e3d4c on cni0\lport 8080/tcp of the node to port 80\lat most 1 Mbit/s to the container\lat most 8 bit/s from the container\liptables masquerade of 10.7.0.2\l", color=green4];
          n2 -- n3;
          n4 [label="cnitool-82e215debf7df4651d36  eth0  10.7.0.3\lfd00:1234:5678:9abc:def0:1234:5678:9abc\lgone\lnot in this cache: another runtime's\lmade by the reference or another plugin: no\lmark\l", color=red3];
          n2 -- n4;
          n5 [label="link veth00000000 (no container was found\lthat uses it)\l", color=orange3];
          n1 -- n5;
        }
    "#]].assert_eq(&dot::dot(&view(vec![full()])));
}

#[test]
fn names_are_no_markup_in_any_format() {
    let view = hostile();
    let (svg, html) = (svg::svg(&plan(&view, 800), &view.title()), html::html(&view));
    let parsed = roxmltree::Document::parse(&svg).unwrap();
    let elements = ["svg", "title", "style", "line", "rect", "text", "tspan"];
    assert!(
        parsed.descendants().filter(|node| node.is_element()).all(|node| elements.contains(&node.tag_name().name()))
    );
    for text in [&svg, &html] {
        assert!(!text.contains("<script>alert") && text.contains("&lt;script&gt;"));
        assert!(!text.contains('\u{202e}') && !text.contains('\u{1b}'));
    }
    let dot = dot::dot(&view);
    let boxes = dot.lines().filter(|line| line.contains("[label=")).count();
    // Each quote that ends no label is escaped.
    let quotes = dot.replace("\\\\", "").replace("\\\"", "").matches('"').count();
    assert_eq!((quotes, boxes), (2 * boxes, 6), "{dot}");
}

#[test]
fn the_page_needs_no_network_and_has_each_attachment() {
    let view = view(vec![full()]);
    let html = html::html(&view);
    // The name of the namespace of SVG is the only address.
    assert_eq!(html.matches("http").count(), html.matches("xmlns=\"http").count(), "{html}");
    for words in ["<span title=\"web\">web</span>", "8080/tcp to 80", "1 Mbit/s in", "<span class=\"gone\">gone</span>"]
    {
        assert!(html.contains(words), "{words}: {html}");
    }
}

#[test]
fn the_page_has_faults_first_and_in_words() {
    let mut network = full();
    network.faults = vec!["no rule masquerades packets".to_owned()];
    let mut sick = network.attachments[0].clone();
    (sick.name, sick.faults) = ("zebra".to_owned(), vec!["link veth1 is down".to_owned()]);
    network.attachments.push(sick);
    let html = html::html(&view(vec![network]));
    let tables = &html[html.find("<h2>office").unwrap()..];
    let at = |words: &str| tables.find(words).unwrap_or_else(|| panic!("{words}: {tables}"));
    assert!(at("<p class=\"bad\">no rule masquerades packets</p>") < at("<table>"));
    assert!(at(">zebra<") < at("<div class=\"bad\">link veth1 is down</div>"));
    assert!(at("link veth1 is down") < at(">web<"));
}
