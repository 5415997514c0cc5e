//! The API of Kubernetes: a record is one string in an object of its own, and its version is the object's `resourceVersion`. Writes are made one after
//! the other.
//!
//! The API gives an object that is written as it was no new version, so each write has a number of its own: a message that comes late is to name a version
//! that is over. A record that was removed has no version; what comes late then makes one anew, but runs are never removed, and no address is anyone's by
//! another record.
//!
//! An object has the exact network and key beside the record, as its name may be a hash; and labels, by which records are listed. The record is a
//! string, as the API keeps a list of all fields of an object with who has written each.

mod connection;
mod name;

use std::time::Duration;

use cluster_keys::KubernetesConf;
use cni_spec::{CniError, Code};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Found, Store, Written, decode, encode};
use crate::protocol::{Key, Record, Write};
use crate::this_node;
use connection::{Answer, Connection};

/// The objects' group, which is no domain that anyone can have: `internal` is reserved for private use.
const GROUP: &str = "cni-plugins-rust.internal";
/// The objects, as a role names them.
const RESOURCE: &str = "clusterrecords.cni-plugins-rust.internal";
/// Objects of one answer, which have 64 KiB each at most.
const PAGE: usize = 500;
/// How often a list begins anew because what it began with is gone.
const LISTS_MAX: usize = 3;

/// A network's records in Kubernetes.
pub struct Kubernetes {
    network: String,
    namespace: String,
    timeout: Duration,
    connection: Connection,
}

impl Kubernetes {
    /// The records of `network`.
    #[must_use]
    pub fn new(conf: &KubernetesConf, network: &str, timeout: Duration) -> Self {
        Self {
            network: network.to_owned(),
            namespace: conf.namespace.clone(),
            timeout,
            connection: Connection::new(conf, timeout),
        }
    }

    /// The path of all objects, or of one, with the time after which the API gives up.
    fn path(&self, name: Option<&str>, query: &str) -> String {
        let name = name.map(|name| format!("/{name}")).unwrap_or_default();
        let (namespace, seconds) = (&self.namespace, self.timeout.as_secs());
        format!("/apis/{GROUP}/v1/namespaces/{namespace}/clusterrecords{name}?timeout={seconds}s{query}")
    }

    async fn get(&self, key: &Key) -> Result<Found, CniError> {
        let name = name::object(&self.network, key);
        let answer = self.connection.call(&Method::GET, &self.path(Some(&name), ""), None).await?;
        if answer.is_without(&name) {
            return Ok((0, None));
        }
        let object = self.expect(answer)?.value();
        if !self.is_of(&object, key) {
            let why = format!("it has record {} of network {}", object["spec"]["key"], object["spec"]["network"]);
            return Err(self.unusable(&name, &why));
        }
        self.found(key, &object)
    }

    fn is_of(&self, object: &Value, key: &Key) -> bool {
        object["spec"]["network"] == *self.network && object["spec"]["key"] == *key.to_string()
    }

    fn found(&self, key: &Key, object: &Value) -> Result<Found, CniError> {
        let name = text(&object["metadata"]["name"]);
        let version = text(&object["metadata"]["resourceVersion"]).parse();
        let version = version.map_err(|_no_number| self.unusable(name, "its resourceVersion is no number"))?;
        let record = decode(&format!("object {name} of Kubernetes"), key, text(&object["spec"]["record"]).as_bytes())?;
        Ok((version, Some(record)))
    }

    /// The answer of a request that did what it should.
    fn expect(&self, answer: Answer) -> Result<Answer, CniError> {
        match answer.status {
            status if status.is_success() => Ok(answer),
            StatusCode::NOT_FOUND => {
                let text = format!("Kubernetes has no {RESOURCE}, or no namespace {}", self.namespace);
                Err(CniError::new(Code::TRY_AGAIN, text).detail(format!(
                    "{}. Make them: kubectl apply -k cluster-store, of the manifests. Key ipam.store.kubernetes.namespace names the namespace.",
                    answer.message()
                )))
            }
            _ => Err(CniError::new(Code::IO, format!("Kubernetes takes no record: {}", answer.message()))),
        }
    }

    fn unusable(&self, place: &str, why: &str) -> CniError {
        let text = format!("cannot use the store, object {place} in namespace {}: {why}", self.namespace);
        CniError::new(Code::STATE, text).detail("No one but the plugin may write these objects.")
    }

