//! The record of a call, as keys with texts: the same keys in the journal, in a file and on stderr.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde_json::{Map, Value};

/// The longest of the texts that come from outside, in bytes: names may be of any length where the call is refused for it.
const NAME_BYTES_MAX: usize = 256;
/// The longest error text.
const ERROR_BYTES_MAX: usize = 1024;
/// The most that all steps together take. With it a record is below 8 KB even if each byte needs an escape.
const STEPS_BYTES_MAX: usize = 2048;
/// The longest text of one step.
const STEP_BYTES_MAX: usize = 160;
/// Addresses of a result that are kept.
const ADDRESSES_MAX: usize = 16;

/// The variable that a caller which writes a record sets for the plugins that it calls: [`Record::begin_us`] of its own.
pub const WITHIN: &str = "CNI_LOG_WITHIN";

/// The side that has written a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum By {
    /// A plugin, about its own call.
    #[default]
    Plugin,
    /// A runtime, about an operation: its steps are the calls of plugins.
    Runtime,
}

/// A part of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Step {
    /// The name of the step.
    pub what: String,
    /// The duration, in microseconds.
    pub us: u64,
}

/// The record of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    /// The side that has written it.
    pub by: By,
    /// When the call began, in microseconds since 1970.
    pub begin_us: u64,
    /// The call is part of another, whose record has this `begin_us`: an operation of a runtime, or a plugin's call that
    /// delegates.
    pub within_us: Option<u64>,
    /// `CNI_COMMAND`, or the name of the operation.
    pub verb: String,
    /// The network; empty if the call did not get as far as its name.
    pub network: String,
    /// The container; empty for verbs that concern none.
    pub container: String,
    /// The container's interface.
    pub ifname: String,
    /// The plugin; empty for a runtime's record.
    pub plugin: String,
    /// The duration, in microseconds.
    pub duration_us: u64,
    /// The parts of the call, in order.
    pub steps: Vec<Step>,
    /// The addresses of the result.
    pub addresses: Vec<String>,
    /// Code and message of the error.
    pub error: Option<(u32, String)>,
    /// The trace context of the call (W3C, `traceparent`).
    pub traceparent: Option<String>,
}

impl Record {
    /// Whether the call failed.
    pub fn has_failed(&self) -> bool {
        self.error.is_some()
    }

