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

/// The functions of the scripts: a reservation that is an hour old, a container that is gone without DEL, and a plugin behind the
/// network's.
pub(super) const FUNCTIONS: &str = r#"
cnitool() { $RUNTIME $CNI_PATH/cnitool "$@"; }
PATH=$CNI_PATH:$PATH conf=/etc/cni/net.d store=/var/lib/cni/networks/office results=/var/lib/cni/results
old() { printf "$2" > $store/$1; touch -d '1 hour ago' $store/$1; }
lose() { ip netns add gone; cnitool add office /run/netns/gone --container-id gone > /dev/null
    touch -d '1 hour ago' $store/A.3; ip netns del gone; }
chain() { sed -i 's/]}$/,{"type":"'$1'"}]}/' $conf/10-office.conflist; }
"#;

/// The findings that `--fix` mends.
pub(super) const LEFT_OVER: &str = include_str!("tables/left_over.txt");

/// What an operator has to decide on.
pub(super) const OTHERS: &str = include_str!("tables/left_to_an_operator.txt");
