//! Plugins whose keys can be checked. This crate knows none: its caller names those that it has the parsers of.

use std::fmt;
use std::rc::Rc;

use cni_spec::{CniError, ConfObject, SpecVersion};
use on_node::plugin_of;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Interface,
    /// The plugin changes the attachment of an earlier one.
    Chained,
    /// The plugin is named in `ipam.type`, and manages addresses.
    Address,
    /// Any place in a list.
    Any,
}

#[derive(Clone, Copy)]
pub struct KnownPlugin {
    /// The plugin's `type`.
    pub name: &'static str,
    pub role: Role,
    /// The key with which it is a chained plugin.
    pub chained_by: Option<&'static str>,
    /// The versions it speaks, oldest first.
    pub versions: &'static [SpecVersion],
    /// The parser of its keys: code 7 or 2, naming key and value.
    pub parse: fn(&Rc<ConfObject>, SpecVersion) -> Result<(), CniError>,
    /// The plugin's page in Markdown. Tables whose first column is named `key` describe its keys.
    pub readme: &'static str,
}

impl fmt::Debug for KnownPlugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Known").field("name", &self.name).field("role", &self.role).finish_non_exhaustive()
    }
}

pub(crate) fn find<'a>(known: &'a [KnownPlugin], name: &str) -> Option<&'a KnownPlugin> {
    known.iter().find(|one| one.name == plugin_of(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_versions_of_a_plugin_have_its_keys_and_other_projects_plugins_have_not() {
        let name = |plugin_type| find(crate::keys::ALL, plugin_type).map(|known| known.name);
        let names = ["bridge", "cnv-bridge", "host-local-1.2", "vpc-bridge", "bridge-vpc", "mybridge"].map(name);
        assert_eq!(names, [Some("bridge"), Some("bridge"), Some("host-local"), None, None, None]);
    }
}
