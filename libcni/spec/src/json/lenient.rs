//! Rewrites JSON that Go's decoder accepts and `serde_json` does not, so that both accept it.
//!
//! Most of a config that another process wrote is in keys that no code here reads. Their values must not make a call
//! fail, least of all DEL. Known keys are checked as always: the replacement of a value is one that they do not accept.

use serde::de::IgnoredAny;
use std::borrow::Cow;

/// The deepest nesting that `serde_json` decodes. Deeper values become `null`: no known key is there.
const DEEPEST: usize = 127;

/// The text with lone surrogates as U+FFFD, as in Go; numbers out of the range of floats as the largest one; and values
/// nested too deep as `null`. `None` if it is no JSON. Deeper nesting does not use more stack.
pub(super) fn adapt(text: &str) -> Option<String> {
    serde_json::from_str::<IgnoredAny>(text).ok()?; // checks the grammar alone, and does not recurse
    let (mut adapted, mut rest, mut depth) = (String::with_capacity(text.len()), text, 0_usize);
    while let Some(first) = rest.chars().next() {
        let (token, after) = rest.split_at(match first {
            '"' => string_bytes(rest),
            '-' | '0'..='9' => rest.find(|c: char| !is_of_number(c)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        });
        rest = after;
        depth += usize::from(matches!(first, '[' | '{'));
        if depth <= DEEPEST {
            adapted.push_str(&match first {
                '"' => adapt_string(token),
                '-' | '0'..='9' => adapt_number(token),
                _ => Cow::Borrowed(token),
            });
        } else if depth == DEEPEST + 1 && matches!(first, '[' | '{') {
            adapted.push_str("null");
        }
        depth -= usize::from(matches!(first, ']' | '}'));
    }
    Some(adapted)
}

fn is_of_number(c: char) -> bool {
    matches!(c, '0'..='9' | '+' | '-' | '.' | 'e' | 'E')
}

fn adapt_number(token: &str) -> Cow<'_, str> {
    match token.parse::<f64>() {
        Ok(f64::INFINITY) => Cow::Owned(format!("{:e}", f64::MAX)),
        Ok(f64::NEG_INFINITY) => Cow::Owned(format!("{:e}", f64::MIN)),
        _ => Cow::Borrowed(token),
    }
}

/// The length of the string that `text` begins with, quotes included.
fn string_bytes(text: &str) -> usize {
    let mut is_escaped = false;
    for (place, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return place + 1,
            _ => {}
        }
    }
    text.len()
}

fn adapt_string(token: &str) -> Cow<'_, str> {
    if !token.contains("\\u") {
        return Cow::Borrowed(token);
    }
    let (mut adapted, mut rest) = (String::with_capacity(token.len()), token);
    while let Some(place) = rest.find('\\') {
        let (before, escape) = rest.split_at(place);
        let (bytes, is_lone) = match (unit(escape), escape.get(6..).and_then(unit)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (12, false),
            (Some(0xd800..=0xdfff), _) => (6, true),
            (Some(_), _) => (6, false),
            (None, _) => (2, false),
        };
        let (escape, after) = escape.split_at_checked(bytes).unwrap_or((escape, ""));
        adapted.push_str(before);
        adapted.push_str(if is_lone { "\\ufffd" } else { escape });
        rest = after;
    }
    adapted.push_str(rest);
    Cow::Owned(adapted)
}

/// The UTF-16 unit of an escape that `text` begins with.
fn unit(text: &str) -> Option<u16> {
    u16::from_str_radix(text.strip_prefix("\\u")?.get(..4)?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::super::{decode, find, parse};
    use crate::error::Code;
    use serde::Deserialize;
    use serde_json::Value;

    fn read(text: &[u8]) -> Value {
        let mut value = parse(text).unwrap();
        assert_eq!(value["name"], "n", "{}", String::from_utf8_lossy(text));
        value["x"].take()
    }

    #[test]
    fn bytes_that_are_no_utf8_are_read_as_go_reads_them() {
        assert_eq!(read(b"{\"name\":\"n\",\"x\":\"a\xffb\xc3\"}"), "a\u{fffd}b\u{fffd}");
        assert_eq!(parse(b"{\"name\":\"n\",\xff\"x\":1}").unwrap_err().code, Code::DECODING);
    }

    #[test]
    fn lone_surrogates_are_read_as_go_reads_them() {
        for (escaped, text) in [
            (r"a\ud800", "a\u{fffd}"),
            (r"\uDC00\ud83d\ude00", "\u{fffd}\u{1f600}"),
            (r"\ud800\ud83d\ude00\\ud800", "\u{fffd}\u{1f600}\\ud800"),
            (r"\ud800\u0041é\n\u00e9", "\u{fffd}Aé\né"),
            (r#"\"\ud800\""#, "\"\u{fffd}\""),
        ] {
            assert_eq!(read(format!(r#"{{"x":"{escaped}","name":"n"}}"#).as_bytes()), text, "{escaped}");
        }
    }

    #[test]
    fn numbers_beyond_all_floats_are_only_refused_where_they_are_read() {
        for number in ["1e999", "-1E+999", "1000000e400"] {
            let text = format!(r#"{{"x":[{number}, 5],"name":"n"}}"#);
            let value = read(text.as_bytes());
            assert_eq!(value[1], 5);
            let error = find::<u32>(&value[0], &[]).unwrap_err().to_string();
            assert_eq!(error, "expected a whole number from 0 to 4294967295");
        }
        assert!(parse(br#"{"x":01e999}"#).is_err());
    }

    #[test]
    fn deep_nesting_is_cut_off() {
        for deep in [126, 127, 128, 10_000, 1_000_000] {
            let (open, close) = ("[".repeat(deep), "]".repeat(deep));
            let value = read(format!(r#"{{"x":{open}"[", 1{close},"y":[],"name":"n"}}"#).as_bytes());
            assert!(value.is_array());
            assert!(parse(format!(r#"{{"x":{open}1}}"#).as_bytes()).is_err());
        }
        let objects = format!(r#"{{"name":"n","x":{}5{}}}"#, r#"{"a":"#.repeat(5_000), "}".repeat(5_000));
        assert!(read(objects.as_bytes()).is_object());
    }

    #[test]
    fn minus_zero_is_zero() {
        #[derive(Deserialize)]
        struct Link {
            mtu: u32,
        }
        let link = |text: &str| decode::<Link>(&parse(text.as_bytes()).unwrap()).map(|link| link.mtu);
        assert_eq!(link(r#"{"mtu":-0}"#).unwrap(), 0);
        assert!(link(r#"{"mtu":0.0}"#).is_err() && link(r#"{"mtu":-1}"#).is_err());
    }
}
