//! A page over HTTP, for clients on this node.

use crate::output::say;
use anyhow::Context;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use libcni::Cancellation;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Notify};
use tokio::time::timeout;

/// Any user of the node can connect, so a page is collected at most this often.
const FRESH: Duration = Duration::from_secs(5);
/// How long a client may take for its request.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may be open.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(60);
/// The wait for file descriptors where no connection is open that could give one back.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// A newcomer takes the place of the oldest client that does not wait for a page. If all wait for one, it waits in the
/// kernel's queue.
const CLIENTS_MAX: usize = 64;

/// The last page, and when it was collected. `None`: it could not be.
type Last = Mutex<Option<(Instant, Option<Bytes>)>>;

/// Clients by the order in which they came.
type Clients = BTreeMap<u64, Rc<Client>>;

#[derive(Default)]
struct Client {
    /// The client has sent its request, and no answer is ready.
    waits: Cell<bool>,
    /// Another client has taken this one's place.
    replaced: Notify,
}

/// Answers requests for `/metrics` until it is cancelled. Prints the page's address first: port 0 stands for a free one.
pub(super) async fn run(
    address: SocketAddr,
    collect: impl AsyncFn() -> anyhow::Result<String>,
    cancellation: &Cancellation,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))?;
    say(format!("http://{}/metrics\n", listener.local_addr()?).as_bytes())?;
    let last = Last::default();
    let mut connections = FuturesUnordered::new();
    let mut clients = Clients::new();
    for number in 0.. {
        let replaceable = clients.iter().find(|(_, client)| !client.waits.get()).map(|(number, _)| *number);
        tokio::select! {
            () = cancellation.cancelled() => return Ok(()),
            accepted = listener.accept(), if clients.len() < CLIENTS_MAX || replaceable.is_some() => match accepted {
                Ok((stream, _)) => {
                    if clients.len() >= CLIENTS_MAX && let Some(oldest) = replaceable.and_then(|oldest| clients.remove(&oldest)) {
                        oldest.replaced.notify_one();
                    }
                    let client = Rc::<Client>::default();
                    clients.insert(number, Rc::clone(&client));
                    let served = serve(stream, &collect, &last, client);
                    connections.push(async move { served.await; number });
                }
                // The client has gone, or there is no file descriptor: the next connection to end gives one back.
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    if connections.next().await.is_none() {
                        drop(timeout(ACCEPT_PAUSE, cancellation.cancelled()).await);
                    }
                }
            },
            Some(ended) = connections.next() => drop(clients.remove(&ended)),
        }
    }
    Ok(())
}

async fn serve(stream: TcpStream, collect: &impl AsyncFn() -> anyhow::Result<String>, last: &Last, client: Rc<Client>) {
    let answer = service_fn(async |request: Request<Incoming>| {
        client.waits.set(true);
        let answer = answer(&request, collect, last).await;
        client.waits.set(false);
        Ok::<_, Infallible>(answer)
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(REQUEST_PATIENCE).keep_alive(false).max_buf_size(8 << 10);
    let served = timeout(CONNECTION_PATIENCE, server.serve_connection(TokioIo::new(stream), answer));
    tokio::select! {
        served = served => match served {
            Ok(Ok(())) => {}
            // Most are clients that went away, or speak another protocol.
            Ok(Err(error)) => tracing::debug!("a client: {error}"),
            Err(_) => tracing::debug!("a client took longer than {CONNECTION_PATIENCE:?}"),
        },
        () = client.replaced.notified() => tracing::debug!("a slow client gives way to another one"),
    }
}

async fn answer(
    request: &Request<Incoming>,
    collect: &impl AsyncFn() -> anyhow::Result<String>,
    last: &Last,
) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return plain(StatusCode::NOT_FOUND, "the page is /metrics\n");
    }
    // hyper sends no body as the answer to HEAD.
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
        response.headers_mut().insert(ALLOW, hyper::header::HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    let mut last = last.lock().await;
    if last.as_ref().is_none_or(|(at, _)| at.elapsed() >= FRESH) {
        let page = collect().await.inspect_err(|error| tracing::warn!("{error:#}"));
        *last = Some((Instant::now(), page.ok().map(Bytes::from)));
    }
    match last.as_ref().and_then(|(_, page)| page.clone()) {
        Some(page) => text(page),
        None => {
            plain(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be collected; stderr of cnitool says why\n")
        }
    }
}

fn text(page: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(page));
    response.headers_mut().insert(CONTENT_TYPE, hyper::header::HeaderValue::from_static(super::page::CONTENT_TYPE));
    response
}

fn plain(status: StatusCode, sentence: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(sentence.as_bytes())));
    *response.status_mut() = status;
    response
}
