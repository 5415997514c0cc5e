//! The way from a call to a verb, with the checks in the reference's order (SPEC 2).

use crate::call::Call;
use crate::netns::NetnsPath;
use crate::plugin::{Attach, Detach, Entry, Serve, Work};
use crate::reply::Reply;
use crate::request::{AddRequest, CheckRequest, DelRequest, GcRequest, StatusRequest};
use crate::{delegate, event_loop, record, unwritten_result};
use cni_spec::{
    Attachment, CniError, Code, Command, ConfObject, ContainerId, FromConf, IfName, NetConf, PluginType, SpecVersion,
    conf, json, version,
};
use cni_suite::Repair;
use serde_json::Value;
use std::rc::Rc;

impl Entry {
    /// Answers one call of the plugin.
    #[must_use]
    pub fn answer<'a>(&'a self, call: &'a Call) -> Work<'a, Reply> {
        Box::pin(async move {
            let (attach, detach) = match self.serve {
                Serve::Call(answer) => return answer(call),
                Serve::Verbs { attach, detach } => (attach, detach),
            };
            if let Err(error) = event_loop::as_needed(self.event_loop).await {
                return Reply::failure(&error, SpecVersion::LATEST);
            }
            answer(Served { entry: self, attach, detach }, call).await
        })
    }
}

/// A plugin whose calls are checked before it sees them.
#[derive(Clone, Copy)]
struct Served<'a> {
    entry: &'a Entry,
    attach: fn(&ConfObject) -> Result<Box<dyn Attach>, CniError>,
    detach: fn(&ConfObject) -> Box<dyn Detach>,
}

async fn answer(plugin: Served<'_>, call: &Call) -> Reply {
    let command = call.env.find_command();
    if let Err(error) = call.env.check(command) {
        return Reply::failure(&error, SpecVersion::LATEST);
    }
    if command == Some(Command::Version) {
        return Reply::success(version_text(plugin.entry.versions, &call.read_version_input()));
    }
    let stdin = match call.read_stdin() {
        Ok(stdin) => stdin,
        Err(error) => return Reply::failure(&error, SpecVersion::LATEST),
    };
    match ConfObject::parse(&stdin) {
        Ok(object) => {
            record::begin_for(json::member(object.value(), "log").and_then(Value::as_str));
            let object = Rc::new(object);
            let version = SpecVersion::find(object.version_text()).unwrap_or(SpecVersion::LATEST);
            let outcome = run_verb(plugin, command, call.clone(), &object).await;
            outcome.unwrap_or_else(|error| Reply::failure(&error, version))
        }
        Err(error) => {
            let version = conf::find_version_text(&stdin).and_then(|text| SpecVersion::find(&text));
            Reply::failure(&error, version.unwrap_or(SpecVersion::LATEST))
        }
    }
}

/// The reply to VERSION: cniVersion is that of the input, if it has one (SPEC 5, Version).
pub(crate) fn version_text(versions: &[SpecVersion], input: &[u8]) -> String {
    let asked = conf::find_version_text(input).filter(|text| version::parse_number(text).is_ok());
    let asked = asked.as_deref().unwrap_or(SpecVersion::LATEST.as_str());
    let quoted: Vec<String> = versions.iter().map(|version| format!("\"{version}\"")).collect();
    format!("{{\"cniVersion\":\"{asked}\",\"supportedVersions\":[{}]}}\n", quoted.join(","))
}

