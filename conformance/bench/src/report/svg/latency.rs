//! Calls one at a time: a line a call, a mark a subject at its median, and a line from there to its 99th percentile.

use super::super::{Report, Row};
use super::{Axis, Drawing, label, ordered};

const WIDTH: f64 = 860.0;
const LEFT: f64 = 150.0;
const RIGHT: f64 = 835.0;
const TOP: f64 = 84.0;
/// Of one subject in a line.
const STEP: f64 = 9.0;
const PADDING: f64 = 8.0;

pub(super) fn chart(report: &Report) -> Option<String> {
    let measured: Vec<_> = report.rows.iter().filter_map(|row| Some((row, row.outcome.figures()?.wall_ms))).collect();
    let subjects = ordered(measured.iter().map(|(row, _)| row.subject.as_str()));
    let axis = Axis::over(measured.iter().flat_map(|(_, wall)| [wall.p50, wall.p99]), LEFT, RIGHT);
    let mut calls: Vec<(&Row, Vec<_>)> = Vec::new();
    for (row, wall) in &measured {
        match calls.iter_mut().find(|(first, _)| (&first.scene, &first.verb) == (&row.scene, &row.verb)) {
            Some((_, lines)) => lines.push((*row, *wall)),
            None => calls.push((row, vec![(*row, *wall)])),
        }
    }
    let bottom = TOP + calls.iter().map(|(_, lines)| height(lines.len())).sum::<f64>();
    if calls.is_empty() {
        return None;
    }

    let mut drawing =
        Drawing::of(report, "One call: median, and a line to the 99th percentile, in ms (logarithmic)", &subjects);
    let mut y = TOP;
    for (index, (_, lines)) in calls.iter().enumerate() {
        let height = height(lines.len());
        if index % 2 == 0 {
            drawing.push(format_args!(
                r#"<rect class="band" x="12" y="{y:.1}" width="{:.1}" height="{height:.1}"/>"#,
                WIDTH - 24.0
            ));
        }
        y += height;
    }
    for mark in axis.marks() {
        let x = axis.at(mark);
        drawing.line("grid", (x, TOP), (x, bottom));
        drawing.text(x, bottom + 16.0, "middle", "note", &label(mark));
    }
    let mut y = TOP;
    for (first, lines) in &calls {
        drawing.text(
            20.0,
            y + height(lines.len()) / 2.0 + 4.0,
            "start",
            "",
            &format!("{} {}", first.scene, first.verb),
        );
        let mut middle = y + PADDING + STEP / 2.0;
        for (subject, name) in subjects.iter().enumerate() {
            let Some((_, wall)) = lines.iter().find(|(row, _)| row.subject == *name) else {
                continue;
            };
            let about = format!("{name}: p50 {} ms, p90 {}, p99 {}", label(wall.p50), label(wall.p90), label(wall.p99));
            drawing.line(&format!("range c{}", subject % 8), (axis.at(wall.p50), middle), (axis.at(wall.p99), middle));
            drawing.mark(subject, (axis.at(wall.p50), middle), &about);
            middle += STEP;
        }
        y += height(lines.len());
    }
    Some(drawing.finish(WIDTH, bottom + 30.0, "What one call of a plugin takes, by subject"))
}

fn height(subjects: usize) -> f64 {
    subjects as f64 * STEP + 2.0 * PADDING
}
