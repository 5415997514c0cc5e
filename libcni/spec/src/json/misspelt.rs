//! Keys without a field, and which known one was meant.

/// A key without a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ignored {
    /// The key's path, `ipam.subnt`.
    pub path: String,
    /// The key alone.
    pub key: String,
    /// The known keys of that object.
    pub known: &'static [&'static str],
}

impl Ignored {
    /// Whether this is the other key, or one of its value.
    pub(crate) fn is_within(&self, other: &Self) -> bool {
        self.path.strip_prefix(&other.path).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    }

    /// The known key that this one resembles, unless it is itself known in `elsewhere`.
    #[must_use]
    pub fn meant(&self, elsewhere: &[&'static str]) -> Option<&'static str> {
        let is_known = elsewhere.iter().any(|known| known.eq_ignore_ascii_case(&self.key));
        let all = self.known.iter().chain(elsewhere).copied();
        if is_known { None } else { resembling(&self.key, all) }
    }
}

/// Returns the known name that `name` resembles most, in any case: at most two letters differ, and less than half
/// of them.
pub fn resembling<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    const DIFFERING_MAX: usize = 2;
    let name = name.to_lowercase();
    let length = name.chars().count();
    let comparable = known.into_iter().filter(|one| one.len().abs_diff(length) <= DIFFERING_MAX);
    let near = comparable.map(|one| (strsim::osa_distance(&one.to_lowercase(), &name), one));
    let near = near.filter(|(differing, _)| *differing <= DIFFERING_MAX && differing * 2 < length);
    near.min_by_key(|(differing, _)| *differing).map(|(_, one)| one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_meant() {
        assert_eq!(resembling("brigde", ["bridge", "ptp"]), Some("bridge"));
        assert_eq!(resembling("HOSTPROT", ["port", "hostPort"]), Some("hostPort"));
        assert_eq!(resembling("vlam", ["ipvlan", "vlan"]), Some("vlan"));
        assert_eq!(resembling("ptr", ["tap", "ptp"]), Some("ptp"));
    }

    #[test]
    fn names_that_differ_by_more_are_strangers() {
        assert_eq!(resembling("calico", ["bridge", "vlan"]), None);
        assert_eq!(resembling("mac", ["mtu"]), None);
        assert_eq!(resembling("", ["a"]), None);
    }

    #[test]
    fn a_key_that_is_known_elsewhere_is_not_misspelt() {
        let key = |key: &str| Ignored { path: key.to_owned(), key: key.to_owned(), known: &["hostPort", "names"] };
        assert_eq!(key("hostprot").meant(&["name"]), Some("hostPort"));
        assert_eq!(key("nmae").meant(&["name"]), Some("name"));
        assert_eq!(key("Name").meant(&["name"]), None);
    }
}
