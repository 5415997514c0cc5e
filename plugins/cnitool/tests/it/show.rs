//! `cnitool show`.

use crate::fixture::Tool;

#[test]
fn show_draws_each_format() {
    let tool = Tool::new();
    for (format, begin) in [("svg", "<svg "), ("html", "<!doctype html>"), ("dot", "graph cni {")] {
        let text = tool.run(&["show", "--format", format]).ok();
        assert!(text.starts_with(begin) && text.contains("net"), "{text}");
    }
    assert_eq!(tool.run(&["show", "--format", "dot", "--json"]).code, 2);
}
