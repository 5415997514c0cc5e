//! Cases as data: what each step of the files of rules does.
//!
//! A case is about one container at a time, which is made when a step first needs it. Steps with a small name are operations as a
//! runtime makes them, of a list with each of its plugins; those with the name of a verb are one call of the tested plugin.

use super::attached::{Attached, again, lay_network, nothing_left, nothing_lost, pod_of_before, skip, unchanged};
use super::kit_as_delegate::{config_is_of, environment_is_of, had, is_called, nothing_held};
use super::step::{CallStep, DetachWith, Expect, Given, Left, Step};
use super::{conventions, errors, ipam, relied, results, version};
use crate::kit_ipam::{self, Order};
use crate::rules::prelude::*;
use crate::testbed::Answer;
use serde_json::Map;
use std::collections::BTreeMap;

pub(crate) fn play(testbed: &Testbed, steps: &[Step]) -> Result<(), Stop> {
    let mut play = Play::new(testbed);
    steps.iter().try_for_each(|step| {
        play.step(step).map_err(|stop| match &play.basis {
            Some(rule) => stop.based_on(rule.as_str()),
            None => stop,
        })
    })
}

struct Play<'a> {
    testbed: &'a Testbed,
    pod: Option<Container>,
    attached: Option<Attached<'a>>,
    /// The attachment of a container of which something is left.
    left: Option<Attachment>,
    kept: Vec<(Attachment, Value)>,
    /// The delegate's keys, if it is the kit's.
    delegate: Option<Map<String, Value>>,
    set: Map<String, Value>,
    removed: Vec<String>,
    result: Value,
    answer: Option<Answer>,
    harm: &'static str,
    basis: Option<String>,
}

