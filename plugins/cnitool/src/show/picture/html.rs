//! The picture as one page of HTML that needs no network: the drawing, and tables of what is in it.

use std::fmt::Write;
use std::time::SystemTime;

use cni_suite::text::visible;

use super::layout::plan;
use super::svg;
use crate::node_networks::{Attachment, Limits, Maker, Network, View, word};
use crate::show::tree::{self, age_of, rate, rounded};

const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1f2328;--faint:#656d76;--line:#d0d7de;--good:#1a7f37;--warning:#9a6700;\
--bad:#cf222e}@media(prefers-color-scheme:dark){:root{--paper:#0d1117;--ink:#e6edf3;--faint:#8d96a0;--line:#30363d;\
--good:#3fb950;--warning:#d29922;--bad:#f85149}}\
body{margin:0 auto;padding:16px;max-width:1200px;background:var(--paper);color:var(--ink);\
font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}\
h1{font-size:1.4em;margin:0}h2{font-size:1.15em;margin:2em 0 0}p{margin:.25em 0;color:var(--faint)}\
.picture{margin:16px 0;border:1px solid var(--line);border-radius:6px}.picture svg{display:block;max-width:100%;height:auto}\
.narrow{display:none}@media(max-width:700px){.wide{display:none}.narrow{display:block}}\
input{font:inherit;width:100%;max-width:24em;box-sizing:border-box;padding:6px 10px;border:1px solid var(--line);\
border-radius:6px;background:var(--paper);color:var(--ink)}tr[hidden]{display:none!important}\
table{border-collapse:collapse;width:100%;margin:12px 0;font-size:.93em}\
th,td{text-align:left;vertical-align:top;padding:6px 10px;border-bottom:1px solid var(--line)}\
th{color:var(--faint);font-weight:600;white-space:nowrap}td{overflow-wrap:break-word}\
td:first-child,td:last-child{overflow-wrap:anywhere}td:last-child{min-width:9em}td:empty::after{content:'-';color:var(--faint)}\
td div+div{margin-top:2px}meter{width:8em}\
.lives,.young{color:var(--good)}.unknown{color:var(--warning)}.gone,.bad{color:var(--bad)}.gone{font-weight:600}td .bad{max-width:22em}\
@media(max-width:700px){thead{display:none}table,tbody,tr,td{display:block}tr{padding:8px 0;border-bottom:1px solid var(--line)}\
td{border:0;padding:2px 0 2px 7.5em;position:relative;min-height:1.5em}\
td::before{content:attr(data-label);position:absolute;left:0;width:7em;color:var(--faint)}}";

/// Hides the rows that do not contain what is typed.
const FILTER: &str = "\
document.querySelector('#filter').addEventListener('input',function(event){var words=event.target.value.toLowerCase();\
document.querySelectorAll('tbody tr').forEach(function(row){row.hidden=!row.textContent.toLowerCase().includes(words)})})";

/// Pixels of the plan on a screen of 1280 and on one of 390.
const WIDE: usize = 1196;
const NARROW: usize = 356;

pub(crate) fn html(view: &View) -> String {
    let host = if view.host.is_empty() { String::new() } else { format!(" of {}", shown(&view.host)) };
    let title = format!("Container networks{host}");
    let summary: Vec<String> = tree::summary(view).line.iter().skip(1).map(|part| shown(&part.text)).collect();
    let picture = |class: &str, width| {
        format!("<div class=\"picture {class}\">\n{}</div>\n", svg::svg(&plan(view, width), &view.title()))
    };
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n<p>{}, {}</p>\n{}{}\
         <input id=\"filter\" type=\"search\" placeholder=\"Filter the tables\" aria-label=\"Filter the tables\">\n",
        summary.join(", "),
        humantime::format_rfc3339_seconds(view.at),
        picture("wide", WIDE),
        picture("narrow", NARROW),
    );
    for network in &view.networks {
        write_network(network, view.at, &mut text);
    }
    for (title, items) in view.rest() {
        let items: String = items.iter().map(|item| format!("<li>{}</li>\n", shown(item))).collect();
        // Writing to a String cannot fail; so below.
        let _infallible = write!(text, "<h2>{title}</h2>\n<ul>\n{items}</ul>\n");
    }
    text + &format!("<script>{FILTER}</script>\n</body>\n</html>\n")
}

