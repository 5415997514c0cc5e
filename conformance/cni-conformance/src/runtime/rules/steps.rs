//! Cases as data: the steps that the files of rules have, and what each of them does. A case is about one container.

use crate::result_conversion::in_version;
use crate::rules::prelude::*;
use crate::rules::step::Left;
use crate::runtime::assertions::{End, each, order_of, same};
use crate::runtime::mock_plugin::{Order, Received};
use crate::runtime::{FinishedRun, Request, RuntimeTestbed};
use serde::Deserialize;
use serde_json::Map;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Step {
    /// The network's list, in place of the one before.
    Lay(List),
    /// Two plugin objects, of the places 2 and 3, and another file in the folder of the network's name.
    Aside,
    /// ADD and DEL of another container work: see [`RuntimeTestbed::works`].
    Works,
    /// Skips runtimes whose driver has no such placeholder.
    Needs(String),
    /// The request, where it is not the default.
    Request(Asked),
    Does(String),
    /// The runtime is asked to do it, and may fail.
    Runs(String),
    /// The runtime is asked to do it, and has to fail for a reason.
    Fails(String, String),
    /// The container's namespace is gone, say.
    Leave(Left),
    /// Calls of mock plugins so far are forgotten.
    Forget,
    /// The calls of mock plugins, in order: `ADD 1`.
    Calls(Vec<String>),
    /// The calls with a verb, in order.
    CallsOf(String, Vec<String>),
    /// The latest run printed these words.
    Prints(String),
    /// The latest run wrote these words to stderr.
    Logs(String),
    /// Each call of the latest verb had this value of a key; `null` says that there is none, or an empty object.
    Key(String, Value),
    /// Where a call of the latest verb had an object of this key, it was this.
    KeyIfThere(String, Value),
    /// Each call with a prevResult, of which there is one, had this value of a key of it.
    ResultKey(String, Value),
    /// No call of the latest verb had the key.
    NoKey(String),
    /// Each call had the first plugin object, and no more than that and what a runtime adds.
    ObjectPasses,
}

/// A network's list. In texts `{version}` and `{bin_dir}` stand for the version, and for the folder of plugins.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(super) struct List {
    /// The places of its mock plugins; without any it has no key `plugins`.
    plugins: Vec<u8>,
    /// Orders to plugins that do other than succeed, by place and verb.
    #[serde(default)]
    orders: BTreeMap<u8, BTreeMap<String, Ordered>>,
    /// Further keys of their objects, by place.
    #[serde(default)]
    objects: BTreeMap<u8, Map<String, Value>>,
    /// Further keys of the list.
    #[serde(default)]
    keys: Map<String, Value>,
}

/// What a mock plugin does: see [`Order`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ordered {
    /// An error object of this code and message.
    fail: Option<(u64, String)>,
    /// A result, however it ends.
    #[serde(default)]
    result: bool,
    stdout: Option<String>,
    exit: Option<u8>,
    #[serde(default)]
    stderr: String,
    #[serde(default)]
    noise: usize,
    #[serde(default)]
    dies: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    network: Option<String>,
    container: Option<String>,
    ifname: Option<String>,
    capabilities: Option<Value>,
}

impl Ordered {
    fn order(&self, version: &str) -> Order {
        let base = match &self.fail {
            Some((code, msg)) => Order::fail(version, *code, msg),
            None => Order::default(),
        };
        let result = || {
            let newest = json!({ "cniVersion": "1.1.0", "ips": [{ "address": "10.1.0.2/16" }] });
            in_version(&newest, version).to_string()
        };
        let stdout = self.stdout.clone().or_else(|| self.result.then(result)).or(base.stdout);
        let (exit, stderr) = (self.exit.unwrap_or(base.exit), self.stderr.clone());
        let stdout = stdout.map(|text| text.replace("{version}", version));
        Order { stdout, exit, stderr, noise: self.noise, dies: self.dies, ..Order::default() }
    }
}

impl List {
    fn objects(&self, testbed: &RuntimeTestbed) -> Vec<Value> {
        let object = |place: &u8| {
            let orders = self.orders.get(place).into_iter().flatten();
            let orders: Vec<_> = orders.map(|(name, order)| (verb(name), order.order(&testbed.version))).collect();
            let mut object = testbed.plugin_with(*place, &orders);
            self.objects.get(place).into_iter().flatten().for_each(|(key, value)| object[key] = value.clone());
            object
        };
        self.plugins.iter().map(object).collect()
    }

    fn lay(&self, testbed: &RuntimeTestbed) {
        let mut list = testbed.list(&self.objects(testbed));
        if let Some(list) = list.as_object_mut().filter(|_| self.plugins.is_empty()) {
            list.shift_remove("plugins");
        }
        self.keys.iter().for_each(|(key, value)| list[key] = value.clone());
        let text = list.to_string().replace("{version}", &testbed.version);
        testbed.lay_text(&text.replace("{bin_dir}", &testbed.node.bin_dir().display().to_string()));
    }
}

fn verb(name: &str) -> Verb {
    let all = [Verb::Add, Verb::Del, Verb::Check, Verb::Gc, Verb::Status, Verb::Version];
    let found = all.into_iter().find(|verb| verb.to_string() == name);
    found.unwrap_or_else(|| panic!("there is no verb {name}: the case's steps are wrong"))
}

