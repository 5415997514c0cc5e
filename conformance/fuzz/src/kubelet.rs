//! Quantities in a pod's annotations, which a kubelet reads.

use crate::invariants;
use pods::quantity::parse;

/// The quantities of bandwidth annotations.
pub fn quantity(data: &[u8]) {
    let text = &*invariants::text(data);
    match parse(text) {
        Ok(value) => {
            let (sign, unsigned) = match text.strip_prefix('-') {
                Some(unsigned) => (-1, unsigned),
                None => (1, text.strip_prefix('+').unwrap_or(text)),
            };
            assert_eq!(parse(&format!("-{unsigned}")), Ok(-sign * value), "the other sign");
            assert_eq!(parse(&format!("0{unsigned}")), parse(unsigned), "a zero more in front");
        }
        Err(error) => is_one_line(&error.to_string()),
    }
}

fn is_one_line(text: &str) {
    assert!(!text.is_empty() && !text.contains(['\n', '\r']), "{text:?} is not one line");
}
