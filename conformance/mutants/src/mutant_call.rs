//! A call of a mutant, and the honest plugin's reply to it.

use crate::memory;
use netops::{Kernel, Netns};
use serde_json::{Map, Value, json};
use skel::cni_spec::{CniError, Code, Command, SpecVersion};
use skel::env::Environment;
use skel::{Call, Entry, Reply};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::rc::Rc;

#[derive(Clone)]
pub struct MutantCall {
    pub env: Environment,
    stdin: Result<Rc<[u8]>, CniError>,
    entry: &'static Entry,
    entries: &'static [Entry],
}

impl MutantCall {
    pub(crate) fn of_process(entry: &'static Entry, entries: &'static [Entry]) -> Self {
        let call = Call::of_process(entries);
        let stdin = call.read_stdin();
        Self { env: call.env, stdin, entry, entries }
    }

    /// Returns whether the call is valid and asks for this verb: the honest plugin refuses an invalid one.
    pub fn is(&self, verb: Command) -> bool {
        if verb == Command::Version {
            return self.asks(verb);
        }
        let config = self.config();
        let text = |key: &str| {
            let mut keys = config.as_object().into_iter().flatten();
            let found = keys.find(|(name, _)| name.eq_ignore_ascii_case(key));
            found.and_then(|(_, value)| value.as_str()).unwrap_or_default()
        };
        let is_name = |name: &str| {
            let all = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
            name.starts_with(|first: char| first.is_ascii_alphanumeric()) && name.chars().all(all)
        };
        let is_spoken = SpecVersion::ALL.iter().any(|version| version.as_str() == text("cniVersion"));
        self.asks(verb) && self.env.check(Some(verb)).is_ok() && is_name(text("name")) && is_spoken
    }

    pub fn asks(&self, verb: Command) -> bool {
        self.env.find_command() == Some(verb)
    }

    /// Whether the addresses are of the kit's IPAM plugin, with which rules find out what a delegate is given.
    pub fn has_kit_ipam(&self) -> bool {
        self.config()["ipam"]["type"] == "kit-ipam"
    }

    pub fn has_all(&self) -> bool {
        self.has_netns() && self.config().get("prevResult").is_some()
    }

    /// The order to the kit's IPAM plugin: what to do with a verb in place of its work; `null` for nothing.
    pub fn order(&self, verb: Command) -> Value {
        let ledger = std::fs::read("/run/testns/kit-ipam/ledger").unwrap_or_default();
        serde_json::from_slice::<Value>(&ledger).unwrap_or_default()["orders"][verb.as_str()].clone()
    }

    pub fn honest(&self) -> Reply {
        if self.env.command.is_empty() {
            return self.about();
        }
        let stdin = match &self.stdin {
            Ok(stdin) => Rc::clone(stdin),
            Err(error) => return Reply::failure(error, SpecVersion::LATEST),
        };
        let mut call = Call::of_process(self.entries).for_delegate(Command::Version, stdin);
        call.env = self.env.clone();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build();
        match runtime {
            Ok(runtime) => runtime.block_on(self.entry.answer(&call)),
            Err(error) => {
                Reply::failure(&CniError::new(Code::IO, format!("cannot start: {error}")), SpecVersion::LATEST)
            }
        }
    }

    /// Without a verb the executable itself answers, on stderr.
    fn about(&self) -> Reply {
        let versions: Vec<_> = self.entry.versions.iter().map(|version| version.as_str()).collect();
        eprintln!("CNI {} plugin\nCNI protocol versions supported: {}", self.entry.name, versions.join(", "));
        Reply::default()
    }

    pub fn stdin(&self) -> &[u8] {
        self.stdin.as_deref().unwrap_or_default()
    }

    pub fn has_stdin(&self) -> bool {
        self.stdin.is_ok()
    }

    pub fn config(&self) -> Value {
        serde_json::from_slice(self.stdin()).unwrap_or_default()
    }

    pub fn with_config(&self, change: impl FnOnce(&mut Value)) -> Self {
        let mut config = self.config();
        if !config.is_object() {
            return self.clone();
        }
        change(&mut config);
        self.with_stdin(config.to_string())
    }

    pub fn with_stdin(&self, stdin: impl Into<Vec<u8>>) -> Self {
        Self { stdin: Ok(stdin.into().into()), ..self.clone() }
    }

    pub fn with_env(&self, change: impl FnOnce(&mut Environment)) -> Self {
        let mut changed = self.clone();
        change(&mut changed.env);
        changed
    }

    /// The attachment, as a key of `memory`.
    pub fn attachment(&self) -> String {
        format!("{}-{}", self.env.container_id, self.env.ifname)
    }

    pub fn refuse(&self, code: u32, msg: &str) -> Reply {
        let version = self.config()["cniVersion"].as_str().unwrap_or("1.1.0").to_owned();
        let object = json!({ "cniVersion": version, "code": code, "msg": msg });
        Reply { stdout: object.to_string().into_bytes(), exit: 1 }
    }

    /// An ADD that says that it succeeded.
    pub fn boast(&self) -> Reply {
        let version = self.config()["cniVersion"].as_str().unwrap_or("1.1.0").to_owned();
        Reply::success(json!({ "cniVersion": version }).to_string())
    }

