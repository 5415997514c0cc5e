//! Names and labels of objects, which may have less characters than networks and keys have.

use sha2::{Digest, Sha256};

use crate::protocol::Key;

/// The characters that a name of an object may have (RFC 1123, as Kubernetes counts a subdomain).
const NAME_MAX: usize = 253;
/// The characters that a value of a label may have.
const LABEL_MAX: usize = 63;

/// The name of a key's object: `NETWORK--KIND--NAME`. Small letters and digits are themselves, and `-` and `.` between letters and digits; `/` there is
/// `--`. Any other byte, and `q`, is `q` with its two hexadecimal digits, so no two keys have one name. One that would be too long is the
/// key's hash behind `q--`, which no other name has.
pub(super) fn object(network: &str, key: &Key) -> String {
    let text = format!("{network}/{key}");
    let bytes = text.as_bytes();
    let is_plain = |at: Option<usize>| at.and_then(|at| bytes.get(at)).is_some_and(u8::is_ascii_alphanumeric);
    let mut name = String::new();
    for (at, byte) in bytes.iter().enumerate() {
        let is_between = is_plain(at.checked_sub(1)) && is_plain(at.checked_add(1));
        match byte {
            b'q' => name.push_str("q71"),
            b'a'..=b'z' | b'0'..=b'9' => name.push(char::from(*byte)),
            b'-' | b'.' if is_between => name.push(char::from(*byte)),
            b'/' if is_between => name.push_str("--"),
            other => name.push_str(&format!("q{other:02x}")),
        }
    }
    if name.len() > NAME_MAX { format!("q--{}", hash(&text)) } else { name }
}

/// The label of a network's objects: its name where that can be a label.
pub(super) fn label(network: &str) -> String {
    let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let is_label = network.len() < LABEL_MAX && is_end(network.as_bytes().first()) && is_end(network.as_bytes().last());
    if is_label { network.to_owned() } else { hash(network)[..LABEL_MAX].to_owned() }
}

fn hash(text: &str) -> String {
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_subdomain(name: &str) -> bool {
        let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_label = |label: &str| {
            !label.is_empty() && label.chars().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
        };
        name.len() <= NAME_MAX && name.split('.').all(is_label)
    }

    #[test]
    fn each_key_has_a_name_of_its_own_that_kubernetes_accepts() {
        for (key, name) in [
            ("network", "lan--network"),
            ("nodes/worker-1.example", "lan--nodes--worker-1.example"),
            ("runs/10.9.0.0", "lan--runs--10.9.0.0"),
            ("runs/fd00::100", "lan--runs--fd00q3aq3a100"),
            ("claims/shop/db-0", "lan--claims--shop--db-0"),
            ("claims/Shop_1/..", "lan--claims--q53hopq5f1q2fq2eq2e"),
            ("claims/a--b", "lan--claims--aq2dq2db"),
            ("claims/-a.", "lan--claimsq2fq2daq2e"),
            ("nodes/q2", "lan--nodes--q712"),
        ] {
            assert_eq!(object("lan", &Key::parse(key).unwrap()), name);
            assert!(is_subdomain(name), "{name}");
        }
        let texts = ["a/b", "a--b", "aq2fb", "a-b", "a.b", "A-b", "a_b", "q", "q71", "Q", "-", "..", "a-", "a/", "/a"];
        let long = ["x".repeat(253), "X".repeat(253), "q".repeat(253)];
        let all = texts.map(str::to_owned).into_iter().chain(long);
        let keys: Vec<_> =
            all.flat_map(|text| [Key::Claim(text.clone()), Key::Want(text.clone()), Key::Node(text)]).collect();
        let names: std::collections::BTreeSet<_> =
            ["n", "n.m", "N"].iter().flat_map(|network| keys.iter().map(|key| object(network, key))).collect();
        assert_eq!(names.len(), keys.len() * 3);
        assert!(names.iter().all(|name| is_subdomain(name)), "{names:?}");
    }

    #[test]
    fn a_network_that_can_be_no_label_has_its_hash() {
        assert_eq!(label("lan_1.a"), "lan_1.a");
        for network in ["lan.", &"x".repeat(64)] {
            assert_eq!(label(network).len(), LABEL_MAX);
        }
    }
}
