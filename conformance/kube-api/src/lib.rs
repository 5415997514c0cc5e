//! A server that behaves as the API of Kubernetes, for tests: objects with versions, their schema, pages of lists, watches with bookmarks, `410 Gone`,
//! and faults on request.
//!
//! The server has nodes, and the resources of the definitions that it is given. What a real one has beyond that is of no use to our clients:
//! rights, quotas, policies, fields' owners, subresources.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail by panicking")]

mod objects;
mod requests;
mod watches;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::pending;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use serde_json::{Value, json};
use tokio::sync::watch;

/// The fault that a request gets instead of its answer.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// An error of this number, with the wish to come again after a second.
    Status(u16),
    /// The connection is closed.
    Drop,
    /// Nothing is said.
    Hang,
    /// The request is done; the first half of the answer comes, then the connection is closed.
    Half,
}

/// A kind of object.
#[derive(Debug, Clone, Default)]
struct Resource {
    /// Empty: the core's.
    group: String,
    version: String,
    kind: String,
    plural: String,
    is_namespaced: bool,
    /// The schema that objects have to keep.
    schema: Value,
}

/// Plural, namespace and name of an object.
type Name = (String, String, String);

/// A change: its version, its kind, the object.
struct Change {
    version: u64,
    kind: &'static str,
    name: Name,
    object: Value,
}

#[derive(Default)]
struct State {
    version: u64,
    resources: Vec<Resource>,
    namespaces: BTreeSet<String>,
    objects: BTreeMap<Name, Value>,
    log: Vec<Change>,
    /// A watch or a list from a version before it is gone.
    oldest: u64,
    /// Each with what the line of its request begins with.
    faults: VecDeque<(String, Fault)>,
    /// Whether each connection is closed.
    is_away: bool,
    token: Option<String>,
    page_max: Option<usize>,
    /// The requests, as `LIST all`, `WATCH 17 NAME` and `PUT NAME`.
    requests: Vec<String>,
}

/// The server.
pub struct Api {
    /// The address of the first listener.
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// Counts changes; 0 ends all watches.
    changed: watch::Sender<u64>,
}

/// The objects at a moment.
pub struct Snapshot {
    version: u64,
    objects: BTreeMap<Name, Value>,
}

