//! Tables of what happens to a node, and of what doctor finds then.

/// The kind of a finding, with the exit code of doctor, a text of the finding, and whether its remedy is commands that mend it.
pub(super) type Expected<'a> = (&'a str, i32, &'a str, bool);

pub(super) const WARNING: i32 = 3;
pub(super) const ERROR: i32 = 4;

/// The cases of a table. A case is lines for a shell, in which `A` begins the addresses of the network, and a line for each finding:
/// `=> LEVEL KIND, mended: TEXT`, without `, mended` where the remedy is no commands that mend it; `=> nothing` where there is no
/// finding. Lines that begin with `#` are comments.
pub(super) fn cases(table: &str) -> Vec<String> {
    let is_finding = |line: &str| line.starts_with("=> ");
    let lines: Vec<&str> = table.trim().lines().filter(|line| !line.starts_with("# ")).collect();
    lines.chunk_by(|line, next| !is_finding(line) || is_finding(next)).map(|case| case.join("\n")).collect()
}

/// The script of a case, and the findings.
pub(super) fn parse(case: &str) -> (&str, Vec<Expected<'_>>) {
    let (script, findings) = case.split_once("\n=> ").unwrap();
    (script, findings.split("\n=> ").filter_map(finding).collect())
}

fn finding(line: &str) -> Option<Expected<'_>> {
    if line == "nothing" {
        return None;
    }
    let (head, text) = line.split_once(": ").unwrap();
    let (level, kind) = head.split_once(' ').unwrap();
    let code = match level {
        "error" => ERROR,
        "warning" => WARNING,
        "note" => 0,
        _ => panic!("{line}"),
    };
    Some(kind.strip_suffix(", mended").map_or((kind, code, text, false), |kind| (kind, code, text, true)))
}