    /// The honest plugin's reply, but an error where something is so.
    pub fn refuses_if(&self, is_so: bool, code: u32, msg: &str) -> Reply {
        if is_so { self.refuse(code, msg) } else { self.honest() }
    }

    /// The honest plugin's reply, but where something is so a success without any effect.
    pub fn does_nothing_if(&self, is_so: bool) -> Reply {
        if is_so { Reply::default() } else { self.honest() }
    }

    /// The honest plugin's reply, but where something is so an ADD that only says that it succeeded.
    pub fn boasts_if(&self, is_so: bool) -> Reply {
        if is_so { self.boast() } else { self.honest() }
    }

    /// The honest plugin's reply, where something is so to the call with another config.
    pub fn with_config_if(&self, is_so: bool, change: impl FnOnce(&mut Value)) -> Reply {
        if is_so { self.with_config(change).honest() } else { self.honest() }
    }

    /// The honest plugin's reply, where something is so to the call with other variables.
    pub fn with_env_if(&self, is_so: bool, change: impl FnOnce(&mut Environment)) -> Reply {
        if is_so { self.with_env(change).honest() } else { self.honest() }
    }

    pub fn has_netns(&self) -> bool {
        Netns::open(&self.env.netns).is_ok_and(|netns| Kernel::in_netns(&netns).is_ok())
    }

    pub fn has_own_netns(&self) -> bool {
        let inode = |path: &str| std::fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
        inode(&self.env.netns) == inode("/proc/self/ns/net")
    }

    pub fn on(&self, verb: Command, change: impl FnOnce(&mut Value)) -> Reply {
        let reply = self.honest();
        match self.is(verb) && reply.exit == 0 {
            true => edited(reply, change),
            false => reply,
        }
    }

    /// The honest plugin's reply, but ADD reports something else. The mutant remembers that: where it comes back as
    /// prevResult, the other verbs get the honest plugin's. With the kit's IPAM plugin it reports the truth:
    /// that one is for rules that look at what a delegate gets.
    pub fn reports(&self, lie: impl Fn(&mut Value)) -> Reply {
        if self.has_kit_ipam() {
            return self.honest();
        }
        let key = format!("reported-{}", self.attachment());
        if self.is(Command::Add) {
            let reply = self.honest();
            if reply.exit != 0 {
                return reply;
            }
            memory::note(&key, &String::from_utf8_lossy(&reply.stdout));
            return edited(reply, lie);
        }
        let honest = memory::find(&key).and_then(|text| serde_json::from_str::<Value>(&text).ok());
        match honest.filter(|_| self.config().get("prevResult").is_some()) {
            Some(honest) => {
                let mut reported = honest.clone();
                lie(&mut reported);
                self.with_config(|config| put_right(&mut config["prevResult"], &reported, &honest)).honest()
            }
            None => self.honest(),
        }
    }

    pub fn on_error(&self, change: impl FnOnce(&mut Value)) -> Reply {
        let reply = self.honest();
        match reply.exit {
            0 => reply,
            _ => edited(reply, change),
        }
    }

    /// The honest plugin's reply; after a success of this verb something is done as well.
    pub fn after(&self, verb: Command, effect: impl FnOnce()) -> Reply {
        let reply = self.honest();
        if self.is(verb) && reply.exit == 0 {
            effect();
        }
        reply
    }

    pub fn container(&self) -> Kernel {
        let netns = Netns::open(&self.env.netns).unwrap_or_else(|error| panic!("no container: {error}"));
        Kernel::in_netns(&netns).unwrap_or_else(|error| panic!("no container: {error}"))
    }
}

/// Takes a lie out of a result to which others may have added something, or which they may have changed.
fn put_right(now: &mut Value, lie: &Value, truth: &Value) {
    if now == lie {
        *now = truth.clone();
        return;
    }
    match (now, lie, truth) {
        (Value::Object(now), Value::Object(lie), Value::Object(truth)) => {
            let keys: BTreeSet<_> = lie.keys().chain(truth.keys()).collect();
            for key in keys.into_iter().filter(|key| lie.get(*key) != truth.get(*key)) {
                let of = |object: &Map<String, Value>| object.get(key).cloned().unwrap_or_default();
                let mut value = of(now);
                put_right(&mut value, &of(lie), &of(truth));
                match value {
                    Value::Null => drop(now.shift_remove(key)),
                    value => drop(now.insert(key.clone(), value)),
                }
            }
        }
        (Value::Array(now), Value::Array(lies), Value::Array(truths)) => {
            for (place, lie) in lies.iter().enumerate().take(now.len()).rev() {
                match truths.get(place) {
                    Some(truth) => put_right(&mut now[place], lie, truth),
                    None if now[place] == *lie => drop(now.remove(place)),
                    None => {}
                }
            }
        }
        _ => {}
    }
}

/// A reply with another object; a reply that prints none is left as it is.
pub(crate) fn edited(mut reply: Reply, change: impl FnOnce(&mut Value)) -> Reply {
    if let Ok(mut object) = serde_json::from_slice::<Value>(&reply.stdout) {
        change(&mut object);
        reply.stdout = object.to_string().into_bytes();
    }
    reply
}
