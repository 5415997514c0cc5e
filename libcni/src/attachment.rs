//! A runtime's parameters for one attachment: container, interface, and the dynamic parameters.

use crate::raw_object::RawObject;
use cni_spec::exec::CallEnv;
use cni_spec::{CniArgs, CniError, Code, ContainerId, IfName, NetworkName};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize, Deserializer};
use serde_json::value::{RawValue, to_raw_value};

/// A container's interface in a network that is named separately: the entry of a runtime's lists.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttachmentId {
    /// The container.
    pub container_id: ContainerId,
    /// The container's interface.
    pub ifname: IfName,
}

impl AttachmentId {
    /// The attachment to this network.
    #[must_use]
    pub fn to(&self, network: &NetworkName) -> cni_spec::Attachment {
        let Self { container_id, ifname } = self.clone();
        cni_spec::Attachment { network: network.clone(), container_id, ifname }
    }
}

impl From<cni_spec::Attachment> for AttachmentId {
    fn from(cni_spec::Attachment { container_id, ifname, .. }: cni_spec::Attachment) -> Self {
        Self { container_id, ifname }
    }
}

/// An interface of a container, with all parameters that plugins get: what the Go library has under this name.
///
/// ```
/// use libcni::RuntimeConf;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let attachment = RuntimeConf::new("c1", "eth0")?
///     .netns("/run/netns/c1")
///     .arg("K8S_POD_NAME", "web-0")?
///     .arg("IgnoreUnknown", "1")?
///     .capability("mac", &"0a:00:00:00:00:05")?;
/// assert_eq!(attachment.args.to_string(), "K8S_POD_NAME=web-0;IgnoreUnknown=1");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RuntimeConf {
    /// Container and interface name.
    pub id: AttachmentId,
    /// `CNI_NETNS`; empty when there is none, or none any more.
    pub netns: String,
    /// `CNI_ARGS`.
    pub args: CniArgs,
    /// Arguments for the network's plugins, each for those that name it in `capabilities`.
    pub capability_args: CapabilityArgs,
}

impl RuntimeConf {
    /// An attachment without namespace or parameters.
    ///
    /// # Errors
    /// Code 4 when one of the names is not what the specification allows.
    pub fn new(container_id: &str, ifname: &str) -> Result<Self, CniError> {
        let id = AttachmentId { container_id: ContainerId::parse(container_id)?, ifname: IfName::parse(ifname)? };
        Ok(Self::from(id))
    }

    /// Sets the path of the container's network namespace.
    #[must_use]
    pub fn netns(mut self, path: impl Into<String>) -> Self {
        self.netns = path.into();
        self
    }

    /// Adds a pair to `CNI_ARGS`.
    ///
    /// # Errors
    /// Code 4 when key or value would read as more than one pair.
    pub fn arg(mut self, key: &str, value: &str) -> Result<Self, CniError> {
        self.args.push(key, value)?;
        Ok(self)
    }

    /// Adds a capability argument, such as `portMappings`.
    ///
    /// # Errors
    /// Code 6 when `value` has no JSON form.
    pub fn capability(mut self, name: &str, value: &impl Serialize) -> Result<Self, CniError> {
        self.capability_args.set(name, value)?;
        Ok(self)
    }

    /// The variables of a plugin's call for this attachment, without `CNI_PATH`.
    #[must_use]
    pub fn call_env(&self) -> CallEnv {
        let mut env = CallEnv::default();
        env.container_id = self.id.container_id.to_string();
        env.netns.clone_from(&self.netns);
        env.ifname = self.id.ifname.to_string();
        env.args = self.args.to_string();
        env
    }
}

impl From<AttachmentId> for RuntimeConf {
    fn from(id: AttachmentId) -> Self {
        Self { id, netns: String::new(), args: CniArgs::default(), capability_args: CapabilityArgs::default() }
    }
}

/// Capability arguments by name (CONVENTIONS, "Dynamic Plugin specific fields"). Values keep their original bytes.
#[derive(Debug, Clone, Default)]
pub struct CapabilityArgs(RawObject);

impl CapabilityArgs {
    /// Parses a JSON object; empty text means no arguments.
    ///
    /// # Errors
    /// Code 6 if it is no JSON object.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        RawObject::parse(text.as_bytes()).map(Self).map_err(|error| {
            CniError::new(Code::DECODING, format!("cannot parse capability arguments: {error}"))
                .detail(r#"They are a JSON object, such as {"mac":"0a:00:00:00:00:05"}."#)
        })
    }

    /// Sets one argument.
    ///
    /// # Errors
    /// Code 6 when `value` has no JSON form.
    pub fn set(&mut self, name: &str, value: &impl Serialize) -> Result<(), CniError> {
        let value = to_raw_value(value).map_err(|error| {
            CniError::new(Code::DECODING, format!("cannot write capability argument {name}: {error}"))
        })?;
        self.0.set(name.to_owned(), value);
        Ok(())
    }

    /// The JSON text of an argument.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<&str> {
        self.0.find(name).map(RawValue::get)
    }

    /// Names and JSON texts, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name, value.get()))
    }

    /// Whether the list of arguments is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().next().is_none()
    }
}

impl Serialize for CapabilityArgs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for CapabilityArgs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RawObject::deserialize(deserializer).map(Self)
    }
}

/// The trace that an operation belongs to, as defined by W3C Trace Context and Baggage.
///
/// Without one, plugins inherit the variables of the process's own environment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TraceContext {
    /// `TRACEPARENT`: version, trace, parent span and flags.
    pub traceparent: String,
    /// `TRACESTATE`; may be empty.
    pub tracestate: String,
    /// `BAGGAGE`; may be empty.
    pub baggage: String,
}

impl TraceContext {
    /// The variables for a child. An empty one is set only where the child would otherwise inherit the parent's value.
    #[expect(
        clippy::disallowed_methods,
        reason = "trace context is passed on from the environment, as the reference does"
    )]
    pub(crate) fn variables(&self) -> Vec<(String, String)> {
        let variable = |name: &str, value: &String| {
            let is_due = !value.is_empty() || std::env::var_os(name).is_some();
            is_due.then(|| (name.to_owned(), value.clone()))
        };
        [("TRACEPARENT", &self.traceparent), ("TRACESTATE", &self.tracestate), ("BAGGAGE", &self.baggage)]
            .into_iter()
            .filter_map(|(name, value)| variable(name, value))
            .collect()
    }
}