async fn run_verb(
    plugin: Served<'_>,
    command: Option<Command>,
    mut raw: Call,
    object: &Rc<ConfObject>,
) -> Result<Reply, CniError> {
    let unknown = |text: &str| CniError::new(Code::INVALID_ENVIRONMENT, format!("unknown CNI_COMMAND: {text}"));
    let Some(command) = command else {
        return Err(unknown(&raw.env.command));
    };
    let repair = if command == Command::Check { Repair::find_in(object)? } else { None };
    // A repair is ours, and so for versions without CHECK, too.
    let gated = if repair.is_some() { Command::Add } else { command };
    let cni_version = gate_version(gated, object.version_text(), plugin.entry.versions)?;
    let netns = open_netns(command, &mut raw)?;
    let silent = |()| Reply::default();
    match command {
        Command::Add => {
            let (conf, keys) = checked(plugin, &raw, object, cni_version)?;
            let attachment = attachment(&raw, object)?;
            let netns = netns.ok_or_else(missing_netns)?;
            let request = AddRequest { attachment, netns, conf, raw };
            add(plugin, &*keys, request, object).await
        }
        Command::Del => {
            let (conf, keys) = for_removal(plugin, &raw, object, cni_version);
            let attachment = attachment(&raw, object)?;
            let request = DelRequest { attachment, netns, conf, raw };
            keys.del(&request).await.map(silent)
        }
        Command::Check => {
            let (conf, keys) = checked(plugin, &raw, object, cni_version)?;
            let attachment = attachment(&raw, object)?;
            let netns = netns.ok_or_else(missing_netns)?;
            let request = CheckRequest { attachment, netns, conf, raw };
            match repair {
                None => keys.check(&request).await.map(silent),
                Some(how) => keys.repair(&request, how).await.map(|report| Reply::success(report.to_json())),
            }
        }
        Command::Gc => {
            let (conf, keys) = for_removal(plugin, &raw, object, cni_version);
            let Some(valid) = object.valid_attachments()? else {
                // The reference's plugins do nothing either.
                let network = object.name();
                tracing::warn!(plugin = plugin.entry.name, %network, "GC has no list of valid attachments: nothing is removed");
                return Ok(Reply::default());
            };
            let seen = object.seen_attachments()?;
            keys.gc(&GcRequest { valid, seen, conf, raw }).await.map(silent)
        }
        Command::Status => {
            let (conf, keys) = match checked(plugin, &raw, object, cni_version) {
                Err(_incomplete) if object.awaits_runtime() => return Ok(Reply::default()),
                checked => checked?,
            };
            keys.status(&StatusRequest { conf, raw }).await.map(silent)
        }
        Command::Version => Ok(Reply::success(version_text(plugin.entry.versions, &[]))), // answered before
        other => Err(unknown(other.as_str())),
    }
}

/// The request that ADD of a plugin gets by this call, and its keys, after the same checks: for programs that show what ADD
/// would do.
///
/// # Errors
/// The errors with which ADD refuses the call.
pub fn add_request<C: FromConf>(plugin: &Entry, call: &Call) -> Result<(AddRequest, C), CniError> {
    call.env.check(Some(Command::Add))?;
    let object = Rc::new(ConfObject::parse(&call.read_stdin()?)?);
    let mut raw = call.clone();
    let version = gate_version(Command::Add, object.version_text(), plugin.versions)?;
    let netns = open_netns(Command::Add, &mut raw)?;
    let (mut conf, keys) = NetConf::checked(&object, version, C::from_conf)?;
    conf.ipam = conf.ipam.filter(|_| plugin.delegates);
    conf.ipam.as_ref().map_or(Ok(()), |ipam| delegate::check(&raw, ipam))?;
    let attachment = attachment(&raw, &object)?;
    Ok((AddRequest { attachment, netns: netns.ok_or_else(missing_netns)?, conf, raw }, keys))
}

/// ADD, and DEL after it if the config's version cannot express the result.
async fn add(
    plugin: Served<'_>,
    keys: &dyn Attach,
    request: AddRequest,
    object: &Rc<ConfObject>,
) -> Result<Reply, CniError> {
    let (result, cni_version) = (keys.add(&request).await?, request.conf.cni_version);
    let error = match result.to_json(cni_version) {
        Ok(text) => return Ok(Reply::success(text)),
        Err(error) => error,
    };
    let done = match unwritten_result::kept() {
        Some(take_back) => take_back.await,
        None => {
            let AddRequest { attachment, netns, conf: _, raw } = request;
            let (conf, keys) = for_removal(plugin, &raw, object, cni_version);
            let del = DelRequest { attachment, netns: Some(netns), conf: conf.after(result), raw };
            keys.del(&del).await.map_err(|left| left.to_string())
        }
    };
    Err(match done {
        Ok(()) => error.detail("What ADD had made was removed again."),
        Err(left) => error.detail(format!("What ADD had made could not all be removed: {left}.")),
    })
}

fn attachment(raw: &Call, object: &ConfObject) -> Result<Attachment, CniError> {
    let (container_id, ifname) = (&raw.env.container_id, &raw.env.ifname);
    Ok(Attachment {
        network: object.name().clone(),
        container_id: ContainerId::parse(container_id)?,
        ifname: IfName::parse(ifname)?,
    })
}

fn missing_netns() -> CniError {
    CniError::new(Code::INVALID_ENVIRONMENT, "required env variables [CNI_NETNS] missing")
}

