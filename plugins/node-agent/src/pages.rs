//! `/healthz` and `/metrics` over HTTP.

use anyhow::Context;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

/// The longest time for which a connection may be open.
const PATIENCE: Duration = Duration::from_secs(10);
/// More clients wait in the kernel's queue.
const CLIENTS_MAX: usize = 16;

/// The agent's state, as the pages show it.
#[derive(Debug, Clone, Default)]
pub struct Status {
    /// The reason why the network's file is not as it should be; `None`: it is.
    pub problem: Option<String>,
    pub is_range_known: bool,
    /// The file stays with a former range, as containers live there.
    pub is_held: bool,
    pub writes: u64,
    pub api_errors: u64,
    pub routes: usize,
    /// The routes that are wanted and not there.
    pub refused_routes: usize,
}

impl Status {
    fn metrics(&self) -> String {
        let rows = [
            ("range_known", "gauge", "The node's range of addresses is known.", u64::from(self.is_range_known)),
            (
                "ready",
                "gauge",
                "The network's file is as the range and the template say.",
                u64::from(self.problem.is_none()),
            ),
            (
                "range_change_held",
                "gauge",
                "The file keeps a former range, as containers live there.",
                u64::from(self.is_held),
            ),
            ("file_writes_total", "counter", "How often the network's file was written.", self.writes),
            ("api_errors_total", "counter", "How often the API of Kubernetes could not be asked.", self.api_errors),
            ("routes", "gauge", "Routes to other nodes.", self.routes as u64),
            ("routes_refused", "gauge", "Routes to other nodes that are not there.", self.refused_routes as u64),
        ];
        let row = |(name, kind, help, value)| {
            let name = format!("cni_node_agent_{name}");
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
        };
        rows.map(row).concat()
    }
}

/// Listens on an address, and answers in tasks of their own.
///
/// # Errors
/// The kernel does not give the address.
pub async fn serve(address: SocketAddr, status: watch::Receiver<Status>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    tracing::info!("pages http://{0}/healthz and http://{0}/metrics", listener.local_addr()?);
    tokio::spawn(async move {
        let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
        // The semaphore is never closed.
        while let Ok(place) = Arc::clone(&clients).acquire_owned().await {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let status = status.clone();
                    tokio::spawn(async move {
                        answer(stream, &status).await;
                        drop(place);
                    });
                }
                // The client has gone, or no file descriptor is free: a client's end frees one.
                Err(error) => {
                    tracing::debug!("cannot accept a connection: {error}");
                    drop(timeout(Duration::from_secs(1), std::future::pending::<()>()).await);
                }
            }
        }
    });
    Ok(())
}

async fn answer(stream: TcpStream, status: &watch::Receiver<Status>) {
    let service = service_fn(async |request: Request<Incoming>| {
        let status = status.borrow().clone();
        let (code, text) = match (request.uri().path(), &status.problem) {
            ("/metrics", _) => (StatusCode::OK, status.metrics()),
            ("/healthz", None) => (StatusCode::OK, "ok\n".to_owned()),
            ("/healthz", Some(problem)) => (StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
            _ => (StatusCode::NOT_FOUND, "pages are /healthz and /metrics\n".to_owned()),
        };
        let answer = Response::builder().status(code).header("content-type", "text/plain; version=0.0.4");
        Ok::<_, Infallible>(answer.body(Full::new(Bytes::from(text))).unwrap_or_default())
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(PATIENCE).keep_alive(false);
    // A client that goes away, or is slow, has no answer.
    drop(timeout(PATIENCE, server.serve_connection(TokioIo::new(stream), service)).await);
}
