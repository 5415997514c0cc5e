//! The testbed of a case: a throwaway node with the subject's executables, and calls that are recorded.

mod answer;
mod leftovers;
mod operations;

use crate::finding::{CallRecord, Finding, Stop, quoted};
use crate::kit_ipam::{self, KitIpam};
use crate::machine_features::MachineFeatures;
use crate::namespaces::Shown;
use crate::profile::{Profile, Stage};
use crate::trial::Trial;
use crate::{node_setup, result_conversion, rules};
use serde_json::Value;
use std::path::Path;
use std::process::Child;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use testns::{Attachment, Call, Container, Node, Output, Random, Verb};

pub use answer::{Answer, ErrorObject};

/// A throwaway node for one case. Threads may share it. What the kernel refuses to the kit itself ends the case by a panic: it
/// counts as not tried.
#[derive(Debug)]
pub struct Testbed {
    /// The node. Make containers with [`Testbed::pod`], which also lays what the profile needs.
    pub node: Node,
    pub profile: Profile,
    pub version: String,
    /// The seed of random parts: see [`Testbed::random`].
    pub seed: u64,
    pub machine: MachineFeatures,
    shown: Shown,
    call_deadline: Duration,
    /// Whether a call is disturbed at every point.
    pub(crate) every_point: bool,
    calls: Mutex<Vec<CallRecord>>,
    pods: Mutex<Vec<Pod>>,
    baseline: Mutex<Option<leftovers::Baseline>>,
    /// The number of addresses in the pool, if it is not the profile's own.
    pool: Mutex<Option<u32>>,
    daemons: Mutex<Vec<Child>>,
}

/// A container, and what was laid in it.
#[derive(Debug, Clone)]
struct Pod {
    container: Container,
    /// The interface that `prev_result` has.
    ifname: String,
    /// In the newest form.
    prev_result: Option<Value>,
}

impl Testbed {
    pub(crate) fn new(node: Node, trial: &Trial, machine: MachineFeatures, shown: Shown, kit: &Path) -> Self {
        let installed = kit_ipam::install(&node.bin_dir(), kit);
        installed.unwrap_or_else(|error| panic!("cannot install {}: {error}", kit_ipam::NAME));
        testns::keep_steps();
        let own_folder = |stage: &'_ Stage| if let Stage::Folder { path } = stage { Some(path.clone()) } else { None };
        let folders: Vec<_> = trial.profile.stage.iter().filter_map(own_folder).collect();
        let installed: Vec<_> =
            trial.subject.dirs().map(|dir| format!("{}/*", quoted(&dir.display().to_string()))).collect();
        testns::step_of_node(&folders, &[(kit_ipam::NAME, &shown.real(kit))], &installed);
        let daemons = node_setup::on_node(&node, &trial.profile.stage);
        Self {
            node,
            profile: trial.profile.clone(),
            version: trial.version.clone(),
            seed: trial.seed,
            machine,
            shown,
            call_deadline: Duration::from_secs(trial.call_seconds),
            every_point: trial.every_point,
            calls: Mutex::default(),
            pods: Mutex::default(),
            baseline: Mutex::default(),
            pool: Mutex::default(),
            daemons: Mutex::new(daemons),
        }
    }

    /// A new container, with what the profile lays for each. Its ID is part of no other's.
    pub fn pod(&self) -> Container {
        let number = held(&self.pods).len() + 1;
        self.pod_named(&format!("pod-{number:05}"))
    }

    /// The same with an ID of the case's choice.
    pub fn pod_named(&self, id: &str) -> Container {
        let container = self.node.container_named(id);
        self.lay(&container, &container.attachment().ifname);
        container
    }

    /// A second attachment of a container, for a chained plugin: with what the plugins before it have made.
    pub fn second_attachment(&self, pod: &Container, ifname: &str) -> Attachment {
        self.lay(pod, ifname);
        pod.attachment_as(ifname)
    }

    fn lay(&self, container: &Container, ifname: &str) {
        let mut pods = held(&self.pods);
        let number = pods.len() + 1;
        let laid = node_setup::for_pod(&self.node, &self.profile.stage, container, ifname, number);
        let prev_result = laid.map(|laid| self.profile.prev_result(laid, number));
        pods.push(Pod { container: container.clone(), ifname: ifname.to_owned(), prev_result });
    }

    pub fn pods(&self) -> Vec<Container> {
        held(&self.pods).iter().map(|pod| pod.container.clone()).collect()
    }

    /// A generator of random numbers: the same ones in each run with the same seed. Take it once.
    pub fn random(&self) -> Random {
        Random::new(self.seed, &self.profile.name)
    }

    /// The kit's own IPAM plugin on this testbed. It is used if [`kit_ipam::config`] is the config's `ipam`.
    pub fn ipam(&self) -> KitIpam {
        KitIpam
    }

    /// The config of the tested plugin for no container in particular.
    pub fn config(&self) -> Value {
        self.profile.config(0, &self.version, 0)
    }

    /// The config with the kit's own IPAM plugin in place of the profile's. `None` if the plugin delegates to none.
    pub fn config_with_kit_ipam(&self) -> Option<Value> {
        let mut config = self.config();
        let delegate = self.profile.delegate_of(&mut config).filter(|_| self.profile.role == crate::Role::Interface)?;
        *delegate = kit_ipam::in_place_of(delegate);
        Some(config)
    }

    /// The config of the tested plugin as a runtime would send it in the first call with a verb: on ADD a chained
    /// plugin gets the prevResult of [`Testbed::prev_result`].
    pub fn config_for(&self, verb: Verb, attachment: &Attachment) -> Value {
        self.config_of(0, verb, attachment)
    }

