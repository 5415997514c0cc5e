//! Growth: a panel for each dimension, ADD as a line and DEL as a dashed one.

use super::super::{Growth, Report};
use super::{Axis, Drawing, label, ordered};

const WIDTH: f64 = 860.0;
const TOP: f64 = 84.0;
const PANEL: (f64, f64) = (430.0, 250.0);
/// Of a panel: left, right, top, bottom of what is drawn in it.
const INSIDE: (f64, f64, f64, f64) = (56.0, 405.0, 34.0, 208.0);
const VERBS: [(&str, &str); 2] = [("ADD", "line"), ("DEL", "line dashed")];

pub(super) fn chart(report: &Report) -> Option<String> {
    let mut dimensions: Vec<&str> = report.growth.iter().map(|point| point.dimension.as_str()).collect();
    dimensions.dedup();
    let subjects = ordered(report.growth.iter().map(|point| point.subject.as_str()));
    if dimensions.is_empty() {
        return None;
    }
    let mut drawing =
        Drawing::of(report, "Growth: median of ADD (line) and DEL (dashed) in ms (logarithmic), by size", &subjects);
    for (index, dimension) in dimensions.iter().enumerate() {
        let points: Vec<_> = report.growth.iter().filter(|point| point.dimension == *dimension).collect();
        let (column, row) = (index % 2, index / 2);
        let place = (column as f64 * PANEL.0, TOP + row as f64 * PANEL.1);
        panel(&mut drawing, place, dimension, &points, &subjects);
    }
    let height = TOP + dimensions.len().div_ceil(2) as f64 * PANEL.1;
    Some(drawing.finish(WIDTH, height, "What a call takes while something on the node grows, by subject"))
}

fn panel(drawing: &mut Drawing, (x, y): (f64, f64), dimension: &str, points: &[&Growth], subjects: &[&str]) {
    let (left, right, top, bottom) = (x + INSIDE.0, x + INSIDE.1, y + INSIDE.2, y + INSIDE.3);
    let mut sizes: Vec<_> = points.iter().map(|point| point.size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let medians = points.iter().filter_map(|point| Some(point.outcome.figures()?.wall_ms.p50));
    let axis = Axis::over(medians, bottom, top);
    let across = |size: usize| {
        let place = sizes.iter().position(|other| *other == size).unwrap_or_default();
        left + 14.0 + (right - left - 28.0) * place as f64 / (sizes.len().max(2) - 1) as f64
    };
    drawing.text(left, y + 20.0, "start", "title", &title(dimension, points));
    for mark in axis.marks() {
        drawing.line("grid", (left, axis.at(mark)), (right, axis.at(mark)));
        drawing.text(left - 8.0, axis.at(mark) + 4.0, "end", "note", &label(mark));
    }
    for size in &sizes {
        drawing.text(across(*size), bottom + 18.0, "middle", "note", &thousands(*size));
    }
    for (subject, name) in subjects.iter().enumerate() {
        for (verb, class) in VERBS {
            let line: Vec<_> = points.iter().filter(|point| point.subject == *name && point.verb == verb).collect();
            let line: Vec<_> =
                line.iter().filter_map(|point| Some((point.size, point.outcome.figures()?.wall_ms))).collect();
            let path: Vec<_> =
                line.iter().map(|(size, wall)| format!("{:.1},{:.1}", across(*size), axis.at(wall.p50))).collect();
            drawing.push(format_args!(r#"<polyline class="{class} c{}" points="{}"/>"#, subject % 8, path.join(" ")));
            for (size, wall) in line {
                let about = format!("{name} {verb} at {size}: p50 {} ms, p99 {} ms", label(wall.p50), label(wall.p99));
                drawing.mark(subject, (across(size), axis.at(wall.p50)), &about);
            }
        }
    }
}

fn title(dimension: &str, points: &[&Growth]) -> String {
    let scene = points.first().map_or("", |point| point.scene.as_str());
    let what = match dimension {
        "reservations" => "reservations in the store",
        "pods" => "pods on the bridge",
        "rules" => "nftables rules of others",
        "links" => "links on the host",
        _ => "links, and 500 a second come and go",
    };
    format!("{scene}: {what}")
}

fn thousands(number: usize) -> String {
    match number {
        0..1_000 => number.to_string(),
        _ => format!("{},{:03}", number / 1_000, number % 1_000),
    }
}
