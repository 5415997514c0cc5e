//! Whole operations as a runtime makes them (SPEC 3): one plugin, or each of a list in the right order.

use super::{Answer, Testbed};
use crate::finding::{CallRecord, Stop};
use crate::profile::Role;
use crate::spec_version;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use testns::{Attachment, Call, Verb};

impl Testbed {
    /// The number of plugins that an operation calls: one, unless the profile is a list.
    pub fn plugin_count(&self) -> usize {
        match self.profile.role {
            Role::List => self.profile.plugins.len(),
            _ => 1,
        }
    }

    /// The config of one of the list's plugins, with a prevResult if there is one.
    pub(crate) fn config_after(
        &self,
        index: usize,
        verb: Verb,
        attachment: &Attachment,
        prev_result: Option<&Value>,
    ) -> Value {
        let mut config = self.config_of(index, verb, attachment);
        if let Some(result) = prev_result.filter(|result| !result.is_null()) {
            config["prevResult"] = result.clone();
        }
        config
    }

    /// A call of one of the list's plugins with that config.
    pub fn call_plugin(&self, index: usize, verb: Verb, attachment: &Attachment, prev_result: Option<&Value>) -> Call {
        let config = self.config_after(index, verb, attachment, prev_result);
        self.call_executable(self.profile.executable(index), verb, &config, attachment)
    }

    /// The prevResult of DEL: before 0.4.0 runtimes had no result by then.
    pub(crate) fn result_for_del<'a>(&self, result: Option<&'a Value>) -> Option<&'a Value> {
        result.filter(|_| spec_version::is_from(&self.version, "0.4.0"))
    }

    /// ADD of the plugins from the first to before the `end`th; has to succeed. The last result.
    pub(crate) fn add_until(&self, end: usize, attachment: &Attachment) -> Result<Option<Value>, Stop> {
        let mut result = None;
        for index in 0..end {
            let call = self.call_plugin(index, Verb::Add, attachment, result.as_ref());
            result = Some(self.make(&call)?.succeeds()?);
        }
        Ok(result)
    }

    /// ADD, perhaps without success: then the answer of the plugin that failed.
    pub(crate) fn try_add(&self, attachment: &Attachment) -> Result<Result<Value, Answer>, Stop> {
        let mut result = None;
        for index in 0..self.plugin_count() {
            let answer = self.make(&self.call_plugin(index, Verb::Add, attachment, result.as_ref()))?;
            if !answer.is_success() {
                return Ok(Err(answer));
            }
            result = Some(answer.succeeds()?);
        }
        Ok(Ok(result.unwrap_or_default()))
    }

    /// ADD, of a list of each plugin with the result of the one before; has to succeed, but where the pool has room for fewer
    /// attachments than there were. The last result.
    pub fn add(&self, attachment: impl Into<Attachment>) -> Result<Value, Stop> {
        let added = self.add_until(self.plugin_count(), &attachment.into());
        let is_small = || self.profile.capacity().is_some_and(|room| room < self.added());
        match added {
            Err(_) if is_small() => Err(Stop::Skips("its pool may have no room for so many attachments".to_owned())),
            added => Ok(added?.unwrap_or_default()),
        }
    }

    /// How many attachments ADD was called for.
    fn added(&self) -> usize {
        let calls = self.calls.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let is_name = |name: &str| ["CNI_CONTAINERID", "CNI_IFNAME"].contains(&name);
        let of =
            |call: &CallRecord| call.environment.iter().filter(|(name, _)| is_name(name)).cloned().collect::<Vec<_>>();
        calls.iter().filter(|call| call.verb() == "ADD").map(of).collect::<BTreeSet<_>>().len()
    }

    /// DEL with the result of ADD if there is one, of a list of each plugin in reverse order; has to succeed.
    pub fn del<'a>(&self, attachment: impl Into<Attachment>, result: impl Into<Option<&'a Value>>) -> Result<(), Stop> {
        let (attachment, result) = (attachment.into(), self.result_for_del(result.into()));
        for index in (0..self.plugin_count()).rev() {
            self.make(&self.call_plugin(index, Verb::Del, &attachment, result))?.succeeds()?;
        }
        Ok(())
    }

    /// DEL as after a lost cache, without prevResult and without `runtimeConfig`; has to succeed.
    pub fn del_blindly(&self, attachment: impl Into<Attachment>) -> Result<(), Stop> {
        let attachment = attachment.into();
        for index in (0..self.plugin_count()).rev() {
            let mut config = self.config_of(index, Verb::Del, &attachment);
            if let Some(config) = config.as_object_mut() {
                config.shift_remove("runtimeConfig");
            }
            let call = self.call_executable(self.profile.executable(index), Verb::Del, &config, &attachment);
            self.make(&call)?.succeeds()?;
        }
        Ok(())
    }

    /// CHECK with the result of ADD, of a list of each plugin; has to succeed.
    pub fn check(&self, attachment: impl Into<Attachment>, result: &Value) -> Result<(), Stop> {
        let attachment = attachment.into();
        for index in 0..self.plugin_count() {
            self.make(&self.call_plugin(index, Verb::Check, &attachment, Some(result)))?.succeeds()?;
        }
        Ok(())
    }

    /// Calls of GC that leave these attachments alone, one for each plugin.
    pub fn gc_calls(&self, valid: &[Attachment]) -> Vec<Call> {
        let entry = |a: &Attachment| json!({ "containerID": a.container_id, "ifname": a.ifname });
        let valid: Vec<_> = valid.iter().map(entry).collect();
        let call = |index| {
            let mut config = self.config_of(index, Verb::Gc, &Attachment::none());
            config["cni.dev/valid-attachments"] = json!(valid);
            self.call_executable(self.profile.executable(index), Verb::Gc, &config, Attachment::none())
        };
        (0..self.plugin_count()).map(call).collect()
    }

    /// GC that leaves these attachments alone; has to succeed.
    pub fn gc(&self, valid: &[Attachment]) -> Result<(), Stop> {
        self.gc_calls(valid).iter().try_for_each(|call| self.make(call)?.succeeds().map(drop))
    }
}