    /// A key's object, to be written with this version; 0: it is new.
    fn object(&self, key: &Key, version: u64, record: &str) -> Result<Value, CniError> {
        let (text, name) = (key.to_string(), name::object(&self.network, key));
        let kind = text.split('/').next().unwrap_or_default();
        let labels = json!({ format!("{GROUP}/network"): name::label(&self.network), format!("{GROUP}/kind"): kind });
        let mut object = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRecord",
            "metadata": { "name": name, "namespace": self.namespace, "labels": labels },
            "spec": { "network": self.network, "key": text, "record": record, "write": this_node::random()? },
        });
        if version > 0 {
            object["metadata"]["resourceVersion"] = version.to_string().into();
        }
        Ok(object)
    }

    /// Sends an object as a new one, or in the place of that of its version; `false`: it has another one.
    async fn put(&self, object: &Value, query: &str) -> Result<bool, CniError> {
        let name = text(&object["metadata"]["name"]);
        let (method, path) = match object["metadata"].get("resourceVersion") {
            None => (Method::POST, self.path(None, query)),
            Some(_) => (Method::PUT, self.path(Some(name), query)),
        };
        self.done(name, self.connection.call(&method, &path, Some(object)).await?)
    }

    /// Whether a write was done; `false`: the object has another version, or is not there.
    fn done(&self, name: &str, answer: Answer) -> Result<bool, CniError> {
        let is_other = answer.status == StatusCode::CONFLICT || answer.is_without(name);
        if is_other { Ok(false) } else { self.expect(answer).map(|_| true) }
    }

    async fn store(&self, write: &Write) -> Result<bool, CniError> {
        match &write.record {
            Some(record) => self.put(&self.object(&write.key, write.version, &encode(&write.key, record)?)?, "").await,
            None if write.version == 0 => Ok(self.get(&write.key).await?.1.is_none()),
            None => {
                let name = name::object(&self.network, &write.key);
                let preconditions = json!({ "resourceVersion": write.version.to_string() });
                let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions });
                let path = self.path(Some(&name), "");
                self.done(&name, self.connection.call(&Method::DELETE, &path, Some(&options)).await?)
            }
        }
    }

    /// All objects of a kind, page by page; `None`: the state that the first page was of is gone.
    async fn pages(&self, kind: &str) -> Result<Option<Vec<Value>>, CniError> {
        let label = name::label(&self.network);
        let selector = format!("&limit={PAGE}&labelSelector={GROUP}/network%3D{label}%2C{GROUP}/kind%3D{kind}");
        let (mut all, mut query) = (Vec::new(), selector.clone());
        loop {
            let answer = self.connection.call(&Method::GET, &self.path(None, &query), None).await?;
            if answer.status == StatusCode::GONE {
                return Ok(None);
            }
            let mut list = self.expect(answer)?.value();
            let items = list["items"].as_array_mut().map(std::mem::take);
            all.extend(items.ok_or_else(|| self.unusable(kind, "the answer is no list"))?);
            match text(&list["metadata"]["continue"]) {
                "" => return Ok(Some(all)),
                // base64, for a URL already.
                next => query = format!("{selector}&continue={}", next.replace('=', "%3D").replace('+', "%2B")),
            }
        }
    }
}

/// A string, which is empty where there is none.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl Store for Kubernetes {
    async fn read(&self, keys: &[Key]) -> Result<Vec<Found>, CniError> {
        let mut found = Vec::new();
        for key in keys {
            found.push(self.get(key).await?);
        }
        Ok(found)
    }

    async fn list(&self, prefix: &str) -> Result<Vec<(Key, u64, Record)>, CniError> {
        let (kind, mut again) = (prefix.trim_end_matches('/'), 1..LISTS_MAX);
        let mut objects = self.pages(kind).await?;
        while objects.is_none() && again.next().is_some() {
            objects = self.pages(kind).await?;
        }
        let gone =
            || CniError::new(Code::TRY_AGAIN, "Kubernetes forgets what is listed before it is listed to its end");
        let mut all = Vec::new();
        for object in objects.ok_or_else(gone)? {
            // Anyone may label an object.
            let key = Key::parse(text(&object["spec"]["key"])).filter(|key| self.is_of(&object, key));
            if let Some(key) = key.filter(|key| key.to_string().starts_with(prefix))
                && object["metadata"]["name"] == *name::object(&self.network, &key)
                && let (version, Some(record)) = self.found(&key, &object)?
            {
                all.push((key, version, record));
            }
        }
        all.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        Ok(all)
    }

    /// By a write of the network's record that the API admits and does not do. It does not ask etcd for space.
    async fn check_writable(&self) -> Result<(), CniError> {
        let (version, record) = self.get(&Key::Network).await?;
        let text = record.map_or_else(|| Ok("{}".to_owned()), |record| encode(&Key::Network, &record))?;
        self.put(&self.object(&Key::Network, version, &text)?, "&dryRun=All").await.map(drop)
    }

    async fn write(&self, writes: &[Write]) -> Result<Written, CniError> {
        for (at, write) in writes.iter().enumerate() {
            if !self.store(write).await? {
                return Ok(if at == 0 { Written::Nothing } else { Written::InPart });
            }
        }
        Ok(Written::Done)
    }
}