impl<'a> Play<'a> {
    fn new(testbed: &'a Testbed) -> Self {
        Self {
            testbed,
            pod: None,
            attached: None,
            left: None,
            kept: Vec::new(),
            delegate: None,
            set: Map::new(),
            removed: Vec::new(),
            result: Value::Null,
            answer: None,
            harm: "",
            basis: None,
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Stop> {
        let testbed = self.testbed;
        match step {
            Step::Network => return lay_network(testbed),
            Step::ComeAndGo => self.pod = Some(pod_of_before(testbed)?),
            Step::Pod(id) => {
                self.forget_pod();
                let known = |id: &String| testbed.pods().into_iter().find(|pod| pod.id() == id);
                self.pod = id.as_ref().map(|id| known(id).unwrap_or_else(|| testbed.pod_named(id)));
            }
            Step::Attach => self.attach()?,
            Step::AttachAgain => again(self.attach())?,
            Step::Detach => return self.attached()?.dels(),
            Step::DetachWith(less) => return self.detach_with(less),
            Step::Checks => return self.attached()?.checks(),
            Step::HasToCheck => return self.attached()?.has_to_check(),
            Step::CheckObjects => return self.attached()?.check_objects(self.harm).map(drop),
            Step::Keep => {
                let attached = self.attached()?;
                let kept = (attached.attachment.clone(), attached.result.clone());
                self.kept.push(kept);
                self.forget_pod();
            }
            Step::CheckKept => return self.kept.iter().try_for_each(|(kept, result)| testbed.check(kept, result)),
            Step::Gc => {
                let valid: Vec<_> = self.kept.iter().map(|(kept, _)| kept.clone()).collect();
                return testbed.gc(&valid);
            }
            Step::Harm(harm) => self.harm = harm.befalls(self.attached()?)?,
            Step::EndDaemons => {
                Stop::skip_if(testbed.end_daemons() == 0, "it has no daemon")?;
                self.harm = "its daemon is gone";
            }
            Step::Leave(left) => self.leave(*left),
            Step::Pool(addresses) => {
                ipam::is_pooled(testbed)?;
                testbed.needs_pool(*addresses)?;
            }
            Step::KitDelegate => self.kit_is_delegate()?,
            Step::KitIpam => {
                Stop::skip_if(testbed.profile.delegate.is_some(), "its delegate is no IPAM plugin")?;
                self.kit_is_delegate()?;
            }
            Step::Delegate(keys) => {
                self.delegate
                    .get_or_insert_default()
                    .extend(keys.iter().map(|(key, value)| (key.clone(), value.clone())));
            }
            Step::DelegateFails(orders) => orders.iter().for_each(|(verb, code)| {
                testbed
                    .ipam()
                    .order(verb, Some(Order::Fail { code: *code, msg: "kit-ipam is out of order".to_owned() }));
            }),
            Step::DelegatePrints(orders) => orders.iter().for_each(|(verb, stdout)| {
                testbed.ipam().order(verb, Some(Order::Print { stdout: stdout.clone(), exit: 0 }));
            }),
            Step::DelegateCalled(verb) => return is_called(testbed, verb),
            Step::DelegateHad(keys) => return had(testbed, keys),
            Step::DelegateEnvironment => return environment_is_of(testbed, self.answer()?),
            Step::DelegateConfig => return config_is_of(testbed, self.answer()?),
            Step::Released => return nothing_held(testbed),
            Step::NoDelegate => {
                let delegates = testbed.profile.delegate_of(&mut testbed.config()).is_some();
                Stop::skip_if(
                    delegates && testbed.profile.role != crate::Role::Ipam,
                    "it delegates to an IPAM plugin, which it has to find",
                )?;
            }
            Step::Capability(name) => return conventions::honours(testbed, name),
            Step::HasRange => return conventions::has_range(testbed),
            Step::Interface => return self.attached()?.interface().map(drop),
            Step::Config(keys) => self.set.extend(keys.iter().map(|(key, value)| (key.clone(), value.clone()))),
            Step::Without(keys) => self.removed.extend_from_slice(keys),
            Step::Basis(rule) => self.basis.clone_from(rule),
            Step::Remember => {
                self.pod();
                testbed.remember();
            }
            Step::Unchanged(expected) => return unchanged(testbed, expected),
            Step::NothingLeft => return nothing_left(testbed),
            Step::NoLinkLeft => return no_link_left(testbed),
            Step::NothingLost(expected) => return nothing_lost(testbed, expected),
            Step::Addresses(wanted) => return conventions::has_addresses(&self.result, wanted),
            Step::Came(start, wanted) => return came(testbed, start, *wanted),
            Step::PrevInterface(keys) => self.prev_interface(keys)?,
            Step::Mac(wanted) => return conventions::has_mac(&self.pod(), wanted),
            Step::Result(wanted) => return self.result_has(wanted),
            Step::NoFaultsIn(places) => return results::has_no_faults_in(testbed, &self.result, places),
            Step::OldestForm => return relied::is_oldest(&self.result),
            Step::KnownKeys => return results::has_known_keys(testbed, &self.result),
            Step::CallAdd(call) => return self.call(Verb::Add, call),
            Step::CallDel(call) => return self.call(Verb::Del, call),
            Step::CallCheck(call) => return self.call(Verb::Check, call),
            Step::CallGc(call) => return self.call(Verb::Gc, call),
            Step::CallStatus(call) => return self.call(Verb::Status, call),
            Step::CallVersion(call) => return self.call(Verb::Version, call),
        }
        Ok(())
    }

    fn pod(&mut self) -> Container {
        let testbed = self.testbed;
        self.pod.get_or_insert_with(|| testbed.pod()).clone()
    }

    fn forget_pod(&mut self) {
        (self.pod, self.attached, self.left, self.result) = (None, None, None, Value::Null);
    }

    fn attach(&mut self) -> Result<(), Stop> {
        let attached = Attached::add_to(self.testbed, self.pod())?;
        self.result = attached.result.clone();
        self.attached = Some(attached);
        Ok(())
    }

    fn attached(&self) -> Result<&Attached<'a>, Stop> {
        self.attached.as_ref().ok_or_else(|| skip("nothing is attached: the case's steps are wrong"))
    }

    fn prev_interface(&mut self, keys: &Map<String, Value>) -> Result<(), Stop> {
        let name = json!(self.attached()?.interface()?.name);
        let interfaces = self.attached.as_mut().and_then(|attached| attached.result["interfaces"].as_array_mut());
        for entry in interfaces.into_iter().flatten().filter(|entry| entry["name"] == name) {
            let given = keys.iter().filter(|(key, _)| entry.get(key).is_some()).collect::<Vec<_>>();
            given.into_iter().for_each(|(key, value)| entry[key] = value.clone());
        }
        self.harm = "prevResult has another interface";
        Ok(())
    }

    fn answer(&self) -> Result<&Answer, Stop> {
        self.answer.as_ref().ok_or_else(|| skip("no call was made: the case's steps are wrong"))
    }

    fn leave(&mut self, left: Left) {
        let attachment = self.pod().leave(left.into());
        if let Some(attached) = &mut self.attached {
            attached.attachment = attachment.clone();
        }
        self.left = Some(attachment);
    }

    fn detach_with(&self, DetachWith { result, without }: &DetachWith) -> Result<(), Stop> {
        let Attached { attachment, result: added, .. } = self.attached()?;
        let testbed = self.testbed;
        let empty = json!({});
        let result = testbed.result_for_del(match result {
            Some(Given::None) => None,
            Some(Given::Empty) => Some(&empty),
            None => Some(added),
        });
        for index in (0..testbed.plugin_count()).rev() {
            let call = testbed.call_plugin(index, Verb::Del, attachment, result);
            testbed.make(&without.iter().fold(call, |call, name| call.without(name)))?.succeeds()?;
        }
        Ok(())
    }

    fn kit_is_delegate(&mut self) -> Result<(), Stop> {
        Stop::skip_if(self.testbed.config_with_kit_ipam().is_none(), "it delegates to no plugin")?;
        self.delegate = Some(Map::new());
        Ok(())
    }

    fn result_has(&self, wanted: &BTreeMap<String, Value>) -> Result<(), Stop> {
        wanted.iter().try_for_each(|(pointer, value)| {
            let version = json!(self.testbed.version);
            let value = if *value == json!("{version}") { &version } else { value };
            let expected = format!("{} {value} in the result", pointer.trim_start_matches('/'));
            let holds = self.result.pointer(pointer).unwrap_or(&Value::Null) == value;
            Finding::unless(holds, expected, format!("the result is {}", self.result))
        })
    }

    fn config(&self, verb: Verb, about: &Attachment, call: &CallStep) -> Value {
        let testbed = self.testbed;
        let mut config = testbed.config_for(verb, about);
        if let Some(keys) = &self.delegate
            && let Some(delegate) = testbed.profile.delegate_of(&mut config)
        {
            *delegate = kit_ipam::in_place_of(delegate);
            keys.iter().for_each(|(key, value)| delegate[key] = value.clone());
        }
        self.set.iter().chain(&call.set).for_each(|(key, value)| set(&mut config, key, value));
        let has_result = match verb {
            Verb::Check => true,
            Verb::Del => testbed.result_for_del(Some(&self.result)).is_some(),
            Verb::Add | Verb::Gc | Verb::Status | Verb::Version => false,
        };
        if has_result && !self.result.is_null() {
            config["prevResult"] = self.result.clone();
        }
        self.removed.iter().chain(&call.remove).for_each(|key| remove(&mut config, key));
        config
    }

    fn call(&mut self, verb: Verb, step: &CallStep) -> Result<(), Stop> {
        let testbed = self.testbed;
        let mut about = match (verb, &self.left) {
            (Verb::Gc | Verb::Version, _) => Attachment::none(),
            (_, Some(left)) => left.clone(),
            (_, None) => self.pod().attachment(),
        };
        let config = self.config(verb, &about, step);
        let text = config.to_string();
        let stdin = step.stdin.as_ref().map_or_else(
            || text.clone(),
            |stdin| {
                let members = text.trim_start_matches('{').strip_suffix('}').unwrap_or_default();
                let filled = stdin.replace("{members}", members).replace("{half}", &text[..text.len() / 2]);
                filled.replace("{config}", &text).replace("{version}", &testbed.version)
            },
        );
        if verb == Verb::Status {
            about = Attachment::none();
        }
        let of_node = |netns: &String| netns.replace("{node}", &testbed.node.host().path().display().to_string());
        about.netns = step.netns.as_ref().map(of_node).unwrap_or(about.netns);
        about.ifname = step.ifname.clone().unwrap_or(about.ifname);
        let call = testbed.call_with(verb, stdin, about);
        let call = step.variables.iter().fold(call, |call, (name, value)| call.variable(name, value));
        let call = step.without.iter().fold(call, |call, name| call.without(name));
        if matches!(step.expect, Expect::Refused) {
            testbed.remember();
        }
        let answer = testbed.make(&call)?;
        let answer = match step.refused_by.as_deref().and_then(super::rule) {
            Some(rule) => answer.refused_by(rule.id),
            None => answer,
        };
        if let Some(why) = &step.skip_success {
            Stop::skip_if(answer.is_success(), why)?;
        }
        let judged = self.judge(verb, step, &answer);
        self.answer = Some(answer);
        judged
    }

    fn judge(&mut self, verb: Verb, step: &CallStep, answer: &Answer) -> Result<(), Stop> {
        if !step.names.is_empty() {
            return errors::names(answer, &step.names);
        }
        if !step.code.is_empty() {
            let error = answer.fails()?;
            let codes: Vec<_> = step.code.iter().map(u64::to_string).collect();
            let expected = format!("error code {}", codes.join(" or "));
            Finding::unless(step.code.contains(&error.code), expected, format!("it printed {}", error.object))?;
            return says(step, answer);
        }
        match step.expect {
            Expect::Success => {
                let result = answer.succeeds()?;
                if matches!(verb, Verb::Add | Verb::Version) {
                    self.result = result;
                }
                Ok(())
            }
            Expect::Nothing => answer.prints_nothing(),
            Expect::Versions => version::has_list(&answer.succeeds()?),
            Expect::Refused => {
                answer.refuses()?;
                unchanged(self.testbed, "all as before the call that failed")
            }
            Expect::Refusal => answer.refuses(),
            Expect::Failure => says(step, answer),
            Expect::Answer if answer.is_success() => answer.prints_nothing(),
            Expect::Answer => answer.fails().map(drop),
            Expect::Anything => Ok(()),
            Expect::Status => errors::fails(answer),
            Expect::Object => errors::prints_an_object(answer),
            Expect::KnownCode => errors::is_known_or_own(answer),
        }
    }
}

fn no_link_left(testbed: &Testbed) -> Result<(), Stop> {
    let left = testbed.left_behind();
    let links = left.lines().filter(|line| line.starts_with("+ link ")).map(|line| format!("{line}\n"));
    Finding::unless_differs(links.collect(), "no link of the attachment", "one is left")
}

fn came(testbed: &Testbed, start: &str, wanted: usize) -> Result<(), Stop> {
    let came = testbed.left_behind();
    let count = came.lines().filter(|line| line.strip_prefix("+ ").is_some_and(|line| line.starts_with(start))).count();
    Finding::unless(count >= wanted, format!("{wanted} of {start}"), format!("{count} came: {came}"))
}

/// Checks that an error has all words.
fn says(step: &CallStep, answer: &Answer) -> Result<(), Stop> {
    let error = answer.fails()?;
    step.msg.iter().try_for_each(|words| relied::says("msg", &error.msg, words))?;
    step.details.iter().try_for_each(|words| relied::says("details", &error.details, words))?;
    step.error.iter().try_for_each(|words| relied::says("the error", &error.object.to_string(), words))
}

/// The object in which a key stands, and its name there.
fn place<'a, 'k>(config: &'a mut Value, key: &'k str) -> Option<(&'a mut Map<String, Value>, &'k str)> {
    let Some(pointer) = key.strip_prefix('/') else {
        return Some((config.as_object_mut()?, key));
    };
    let (parent, name) = pointer.split_once('/')?;
    let config = config.as_object_mut()?;
    let object = match parent {
        "ipam" | "prevResult" => config.get_mut(parent)?,
        _ => config.entry(parent).or_insert_with(|| json!({})),
    };
    Some((object.as_object_mut()?, name))
}

fn set(config: &mut Value, key: &str, value: &Value) {
    if let Some((object, name)) = place(config, key) {
        object.insert(name.to_owned(), value.clone());
    }
}

fn remove(config: &mut Value, key: &str) {
    if let Some((object, name)) = place(config, key) {
        object.shift_remove(name);
    }
}
