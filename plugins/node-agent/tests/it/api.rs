//! A server with the nodes of Kubernetes' API: lists, watches with bookmarks, field selectors, `410 Gone`, and faults on request.

use futures::stream;
use http_body_util::{BodyExt, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

/// What the next request gets instead of its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Status(u16),
    /// The connection is closed.
    Drop,
    /// Nothing is said.
    Hang,
    /// The first half of the answer, then the connection is closed.
    Half,
}

#[derive(Default)]
struct State {
    version: u64,
    nodes: BTreeMap<String, Value>,
    /// Each change: its version, its kind, the node.
    log: Vec<(u64, &'static str, Value)>,
    /// A watch from a version before it is gone.
    oldest: u64,
    faults: VecDeque<Fault>,
    /// Whether each connection is closed.
    is_away: bool,
    token: Option<String>,
    /// The requests, as `LIST` and `WATCH 17`, with their field selectors.
    requests: Vec<String>,
}

pub(crate) struct Api {
    pub(crate) address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// Counts changes; a number of `u64::MAX` ends all watches.
    changed: watch::Sender<u64>,
}

type Body = BoxBody<Bytes, io::Error>;

impl Api {
    /// Serves from this thread's namespace.
    pub(crate) fn start() -> Self {
        Self::start_with(vec![TcpListener::bind("127.0.0.1:0").unwrap()])
    }

