//! From a call to a verb, with the checks in the reference's order (SPEC 2).

use crate::call::Call;
use crate::delegate;
use crate::erased::{Attach, Detach, Erased};
use crate::event_loop;
use crate::netns::NetnsPath;
use crate::plugin::Plugin;
use crate::record;
use crate::reply::Reply;
use crate::request::{AddRequest, CheckRequest, DelRequest, GcRequest, Raw, StatusRequest};
use crate::take_back;
use cni_spec::{
    Attachment, CniError, Code, Command, ConfObject, ContainerId, IfName, PluginConf, PluginType, SpecVersion, conf,
    json, version,
};
use serde_json::Value;
use std::pin::Pin;
use std::rc::Rc;

/// Answers one call of a plugin.
pub(crate) fn dispatch<'a>(plugin: &'static dyn Erased, call: &'a Call) -> Pin<Box<dyn Future<Output = Reply> + 'a>> {
    Box::pin(async move {
        event_loop::as_needed(plugin.event_loop()).await;
        answer(plugin, call).await
    })
}

async fn answer(plugin: &dyn Erased, call: &Call) -> Reply {
    let command = call.env.find_command();
    if let Err(error) = call.env.check(command) {
        return Reply::failure(&error, SpecVersion::LATEST);
    }
    if command == Some(Command::Version) {
        return Reply::success(version_text(plugin.versions(), &call.read_version_input()));
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
            let raw = Raw { call: call.clone(), stdin };
            let outcome = run_verb(plugin, command, raw, &object).await;
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
    plugin: &dyn Erased,
    command: Option<Command>,
    mut raw: Raw,
    object: &Rc<ConfObject>,
) -> Result<Reply, CniError> {
    let unknown = |text: &str| CniError::new(Code::INVALID_ENVIRONMENT, format!("unknown CNI_COMMAND: {text}"));
    let Some(command) = command else {
        return Err(unknown(&raw.call.env.command));
    };
    let repair = if command == Command::Check { object.repair()? } else { None };
    // A repair is ours, and so for versions without CHECK, too.
    let gated = if repair.is_some() { Command::Add } else { command };
    let cni_version = gate_version(gated, object.version_text(), plugin.versions())?;
    let netns = open_netns(command, &mut raw.call)?;
    let silent = |()| Reply::default();
    match command {
        Command::Add => {
            let PluginConf { net, own } = checked(plugin, &raw, object, cni_version)?;
            let attachment = attachment(&raw, object)?;
            let netns = netns.ok_or_else(missing_netns)?;
            let request = AddRequest { attachment, netns, conf: PluginConf { net, own: () }, raw };
            add(plugin, own, request, object).await
        }
        Command::Del => {
            let PluginConf { net, own } = for_removal(plugin, &raw, object, cni_version);
            let attachment = attachment(&raw, object)?;
            let request = DelRequest { attachment, netns, conf: PluginConf { net, own: () }, raw };
            own.del(request).await.map(silent)
        }
        Command::Check => {
            let PluginConf { net, own } = checked(plugin, &raw, object, cni_version)?;
            let attachment = attachment(&raw, object)?;
            let netns = netns.ok_or_else(missing_netns)?;
            let request = CheckRequest { attachment, netns, conf: PluginConf { net, own: () }, raw };
            match repair {
                None => own.check(request).await.map(silent),
                Some(how) => own.repair(request, how).await.map(|report| Reply::success(report.to_json())),
            }
        }
        Command::Gc => {
            let PluginConf { net, own } = for_removal(plugin, &raw, object, cni_version);
            let Some(valid) = object.valid_attachments()? else {
                // The reference's plugins do nothing either.
                let network = object.name();
                tracing::warn!(plugin = plugin.name(), %network, "GC has no list of valid attachments: nothing is removed");
                return Ok(Reply::default());
            };
            let seen = object.seen_attachments()?;
            own.gc(GcRequest { valid, seen, conf: PluginConf { net, own: () }, raw }).await.map(silent)
        }
        Command::Status => {
            let PluginConf { net, own } = checked(plugin, &raw, object, cni_version)?;
            own.status(StatusRequest { conf: PluginConf { net, own: () }, raw }).await.map(silent)
        }
        Command::Version => Ok(Reply::success(version_text(plugin.versions(), &[]))), // answered before
        other => Err(unknown(other.as_str())),
    }
}

/// The request that ADD of a plugin gets by this call, after the same checks: for programs that show what ADD would do.
///
/// # Errors
/// The errors with which ADD refuses the call.
pub fn add_request<P: Plugin>(call: &Call) -> Result<AddRequest<P::Conf>, CniError> {
    call.env.check(Some(Command::Add))?;
    let stdin = call.read_stdin()?;
    let object = Rc::new(ConfObject::parse(&stdin)?);
    let mut raw = Raw { call: call.clone(), stdin };
    let version = gate_version(Command::Add, object.version_text(), P::VERSIONS)?;
    let netns = open_netns(Command::Add, &mut raw.call)?;
    let mut conf = PluginConf::<P::Conf>::checked(&object, version)?;
    conf.net.ipam = conf.net.ipam.filter(|_| P::DELEGATES);
    conf.ipam.as_ref().map_or(Ok(()), |ipam| delegate::check(&raw.call, ipam))?;
    let attachment = attachment(&raw, &object)?;
    Ok(AddRequest { attachment, netns: netns.ok_or_else(missing_netns)?, conf, raw })
}

/// ADD, and DEL after it if the config's version cannot express the result.
async fn add(
    plugin: &dyn Erased,
    own: Box<dyn Attach>,
    request: AddRequest<()>,
    object: &Rc<ConfObject>,
) -> Result<Reply, CniError> {
    let (result, request) = own.add(request).await;
    let (result, cni_version) = (result?, request.conf.cni_version);
    let error = match result.to_json(cni_version) {
        Ok(text) => return Ok(Reply::success(text)),
        Err(error) => error,
    };
    if let Some(take_back) = take_back::kept() {
        return Err(match take_back() {
            Ok(()) => error.detail("What ADD had made was removed again."),
            Err(left) => error.detail(format!("What ADD had made could not all be removed: {left}.")),
        });
    }
    let AddRequest { attachment, netns, conf: _, raw } = request;
    let PluginConf { net, own } = for_removal(plugin, &raw, object, cni_version);
    let conf = PluginConf { net: net.after(result), own: () };
    match own.del(DelRequest { attachment, netns: Some(netns), conf, raw }).await {
        Ok(()) => Err(error.detail("What ADD had made was removed again.")),
        Err(left) => Err(error.detail(format!("What ADD had made could not all be removed: {left}."))),
    }
}

fn attachment(raw: &Raw, object: &ConfObject) -> Result<Attachment, CniError> {
    let (container_id, ifname) = (&raw.call.env.container_id, &raw.call.env.ifname);
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
    plugin: &dyn Erased,
    raw: &Raw,
    object: &Rc<ConfObject>,
    version: SpecVersion,
) -> Result<PluginConf<Box<dyn Attach>>, CniError> {
    let mut conf = named(plugin, plugin.checked(object, version)?);
    conf.net.ipam = conf.net.ipam.filter(|_| plugin.delegates());
    conf.ipam.as_ref().map_or(Ok(()), |ipam| delegate::check(&raw.call, ipam))?;
    for misspelt in object.misspelt() {
        tracing::warn!(plugin = plugin.name(), network = %object.name(), "{misspelt}");
    }
    Ok(conf)
}

/// With the plugin's own name where a caller that needs no `type` has left it out, for error texts.
fn named<T>(plugin: &dyn Erased, mut conf: PluginConf<T>) -> PluginConf<T> {
    if conf.net.plugin_type.is_empty() {
        plugin.name().clone_into(&mut conf.net.plugin_type);
    }
    conf
}

fn for_removal(
    plugin: &dyn Erased,
    raw: &Raw,
    object: &Rc<ConfObject>,
    version: SpecVersion,
) -> PluginConf<Box<dyn Detach>> {
    let mut conf = named(plugin, plugin.for_removal(object, version));
    let is_usable = |ipam: &PluginType| object.unless_unread(delegate::check(&raw.call, ipam)).is_some();
    conf.net.ipam = conf.net.ipam.filter(|ipam| plugin.delegates() && is_usable(ipam));
    for sentence in object.unread() {
        tracing::warn!(plugin = plugin.name(), network = %object.name(), "{sentence}; going on without it");
    }
    conf
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
