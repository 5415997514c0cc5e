//! Tests of the command line's grammar.

use super::*;

fn words(line: &str) -> Vec<OsString> {
    line.split(' ').map(OsString::from).collect()
}

#[test]
fn few_verbs_read_as_all_do() {
    for line in [
        "cnitool add pods /ns",
        "cnitool --json -i del add del /ns",
        "cnitool gc pods --keep add --timeout 3",
        "cnitool install --bin-dir check --plugin noop -v",
        "cnitool install --platform k3s --root /host --watch",
        "cnitool version add del",
    ] {
        let by_all = parse_by(grammar(), &words(line)).unwrap();
        assert_eq!(format!("{:?}", parse(&words(line)).unwrap()), format!("{by_all:?}"), "{line}");
    }
}

#[test]
fn errors_and_help_cover_all_verbs() {
    for line in ["cnitool", "cnitool ad pods /ns", "cnitool add", "cnitool --help", "cnitool help del", "cnitool -V"] {
        let by_all = parse_by(help::in_groups(grammar()), &words(line)).unwrap_err();
        assert_eq!(parse(&words(line)).unwrap_err().to_string(), by_all.to_string(), "{line}");
    }
}

#[test]
fn plugins_need_some_time() {
    let error = parse(&words("cnitool add pods /ns --timeout 0")).unwrap_err().to_string();
    assert!(error.contains("--timeout") && error.contains("a plugin needs at least a second"), "{error}");
    assert_eq!(parse(&words("cnitool add pods /ns --timeout 1")).unwrap().common.timeout, 1);
}
