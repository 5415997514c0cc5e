//! Pools of addresses: how many a config has, and how it is made to have few.

use super::{Profile, fill, host_local_ranges};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The way to make the pool of a config small, as the author of a plugin describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pool {
    /// The number of attachments that the config as it stands has addresses for; unknown if left out.
    #[serde(default)]
    pub addresses: Option<usize>,
    /// For a number of addresses, or `any`, the values of keys of the plugin object, by JSON pointers. In those of `any`,
    /// `{a}` is the number and `{9+a}` nine more.
    #[serde(default)]
    pub sizes: BTreeMap<String, BTreeMap<String, Value>>,
}

impl Profile {
    /// Makes the pool of a config one of so many addresses. False, and no change, if the kit does not know how.
    pub(crate) fn resize(&self, config: &mut Value, addresses: u32) -> bool {
        let Some(given) = &self.pool else {
            return host_local_ranges::resize(config, addresses);
        };
        let Some(keys) = given.sizes.get(&addresses.to_string()).or_else(|| given.sizes.get("any")) else {
            return false;
        };
        for (pointer, value) in keys {
            let mut value = value.clone();
            fill(&mut value, "a", usize::try_from(addresses).unwrap_or(usize::MAX));
            set(config, pointer, value);
        }
        true
    }

    /// The same with a single address. Where the kit chooses the range itself, it is one that no other config has.
    pub(crate) fn of_one_address(&self, config: &mut Value) -> bool {
        let ranges = config.pointer_mut("/ipam/ranges").filter(|_| self.pool.is_none());
        let Some(ranges) = ranges else {
            return self.resize(config, 1);
        };
        *ranges = json!([[{ "subnet": "10.66.0.0/24", "rangeStart": "10.66.0.2", "rangeEnd": "10.66.0.2" }]]);
        true
    }

    /// The size of a small pool for many calls at once: five, or what comes nearest of the sizes that the profile names.
    pub(crate) fn few(&self) -> u32 {
        const FEW: u32 = 5;
        let Some(Pool { addresses, sizes }) = &self.pool else { return FEW };
        let whole = addresses.and_then(|whole| u32::try_from(whole).ok());
        let named = sizes.keys().filter_map(|size| size.parse().ok());
        let any = sizes.contains_key("any").then(|| whole.map_or(FEW, |whole| whole.min(FEW)));
        let all = named.chain(any).chain(whole.filter(|whole| *whole <= 2 * FEW));
        all.min_by_key(|size| size.abs_diff(FEW)).unwrap_or(FEW)
    }

    /// The number of attachments that its config has addresses for, if known.
    pub(crate) fn capacity(&self) -> Option<usize> {
        match &self.pool {
            Some(given) => given.addresses,
            None => self.plugins.iter().filter_map(host_local_ranges::capacity).min(),
        }
    }
}

/// Sets a key, also one that is not there yet.
fn set(config: &mut Value, pointer: &str, value: Value) {
    match config.pointer_mut(pointer) {
        Some(place) => *place = value,
        None => {
            let (parent, key) = pointer.rsplit_once('/').unwrap_or(("", pointer));
            if let Some(parent) = config.pointer_mut(parent).and_then(Value::as_object_mut) {
                parent.insert(key.replace("~1", "/").replace("~0", "~"), value);
            }
        }
    }
}
