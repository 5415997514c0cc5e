//! Many at once.

use std::collections::HashSet;

use crate::call::{Net, OURS, answer, reference_or_skip};

/// In a range with just enough room, every call gets an address, from either implementation.
#[test]
fn parallel_adds_of_both_plugins_fill_the_range() {
    let Some(reference) = reference_or_skip("parallel_adds_of_both_plugins_fill_the_range") else { return };
    let data = tempfile::tempdir().unwrap();
    let net = Net::new(data.path(), r#""subnet":"10.0.0.0/26""#);
    let start = |number: usize| net.start([OURS.as_str(), reference][number % 2], "ADD", &format!("c{number}"), "");
    let children: Vec<_> = (0..61).map(start).collect();
    let addresses: Vec<String> = children.into_iter().flat_map(|child| answer(child).unwrap()).collect();
    assert_eq!(addresses.iter().collect::<HashSet<_>>().len(), 61);
    let full = "failed to allocate for range 0: no IP addresses available in range set: 10.0.0.1-10.0.0.62";
    for executable in [OURS.as_str(), reference] {
        assert_eq!(net.call(executable, "ADD", "more", "").unwrap_err(), full);
    }
}
