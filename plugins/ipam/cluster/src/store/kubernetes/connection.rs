//! Requests to the API: credentials, time, and what is said of those that fail.

use std::cell::{Cell, RefCell};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cluster_keys::KubernetesConf;
use cni_spec::{CniError, Code};
use http::{Method, Request, StatusCode};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::Value;
use tokio::runtime::{self, Handle};

use crate::store::event_loop;
use crate::this_node;

/// The key that names the credentials.
const KUBECONFIG: &str = "ipam.store.kubernetes.kubeconfig";
/// The pause before an API that did not answer is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// An answer of the API, which is no refusal.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    bytes: Bytes,
}

impl Answer {
    /// The words of the API; of a request that failed, its `Status`.
    pub(super) fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    pub(super) fn message(&self) -> String {
        let plain = String::from_utf8_lossy(&self.bytes);
        format!("status {}: {}", self.status.as_u16(), self.value()["message"].as_str().unwrap_or(plain.trim()))
    }

    /// Whether this very object is not there; the resource or the namespace may be missing, too.
    pub(super) fn is_without(&self, name: &str) -> bool {
        let details = &self.value()["details"];
        self.status == StatusCode::NOT_FOUND && details["name"] == name && details["kind"] != "namespaces"
    }
}

/// The outcome of one request.
enum Sent {
    Answered(Answer, Option<Duration>),
    /// Nothing is known of it.
    Lost(String),
}

/// The connection to the API, which is made by the first request.
pub(super) struct Connection {
    conf: KubernetesConf,
    timeout: Duration,
    /// When the API's time is over: it begins anew with each answer.
    deadline: Cell<Option<Instant>>,
    /// The client, of the event loop that has its connections, and the API's address.
    open: RefCell<Option<(runtime::Id, Client, String)>>,
}

impl Connection {
    pub(super) fn new(conf: &KubernetesConf, timeout: Duration) -> Self {
        Self { conf: conf.clone(), timeout, deadline: Cell::new(None), open: RefCell::new(None) }
    }

    /// Asks the API until it answers or the time is over. A write of which it may have got something is not sent again.
    ///
    /// # Errors
    /// Code 7: the credentials cannot be used. Code 102: they do not suffice. Code 11: the API does not serve in time.
    pub(super) async fn call(&self, method: &Method, path: &str, body: Option<&Value>) -> Result<Answer, CniError> {
        event_loop().await;
        let deadline = self.deadline.get().unwrap_or_else(|| Instant::now() + self.timeout);
        self.deadline.set(Some(deadline));
        let (is_write, mut is_renewed) = (*method != Method::GET, false);
        loop {
            let (client, server) = self.client().await?;
            let sent = tokio::time::timeout_at(deadline.into(), send(&client, method, path, body)).await;
            let silence = || Sent::Lost(format!("no answer within {} s", self.timeout.as_secs()));
            let (why, wait, is_over) = match sent.unwrap_or_else(|_elapsed| silence()) {
                Sent::Answered(answer, retry_after) => match answer.status {
                    // A token or a certificate is another one since it was read.
                    StatusCode::UNAUTHORIZED if !is_renewed => {
                        is_renewed = true;
                        self.open.take();
                        continue;
                    }
                    StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => return Err(self.refused(&server, &answer)),
                    // The API says so before it looks at a request.
                    StatusCode::TOO_MANY_REQUESTS => (answer.message(), retry_after, false),
                    status if status.is_server_error() => (answer.message(), retry_after, is_write),
                    _ => {
                        self.deadline.set(None);
                        return Ok(answer);
                    }
                },
                Sent::Lost(why) => {
                    self.open.take();
                    (why, None, is_write)
                }
            };
            // Those that were told the same time do not come at the same moment.
            let wait = wait.unwrap_or(PAUSE).mul_f64(1.0 + this_node::random_part()? / 2.0);
            if deadline.saturating_duration_since(Instant::now()) <= wait {
                return Err(self.unavailable(&server, &why));
            }
            pause(wait).await;
            if is_over {
                return Err(self.unavailable(&server, &why));
            }
        }
    }

