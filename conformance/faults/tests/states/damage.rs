//! The faults that are drawn.

/// The pods' subnet, without its last byte.
pub(crate) const SUBNET: &str = "10.209.7";

#[derive(Debug)]
pub(crate) struct Damage {
    pub(crate) name: &'static str,
    /// The place of the damage: of several damages with one place, a node gets one.
    pub(crate) place: &'static str,
    pub(crate) script: &'static str,
    /// The kind of the finding, and a text of it.
    pub(crate) kind: &'static str,
    pub(crate) text: &'static str,
}

/// Faults that undo others, so that nothing of these is left to be found: the place of those, and the name of the one.
pub(crate) const UNDOING: [(&str, &str); 4] = [
    ("policy", "flushed rules of all tables"),
    ("table", "flushed rules of all tables"),
    // The setting of all links covers that of one.
    ("forwarding", "no forwarding of the bridge"),
    ("arp", "a bridge that is gone"),
];

pub(crate) fn damages() -> Vec<Damage> {
    TABLE.split("== ").skip(1).map(|fault| parse(fault).expect(fault)).collect()
}

fn parse(fault: &'static str) -> Option<Damage> {
    let (head, damage) = fault.split_once('\n')?;
    let (script, finding) = damage.trim_end().split_once("\n=> ")?;
    let ((place, name), (kind, text)) = (head.split_once(": ")?, finding.split_once(": ")?);
    Some(Damage { name, place, script, kind, text })
}

/// In the order in which they happen: a bridge that is gone takes settings and routes with it. A fault is its place and name, lines for
/// a shell, and the finding.
const TABLE: &str = include_str!("damages.txt");