    /// The record as keys with texts, bounded and without control characters other than line feeds; none is empty.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let traceparent = self.traceparent.as_deref().unwrap_or_default();
        let (code, error) = self.error.as_ref().map_or((String::new(), ""), |(code, msg)| (code.to_string(), msg));
        let within = self.within_us.map(|us| us.to_string()).unwrap_or_default();
        let has_failed = self.has_failed();
        let by = match self.by {
            By::Plugin => "plugin",
            By::Runtime => "runtime",
        };
        let texts = [
            ("MESSAGE", &*self.sentence(), 2 * ERROR_BYTES_MAX),
            ("PRIORITY", if has_failed { "3" } else { "6" }, NAME_BYTES_MAX),
            ("SYSLOG_IDENTIFIER", "cni", NAME_BYTES_MAX),
            ("CNI_BY", by, NAME_BYTES_MAX),
            ("CNI_BEGIN_US", &self.begin_us.to_string(), NAME_BYTES_MAX),
            ("CNI_WITHIN_US", &within, NAME_BYTES_MAX),
            ("CNI_VERB", &self.verb, NAME_BYTES_MAX),
            ("CNI_NETWORK", &self.network, NAME_BYTES_MAX),
            ("CNI_CONTAINERID", &self.container, NAME_BYTES_MAX),
            ("CNI_IFNAME", &self.ifname, NAME_BYTES_MAX),
            ("CNI_PLUGIN", &self.plugin, NAME_BYTES_MAX),
            ("CNI_DURATION_US", &self.duration_us.to_string(), NAME_BYTES_MAX),
            ("CNI_STEPS", &self.step_lines(), 2 * STEPS_BYTES_MAX),
            ("CNI_RESULT", if has_failed { "error" } else { "ok" }, NAME_BYTES_MAX),
            ("CNI_ADDRESSES", &self.shown_addresses(), ERROR_BYTES_MAX),
            ("CNI_ERROR_CODE", &code, NAME_BYTES_MAX),
            ("CNI_ERROR", error, ERROR_BYTES_MAX),
            ("TRACEPARENT", if is_traceparent(traceparent) { traceparent } else { "" }, NAME_BYTES_MAX),
        ];
        let mut fields = Vec::with_capacity(texts.len());
        for (key, text, bytes_max) in texts {
            let has_lines = matches!(key, "CNI_STEPS" | "CNI_ERROR");
            if !text.is_empty() {
                fields.push((key, clean(text, bytes_max, has_lines)));
            }
        }
        fields
    }

    /// The record as a line of JSON, with its end.
    pub fn to_line(&self) -> String {
        let mut object = Map::new();
        for (key, value) in self.fields() {
            object.insert(key.to_owned(), Value::String(value));
        }
        let mut line = Value::Object(object).to_string();
        line.push('\n');
        line
    }

    /// Reads a line of JSON: of ours, or of `journalctl -o json`. `None` for any other.
    pub fn parse(line: &str) -> Option<Self> {
        let fields: BTreeMap<String, Value> = serde_json::from_str(line).ok()?;
        let text = |key: &str| fields.get(key).and_then(Value::as_str).unwrap_or_default();
        let owned = |key: &str| text(key).to_owned();
        let code = text("CNI_ERROR_CODE").parse().ok();
        let by = match text("CNI_BY") {
            "plugin" => By::Plugin,
            "runtime" => By::Runtime,
            _ => return None,
        };
        Some(Self {
            by,
            begin_us: number(text("CNI_BEGIN_US"))?,
            within_us: number(text("CNI_WITHIN_US")),
            verb: Some(owned("CNI_VERB")).filter(|verb| !verb.is_empty())?,
            network: owned("CNI_NETWORK"),
            container: owned("CNI_CONTAINERID"),
            ifname: owned("CNI_IFNAME"),
            plugin: owned("CNI_PLUGIN"),
            duration_us: number(text("CNI_DURATION_US"))?,
            steps: text("CNI_STEPS").lines().filter_map(|line| line.parse().ok()).collect(),
            addresses: text("CNI_ADDRESSES").split_whitespace().map(str::to_owned).collect(),
            error: code.map(|code| (code, owned("CNI_ERROR"))),
            traceparent: Some(owned("TRACEPARENT")).filter(|text| is_traceparent(text)),
        })
    }

    /// The call as a sentence for people: `ADD of bridge: eth0 of c1 in pods: 10.1.0.5/24`.
    fn sentence(&self) -> String {
        let names = [
            ("", &self.verb),
            (" of ", &self.plugin),
            (": ", &self.ifname),
            (" of ", &self.container),
            (" in ", &self.network),
        ];
        let mut sentence = String::new();
        for (before, name) in names {
            if !name.is_empty() {
                sentence.push_str(before);
                sentence.push_str(&clean(name, NAME_BYTES_MAX, false));
            }
        }
        sentence.push_str(": ");
        match &self.error {
            Some((_, msg)) => sentence.push_str(msg),
            None if self.addresses.is_empty() => sentence.push_str("done"),
            None => sentence.push_str(&self.shown_addresses()),
        }
        sentence
    }

    fn shown_addresses(&self) -> String {
        self.addresses.get(..ADDRESSES_MAX).unwrap_or(&self.addresses).join(" ")
    }

    /// A line for each step, its microseconds first; the last ones are left out where they take too much.
    fn step_lines(&self) -> String {
        let mut lines = String::new();
        for Step { what, us } in &self.steps {
            if lines.len() + STEP_BYTES_MAX > STEPS_BYTES_MAX {
                break;
            }
            if !lines.is_empty() {
                lines.push('\n');
            }
            lines.push_str(&us.to_string());
            lines.push(' ');
            lines.push_str(&clean(what, STEP_BYTES_MAX, false));
        }
        lines
    }
}

impl FromStr for Step {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let (us, what) = line.split_once(' ').ok_or(())?;
        Ok(Self { what: what.to_owned(), us: number(us).ok_or(())? })
    }
}

/// Digits only: a time that a sum of some thousand cannot overflow.
fn number(text: &str) -> Option<u64> {
    text.parse().ok().filter(|number| *number < 1 << 53)
}