fn write_network(network: &Network, at: SystemTime, text: &mut String) {
    let origin = network.origin_text();
    let plugins = network.plugins.join(", ");
    let _infallible =
        write!(text, "<h2>{}</h2>\n<p>{}</p>\n<p>{}</p>\n", shown(&network.name), shown(&plugins), shown(&origin));
    for fault in &network.faults {
        let _infallible = writeln!(text, "<p class=\"bad\">{}</p>", shown(fault));
    }
    let mut ranges = Table::new(&["range", "reserved", "free", ""]);
    for range in &network.ranges {
        let free = range.total.saturating_sub(range.used);
        let meter = format!("<meter max=\"{}\" value=\"{}\"></meter>", range.total, range.used);
        let name = shown(&format!("{} - {}", range.first, range.last));
        ranges.row([name, rounded(range.used), rounded(free), meter]);
    }
    ranges.write(text);
    let mut attachments = Table::new(&[
        "container",
        "interface",
        "addresses",
        "host ports",
        "limits",
        "state",
        "age",
        "maker",
        "namespace",
    ]);
    let (well, sick): (Vec<_>, Vec<_>) = network.attachments.iter().partition(|attachment| attachment.is_well());
    sick.into_iter().chain(well).for_each(|attachment| attachments.row(cells(attachment, at)));
    attachments.write(text);
    let mut rest = Table::new(&["without an attachment"]);
    network.by_hand.iter().for_each(|address| rest.row([format!("{address} is reserved by hand")]));
    network.unreadable.iter().for_each(|address| rest.row([format!("{address} is reserved, its owner unknown")]));
    network.nameless.iter().for_each(|object| rest.row([shown(object)]));
    rest.write(text);
}

fn cells(attachment: &Attachment, at: SystemTime) -> [String; 9] {
    let lines = |mut lines: Vec<String>| {
        // A port is forwarded once in each family.
        lines.dedup();
        lines.iter().map(|line| format!("<div>{}</div>", shown(line))).collect::<String>()
    };
    let port = |forward: &crate::node_networks::Forward| {
        let node = forward.address.map_or(String::new(), |address| format!("{address} "));
        format!("{node}{}/{} to {}", forward.port, forward.protocol.name(), forward.to.port())
    };
    let Limits { to_bytes, from_bytes } = attachment.limits;
    let limit = |(bytes, direction): (Option<u64>, &str)| Some(format!("{} {direction}", rate(bytes?)));
    let age = attachment.since.and_then(|since| at.duration_since(since).ok()).map(|age| age_of(age.as_secs()));
    let maker = match attachment.maker {
        Maker::ThisSuite => "this suite",
        Maker::Reference => "the reference or another plugin",
        Maker::Unknown => "unknown",
    };
    let life = word(attachment.life);
    let unfinished = (attachment.is_complete == Some(false)).then_some("its ADD was not finished");
    let faults = attachment.faults.iter().map(String::as_str).chain(unfinished);
    let faults: String = faults.map(|fault| format!("<div class=\"bad\">{}</div>", shown(fault))).collect();
    [
        container(attachment),
        shown(attachment.id.ifname.as_str()),
        lines(attachment.addresses.iter().map(ToString::to_string).collect()),
        lines(attachment.ports.iter().map(port).collect()),
        lines([(to_bytes, "in"), (from_bytes, "out")].into_iter().filter_map(limit).collect()),
        format!("<span class=\"{life}\">{life}</span>{faults}"),
        age.unwrap_or_default(),
        maker.to_owned(),
        shown(&attachment.netns),
    ]
}

/// The container's name, with the whole ID for a reader's pointer.
fn container(attachment: &Attachment) -> String {
    format!("<span title=\"{}\">{}</span>", shown(attachment.id.container_id.as_str()), shown(&attachment.name))
}

/// Text that is no markup, and in which nothing changes the direction of writing.
fn shown(text: &str) -> String {
    svg::escaped(&visible(text))
}

/// A table; on a phone, each row is a list of its cells with their titles.
struct Table {
    titles: &'static [&'static str],
    rows: String,
}

impl Table {
    fn new(titles: &'static [&'static str]) -> Self {
        Self { titles, rows: String::new() }
    }

    fn row<const N: usize>(&mut self, cells: [String; N]) {
        let cells =
            self.titles.iter().zip(cells).map(|(title, cell)| format!("<td data-label=\"{title}\">{cell}</td>"));
        let _infallible = writeln!(self.rows, "<tr>{}</tr>", cells.collect::<String>());
    }

    fn write(self, text: &mut String) {
        if self.rows.is_empty() {
            return;
        }
        let titles: String = self.titles.iter().map(|title| format!("<th>{title}</th>")).collect();
        let rows = self.rows;
        let _infallible =
            write!(text, "<table>\n<thead><tr>{titles}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n");
    }
}
