//! What stands above and below the matrix: a verdict for each subject, and how the run was made.

use super::{escaped, shape};
use crate::report::document::{Document, Origin, Who};
use crate::report::tally::{Column, LEVELS, Mark, Sum};
use crate::report::text::plural;
use crate::rule::Level;

pub(super) fn header(document: &Document) -> String {
    let cards: String = document.subjects.iter().map(|subject| card(document, subject)).collect();
    let about = document.runs.iter().map(|run| {
        format!(
            "<time datetime=\"{0}\">{1}</time>, Linux {2}",
            escaped(&run.began),
            day(&run.began),
            escaped(&run.kernel)
        )
    });
    let about = about.collect::<Vec<_>>().join("; ");
    format!(
        "<header>\n<h1>CNI conformance</h1>\n<p class=\"about\">{}, {}, {}. {about}.</p>\n<div class=\"cards\">\n{cards}</div>\n</header>\n",
        plural(document.subjects.len(), "subject"),
        plural(document.rules.len(), "rule"),
        plural(document.trials.len(), "trial"),
    )
}

fn day(began: &str) -> String {
    escaped(&began.replace('T', " ").replace(":00Z", " UTC").replace('Z', " UTC"))
}

fn card(document: &Document, subject: &Who) -> String {
    let column = Column { subject: subject.label.clone(), profile: None };
    let must = Sum::of(document, &column, Level::Must);
    let (mark, verdict) = match must {
        Sum { fail: 0, broken: 0, pass: 0, .. } => (Mark::Skip, "No required rule was tried".to_owned()),
        Sum { fail: 0, broken: 0, .. } => (Mark::Pass, "Keeps every required rule that was tried".to_owned()),
        Sum { fail: 0, broken, .. } => {
            (Mark::Broken, format!("{} could not be tried", plural(broken, "required rule")))
        }
        Sum { fail, .. } => (Mark::Fail, format!("Breaks {}", plural(fail, "required rule"))),
    };
    let rows: String = LEVELS
        .iter()
        .filter(|level| {
            **level != Level::Robustness && **level != Level::Stated
                || document.rules.iter().any(|rule| rule.level == **level)
        })
        .map(|level| row(*level, &Sum::of(document, &column, *level)))
        .collect();
    format!(
        "<section class=\"card\">\n<h2>{}</h2>\n<p class=\"verdict\">{}{verdict}</p>\n<table class=\"levels\">\n\
         <thead><tr><th scope=\"col\">Level</th><th scope=\"col\">Kept</th><th scope=\"col\"><span class=\"heard\">Share</span></th>\
         <th scope=\"col\">Broken</th><th scope=\"col\">No verdict</th></tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n</section>\n",
        escaped(&subject.label),
        shape(mark, ""),
    )
}

fn row(level: Level, sum: &Sum) -> String {
    let tried = sum.tried();
    let kept =
        if tried == 0 { "&#8211;".to_owned() } else { format!("{}<span class=\"of\"> of {tried}</span>", sum.pass) };
    let bar = |class: &str, count: usize| match count {
        0 => String::new(),
        _ => format!("<i class=\"{class}\" style=\"flex-grow:{count}\"></i>"),
    };
    let bars = [bar("pass", sum.pass), bar("fail", sum.fail), bar("broken", sum.broken)].concat();
    let mut bad = Vec::new();
    if sum.fail > 0 {
        bad.push(shape(Mark::Fail, &sum.fail.to_string()));
    }
    if sum.broken > 0 {
        bad.push(shape(Mark::Broken, &sum.broken.to_string()));
    }
    let none = || "<span class=\"none\">0</span>".to_owned();
    let bad = if bad.is_empty() { none() } else { bad.join(" ") };
    let rest = sum.skip + sum.untestable;
    let rest = if rest == 0 { none() } else { rest.to_string() };
    format!(
        "<tr><th scope=\"row\">{level}</th><td>{kept}</td><td><span class=\"bar\" aria-hidden=\"true\">{bars}</span></td>\
         <td>{bad}</td><td>{rest}</td></tr>\n"
    )
}

pub(super) fn footer(document: &Document) -> String {
    let runs: String = document.runs.iter().map(|run| about(document, run)).collect();
    format!("<footer id=\"runs\">\n<h2>How this was made</h2>\n{runs}</footer>\n")
}

fn about(document: &Document, run: &Origin) -> String {
    let folders = document.subjects.iter().filter(|subject| run.subjects.contains(&subject.label));
    let folders = folders.map(|subject| {
        let also: String = subject.also.iter().map(|dir| format!(", with <code>{}</code>", escaped(dir))).collect();
        format!("<dt>{}</dt><dd><code>{}</code>{also}</dd>\n", escaped(&subject.label), escaped(&subject.folder))
    });
    let folders: String = folders.collect();
    let seconds = std::time::Duration::from_millis(run.milliseconds).as_secs_f64();
    let words = run.command.iter().map(|word| crate::finding::quoted(word)).collect::<Vec<_>>().join(" ");
    let notes: String = run.notes.iter().map(|note| format!("<li>{}</li>\n", escaped(note))).collect();
    let notes = if notes.is_empty() { notes } else { format!("<ul class=\"notes\">\n{notes}</ul>\n") };
    let configs = document.profiles.iter().filter(|used| run.subjects.contains(&used.subject));
    let configs = configs.map(|used| {
        let text = serde_json::to_string(&used.plugins).unwrap_or_default();
        format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td><code>{}</code></td></tr>\n",
            escaped(&used.subject),
            escaped(&used.name),
            escaped(&text)
        )
    });
    let configs: String = configs.collect();
    format!(
        "<pre class=\"command\">cni-conformance {}</pre>\n<dl>\n{folders}<dt>Began</dt><dd>{}, took {seconds:.1} s</dd>\n\
         <dt>Kernel</dt><dd>{}</dd>\n<dt>Seed</dt><dd>{}</dd>\n<dt>Kit</dt><dd>cni-conformance {}</dd>\n</dl>\n{notes}\
         <details>\n<summary>Configs</summary>\n<div class=\"scroll\"><table class=\"configs\">\n\
         <thead><tr><th scope=\"col\">Subject</th><th scope=\"col\">Profile</th><th scope=\"col\">Plugins</th></tr></thead>\n\
         <tbody>\n{configs}</tbody>\n</table></div>\n</details>\n",
        escaped(&words),
        day(&run.began),
        escaped(&run.kernel),
        run.seed,
        escaped(&run.kit),
    )
}
