//! Charts, written by hand: an SVG that is as readable in the dark as in the light, without a script or a font of its own.

mod growth;
mod latency;

use std::fmt::Display;
use std::fs;
use std::path::Path;

use super::{Report, table::machine_line};
use quick_xml::escape::escape;

/// Colours by the reader's scheme. Subjects differ in shape too, for readers who see no colours, and for print.
const STYLE: &str = "\
text{font:12px system-ui,sans-serif;fill:#24292f}\
.title{font-size:15px;font-weight:600}.note{fill:#57606a}.value{font-size:11px}\
.grid{stroke:#d0d7de;stroke-width:1}.band{fill:#f6f8fa}.paper{fill:#fff}\
.c0{color:#0550ae}.c1{color:#bc4c00}.c2{color:#6e7781}.c3{color:#1a7f37}.c4{color:#8250df}.c5{color:#9a6700}.c6{color:#bf3989}.c7{color:#24292f}\
.mark{fill:currentColor;stroke:currentColor}.hollow{fill:none;stroke:currentColor;stroke-width:1.5}\
.line{fill:none;stroke:currentColor;stroke-width:1.5}.range{stroke:currentColor;stroke-width:1.5;opacity:.55}.dashed{stroke-dasharray:5 4}\
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#9198a1}.grid{stroke:#30363d}.band{fill:#161b22}.paper{fill:#0d1117}\
.c0{color:#58a6ff}.c1{color:#f0883e}.c2{color:#9198a1}.c3{color:#3fb950}.c4{color:#bc8cff}.c5{color:#d29922}.c6{color:#f778ba}.c7{color:#e6edf3}}";

/// Writes `latency.svg` and `growth.svg`, each if there is something to draw.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write_charts(report: &Report, folder: &Path) -> Result<(), String> {
    let charts = [("latency.svg", latency::chart(report)), ("growth.svg", growth::chart(report))];
    for (name, chart) in charts {
        let file = folder.join(name);
        if let Some(chart) = chart {
            fs::write(&file, chart).map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        }
    }
    Ok(())
}

/// A drawing that grows.
struct Drawing {
    body: String,
}

/// A range of milliseconds on a logarithmic axis, in pixels.
#[derive(Clone, Copy)]
struct Axis {
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Drawing {
    /// With what every chart has on top: its title, what the figures were made on, and which mark is whose.
    fn of(report: &Report, title: &str, subjects: &[&str]) -> Self {
        let mut drawing = Self { body: String::new() };
        drawing.text(20.0, 26.0, "start", "title", title);
        // Date, kernel and machine only: the command has its place in the README.
        let made = machine_line(report);
        drawing.text(20.0, 44.0, "start", "note", made.split(';').next().unwrap_or_default());
        drawing.legend(26.0, 66.0, subjects);
        drawing
    }

    fn push(&mut self, element: impl Display) {
        self.body.push_str(&format!("{element}\n"));
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let text = escape(text);
        self.push(format_args!(r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{text}</text>"#));
    }

    fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        self.push(format_args!(r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#));
    }

    /// The mark of a subject: its shape and colour, with a text that shows when pointed at.
    fn mark(&mut self, subject: usize, (x, y): (f64, f64), about: &str) {
        let colour = subject % 8;
        let path = match subject % 4 {
            0 => format!("M{:.1} {y:.1}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", x - 4.0),
            1 => format!("M{:.1} {:.1}h7v7h-7z", x - 3.5, y - 3.5),
            2 => format!("M{x:.1} {:.1}l4.5 4.5l-4.5 4.5l-4.5 -4.5z", y - 4.5),
            _ => format!("M{x:.1} {:.1}l4.5 8h-9z", y - 4.5),
        };
        let class = if subject >= 4 { "hollow" } else { "mark" };
        let about = escape(about);
        self.push(format_args!(r#"<path class="{class} c{colour}" d="{path}"><title>{about}</title></path>"#));
    }

    /// The names of subjects with their marks, in one line.
    fn legend(&mut self, x: f64, y: f64, subjects: &[&str]) {
        let mut x = x;
        for (subject, name) in subjects.iter().enumerate() {
            self.mark(subject, (x, y - 4.0), name);
            self.text(x + 9.0, y, "start", "", name);
            x += 28.0 + 7.0 * name.chars().count() as f64;
        }
    }

    fn finish(self, width: f64, height: f64, about: &str) -> String {
        format!(
            concat!(
                r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">"#,
                "\n<title>{about}</title>\n<style>{style}</style>\n",
                r#"<rect class="paper" width="{width}" height="{height}" rx="6"/>"#,
                "\n{body}</svg>\n"
            ),
            width = width,
            height = height,
            about = escape(about),
            style = STYLE,
            body = self.body
        )
    }
}

impl Axis {
    /// Returns an axis that has room for all of these.
    fn over(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (least, most) =
            values.fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
        Self { least: least.max(0.01) / 1.2, most: most.max(0.02) * 1.2, from, to }
    }

    fn at(&self, value: f64) -> f64 {
        let share = (value.max(self.least) / self.least).ln() / (self.most / self.least).ln();
        self.from + share * (self.to - self.from)
    }

    /// Round numbers to draw lines at.
    fn marks(&self) -> Vec<f64> {
        let all = (-2..5).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power)));
        all.filter(|value| (self.least..=self.most).contains(value)).collect()
    }
}

/// Subjects in the order in which they are drawn: ours first, then the reference.
fn ordered<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut all: Vec<&str> = Vec::new();
    names.for_each(|name| {
        if !all.contains(&name) {
            all.push(name);
        }
    });
    let place = |name: &str| {
        ["ours", "reference", "floor", "floor, waits"].iter().position(|known| *known == name).unwrap_or(4)
    };
    all.sort_by_key(|name| place(name));
    all
}

/// Milliseconds without needless zeros.
fn label(value: f64) -> String {
    format!("{value:.2}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::{Axis, growth, latency};

    fn marks(chart: &str) -> Vec<String> {
        let document = roxmltree::Document::parse(chart).unwrap();
        let titles = document
            .descendants()
            .filter(|node| node.has_tag_name("title") && node.parent().is_some_and(|of| of.has_tag_name("path")));
        titles.filter_map(|title| title.text().map(str::to_owned)).collect()
    }

    #[test]
    fn a_chart_is_xml_with_a_mark_for_each_that_was_measured() {
        let latency = marks(&latency::chart(&made_up::report()).unwrap());
        // Three names in the legend; of the rows, all but the one that failed.
        assert_eq!(latency.len(), 3 + 4, "{latency:?}");
        assert!(latency.contains(&"ours: p50 3 ms, p90 9, p99 9".to_owned()), "{latency:?}");
        let growth = marks(&growth::chart(&made_up::report()).unwrap());
        assert_eq!(growth.len(), 1 + 4, "{growth:?}");
        assert!(growth.contains(&"ours ADD at 1000: p50 6 ms, p99 18 ms".to_owned()), "{growth:?}");
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        let mut report = made_up::report();
        report.rows.clear();
        report.growth.clear();
        assert_eq!((latency::chart(&report), growth::chart(&report)), (None, None));
    }

    #[test]
    fn an_axis_is_logarithmic() {
        let axis = Axis { least: 1.0, most: 100.0, from: 0.0, to: 200.0 };
        let places = [0.5, 1.0, 10.0, 100.0].map(|value| axis.at(value).round());
        assert_eq!(places, [0.0, 0.0, 100.0, 200.0]);
        assert_eq!(axis.marks(), [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
    }
}
