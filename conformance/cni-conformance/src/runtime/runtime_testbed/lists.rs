//! The network's list, of mock plugins, in the folder of configs.

use super::{CONF_DIR, MOCK_PLUGINS, NETWORK, RuntimeTestbed};
use crate::runtime::mock_plugin::{self, Brief, Order};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use testns::Verb;

impl RuntimeTestbed {
    /// The plugin object of a mock plugin at a place of the list, from 1.
    #[must_use]
    pub fn plugin(&self, place: u8) -> Value {
        self.plugin_with(place, &[])
    }

    /// The same with orders.
    #[must_use]
    pub fn plugin_with(&self, place: u8, orders: &[(Verb, Order)]) -> Value {
        let orders = orders.iter().map(|(verb, order)| (verb.to_string(), order.clone())).collect();
        let ending = MOCK_PLUGINS.get(usize::from(place) - 1).unwrap_or(&"a");
        json!({ "type": format!("{}-{ending}", mock_plugin::PREFIX), mock_plugin::KEY: Brief { place, orders } })
    }

    /// A network's list with these plugin objects.
    #[must_use]
    pub fn list(&self, plugins: &[Value]) -> Value {
        json!({ "cniVersion": self.version, "name": NETWORK, "plugins": plugins })
    }

    /// Lays a network's list in the folder of configs, in place of the one before.
    pub fn lay(&self, list: &Value) {
        self.lay_text(&list.to_string());
    }

    /// The same as text.
    pub fn lay_text(&self, list: &str) {
        let file = Path::new(CONF_DIR).join("10-conformance.conflist");
        fs::write(&file, list).unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    }

    /// Lays a list of three mock plugins that succeed.
    pub fn lay_three(&self) {
        self.lay(&self.list(&[self.plugin(1), self.plugin(2), self.plugin(3)]));
    }

    /// Puts a plugin object into the folder of the network's own.
    pub fn lay_aside(&self, name: &str, plugin: &Value) {
        let folder = Path::new(CONF_DIR).join(NETWORK);
        let written = fs::create_dir_all(&folder).and_then(|()| fs::write(folder.join(name), plugin.to_string()));
        written.unwrap_or_else(|error| panic!("cannot write {name}: {error}"));
    }

    /// Takes the network's list away.
    pub fn take_away(&self) {
        let file = Path::new(CONF_DIR).join("10-conformance.conflist");
        fs::remove_file(file).unwrap_or_else(|error| panic!("cannot remove the list: {error}"));
    }
}
