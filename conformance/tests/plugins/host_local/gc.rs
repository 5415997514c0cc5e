//! GC without a list of valid attachments.

use super::{add, reservations};
use crate::configs::{host_local, v4, with};
use crate::subjects::node;
use serde_json::json;
use testns::{Attachment, Verb};

/// SPEC 2, GC: without the list it is unknown which attachments are invalid. Go's library sends none if its caller gave none,
/// and the reference's plugins exit with 0.
#[test]
fn gc_without_the_list_succeeds_and_removes_nothing() {
    let node = node();
    add(&node, &v4(), "c1").unwrap();
    let answer = node.call(Verb::Gc, with(host_local(v4()), json!({"cniVersion": "1.1.0"})), Attachment::none());
    assert!(answer.output.stderr.contains("GC has no list of valid attachments"), "{:?}", answer.output);
    answer.ok();
    assert_eq!(reservations().len(), 1);
}