    /// Serves connections of several namespaces.
    pub(crate) fn start_with(listeners: Vec<TcpListener>) -> Self {
        let (changed, _) = watch::channel(0);
        let (state, address) = (Arc::<Mutex<State>>::default(), listeners[0].local_addr().unwrap());
        let (own, sender) = (Arc::clone(&state), changed.clone());
        thread::spawn(move || {
            let events = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            events.block_on(async move {
                for listener in listeners {
                    tokio::spawn(accept(listener, Arc::clone(&own), sender.clone()));
                }
                pending::<()>().await;
            });
        });
        Self { address, state, changed }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Makes or changes a node.
    pub(crate) fn put(&self, name: &str, cidrs: &[&str], internal_ips: &[&str]) {
        let addresses: Vec<_> = internal_ips.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
        let mut node = json!({"metadata": {"name": name}, "spec": {}, "status": {"addresses": addresses}});
        if let Some(first) = cidrs.first() {
            node["spec"] = json!({"podCIDR": first, "podCIDRs": cidrs});
        }
        let kind = if self.state().nodes.contains_key(name) { "MODIFIED" } else { "ADDED" };
        self.log(name, kind, node);
    }

    pub(crate) fn delete(&self, name: &str) {
        let node = self.state().nodes[name].clone();
        self.log(name, "DELETED", node);
    }

    fn log(&self, name: &str, kind: &'static str, mut node: Value) {
        let mut state = self.state();
        state.version += 1;
        node["apiVersion"] = "v1".into();
        node["kind"] = "Node".into();
        node["metadata"]["resourceVersion"] = state.version.to_string().into();
        match kind {
            "DELETED" => drop(state.nodes.remove(name)),
            _ => drop(state.nodes.insert(name.to_owned(), node.clone())),
        }
        let entry = (state.version, kind, node);
        state.log.push(entry);
        drop(state);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Forgets changes, as etcd's compaction does, and ends all watches: those of older versions are gone.
    pub(crate) fn compact(&self) {
        let mut state = self.state();
        state.version += 1;
        state.oldest = state.version;
        state.log.clear();
        drop(state);
        self.end_watches();
    }

    fn end_watches(&self) {
        self.changed.send_replace(u64::MAX);
        self.changed.send_replace(0);
    }

    /// Ends all watches; the next requests get these faults.
    pub(crate) fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state().faults.extend(faults);
        self.end_watches();
    }

    pub(crate) fn is_away(&self, is_away: bool) {
        self.state().is_away = is_away;
        self.end_watches();
    }

    /// Accepts this token alone.
    pub(crate) fn accept_token(&self, token: &str) {
        self.state().token = Some(token.to_owned());
        self.end_watches();
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.state().requests.clone()
    }

    pub(crate) fn faults_left(&self) -> usize {
        self.state().faults.len()
    }
}

async fn accept(listener: TcpListener, state: Arc<Mutex<State>>, changed: watch::Sender<u64>) {
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let (state, changed) = (Arc::clone(&state), changed.clone());
        tokio::spawn(async move {
            let service = service_fn(async |request| answer(&request, &state, changed.subscribe()).await);
            // A fault, or the agent's end.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn answer(
    request: &Request<Incoming>,
    state: &Arc<Mutex<State>>,
    changed: watch::Receiver<u64>,
) -> io::Result<Response<Body>> {
    let query: BTreeMap<_, _> =
        request.uri().query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('=')).collect();
    let is_watch = query.contains_key("watch");
    let selector = query.get("fieldSelector").map(|text| text.replace("%3D", "=").replace("metadata.name=", ""));
    let from: u64 = query.get("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or_default();
    let fault = {
        let mut state = state.lock().unwrap();
        let what = if is_watch { format!("WATCH {from}") } else { "LIST".to_owned() };
        state.requests.push(format!("{what} {}", selector.as_deref().unwrap_or("all")));
        let token = state.token.as_ref().map(|token| format!("Bearer {token}"));
        let given = request.headers().get("authorization").and_then(|text| text.to_str().ok());
        match (state.is_away, token) {
            (true, _) => Some(Fault::Drop),
            (false, Some(token)) if given != Some(&token) => Some(Fault::Status(401)),
            (false, _) => state.faults.pop_front(),
        }
    };
    match fault {
        Some(Fault::Status(code)) => return Ok(status(code)),
        Some(Fault::Drop) => return Err(io::ErrorKind::ConnectionReset.into()),
        Some(Fault::Hang) => pending().await,
        Some(Fault::Half) | None => {}
    }
    if request.uri().path() != "/api/v1/nodes" {
        return Ok(discovery(request.uri().path()));
    }
    if !is_watch {
        let text = list(&state.lock().unwrap(), selector.as_deref()).to_string();
        let half = matches!(fault, Some(Fault::Half)).then(|| text[..text.len() / 2].to_owned());
        return Ok(half.map_or_else(|| whole(200, text), cut));
    }
    let seconds = query.get("timeoutSeconds").and_then(|text| text.parse().ok()).unwrap_or(60);
    let wants_bookmarks = query.get("allowWatchBookmarks") == Some(&"true");
    let (sender, mut receiver) = mpsc::channel(1);
    let watch = Watch { state: Arc::clone(state), changed, selector, from, wants_bookmarks };
    tokio::spawn(watch.send(sender, Duration::from_secs(seconds)));
    let frames = stream::poll_fn(move |context| receiver.poll_recv(context));
    Ok(Response::builder().header("content-type", "application/json").body(StreamBody::new(frames).boxed()).unwrap())
}

fn list(state: &State, selector: Option<&str>) -> Value {
    let is_wanted = |name: &String| selector.is_none_or(|wanted| wanted == name);
    let items: Vec<_> = state.nodes.iter().filter(|(name, _)| is_wanted(name)).map(|(_, node)| node).collect();
    json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": state.version.to_string()}, "items": items})
}

/// A client's watch.
struct Watch {
    state: Arc<Mutex<State>>,
    changed: watch::Receiver<u64>,
    selector: Option<String>,
    from: u64,
    wants_bookmarks: bool,
}

type Sent = mpsc::Sender<io::Result<Frame<Bytes>>>;

impl Watch {
    /// Sends changes, in each break of them a bookmark, until the time is over or the client has gone.
    async fn send(mut self, sender: Sent, time: Duration) {
        let end = Instant::now() + time;
        loop {
            for event in self.events() {
                let is_gone = event["type"] == "ERROR";
                if sender.send(Ok(Frame::data(Bytes::from(format!("{event}\n"))))).await.is_err() || is_gone {
                    return;
                }
            }
            match timeout_at(end, self.changed.changed()).await {
                Ok(Ok(())) if *self.changed.borrow_and_update() != 0 => {}
                _ => return,
            }
        }
    }

    fn events(&mut self) -> Vec<Value> {
        let state = self.state.lock().unwrap();
        if self.from < state.oldest {
            let status = json!({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old resource version"});
            return vec![json!({"type": "ERROR", "object": status})];
        }
        let is_wanted = |node: &Value| self.selector.as_ref().is_none_or(|wanted| node["metadata"]["name"] == **wanted);
        let new = state.log.iter().filter(|(version, _, node)| *version > self.from && is_wanted(node));
        let mut events: Vec<_> = new.map(|(_, kind, node)| json!({"type": kind, "object": node})).collect();
        if self.wants_bookmarks && events.is_empty() && state.version > self.from {
            let version = json!({"resourceVersion": state.version.to_string()});
            events
                .push(json!({"type": "BOOKMARK", "object": {"apiVersion": "v1", "kind": "Node", "metadata": version}}));
        }
        self.from = state.version;
        events
    }
}

/// What `kubectl` asks for before it asks for nodes.
fn discovery(path: &str) -> Response<Body> {
    let verbs = ["list", "watch"];
    let resource = json!({"name": "nodes", "singularName": "node", "kind": "Node", "namespaced": false, "verbs": verbs, "shortNames": ["no"]});
    match path {
        "/api" => whole(200, json!({"kind": "APIVersions", "versions": ["v1"]}).to_string()),
        "/apis" => whole(200, json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": []}).to_string()),
        "/api/v1" => {
            whole(200, json!({"kind": "APIResourceList", "groupVersion": "v1", "resources": [resource]}).to_string())
        }
        _ => status(404),
    }
}

fn status(code: u16) -> Response<Body> {
    let text = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": format!("a fault of the test: {code}"), "reason": "Test"});
    let mut response = whole(code, text.to_string());
    response.headers_mut().insert("retry-after", "1".parse().unwrap());
    response
}

fn whole(code: u16, text: String) -> Response<Body> {
    let body = Full::new(Bytes::from(text)).map_err(|never: Infallible| match never {}).boxed();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response.headers_mut().insert("content-type", "application/json".parse().unwrap());
    response
}

fn cut(text: String) -> Response<Body> {
    let frames = [Ok(Frame::data(Bytes::from(text))), Err(io::ErrorKind::ConnectionReset.into())];
    Response::new(StreamBody::new(stream::iter(frames)).boxed())
}
