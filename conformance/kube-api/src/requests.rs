//! Requests: what they ask for, their faults, and the form of answers.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::TcpListener;
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::objects::{Done, Refused};
use crate::watches::Watch;
use crate::{Fault, Name, Resource, State};

type Body = BoxBody<Bytes, io::Error>;

/// The objects that a list or a watch is of.
pub(crate) struct Selection {
    plural: String,
    /// Empty: all.
    namespace: String,
    name: Option<String>,
    labels: Vec<(String, String)>,
    /// The kind of an object, as it names itself.
    pub(crate) kind: Value,
}

impl Selection {
    pub(crate) fn has(&self, name: &Name, object: &Value) -> bool {
        name.0 == self.plural
            && (self.namespace.is_empty() || name.1 == self.namespace)
            && self.name.as_ref().is_none_or(|wanted| name.2 == *wanted)
            && self.labels.iter().all(|(key, value)| object["metadata"]["labels"][key] == **value)
    }
}

pub(crate) async fn accept(listener: TcpListener, state: Arc<Mutex<State>>, changed: watch::Sender<u64>) {
    listener.set_nonblocking(true).unwrap();
    let listener = tokio::net::TcpListener::from_std(listener).unwrap();
    while let Ok((stream, _)) = listener.accept().await {
        let (state, changed) = (Arc::clone(&state), changed.clone());
        tokio::spawn(async move {
            let service = service_fn(async |request| answer(request, &state, &changed).await);
            // A fault, or the client's end.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

/// The place that a path names: a resource, a namespace if it has one, and an object.
struct Place {
    resource: Resource,
    namespace: String,
    name: Option<String>,
}

fn place(state: &State, path: &str) -> Option<Place> {
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, plural, rest) = match rest {
        ["namespaces", namespace, plural, rest @ ..] => (*namespace, *plural, rest),
        [plural, rest @ ..] => ("", *plural, rest),
        [] => return None,
    };
    let is_it = |one: &&Resource| one.group == group && one.version == version && one.plural == plural;
    let resource = state.resources.iter().find(is_it)?.clone();
    let name = rest.first().map(|name| (*name).to_owned());
    Some(Place { resource, namespace: namespace.to_owned(), name })
}

/// The words of a query.
fn query_of(uri: &hyper::Uri) -> BTreeMap<String, String> {
    let plain = |text: &str| {
        [("%3D", "="), ("%2C", ","), ("%2F", "/")]
            .iter()
            .fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    };
    let pairs = uri.query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.to_owned(), plain(value))).collect()
}

async fn answer(
    request: Request<Incoming>,
    state: &Arc<Mutex<State>>,
    changed: &watch::Sender<u64>,
) -> io::Result<Response<Body>> {
    let (parts, body) = request.into_parts();
    let query = query_of(&parts.uri);
    let of = |key: &str| query.get(key).map(String::as_str);
    let is_watch = query.contains_key("watch");
    let selector = of("fieldSelector").map(|text| text.replace("metadata.name=", ""));
    let from: u64 = of("resourceVersion").and_then(|text| text.parse().ok()).unwrap_or_default();
    let path = parts.uri.path().to_owned();
    let place = place(&state.lock().unwrap(), &path);
    let last = || path.rsplit('/').next().unwrap_or_default();
    let wanted = || selector.as_deref().or(of("labelSelector")).unwrap_or("all");
    let line = match place.as_ref().is_some_and(|place| place.name.is_none()) {
        true if is_watch => format!("WATCH {from} {}", wanted()),
        true if parts.method == Method::GET => format!("LIST {}", wanted()),
        _ => format!("{} {}", parts.method, last()),
    };
    let given = parts.headers.get("authorization").and_then(|text| text.to_str().ok());
    let fault = state.lock().unwrap().fault(line, given);
    match fault {
        Some(Fault::Status(code)) => return Ok(status(code)),
        Some(Fault::Drop) => return Err(io::ErrorKind::ConnectionReset.into()),
        Some(Fault::Hang) => pending().await,
        Some(Fault::Half) | None => {}
    }
    let Some(place) = place else { return Ok(discovery(&state.lock().unwrap(), &path)) };
    let labels = of("labelSelector").unwrap_or_default().split(',').filter_map(|pair| pair.split_once('='));
    let selection = Selection {
        plural: place.resource.plural.clone(),
        namespace: place.namespace.clone(),
        name: selector,
        labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        kind: json!({ "apiVersion": place.resource.api_version(), "kind": place.resource.kind }),
    };
    if is_watch {
        let seconds = of("timeoutSeconds").and_then(|text| text.parse().ok()).unwrap_or(60);
        let wants_bookmarks = of("allowWatchBookmarks") == Some("true");
        let (sender, mut receiver) = mpsc::channel(1);
        let watch = Watch { state: Arc::clone(state), changed: changed.subscribe(), selection, from, wants_bookmarks };
        tokio::spawn(watch.send(sender, Duration::from_secs(seconds)));
        let frames = stream::poll_fn(move |context| receiver.poll_recv(context));
        let body = StreamBody::new(frames).boxed();
        return Ok(Response::builder().header("content-type", "application/json").body(body).unwrap());
    }
    let bytes = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let is_write = parts.method != Method::GET;
    let done = match parts.method {
        Method::GET if place.name.is_none() => state.lock().unwrap().list(&selection, &query),
        Method::GET => state.lock().unwrap().read(&place),
        method => {
            // `kubectl apply` sends YAML.
            let yaml = |_| serde_saphyr::from_str(std::str::from_utf8(&bytes).unwrap_or_default()).ok();
            let body = serde_json::from_slice(&bytes).map(Some).unwrap_or_else(yaml).unwrap_or_default();
            let is_apply = parts.headers.get("content-type").is_some_and(|kind| kind == "application/apply-patch+yaml");
            state.lock().unwrap().serve(&method, &place, body, (of("dryRun") == Some("All"), is_apply))
        }
    };
    if is_write {
        changed.send_modify(|count| *count += 1);
    }
    let (code, value) = done.unwrap_or_else(|refused| (refused.code, refused.to_status()));
    let text = value.to_string();
    let half = matches!(fault, Some(Fault::Half)).then(|| text[..text.len() / 2].to_owned());
    Ok(half.map_or_else(|| whole(code, text), cut))
}

impl State {
    /// Notes a request, and takes the fault that it gets.
    fn fault(&mut self, line: String, authorization: Option<&str>) -> Option<Fault> {
        let token = self.token.as_ref().map(|token| format!("Bearer {token}"));
        let at = self.faults.iter().position(|(of, _)| line.starts_with(of));
        self.requests.push(line);
        match token {
            _ if self.is_away => Some(Fault::Drop),
            Some(token) if authorization != Some(&token) => Some(Fault::Status(401)),
            _ => self.faults.remove(at?).map(|(_, fault)| fault),
        }
    }

    /// A page of a list: the place where the next one begins is the version of the first page, and the last name.
    fn list(&self, selection: &Selection, query: &BTreeMap<String, String>) -> Done {
        let number = |key: &str| query.get(key).and_then(|text| text.parse().ok());
        let most = [number("limit"), self.page_max].into_iter().flatten().filter(|most| *most > 0).min();
        let start = query.get("continue").and_then(|text| text.split_once('~'));
        let version = start.and_then(|(version, _)| version.parse().ok()).unwrap_or(self.version);
        if version < self.oldest {
            let message = "The provided continue parameter is too old".to_owned();
            return Err(Refused { code: 410, reason: "Expired", message, details: Value::Null });
        }
        let after = start.and_then(|(_, rest)| rest.split_once('~'));
        let after = after.map(|(namespace, name)| (selection.plural.clone(), namespace.to_owned(), name.to_owned()));
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let mut all = self.objects.range(range).filter(|(name, object)| selection.has(name, object)).peekable();
        let page: Vec<_> = all.by_ref().take(most.unwrap_or(usize::MAX)).collect();
        let mut metadata = json!({ "resourceVersion": version.to_string() });
        if let (Some(((_, namespace, name), _)), true) = (page.last(), all.peek().is_some()) {
            metadata["continue"] = format!("{version}~{namespace}~{name}").into();
        }
        let items: Vec<_> = page.into_iter().map(|(_, object)| object).collect();
        let kind = format!("{}List", selection.kind["kind"].as_str().unwrap_or_default());
        let version = &selection.kind["apiVersion"];
        Ok((200, json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "items": items })))
    }

    fn read(&self, place: &Place) -> Done {
        let own = place.name.clone().unwrap_or_default();
        let object = self.get(&(place.resource.plural.clone(), place.namespace.clone(), own))?;
        Ok((200, object.clone()))
    }

    fn serve(&mut self, method: &Method, place: &Place, body: Value, (is_dry, is_apply): (bool, bool)) -> Done {
        let resource = &place.resource;
        let Some(own) = &place.name else {
            return self.create(resource, &place.namespace, body, is_dry);
        };
        let name = (resource.plural.clone(), place.namespace.clone(), own.clone());
        match *method {
            Method::PUT => self.update(resource, &name, body, is_dry),
            Method::PATCH => self.patch(resource, &name, body, is_apply),
            _ => self.delete(&name, &body),
        }
    }
}