/// The start of a text, with control characters and those that change the direction of writing escaped: a log is shown
/// on terminals. Line feeds stay if it `has_lines`, and are spaces otherwise.
fn clean(text: &str, bytes_max: usize, has_lines: bool) -> String {
    let mut clean = String::new();
    for character in text.chars() {
        if clean.len() >= bytes_max {
            clean.push('…');
            break;
        }
        match character {
            '\n' if has_lines => clean.push('\n'),
            '\n' => clean.push(' '),
            '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                clean.extend(character.escape_unicode());
            }
            _ if character.is_control() => clean.extend(character.escape_unicode()),
            _ => clean.push(character),
        }
    }
    clean
}

/// Whether a text is a `traceparent` of the W3C's Trace Context, level 1: version, trace, parent and flags in lower-case
/// hexadecimal digits, with neither trace nor parent zero. Version `ff` is forbidden; what later versions may append is
/// refused, as only version `00` is known.
pub fn is_traceparent(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_in_form = |(at, byte): (usize, &u8)| match at {
        2 | 35 | 52 => *byte == b'-',
        _ => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
    };
    bytes.len() == 55
        && bytes.iter().enumerate().all(is_in_form)
        && !bytes.starts_with(b"ff")
        && [3..35, 36..52].into_iter().all(|part| bytes[part].iter().any(|byte| *byte != b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn record() -> Record {
        Record {
            by: By::Plugin,
            begin_us: 1_700_000_000_000_000,
            within_us: None,
            verb: "ADD".into(),
            network: "pods".into(),
            container: "c1".into(),
            ifname: "eth0".into(),
            plugin: "bridge".into(),
            duration_us: 4200,
            steps: vec![Step { what: "create bridge cni0".into(), us: 120 }, Step { what: "x".into(), us: 7 }],
            addresses: vec!["10.1.0.5/24".into(), "fd00::5/64".into()],
            error: None,
            traceparent: Some(TRACE.into()),
        }
    }

    #[test]
    fn a_line_has_the_keys_of_the_journal() {
        expect_test::expect![[r#"
            {"MESSAGE":"ADD of bridge: eth0 of c1 in pods: 10.1.0.5/24 fd00::5/64","PRIORITY":"6","SYSLOG_IDENTIFIER":"cni","CNI_BY":"plugin","CNI_BEGIN_US":"1700000000000000","CNI_VERB":"ADD","CNI_NETWORK":"pods","CNI_CONTAINERID":"c1","CNI_IFNAME":"eth0","CNI_PLUGIN":"bridge","CNI_DURATION_US":"4200","CNI_STEPS":"120 create bridge cni0\n7 x","CNI_RESULT":"ok","CNI_ADDRESSES":"10.1.0.5/24 fd00::5/64","TRACEPARENT":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        "#]]
        .assert_eq(&record().to_line());
    }

    #[test]
    fn what_is_written_reads_back() {
        for error in [None, Some((11, "cannot do it: no\nsecond line".to_owned()))] {
            let record = Record { within_us: error.as_ref().map(|_| 5), error, ..record() };
            assert_eq!(Record::parse(&record.to_line()), Some(record));
        }
        for other in ["", "{}", "[]", "{\"CNI_BY\":1}", "{\"CNI_BY\":\"plugin\",\"CNI_VERB\":\"ADD\"}"] {
            assert_eq!(Record::parse(other), None, "{other}");
        }
    }

    #[test]
    fn text_from_outside_is_one_line_bounded_and_cannot_act_on_a_terminal() {
        let evil = format!("\u{1b}]0;x\u{7}\u{202e}\r\n{}", "\u{0}".repeat(100_000));
        let record = Record {
            network: evil.clone(),
            container: evil.clone(),
            plugin: evil.clone(),
            verb: evil.clone(),
            ifname: evil.clone(),
            error: Some((7, evil.clone())),
            addresses: vec![evil.clone(); 100],
            steps: vec![Step { what: evil.clone(), us: 1 }; 1000],
            traceparent: Some(evil),
            ..record()
        };
        let line = record.to_line();
        assert_eq!(line.matches('\n').count(), 1);
        assert!(line.len() < 16 << 10, "{}", line.len());
        assert!(!line.trim_end().contains(|c: char| c.is_control() || c == '\u{202e}'), "{line}");
        assert!(!line.contains("TRACEPARENT"));
    }

    #[test]
    fn a_trace_is_taken_only_if_it_is_valid() {
        assert!(is_traceparent(TRACE));
        for bad in [
            "",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0\n",
        ] {
            assert!(!is_traceparent(bad), "{bad}");
        }
    }
}
