//! What `cnitool doctor` says to do works as it is printed: a remedy that begins with a capital letter is a sentence, any other
//! is a line for a shell.

use super::doctor::{LEFT_OVER, OTHERS, Ward};
use serde_json::Value;

/// Kinds whose remedies only show more, or whose cause is elsewhere.
const SHOWING: [&str; 3] = ["config", "not-ready", "range-full"];

fn commands(findings: &[Value]) -> Vec<(&str, &str)> {
    let all = findings.iter().filter_map(|one| Some((one["kind"].as_str()?, one["remedy"].as_str()?)));
    all.filter(|(_, remedy)| remedy.starts_with(|first: char| first.is_ascii_lowercase())).collect()
}

#[test]
fn each_command_runs_as_it_is_printed_and_mends_what_it_is_for() {
    let mut count = 0;
    for damage in LEFT_OVER.into_iter().chain(OTHERS) {
        if damage.2 == "two-rulesets" {
            continue;
        }
        let ward = Ward::new();
        damage.1(&ward);
        let (_, findings) = ward.doctor(&[]);
        for (kind, command) in commands(&findings) {
            let done = ward.tour.shell(command);
            let is_showing = SHOWING.contains(&kind);
            // 2: wrong words; 126 and 127: no program. What shows an error ends with status 1.
            let is_right = |code: i32| code == 0 || is_showing && code == 1;
            assert!(done.status.code().is_some_and(is_right), "{}: {command}: {done:?}", damage.0);
            count += 1;
            if !is_showing {
                let (_, findings) = ward.doctor(&[]);
                assert!(
                    !findings.iter().any(|finding| finding["kind"] == kind),
                    "{}: {command}: {findings:#?}",
                    damage.0
                );
            }
        }
    }
    assert!(count > 10, "{count}");
}