/// Answers the questions that `kubectl` has before it asks for objects.
fn discovery(state: &State, path: &str) -> Response<Body> {
    let verbs = ["create", "delete", "get", "list", "patch", "update", "watch"];
    let of_group = |group: &str| {
        let resources = state.resources.iter().filter(|resource| resource.api_version() == group);
        let entry = |one: &Resource| json!({"name": one.plural, "singularName": one.kind.to_lowercase(), "kind": one.kind, "namespaced": one.is_namespaced, "verbs": verbs});
        let all: Vec<_> = resources.map(entry).collect();
        json!({"kind": "APIResourceList", "groupVersion": group, "resources": all})
    };
    let groups = state.resources.iter().filter(|resource| !resource.group.is_empty()).map(|one| {
        let version = json!({"groupVersion": one.api_version(), "version": one.version});
        json!({"name": one.group, "versions": [version], "preferredVersion": version})
    });
    let known = |group: &str| state.resources.iter().any(|resource| resource.api_version() == group);
    let group = path.strip_prefix("/apis/").or(path.strip_prefix("/api/")).unwrap_or_default();
    match path {
        "/api" => whole(200, json!({"kind": "APIVersions", "versions": ["v1"]}).to_string()),
        "/apis" => {
            let groups: Vec<_> = groups.collect();
            whole(200, json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}).to_string())
        }
        _ if known(group) => whole(200, of_group(group).to_string()),
        _ => {
            let mut response = whole(404, "404 page not found\n".to_owned());
            response.headers_mut().insert("content-type", "text/plain".parse().unwrap());
            response
        }
    }
}

impl Refused {
    fn to_status(&self) -> Value {
        let Self { code, reason, message, details } = self;
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": message, "details": details})
    }
}

fn status(code: u16) -> Response<Body> {
    let message = format!("a fault of the test: {code}");
    let mut response =
        whole(code, Refused { code, reason: "Test", message, details: json!({}) }.to_status().to_string());
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
