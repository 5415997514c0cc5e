//! Words of commands that are printed for a shell. Names of links and interfaces may have any character but `/`, `:` and spaces, and
//! users choose some: in an annotation of a pod, or by renaming a network card that a container returns.

pub(crate) fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:@%+,=".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The command that sets a kernel parameter.
pub(crate) fn sysctl(key: &str, value: &str) -> String {
    format!("sysctl -w {}", word(&format!("{key}={value}")))
}