impl Api {
    /// Serves from this thread's namespace.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with(vec![TcpListener::bind("127.0.0.1:0").unwrap()])
    }

    /// Serves connections of several namespaces.
    #[must_use]
    pub fn start_with(listeners: Vec<TcpListener>) -> Self {
        let (changed, _) = watch::channel(1);
        let nodes = Resource {
            version: "v1".to_owned(),
            kind: "Node".to_owned(),
            plural: "nodes".to_owned(),
            ..Resource::default()
        };
        let namespaces = ["default", "kube-system"].map(str::to_owned).into();
        let state = State { resources: vec![nodes], namespaces, ..State::default() };
        let (state, address) = (Arc::new(Mutex::new(state)), listeners[0].local_addr().unwrap());
        let (own, sender) = (Arc::clone(&state), changed.clone());
        thread::spawn(move || {
            let events = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            events.block_on(async move {
                for listener in listeners {
                    tokio::spawn(requests::accept(listener, Arc::clone(&own), sender.clone()));
                }
                pending::<()>().await;
            });
        });
        Self { address, state, changed }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Serves the resource of a manifest's `CustomResourceDefinition`, in its first version.
    pub fn define(&self, manifest: &str) {
        let all: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap();
        let spec = &all.iter().find(|object| object["kind"] == "CustomResourceDefinition").unwrap()["spec"];
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        self.state().resources.push(Resource {
            group: text(&spec["group"]),
            version: text(&spec["versions"][0]["name"]),
            kind: text(&spec["names"]["kind"]),
            plural: text(&spec["names"]["plural"]),
            is_namespaced: spec["scope"] == "Namespaced",
            schema: spec["versions"][0]["schema"]["openAPIV3Schema"].clone(),
        });
    }

    /// Makes or changes a node.
    pub fn put(&self, name: &str, cidrs: &[&str], internal_ips: &[&str]) {
        let addresses: Vec<_> = internal_ips.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
        let mut node = json!({"metadata": {"name": name}, "spec": {}, "status": {"addresses": addresses}});
        if let Some(first) = cidrs.first() {
            node["spec"] = json!({"podCIDR": first, "podCIDRs": cidrs});
        }
        self.state().keep(&("nodes".to_owned(), String::new(), name.to_owned()), node);
        self.announce();
    }

    /// Removes a node.
    pub fn delete(&self, name: &str) {
        self.state().remove(&("nodes".to_owned(), String::new(), name.to_owned()));
        self.announce();
    }

    /// The objects of a resource by their names.
    #[must_use]
    pub fn objects(&self, plural: &str) -> BTreeMap<String, Value> {
        let state = self.state();
        let of = state.objects.iter().filter(|((of, ..), _)| of == plural);
        of.map(|((.., name), object)| (name.clone(), object.clone())).collect()
    }

    /// Changes an object, as another client does.
    pub fn change(&self, plural: &str, name: &str, change: impl FnOnce(&mut Value)) {
        let mut state = self.state();
        let key = state.objects.keys().find(|(of, _, own)| of == plural && own == name).unwrap().clone();
        let mut object = state.objects[&key].clone();
        change(&mut object);
        state.keep(&key, object);
        drop(state);
        self.announce();
    }

    /// Removes all objects of a resource.
    pub fn empty(&self, plural: &str) {
        let mut state = self.state();
        let names: Vec<_> = state.objects.keys().filter(|(of, ..)| of == plural).cloned().collect();
        names.iter().for_each(|name| state.remove(name));
        drop(state);
        self.announce();
    }

    /// Copies all objects, as a backup of etcd does.
    #[must_use]
    pub fn save(&self) -> Snapshot {
        let state = self.state();
        Snapshot { version: state.version, objects: state.objects.clone() }
    }

    /// Goes back to a copy, and counts versions on from there.
    pub fn restore(&self, snapshot: Snapshot) {
        let mut state = self.state();
        (state.version, state.objects) = (snapshot.version, snapshot.objects);
        state.log.clear();
        drop(state);
        self.end_watches();
    }

    fn announce(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// Forgets changes, as etcd's compaction does, and ends all watches: those of older versions are gone.
    pub fn compact(&self) {
        let mut state = self.state();
        state.version += 1;
        state.oldest = state.version;
        state.log.clear();
        drop(state);
        self.end_watches();
    }

    fn end_watches(&self) {
        self.changed.send_replace(0);
        self.changed.send_replace(1);
    }

    /// Ends all watches; the next requests get these faults.
    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state().faults.extend(faults.into_iter().map(|fault| (String::new(), fault)));
        self.end_watches();
    }

    /// Lets the next request whose line begins so get this fault.
    pub fn fail_at(&self, request: &str, fault: Fault) {
        self.state().faults.push_back((request.to_owned(), fault));
    }

    /// Closes each connection, or ends that.
    pub fn is_away(&self, is_away: bool) {
        self.state().is_away = is_away;
        self.end_watches();
    }

    /// Accepts this token alone.
    pub fn accept_token(&self, token: &str) {
        self.state().token = Some(token.to_owned());
        self.end_watches();
    }

    /// Ends each page of a list after so many objects at the latest.
    pub fn end_pages_after(&self, count: usize) {
        self.state().page_max = Some(count);
    }

    /// The requests so far, as `LIST all`, `WATCH 17 NAME` and `PUT NAME`.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    /// The number of faults that no request has got yet.
    #[must_use]
    pub fn faults_left(&self) -> usize {
        self.state().faults.len()
    }
}