    /// The same of any plugin of a list.
    pub fn config_of(&self, index: usize, verb: Verb, attachment: &Attachment) -> Value {
        let number = find(&held(&self.pods), attachment);
        let mut config = self.profile.config(index, &self.version, number.map_or(0, |number| number + 1));
        if let Some(addresses) = *held(&self.pool) {
            self.profile.resize(&mut config, addresses);
        }
        let prev_result = (verb == Verb::Add).then(|| self.prev_result(attachment)).flatten();
        if let Some(result) = prev_result.filter(|_| self.profile.is_chained()) {
            config["prevResult"] = result;
        }
        config
    }

    /// Gives the pool so many addresses from now on. False, and no change, if the kit does not know how to say that.
    pub(crate) fn set_pool(&self, addresses: u32) -> bool {
        *held(&self.pool) = Some(addresses);
        let sized = |index| self.profile.resize(&mut self.profile.config(index, &self.version, 0), addresses);
        (0..self.plugin_count()).any(sized)
    }

    /// The same for a case that needs it.
    pub fn needs_pool(&self, addresses: u32) -> Result<(), Stop> {
        let why = "the kit does not know how to make its pool small (PROFILES.md, pool.sizes)";
        Stop::skip_if(!self.set_pool(addresses), why)
    }

    /// The result of the plugins before a chained one for a container, in the form of the config's version.
    pub fn prev_result(&self, attachment: &Attachment) -> Option<Value> {
        self.laid_for(attachment).map(|newest| result_conversion::in_version(&newest, &self.version))
    }

    /// The same in the newest form; `None` where nothing was laid.
    pub fn laid_for(&self, attachment: &Attachment) -> Option<Value> {
        let pods = held(&self.pods);
        pods.get(find(&pods, attachment)?)?.prev_result.clone()
    }

    /// A call of the tested plugin, to be changed before it is made with [`Testbed::make`]; of a list its first.
    ///
    /// The call's config is that of [`Testbed::config_for`].
    pub fn call(&self, verb: Verb, attachment: impl Into<Attachment>) -> Call {
        let attachment = attachment.into();
        self.call_with(verb, self.config_for(verb, &attachment), attachment)
    }

    /// The same with another config, unchanged.
    pub fn call_with(&self, verb: Verb, config: impl std::fmt::Display, attachment: impl Into<Attachment>) -> Call {
        self.call_executable(self.profile.executable(0), verb, config, attachment)
    }

    /// The same of any executable of the testbed.
    pub fn call_executable(
        &self,
        executable: &str,
        verb: Verb,
        config: impl std::fmt::Display,
        attachment: impl Into<Attachment>,
    ) -> Call {
        Call::new(verb, config, attachment).plugin(executable).deadline(self.call_deadline)
    }

    pub fn make(&self, call: &Call) -> Result<Answer, Stop> {
        let reply = call.try_run(&self.node);
        self.record(call, reply.as_ref().map(|reply| &reply.output))
    }

    /// Records a call that the case made itself, with what came of it: a traced one, for example.
    pub fn record(&self, call: &Call, output: Option<&Output>) -> Result<Answer, Stop> {
        let record = CallRecord::new(call.invocation(&self.node), output, self.call_deadline, &self.shown);
        let mut calls = held(&self.calls);
        // Where the same has succeeded before, a failure is no matter of the rule that says that such calls succeed.
        let is_like = |before: &CallRecord| before.executable == record.executable && before.verb() == record.verb();
        let has_succeeded = calls.iter().any(|before| is_like(before) && before.exit == Some(0));
        let basis = rules::basis(record.verb(), self.profile.role).filter(|_| !has_succeeded);
        calls.push(record.clone());
        drop(calls);
        match record.exit {
            Some(_) => Ok(Answer::new(record, basis, &self.version)),
            None => {
                let seen = format!("the plugin did not end within {} s", self.call_deadline.as_secs());
                Err(Finding::new("an answer", seen).of_call(basis).into())
            }
        }
    }

    /// Starts the profile's daemons again after [`Testbed::end_daemons`], whose sockets are still there.
    ///
    /// Returns the exit status of one that ends within two seconds.
    pub fn restart_daemons(&self) -> Option<i32> {
        let mut daemons = held(&self.daemons);
        daemons.extend(node_setup::restart_daemons(&self.node, &self.profile.stage));
        daemons.iter_mut().find_map(node_setup::ends)
    }

    /// Kills the daemons that the profile has started, as an accident would. How many there were.
    pub fn end_daemons(&self) -> usize {
        let mut daemons = held(&self.daemons);
        for daemon in daemons.iter_mut() {
            daemon.kill().ok();
            daemon.wait().ok();
        }
        daemons.drain(..).count()
    }

    /// The longest time that a call may take.
    pub fn call_deadline(&self) -> Duration {
        self.call_deadline
    }

    /// Forgets the calls so far: what a case found out by them is settled, and a reader need not see them.
    pub fn forget_calls(&self) {
        let forgotten = std::mem::take(&mut *held(&self.calls));
        let steps = testns::take_steps();
        forgotten.into_iter().flat_map(|call| call.before).chain(steps).for_each(testns::step);
    }

    /// The calls so far, in the order in which they ended.
    pub(crate) fn take_calls(&self) -> Vec<CallRecord> {
        std::mem::take(&mut held(&self.calls))
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        self.end_daemons();
    }
}

/// Finds the pod that was laid for an attachment, else for another of its container.
fn find(pods: &[Pod], attachment: &Attachment) -> Option<usize> {
    let is_of = |pod: &&Pod| pod.container.id() == attachment.container_id;
    let exact = pods.iter().position(|pod| is_of(&pod) && pod.ifname == attachment.ifname);
    exact.or_else(|| pods.iter().position(|pod| is_of(&pod)))
}

/// A case that panicked with a lock in its hand is over; what it left can still be reported.
fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
