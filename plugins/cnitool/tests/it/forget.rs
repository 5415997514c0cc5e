//! `cnitool forget`.

use crate::fixture::{NETNS, Tool};
use expect_test::expect;

/// A refused configuration may leave an entry that no DEL ever removes.
#[test]
fn an_entry_without_anything_on_the_node_can_be_forgotten() {
    let tool = Tool::new();
    tool.plugin("good", r#"echo '{"code":999,"msg":"no"}'; exit 1"#);
    let target = ["net", NETNS, "--container-id", "half"];
    let run = |verb: &str| tool.run(&[&[verb], &target[..]].concat());
    assert_eq!((run("add").code, run("del").code, tool.files("cache/results").len()), (1, 1, 1));
    run("forget").ok();
    assert_eq!(tool.files("cache/results").len(), 0);
    expect![[r#"
        1
        stdout: 
        stderr: error: cannot forget half/eth0 in network net: the cache does not have it
          cnitool attachments shows what the cache has.
    "#]]
    .assert_eq(&run("forget").shown());
}