pub(super) fn play(testbed: &RuntimeTestbed, steps: &[Step]) -> End {
    let mut play = Play { testbed, request: None, ran: None, verb: Verb::Add, object: Value::Null };
    steps.iter().try_for_each(|step| play.step(step))
}

struct Play<'a> {
    testbed: &'a RuntimeTestbed,
    request: Option<Request>,
    ran: Option<FinishedRun>,
    verb: Verb,
    /// The first plugin object of the list.
    object: Value,
}

impl Play<'_> {
    fn step(&mut self, step: &Step) -> End {
        let testbed = self.testbed;
        match step {
            Step::Lay(list) => {
                list.lay(testbed);
                self.object = list.objects(testbed).into_iter().next().unwrap_or_default();
            }
            Step::Aside => {
                testbed.lay_aside("20-last.conf", &testbed.plugin(3));
                testbed.lay_aside("10-first.conf", &testbed.plugin(2));
                testbed.lay_aside("30-note.txt", &json!("no plugin object"));
            }
            Step::Works => testbed.works()?,
            Step::Needs(placeholder) => testbed.needs(placeholder)?,
            Step::Request(asked) => {
                let request = self.request();
                let Asked { network, container, ifname, capabilities } = asked;
                network.iter().for_each(|name| request.network.clone_from(name));
                container.iter().for_each(|id| request.attachment.container_id.clone_from(id));
                ifname.iter().for_each(|name| request.attachment.ifname.clone_from(name));
                request.capabilities.clone_from(capabilities);
            }
            Step::Does(name) => {
                self.verb = verb(name);
                let request = self.request().clone();
                self.ran = Some(testbed.does(self.verb, &request)?);
            }
            Step::Runs(name) => self.run(name)?,
            Step::Fails(name, why) => {
                self.run(name)?;
                self.ran.clone().map(|ran| ran.fails(why)).transpose()?;
            }
            Step::Leave(left) => drop(self.request().container.leave((*left).into())),
            Step::Forget => testbed.forget(),
            Step::Calls(expected) => order_of(&testbed.received(), expected)?,
            Step::CallsOf(name, expected) => order_of(&testbed.received_of(verb(name)), expected)?,
            Step::Prints(words) => {
                let printed = self.ran.as_ref().map(|ran| ran.output.stdout.clone() + &ran.output.stderr);
                has("the plugin's message in what the runtime prints", &printed.unwrap_or_default(), words)?;
            }
            Step::Logs(words) => {
                let logged = self.ran.as_ref().map(|ran| ran.output.stderr.clone());
                has("the plugin's log on stderr", &logged.unwrap_or_default(), words)?;
            }
            Step::Key(key, expected) => {
                let version = json!(testbed.version);
                let expected = if *expected == json!("{version}") { &version } else { expected };
                each(&testbed.received_of(self.verb), |call| {
                    let seen = call.config().get(key).cloned().unwrap_or_default();
                    let is_empty = expected.is_null() && seen.as_object().is_some_and(Map::is_empty);
                    same(key, expected, if is_empty { &Value::Null } else { &seen })
                })?;
            }
            Step::KeyIfThere(key, expected) => {
                let mut received = testbed.received_of(self.verb);
                received.retain(|call| call.config().get(key).is_some());
                received.iter().try_for_each(|call| same(key, expected, &call.config()[key]))?;
            }
            Step::ResultKey(key, expected) => {
                let mut received = testbed.received_of(self.verb);
                received.retain(|call| call.config().get("prevResult").is_some());
                each(&received, |call| same(key, expected, &call.config()["prevResult"][key]))?;
            }
            Step::NoKey(key) => each(&testbed.received_of(self.verb), |call| {
                let config = call.config();
                let text = format!("{} got {}", self.verb, config.get(key).unwrap_or(&Value::Null));
                Finding::unless(config.get(key).is_none(), format!("no key {key}"), text)
            })?,
            Step::ObjectPasses => each(&testbed.received_of(self.verb), |call| self.object_passes(call))?,
        }
        Ok(())
    }

    fn request(&mut self) -> &mut Request {
        let testbed = self.testbed;
        self.request.get_or_insert_with(|| testbed.request())
    }

    fn run(&mut self, name: &str) -> Result<(), Stop> {
        self.verb = verb(name);
        let request = self.request().clone();
        self.ran = Some(self.testbed.run(self.verb, &request)?);
        Ok(())
    }

    /// What a runtime adds is not the object's (SPEC 3, Deriving); no argument of a capability is an empty object or none.
    fn object_passes(&self, call: &Received) -> End {
        let mut seen = call.config();
        let is_own = |key: &str, value: &Value| {
            !["name", "cniVersion", "prevResult"].contains(&key)
                && !key.starts_with("cni.dev/")
                && (key != "runtimeConfig" || value.as_object().is_none_or(|more| !more.is_empty()))
        };
        seen.as_object_mut().into_iter().for_each(|seen| seen.retain(|key, value| is_own(key, value)));
        for (key, value) in self.object.as_object().into_iter().flatten() {
            same(&format!("key {key:?}"), value, seen.get(key).unwrap_or(&json!("(no such key)")))?;
        }
        same("the plugin object", &self.object, &seen)
    }
}

fn has(what: &str, text: &str, words: &str) -> End {
    Finding::unless(text.contains(words), what, format!("it was {text:?}"))
}