    async fn client(&self) -> Result<(Client, String), CniError> {
        let here = Handle::current().id();
        if let Some((of, client, server)) = &*self.open.borrow()
            && *of == here
        {
            return Ok((client.clone(), server.clone()));
        }
        let (client, server) = connect(&self.conf.kubeconfig).await?;
        self.open.replace(Some((here, client.clone(), server.clone())));
        Ok((client, server))
    }

    fn unavailable(&self, server: &str, why: &str) -> CniError {
        let text = format!("the store, Kubernetes at {server}, is not available");
        CniError::new(Code::TRY_AGAIN, text).detail(format!(
            "{why}. Key {KUBECONFIG} names it; look at it: kubectl --kubeconfig {} get --raw /readyz",
            self.conf.kubeconfig.display()
        ))
    }

    fn refused(&self, server: &str, answer: &Answer) -> CniError {
        let (namespace, path) = (&self.conf.namespace, self.conf.kubeconfig.display());
        let text = format!("Kubernetes at {server} refuses the node: {}", answer.message());
        CniError::new(Code::PERMISSION, text).detail(match answer.status {
            StatusCode::UNAUTHORIZED => format!("The credentials in {path} ({KUBECONFIG}) are not valid: renew them."),
            _ => format!(
                "The user in {path} ({KUBECONFIG}) needs get, list, create, update and delete of {} in namespace {namespace}: kubectl apply -k cluster-store, \
                 of the manifests",
                super::RESOURCE
            ),
        })
    }
}

/// Reads the credentials; connects nowhere yet.
async fn connect(path: &Path) -> Result<(Client, String), CniError> {
    let unusable = |why: &str| CniError::invalid_key(KUBECONFIG, path.display(), why);
    refuse_readable(path, path)?;
    let failed = |error: &dyn std::error::Error| unusable(&format!("the file cannot be used: {}", innermost(error)));
    let read = Kubeconfig::read_from(path).map_err(|error| failed(&error))?;
    let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
    let mut config = config.map_err(|error| failed(&error))?;
    if config.auth_info.exec.is_some() || config.auth_info.auth_provider.is_some() {
        return Err(unusable("no process is started for credentials: name a certificate, or tokenFile"));
    }
    for file in [&config.auth_info.client_key, &config.auth_info.token_file].into_iter().flatten() {
        refuse_readable(Path::new(file), path)?;
    }
    // The time of all tries is bounded, and a write that may be done is not sent again.
    config.default_retry = false;
    let server = config.cluster_url.to_string();
    let client = Client::try_from(config).map_err(|error| failed(&error))?;
    Ok((client, server.trim_end_matches('/').to_owned()))
}

/// Refuses a file with secrets that others may read.
fn refuse_readable(file: &Path, kubeconfig: &Path) -> Result<(), CniError> {
    let refused = |why: &str| CniError::invalid_key(KUBECONFIG, kubeconfig.display(), why);
    let metadata = std::fs::metadata(file);
    let metadata = metadata.map_err(|error| refused(&format!("{} cannot be read: {error}", file.display())))?;
    match metadata.mode() & 0o077 {
        0 => Ok(()),
        _ => Err(refused(&format!("others may read {0}: chmod 600 {0}", file.display()))),
    }
}

async fn send(client: &Client, method: &Method, path: &str, body: Option<&Value>) -> Sent {
    let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    let answered = async {
        let request = request.body(Body::from(body)).map_err(kube::Error::HttpError)?;
        let response = client.send(request).await?;
        let seconds = response.headers().get("retry-after").and_then(|text| text.to_str().ok()?.parse().ok());
        let status = response.status();
        let bytes = response.into_body().collect_bytes().await?;
        Ok((Answer { status, bytes }, seconds.map(Duration::from_secs)))
    };
    match answered.await {
        Ok((answer, retry_after)) => Sent::Answered(answer, retry_after),
        Err(error) => Sent::Lost(innermost::<kube::Error>(&error)),
    }
}

/// The cause that the kernel or the other side named: each error around repeats it.
fn innermost<E: std::error::Error + ?Sized>(error: &E) -> String {
    let causes = std::iter::successors(error.source(), |error| error.source());
    causes.last().map_or_else(|| error.to_string(), ToString::to_string)
}

#[expect(clippy::disallowed_methods, reason = "no event of another machine can be awaited")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