fn checked(
    plugin: Served<'_>,
    raw: &Call,
    object: &Rc<ConfObject>,
    version: SpecVersion,
) -> Result<(NetConf, Box<dyn Attach>), CniError> {
    let (conf, keys) = NetConf::checked(object, version, plugin.attach)?;
    let mut conf = named(plugin, conf);
    conf.ipam = conf.ipam.filter(|_| plugin.entry.delegates);
    conf.ipam.as_ref().map_or(Ok(()), |ipam| delegate::check(raw, ipam))?;
    for misspelt in object.misspelt() {
        tracing::warn!(plugin = plugin.entry.name, network = %object.name(), "{misspelt}");
    }
    Ok((conf, keys))
}

/// With the plugin's own name where a caller that needs no `type` has left it out, for error texts.
fn named(plugin: Served<'_>, mut conf: NetConf) -> NetConf {
    if conf.plugin_type.is_empty() {
        plugin.entry.name.clone_into(&mut conf.plugin_type);
    }
    conf
}

fn for_removal(
    plugin: Served<'_>,
    raw: &Call,
    object: &Rc<ConfObject>,
    version: SpecVersion,
) -> (NetConf, Box<dyn Detach>) {
    let (conf, keys) = NetConf::for_removal(object, version, plugin.detach);
    let mut conf = named(plugin, conf);
    let is_usable = |ipam: &PluginType| object.unless_unread(delegate::check(raw, ipam)).is_some();
    conf.ipam = conf.ipam.filter(|ipam| plugin.entry.delegates && is_usable(ipam));
    for sentence in object.unread() {
        tracing::warn!(plugin = plugin.entry.name, network = %object.name(), "{sentence}; going on without it");
    }
    (conf, keys)
}

/// The version gate: the config's version must be one of the plugin's, and the version must have the verb.
pub(crate) fn gate_version(command: Command, text: &str, supported: &[SpecVersion]) -> Result<SpecVersion, CniError> {
    let needed = match command {
        Command::Check => Some(SpecVersion::V0_4_0),
        Command::Gc | Command::Status => Some(SpecVersion::V1_1_0),
        _ => None,
    };
    if let Some(needed) = needed {
        gate_verb(command, text, needed, supported)?;
    }
    SpecVersion::find(text).filter(|version| supported.contains(version)).ok_or_else(|| {
        let names: Vec<&str> = supported.iter().map(|version| version.as_str()).collect();
        CniError::new(Code::INCOMPATIBLE_VERSION, "incompatible CNI versions")
            .detail(format!("config is {text:?}, plugin supports {names:?}. Set cniVersion to one of these."))
    })
}

fn gate_verb(command: Command, text: &str, needed: SpecVersion, supported: &[SpecVersion]) -> Result<(), CniError> {
    let number = version::parse_number(text)?;
    let as_number = |version: SpecVersion| version::parse_number(version.as_str());
    if number < as_number(needed)? {
        return Err(CniError::new(Code::INCOMPATIBLE_VERSION, format!("config version does not allow {command}"))
            .detail(format!("{command} exists from {needed} on; the config's cniVersion is {text:?}.")));
    }
    let newest = supported.last().copied().map_or(Ok((0, 0, 0)), as_number)?;
    if number > newest {
        return Err(CniError::new(Code::INCOMPATIBLE_VERSION, format!("plugin version does not allow {command}"))
            .detail(format!("The config's cniVersion is {text:?}, newer than all that the plugin speaks.")));
    }
    Ok(())
}

/// The container's namespace. ADD refuses the plugin's own before any change; for DEL a path that leads there means
/// that the namespace is gone: the pid in `/proc/PID/ns/net` may now belong to a process of the node.
fn open_netns(command: Command, call: &mut Call) -> Result<Option<NetnsPath>, CniError> {
    let allows_own = match command {
        Command::Check => true,
        Command::Add | Command::Del => call.env.overrides_netns(),
        _ => return Ok(None),
    };
    let Some(netns) = call.open_netns().filter(|netns| !allows_own && netns.is_own()) else {
        return Ok(call.open_netns());
    };
    if command == Command::Del {
        tracing::warn!(%netns, "the path leads to the plugin's own namespace: the container's is gone");
        call.forget_netns();
        return Ok(None);
    }
    Err(CniError::new(Code::INVALID_NETNS, "plugin's netns and netns from CNI_NETNS should not be the same")
        .detail(format!("CNI_NETNS is {netns}. Set CNI_NETNS_OVERRIDE=1 if this is intended.")))
}
