//! The matrix: rules by sections, a column for each subject, and what the eye can be narrowed to.

use super::{class, details, escaped, shape};
use crate::report::document::{Asked, Document, Tried};
use crate::report::tally::{Column, LEVELS, Mark, differs, profiles};
use std::collections::BTreeMap;

/// What is shown; it works by script, and is hidden without.
pub(super) fn filters(document: &Document) -> String {
    let levels = LEVELS.iter().filter(|level| document.rules.iter().any(|rule| rule.level == **level));
    let levels = levels.map(|level| {
        let key = key(*level);
        format!("<label class=\"chip\"><input type=\"checkbox\" name=\"level\" value=\"{key}\" checked=\"\"/> {level}</label>\n")
    });
    let levels: String = levels.collect();
    let names = profiles(document);
    let profiles: String = names.iter().map(|name| format!("<option>{}</option>", escaped(name))).collect();
    let profiles = match document.subjects.len() > 1 && names.len() > 1 {
        true => format!(
            "<label><span class=\"heard\">Profile</span><select name=\"profile\"><option value=\"\">All profiles</option>{profiles}</select></label>\n"
        ),
        false => String::new(),
    };
    let legend: String = Mark::ALL.iter().map(|mark| format!("<li>{}</li>", shape(*mark, mark.word()))).collect();
    format!(
        "<form class=\"filters\" id=\"filters\" role=\"search\">\n<label class=\"text\"><span class=\"heard\">Search rules and findings</span>\
         <input type=\"search\" name=\"text\" placeholder=\"Search rules and findings\" autocomplete=\"off\"/></label>\n\
         <fieldset><legend class=\"heard\">Level</legend>\n{levels}</fieldset>\n\
         <fieldset><legend class=\"heard\">Only</legend>\n\
         <label class=\"chip\"><input type=\"checkbox\" name=\"only\" value=\"failures\"/> Only failures</label>\n\
         <label class=\"chip\"><input type=\"checkbox\" name=\"only\" value=\"differences\"/> Only differences</label>\n</fieldset>\n\
         {profiles}</form>\n<div class=\"legend\"><ul aria-label=\"What the shapes mean\">{legend}</ul>\n\
         <output form=\"filters\" name=\"shown\" aria-live=\"polite\"></output></div>\n"
    )
}

fn key(level: crate::rule::Level) -> String {
    level.to_string().to_lowercase().replace(' ', "-")
}

/// So many narrow columns fit beside the rules on a wide screen.
const FITTING: usize = 21;

pub(super) fn matrix(document: &Document, columns: &[Column]) -> String {
    let heads: String = columns
        .iter()
        .map(|column| {
            let name = escaped(column.profile.as_ref().unwrap_or(&column.subject));
            format!("<th scope=\"col\" title=\"{name}\"><span>{name}</span></th>")
        })
        .collect();
    let mut sections: Vec<(&str, Vec<&Asked>)> = Vec::new();
    for rule in &document.rules {
        match sections.iter_mut().find(|(section, _)| *section == rule.section) {
            Some((_, rules)) => rules.push(rule),
            None => sections.push((&rule.section, vec![rule])),
        }
    }
    let wide = match columns.len() {
        ..=7 => "",
        8..=FITTING => " many fitting",
        _ => " many",
    };
    let all = columns.len() + 1;
    let bodies: String = sections
        .iter()
        .map(|(section, rules)| {
            let rows: String = rules.iter().map(|rule| row(document, rule, columns)).collect();
            let section = escaped(section);
            format!(
                "<tbody>\n<tr class=\"section\"><th colspan=\"{all}\" scope=\"rowgroup\"><span>{section}</span></th></tr>\n{rows}</tbody>\n"
            )
        })
        .collect();
    format!(
        "<div class=\"box\" tabindex=\"0\" role=\"region\" aria-label=\"Rules by subjects\">\n<table class=\"matrix{wide}\">\n\
         <thead><tr><th scope=\"col\">Rule</th>{heads}</tr></thead>\n{bodies}</table>\n</div>\n\
         <p class=\"nothing\" hidden=\"\">No rule is left: <button type=\"button\">show all</button></p>\n"
    )
}

fn row(document: &Document, rule: &Asked, columns: &[Column]) -> String {
    let id = escaped(&rule.id);
    let cells: String = columns.iter().map(|column| cell(document, rule, column)).collect();
    let level = rule.level;
    let differs = if differs(document, rule) { " data-differs=\"\"" } else { "" };
    let has_failed = columns.iter().any(|column| {
        let mark = Mark::of_all(column.trials(document, rule), rule);
        matches!(mark, Mark::Fail | Mark::Broken)
    });
    let bad = if has_failed { " bad" } else { "" };
    let key = key(level);
    format!(
        "<tr class=\"rule{bad}\" id=\"{id}\" data-level=\"{key}\"{differs}>\n<th scope=\"row\"><div>\
         <span class=\"name\"><button type=\"button\" aria-expanded=\"false\" aria-controls=\"more-{id}\">{}</button>\
         <a href=\"#{id}\" aria-label=\"Link to {id}\">#</a></span> <span class=\"level {key}\">{level}</span>\
         <span class=\"sentence\">{}</span></div></th>{cells}</tr>\n\
         <tr class=\"more\" id=\"more-{id}\"><td colspan=\"{}\"><div class=\"in\">\n{}</div></td></tr>\n",
        breakable(&id),
        escaped(&rule.sentence),
        columns.len() + 1,
        details::of(document, rule),
    )
}

/// A name that may be broken after its dot and dashes on a narrow screen.
fn breakable(id: &str) -> String {
    id.replace('.', ".<wbr/>").replace('-', "-<wbr/>")
}

fn cell(document: &Document, rule: &Asked, column: &Column) -> String {
    let trials = column.trials(document, rule);
    let mark = Mark::of_all(trials.iter().copied(), rule);
    let of_profile =
        |name: &str| -> Vec<&Tried> { trials.iter().copied().filter(|trial| trial.profile == name).collect() };
    // Of a subject's cell, how many profiles; of a profile's, how many trials.
    let marks: BTreeMap<&str, Mark> =
        trials.iter().map(|trial| (trial.profile.as_str(), Mark::of_all(of_profile(&trial.profile), rule))).collect();
    let (count, of) = match &column.profile {
        None => (marks.values().filter(|other| **other == mark).count(), marks.len()),
        Some(_) => (trials.iter().filter(|trial| Mark::of(trial) == mark).count(), trials.len()),
    };
    let words =
        if matches!(mark, Mark::Fail | Mark::Broken) && of > 1 { format!("{count}/{of}") } else { String::new() };
    let what = if column.profile.is_none() { "profiles" } else { "trials" };
    let title =
        if words.is_empty() { mark.word().to_owned() } else { format!("{}: {count} of {of} {what}", mark.word()) };
    let name = escaped(column.profile.as_ref().unwrap_or(&column.subject));
    let by_profile: Vec<_> = marks.iter().map(|(name, mark)| format!("{} {}", class(*mark), escaped(name))).collect();
    let by_profile = match column.profile {
        None => format!(" data-profiles=\"{}\"", by_profile.join(";")),
        Some(_) => String::new(),
    };
    format!("<td title=\"{name}: {title}\"{by_profile}>{}</td>", shape(mark, &words))
}
