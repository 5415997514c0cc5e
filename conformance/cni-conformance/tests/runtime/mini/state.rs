//! The state that is kept of an attachment.

use crate::list::List;
use crate::{Request, Result, is};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) const FOLDER: &str = "/var/lib/cni/mini";

pub(crate) struct State(PathBuf);

impl State {
    pub(crate) fn of(request: &Request) -> Self {
        let Request { network, container, ifname, .. } = request;
        let name = match is("result-is-of-attachment") {
            true => network.clone(),
            false => format!("{network}:{container}:{ifname}"),
        };
        Self(Path::new(FOLDER).join(name.replace('/', "_") + ".json"))
    }

    pub(crate) fn exists(&self) -> bool {
        self.0.exists()
    }

    /// Whether something is kept that cannot be read.
    pub(crate) fn is_cut_off(&self) -> bool {
        fs::read_to_string(&self.0).is_ok_and(|text| serde_json::from_str::<Value>(&text).is_err())
    }

    fn read(&self) -> Value {
        let text = fs::read_to_string(&self.0).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    }

    pub(crate) fn result(&self) -> Option<Value> {
        self.read().get("result").cloned()
    }

    pub(crate) fn list(&self) -> Result<List> {
        let text = self.read()["list"].as_str().unwrap_or_default().to_owned();
        serde_json::from_str(&text).map_err(|error| format!("there is no such network: {error}"))
    }

    pub(crate) fn write(&self, list: &List, result: Option<&Value>) -> Result<()> {
        let list = serde_json::to_string(list).map_err(|error| error.to_string())?;
        let mut state = json!({ "list": list });
        if let Some(result) = result {
            state["result"] = result.clone();
        }
        fs::write(&self.0, state.to_string()).map_err(|error| error.to_string())
    }

    pub(crate) fn forget(&self) {
        fs::remove_file(&self.0).ok();
    }
}
